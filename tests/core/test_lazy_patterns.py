"""Patterns that are compiled at their first use behave like compiled ones."""

from __future__ import annotations

import re

import pytest

from shoal.core.text.lazy_patterns import compile_on_first_use


def test_a_lazy_pattern_has_the_methods_of_a_compiled_one() -> None:
    lazy, compiled = (
        make(r"(?P<word>[a-z]+)-(\d)", re.IGNORECASE) for make in (compile_on_first_use, re.compile)
    )
    for text in ("AB-1 c-2", "none", ""):
        assert [match.groups() for match in lazy.finditer(text)] == [
            match.groups() for match in compiled.finditer(text)
        ]
        assert lazy.sub("x", text) == compiled.sub("x", text)
        assert (lazy.search(text) is None) == (compiled.search(text) is None)
    assert lazy.groupindex == compiled.groupindex
    assert compile_on_first_use(rb"\d").findall(b"a1b2") == [b"1", b"2"]


def test_an_invalid_pattern_fails_at_its_first_use() -> None:
    broken = compile_on_first_use("(")
    with pytest.raises(re.error):
        broken.search("x")
