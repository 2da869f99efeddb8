"""Escaped filenames and bounded diffs."""

from __future__ import annotations

import os
import time
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from shoal.core.text.filenames import escape_filename, unescape_filename
from shoal.core.text.text_diffs import format_unified_diff


@given(st.binary(min_size=1).filter(lambda raw: b"\\" not in raw))
def test_every_filename_can_be_escaped_as_utf_8_and_unescaped(raw: bytes):
    name = os.fsdecode(raw)
    text = escape_filename(name)
    assert text.encode()
    assert "\n" not in text
    assert "\x1b" not in text
    assert unescape_filename(text) == name


def test_a_plain_filename_is_not_escaped():
    assert escape_filename(Path("/ä/日本 x.txt")) == "/ä/日本 x.txt"


def test_a_diff_has_the_line_numbers_of_the_whole_file():
    old = "\n".join(f"line {n}" for n in range(1, 1001))
    text = format_unified_diff(old, old.replace("line 500\n", "line five hundred\n"))
    assert text.splitlines()[0] == "@@ -497,7 +497,7 @@"
    assert "-line 500\n+line five hundred" in text


def test_a_diff_of_huge_texts_is_short_and_fast():
    start = time.process_time()
    text = format_unified_diff("a\n" * 200_000, "b\n" * 200_000)
    long_lines = format_unified_diff("x" * 5_000_000, "y" * 5_000_000)
    assert len(text) < 200
    assert len(long_lines) < 1000
    assert time.process_time() - start < 2


def test_a_long_diff_says_how_many_lines_are_omitted():
    text = format_unified_diff("".join(f"{n}\n" for n in range(500)), "".join(f"{n}!\n" for n in range(500)))
    assert len(text.splitlines()) == 61
    assert "941 more changed lines" in text
