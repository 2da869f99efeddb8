"""Names of files as text, and bounded differences."""

from __future__ import annotations

import os
import time
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from shoal.core.differences import difference
from shoal.core.filenames import meant, shown


@given(st.binary(min_size=1).filter(lambda raw: b"\\" not in raw))
def test_every_name_can_be_shown_as_utf_8_and_meant_again(raw: bytes):
    name = os.fsdecode(raw)
    text = shown(name)
    assert text.encode()
    assert "\n" not in text
    assert "\x1b" not in text
    assert meant(text) == name


def test_a_plain_name_is_shown_as_it_is():
    assert shown(Path("/ä/日本 x.txt")) == "/ä/日本 x.txt"


def test_a_difference_has_the_line_numbers_of_the_whole_file():
    old = "\n".join(f"line {n}" for n in range(1, 1001))
    text = difference(old, old.replace("line 500\n", "line five hundred\n"))
    assert text.splitlines()[0] == "@@ -497,7 +497,7 @@"
    assert "-line 500\n+line five hundred" in text


def test_a_difference_of_huge_texts_is_short_and_quick():
    start = time.process_time()
    text = difference("a\n" * 200_000, "b\n" * 200_000)
    long_lines = difference("x" * 5_000_000, "y" * 5_000_000)
    assert len(text) < 200
    assert len(long_lines) < 1000
    assert time.process_time() - start < 2


def test_a_long_difference_says_how_much_is_left_out():
    text = difference("".join(f"{n}\n" for n in range(500)), "".join(f"{n}!\n" for n in range(500)))
    assert len(text.splitlines()) == 61
    assert "941 more lines of difference" in text
