"""Write and Edit change exactly what is meant, keep how a file is written, and refuse what is stale."""

from __future__ import annotations

import os
import time

import pytest

from shoal.tools.edit_tool import edit_tool
from shoal.tools.read_tool import read_tool
from shoal.tools.write_tool import write_tool


async def test_a_new_file_is_written_with_its_directories(bench):
    outcome = await bench.call_tool(write_tool, file_path="a/b/new.txt", content="one\ntwo\n")
    assert outcome.content == f"Created {bench.root}/a/b/new.txt: 2 lines."
    assert outcome.data == {"path": f"{bench.root}/a/b/new.txt", "added": 2, "removed": 0}
    assert (bench.root / "a/b/new.txt").read_text() == "one\ntwo\n"


@pytest.mark.spec("USR-28")
async def test_an_unread_file_is_not_overwritten_and_the_difference_is_shown(bench):
    path = bench.write_file("f", "theirs\n")
    assert "-theirs\n+mine" in await bench.call_for_failure(write_tool, file_path="f", content="mine\n")
    assert "has not been read" in await bench.call_for_failure(
        edit_tool, file_path="f", old_string="theirs", new_string="mine"
    )
    assert path.read_text() == "theirs\n"


@pytest.mark.spec("USR-28")
async def test_a_file_changed_since_it_was_read_is_neither_written_nor_edited(bench):
    path = bench.write_file("f", "one\ntwo\n")
    await bench.call_for_text(read_tool, file_path="f")
    path.write_text("one\nTWO\n")
    told = await bench.call_for_failure(write_tool, file_path="f", content="mine\n")
    assert "changed since it was read" in told
    assert "-two\n+TWO" in told
    assert "-two\n+TWO" in await bench.call_for_failure(
        edit_tool, file_path="f", old_string="one", new_string="1"
    )
    assert path.read_text() == "one\nTWO\n"
    await bench.call_for_text(read_tool, file_path="f")
    await bench.call_for_text(edit_tool, file_path="f", old_string="one", new_string="1")
    assert path.read_text() == "1\nTWO\n"


async def test_a_write_tells_what_it_added_and_removed(bench):
    bench.write_file("f", "a\nb\nc\n")
    await bench.call_for_text(read_tool, file_path="f")
    outcome = await bench.call_tool(write_tool, file_path="f", content="a\nB\nc\nd\n")
    assert outcome.data == {"path": f"{bench.root}/f", "added": 2, "removed": 1}


async def test_a_turn_of_edits_can_be_undone(bench):
    path = bench.write_file("f", "a\n")
    await bench.call_for_text(read_tool, file_path="f")
    bench.workspace.set_checkpoint_turn(3)
    await bench.call_for_text(edit_tool, file_path="f", old_string="a", new_string="b")
    await bench.call_for_text(write_tool, file_path="g", content="new\n")
    bench.checkpoints.undo_turn(3)
    assert path.read_text() == "a\n"
    assert not (bench.root / "g").exists()


async def test_an_edit_shows_the_changed_lines_with_their_numbers(bench):
    bench.write_file("f", "".join(f"line {n}\n" for n in range(1, 21)))
    await bench.call_for_text(read_tool, file_path="f")
    outcome = await bench.call_tool(
        edit_tool, file_path="f", old_string="line 10\n", new_string="ten\nand a half\n"
    )
    assert outcome.data == {"path": f"{bench.root}/f", "added": 2, "removed": 1, "replaced": 1}
    assert str(outcome.content).startswith(f"Changed {bench.root}/f:\n     7\tline 7\n")
    assert "    10\tten\n    11\tand a half\n    12\tline 11" in str(outcome.content)


async def test_a_text_that_occurs_several_times_is_replaced_only_when_all_are_meant(bench):
    path = bench.write_file("f", "x = 1\ny = 2\nx = 1\n")
    await bench.call_for_text(read_tool, file_path="f")
    told = await bench.call_for_failure(edit_tool, file_path="f", old_string="x = 1", new_string="x = 3")
    assert "occurs 2 times" in told
    assert "on lines 1, 3." in told
    outcome = await bench.call_tool(
        edit_tool, file_path="f", old_string="x = 1", new_string="x = 3", replace_all=True
    )
    assert outcome.data is not None
    assert outcome.data["replaced"] == 2
    assert path.read_text() == "x = 3\ny = 2\nx = 3\n"


async def test_a_text_that_is_not_there_is_answered_with_the_closest_place(bench):
    bench.write_file("f.py", "import os\n\n\ndef total(items):\n    result = sum(items)\n    return result\n")
    await bench.call_for_text(read_tool, file_path="f.py")
    told = await bench.call_for_failure(
        edit_tool, file_path="f.py", old_string="def total(items):\n    result = len(items)\n", new_string="x"
    )
    assert "Nothing was changed" in told
    assert "lines 4 to 5" in told
    assert "-    result = len(items)\n+    result = sum(items)" in told


async def test_a_difference_in_white_space_alone_is_reported(bench):
    bench.write_file("f.py", "def f():\n\treturn 1\n")
    await bench.call_for_text(read_tool, file_path="f.py")
    told = await bench.call_for_failure(
        edit_tool, file_path="f.py", old_string="def f():\n    return 1", new_string="x"
    )
    assert "where only white space differs" in told


async def test_line_numbers_taken_over_from_read_are_pointed_out(bench):
    bench.write_file("f.py", "def f():\n    return 1\n")
    shown = await bench.call_for_text(read_tool, file_path="f.py")
    told = await bench.call_for_failure(edit_tool, file_path="f.py", old_string=shown, new_string="x")
    assert "holds the line numbers that Read shows" in told


async def test_the_absence_of_a_close_match_is_reported(bench):
    bench.write_file("f", "alpha\n")
    await bench.call_for_text(read_tool, file_path="f")
    told = await bench.call_for_failure(edit_tool, file_path="f", old_string="zzzz qqqq", new_string="x")
    assert "Nothing in the file is close" in told


async def test_the_closest_place_in_a_large_file_is_found_in_bounded_time(bench):
    bench.write_file("f", "".join(f"value_{n % 700} = compute({n})\n" for n in range(50_000)))
    await bench.call_for_text(read_tool, file_path="f")
    start = time.process_time()
    await bench.call_for_failure(
        edit_tool, file_path="f", old_string="value_3 = computed(1234567)\n" * 30, new_string=""
    )
    assert time.process_time() - start < 3


async def test_identical_strings_and_an_empty_old_string_are_refused(bench):
    bench.write_file("f", "a\n")
    await bench.call_for_text(read_tool, file_path="f")
    assert "are the same" in await bench.call_for_failure(
        edit_tool, file_path="f", old_string="a", new_string="a"
    )
    assert "is empty" in await bench.call_for_failure(edit_tool, file_path="f", old_string="", new_string="b")
    assert "does not exist" in await bench.call_for_failure(
        edit_tool, file_path="no", old_string="a", new_string="b"
    )


async def test_an_empty_old_string_makes_a_new_file_or_fills_an_empty_one(bench):
    await bench.call_for_text(edit_tool, file_path="new", old_string="", new_string="x\n")
    bench.write_file("empty")
    await bench.call_for_text(read_tool, file_path="empty")
    await bench.call_for_text(edit_tool, file_path="empty", old_string="", new_string="y\n")
    assert (bench.root / "new").read_text() == "x\n"
    assert (bench.root / "empty").read_text() == "y\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"a\r\nb\r\nc\r\n", b"a\r\nB\r\n2\r\nc\r\n"),
        (b"a\nb\nc", b"a\nB\n2\nc"),
        (b"\xef\xbb\xbfa\nb\nc\n", b"\xef\xbb\xbfa\nB\n2\nc\n"),
        ("\ufeffa\r\nb\r\nc".encode("utf-16-le"), "\ufeffa\r\nB\r\n2\r\nc".encode("utf-16-le")),
        ("é\na\nb\nc".encode("latin-1"), "é\na\nB\n2\nc".encode("latin-1")),
        (b"x\na\r\nb\r\nc\r\n", b"x\na\r\nB\r\n2\r\nc\r\n"),
    ],
)
async def test_an_edit_keeps_line_ends_marks_encoding_and_the_end_of_the_file(bench, before, after):
    path = bench.write_file("f", before)
    await bench.call_for_text(read_tool, file_path="f")
    await bench.call_for_text(edit_tool, file_path="f", old_string="a\nb\n", new_string="a\nB\n2\n")
    assert path.read_bytes() == after


async def test_a_write_keeps_line_ends_and_marks(bench):
    path = bench.write_file("f", b"\xef\xbb\xbfa\r\nb\r\n")
    await bench.call_for_text(read_tool, file_path="f")
    await bench.call_for_text(write_tool, file_path="f", content="c\nd\n")
    assert path.read_bytes() == b"\xef\xbb\xbfc\r\nd\r\n"


async def test_what_an_encoding_cannot_hold_is_refused(bench):
    path = bench.write_file("f", "é\n".encode("latin-1"))
    await bench.call_for_text(read_tool, file_path="f")
    told = await bench.call_for_failure(edit_tool, file_path="f", old_string="é", new_string="日")
    assert "latin-1 and cannot hold '日'" in told
    assert path.read_bytes() == "é\n".encode("latin-1")
    assert "cannot hold" in await bench.call_for_failure(write_tool, file_path="g", content="half \ud83d")
    assert not (bench.root / "g").exists()


async def test_a_binary_file_is_not_edited(bench):
    bench.write_file("f", b"\x7fELF\0\0abc")
    await bench.call_tool(read_tool, file_path="f")
    assert "cannot be edited as text" in await bench.call_for_failure(
        edit_tool, file_path="f", old_string="abc", new_string="x"
    )


async def test_names_that_are_not_utf_8_can_be_edited(bench):
    path = bench.write_file(os.fsdecode(b"\xff.txt"), "a\n")
    await bench.call_for_text(read_tool, file_path="\\xff.txt")
    outcome = await bench.call_tool(edit_tool, file_path="\\xff.txt", old_string="a", new_string="b")
    assert path.read_text() == "b\n"
    assert outcome.data is not None
    assert outcome.data["path"] == f"{bench.root}/\\xff.txt"
