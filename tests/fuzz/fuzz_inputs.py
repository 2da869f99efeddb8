"""Fuzz inputs: any bytes, any JSON, deep nesting, and valid documents with faults in them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from .seed_documents import TOKENS

IS_LONG_RUN = os.environ.get("HYPOTHESIS_PROFILE") == "long"
_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


def limit_examples(count: int) -> settings:
    """Limit the examples to this number, to two hundred times as many in a long run, or to a share of it.

    The share is that of the examples of other tests in a quick run.
    """
    share = settings().max_examples / settings.get_profile("steady").max_examples
    limit = count * 200 if IS_LONG_RUN else max(5, round(count * share))
    return settings(max_examples=limit, suppress_health_check=_SLOW)


HOSTILE_VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1.5, 1e300, float("inf"), float("nan"), 2**63, 2**64, 10**30, -(2**70), 10**400),
    *(
        "",
        " ",
        "\0",
        "\ud83d",
        "\u2028",
        "é",
        "²",
        "0001-01-01T00:00:00",
        "9999-12-31T23:59:59+00:00",
        "../x",
    ),
    *("[", "(?P<x", "(" * 200, "a" * 300, "$x", "${x}", "{", "true", "~", "-0", "1e999"),
    *([], [[]], [None], {}, {"": {}}, {"type": []}, {"\ud800": 1}, [{}], {"a": {"b": {"c": []}}}),
)
_scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
values = st.recursive(
    st.sampled_from(HOSTILE_VALUES) | _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


def _encode_json(value: Any) -> bytes:
    return json.dumps(value).encode()


@st.composite
def _deep_documents(draw: st.DrawFn) -> bytes:
    opening, closing = draw(
        st.sampled_from([(b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]"), (b"{a: ", b"}"), (b"- ", b"")])
    )
    count = draw(st.sampled_from([50, 500, 1_200, 20_000]))
    inside = draw(st.sampled_from([b"1", b"", b"\xff", b'"\\ud800"', b"1e999"]))
    shut = count if draw(st.booleans()) else draw(st.integers(0, 3))
    before, after = draw(
        st.sampled_from([(b"", b""), (b'{"a":', b"}"), (b"---\na: ", b"\n---\n"), (b"a = ", b"")])
    )
    return before + opening * count + inside + closing * shut + after


def _list_places(value: Any) -> list[tuple[Any, Any]]:
    """List every container in a value with each of its keys."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict | list):
            keys: Sequence[Any] = list(each) if isinstance(each, dict) else range(len(each))
            found.extend((each, key) for key in keys)
            waiting.extend(each[key] for key in keys)
    return found


@st.composite
def _altered_json(draw: st.DrawFn, documents: tuple[bytes, ...]) -> bytes:
    """Alter a document: values exchanged, dropped, or under another name."""
    document = [json.loads(draw(st.sampled_from(documents)))]
    for _ in range(draw(st.integers(1, 3))):
        container, key = draw(st.sampled_from(_list_places(document)))
        act = draw(st.integers(0, 5))
        if act == 0 and container is not document:
            container.pop(key)
        elif act == 1 and isinstance(container, dict):
            container[draw(st.sampled_from(["", "\ud800", "type", "odd", "name", "id"]))] = container.pop(key)
        elif act == 2:
            container[key] = [container[key]]
        else:
            container[key] = deepcopy(draw(values))
    return _encode_json(document[0])


@st.composite
def altered_documents(draw: st.DrawFn, documents: Sequence[bytes]) -> bytes:
    """Alter a document: pieces lost, doubled, exchanged, or inserted."""
    data = draw(st.sampled_from(documents))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.sampled_from([0, 0, 1, 3, 20, 10_000])))
        token = draw(st.sampled_from(TOKENS) | st.binary(max_size=4))
        piece = data[start:end]
        put = draw(st.sampled_from([token, token, piece * 2, piece + token + piece, b""]))
        data = data[:start] + put + data[end:]
    return data


def _is_json(data: bytes) -> bool:
    try:
        return isinstance(json.loads(data), dict | list)
    except ValueError:
        return False


@st.composite
def _altered_events(draw: st.DrawFn, streams: tuple[tuple[bytes, ...], ...]) -> bytes:
    """Alter a stream: some of its events altered, dropped, or out of order."""
    events = list(draw(st.sampled_from(streams)))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(events) - 1))
        act = draw(st.integers(0, 5))
        if act == 0:
            events.insert(draw(st.integers(0, len(events))), events[at])
        elif act == 1 and len(events) > 1:
            del events[at]
        elif _is_json(events[at]):
            events[at] = draw(_altered_json((events[at],)))
    return b"".join(b"data: %b\n\n" % event for event in events)


def _split_events(document: bytes) -> tuple[bytes, ...]:
    return tuple(line[6:] for line in document.split(b"\n") if line.startswith(b"data: "))


def inputs_for_documents(documents: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """Generate all inputs for readers of such documents."""
    kinds = [
        st.binary(max_size=60),
        st.text(max_size=60).map(str.encode),
        _deep_documents(),
        values.map(_encode_json),
    ]
    if documents:
        kinds += [altered_documents(documents)] * 3
    if parsed := tuple(filter(_is_json, documents)):
        kinds += [_altered_json(parsed)] * 4
    if streams := tuple(filter(None, map(_split_events, documents))):
        kinds += [_altered_events(streams)] * 6
    return st.one_of(kinds)
