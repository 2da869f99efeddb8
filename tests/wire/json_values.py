"""Random JSON from hypothesis: any value, and objects with unknown fields."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st

few_examples = settings(max_examples=30, deadline=None)
"""Enough to meet every kind of value; a busy machine is no failure."""
texts = st.text(max_size=12) | st.sampled_from(["half \ud83d", "\u2028", "\0", '"'])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


def make_unknown_fields(*known: str):
    return st.dictionaries(texts.filter(lambda name: name not in known), values, max_size=4)
