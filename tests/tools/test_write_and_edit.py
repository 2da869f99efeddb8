"""Write and Edit change exactly what is meant, keep how a file is written, and refuse what is stale."""

from __future__ import annotations

import os
import time

import pytest

from shoal.tools.edit_tool import edit_tool
from shoal.tools.file_tools import write_tool
from shoal.tools.read_tool import read_tool


async def test_a_new_file_is_written_with_its_directories(tool_bench):
    outcome = await tool_bench.call_tool(write_tool, file_path="a/b/new.txt", content="one\ntwo\n")
    assert outcome.content == f"Created {tool_bench.root}/a/b/new.txt: 2 lines."
    assert outcome.data == {
        "path": f"{tool_bench.root}/a/b/new.txt",
        "added": 2,
        "removed": 0,
        "created": True,
    }
    assert (tool_bench.root / "a/b/new.txt").read_text() == "one\ntwo\n"


@pytest.mark.spec("USR-28")
async def test_an_unread_file_is_not_overwritten_and_the_difference_is_shown(tool_bench):
    path = tool_bench.write_file("f", "theirs\n")
    assert "-theirs\n+mine" in await tool_bench.call_for_failure(write_tool, file_path="f", content="mine\n")
    assert "has not been read" in await tool_bench.call_for_failure(
        edit_tool, file_path="f", old_string="theirs", new_string="mine"
    )
    assert path.read_text() == "theirs\n"


@pytest.mark.spec("USR-28")
async def test_a_file_changed_since_it_was_read_is_neither_written_nor_edited(tool_bench):
    path = tool_bench.write_file("f", "one\ntwo\n")
    await tool_bench.call_for_text(read_tool, file_path="f")
    path.write_text("one\nTWO\n")
    output = await tool_bench.call_for_failure(write_tool, file_path="f", content="mine\n")
    assert "changed since you read it" in output
    assert "-two\n+TWO" in output
    assert "-two\n+TWO" in await tool_bench.call_for_failure(
        edit_tool, file_path="f", old_string="one", new_string="1"
    )
    assert path.read_text() == "one\nTWO\n"
    await tool_bench.call_for_text(read_tool, file_path="f")
    await tool_bench.call_for_text(edit_tool, file_path="f", old_string="one", new_string="1")
    assert path.read_text() == "1\nTWO\n"


async def test_a_write_reports_added_and_removed_lines(tool_bench):
    tool_bench.write_file("f", "a\nb\nc\n")
    await tool_bench.call_for_text(read_tool, file_path="f")
    outcome = await tool_bench.call_tool(write_tool, file_path="f", content="a\nB\nc\nd\n")
    assert outcome.data == {"path": f"{tool_bench.root}/f", "added": 2, "removed": 1, "changed": True}


async def test_a_turn_of_edits_can_be_undone(tool_bench):
    path = tool_bench.write_file("f", "a\n")
    await tool_bench.call_for_text(read_tool, file_path="f")
    tool_bench.workspace.set_checkpoint_turn(3)
    await tool_bench.call_for_text(edit_tool, file_path="f", old_string="a", new_string="b")
    await tool_bench.call_for_text(write_tool, file_path="g", content="new\n")
    tool_bench.checkpoints.undo_from_turn(3)
    assert path.read_text() == "a\n"
    assert not (tool_bench.root / "g").exists()


async def test_an_edit_shows_the_changed_lines_with_their_numbers(tool_bench):
    tool_bench.write_file("f", "".join(f"line {n}\n" for n in range(1, 21)))
    await tool_bench.call_for_text(read_tool, file_path="f")
    outcome = await tool_bench.call_tool(
        edit_tool, file_path="f", old_string="line 10\n", new_string="ten\nand a half\n"
    )
    assert outcome.data == {
        "path": f"{tool_bench.root}/f",
        "added": 2,
        "removed": 1,
        "replaced": 1,
        "changed": True,
    }
    assert str(outcome.content).startswith(f"Changed {tool_bench.root}/f:\n     7\tline 7\n")
    assert "    10\tten\n    11\tand a half\n    12\tline 11" in str(outcome.content)


async def test_a_repeated_text_is_replaced_only_with_replace_all(tool_bench):
    path = tool_bench.write_file("f", "x = 1\ny = 2\nx = 1\n")
    await tool_bench.call_for_text(read_tool, file_path="f")
    output = await tool_bench.call_for_failure(
        edit_tool, file_path="f", old_string="x = 1", new_string="x = 3"
    )
    assert "occurs 2 times" in output
    assert "on lines 1, 3." in output
    outcome = await tool_bench.call_tool(
        edit_tool, file_path="f", old_string="x = 1", new_string="x = 3", replace_all=True
    )
    assert outcome.data is not None
    assert outcome.data["replaced"] == 2
    assert path.read_text() == "x = 3\ny = 2\nx = 3\n"


async def test_a_missing_text_is_reported_with_the_closest_match(tool_bench):
    tool_bench.write_file(
        "f.py", "import os\n\n\ndef total(items):\n    result = sum(items)\n    return result\n"
    )
    await tool_bench.call_for_text(read_tool, file_path="f.py")
    output = await tool_bench.call_for_failure(
        edit_tool, file_path="f.py", old_string="def total(items):\n    result = len(items)\n", new_string="x"
    )
    assert "Nothing was changed" in output
    assert "lines 4 to 5" in output
    assert "-    result = len(items)\n+    result = sum(items)" in output


async def test_a_difference_in_whitespace_only_is_reported(tool_bench):
    tool_bench.write_file("f.py", "def f():\n\treturn 1\n")
    await tool_bench.call_for_text(read_tool, file_path="f.py")
    output = await tool_bench.call_for_failure(
        edit_tool, file_path="f.py", old_string="def f():\n    return 1", new_string="x"
    )
    assert "where only whitespace differs" in output


async def test_line_numbers_copied_from_read_are_reported(tool_bench):
    tool_bench.write_file("f.py", "def f():\n    return 1\n")
    shown = await tool_bench.call_for_text(read_tool, file_path="f.py")
    output = await tool_bench.call_for_failure(edit_tool, file_path="f.py", old_string=shown, new_string="x")
    assert "contains Read's line numbers" in output


async def test_the_absence_of_a_close_match_is_reported(tool_bench):
    tool_bench.write_file("f", "alpha\n")
    await tool_bench.call_for_text(read_tool, file_path="f")
    output = await tool_bench.call_for_failure(
        edit_tool, file_path="f", old_string="zzzz qqqq", new_string="x"
    )
    assert "Nothing in the file is similar" in output


async def test_the_closest_match_in_a_large_file_is_found_in_bounded_time(tool_bench):
    tool_bench.write_file("f", "".join(f"value_{n % 700} = compute({n})\n" for n in range(50_000)))
    await tool_bench.call_for_text(read_tool, file_path="f")
    start = time.process_time()
    await tool_bench.call_for_failure(
        edit_tool, file_path="f", old_string="value_3 = computed(1234567)\n" * 30, new_string=""
    )
    assert time.process_time() - start < 3


async def test_identical_strings_and_an_empty_old_string_are_refused(tool_bench):
    tool_bench.write_file("f", "a\n")
    await tool_bench.call_for_text(read_tool, file_path="f")
    assert "are the same" in await tool_bench.call_for_failure(
        edit_tool, file_path="f", old_string="a", new_string="a"
    )
    assert "is empty" in await tool_bench.call_for_failure(
        edit_tool, file_path="f", old_string="", new_string="b"
    )
    assert "does not exist" in await tool_bench.call_for_failure(
        edit_tool, file_path="no", old_string="a", new_string="b"
    )


async def test_an_empty_old_string_creates_a_file_or_fills_an_empty_one(tool_bench):
    await tool_bench.call_for_text(edit_tool, file_path="new", old_string="", new_string="x\n")
    tool_bench.write_file("empty")
    await tool_bench.call_for_text(read_tool, file_path="empty")
    await tool_bench.call_for_text(edit_tool, file_path="empty", old_string="", new_string="y\n")
    assert (tool_bench.root / "new").read_text() == "x\n"
    assert (tool_bench.root / "empty").read_text() == "y\n"


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
async def test_an_edit_keeps_line_ends_byte_order_mark_encoding_and_final_newline(tool_bench, before, after):
    path = tool_bench.write_file("f", before)
    await tool_bench.call_for_text(read_tool, file_path="f")
    await tool_bench.call_for_text(edit_tool, file_path="f", old_string="a\nb\n", new_string="a\nB\n2\n")
    assert path.read_bytes() == after


async def test_a_write_keeps_line_ends_and_byte_order_mark(tool_bench):
    path = tool_bench.write_file("f", b"\xef\xbb\xbfa\r\nb\r\n")
    await tool_bench.call_for_text(read_tool, file_path="f")
    await tool_bench.call_for_text(write_tool, file_path="f", content="c\nd\n")
    assert path.read_bytes() == b"\xef\xbb\xbfc\r\nd\r\n"


async def test_text_that_the_encoding_cannot_represent_is_refused(tool_bench):
    path = tool_bench.write_file("f", "é\n".encode("latin-1"))
    await tool_bench.call_for_text(read_tool, file_path="f")
    output = await tool_bench.call_for_failure(edit_tool, file_path="f", old_string="é", new_string="日")
    assert "latin-1 and cannot contain '日'" in output
    assert path.read_bytes() == "é\n".encode("latin-1")
    assert "cannot contain" in await tool_bench.call_for_failure(
        write_tool, file_path="g", content="half \ud83d"
    )
    assert not (tool_bench.root / "g").exists()


async def test_a_binary_file_is_not_edited(tool_bench):
    tool_bench.write_file("f", b"\x7fELF\0\0abc")
    await tool_bench.call_tool(read_tool, file_path="f")
    assert "cannot be edited as text" in await tool_bench.call_for_failure(
        edit_tool, file_path="f", old_string="abc", new_string="x"
    )


async def test_names_that_are_not_utf_8_can_be_edited(tool_bench):
    path = tool_bench.write_file(os.fsdecode(b"\xff.txt"), "a\n")
    await tool_bench.call_for_text(read_tool, file_path="\\xff.txt")
    outcome = await tool_bench.call_tool(edit_tool, file_path="\\xff.txt", old_string="a", new_string="b")
    assert path.read_text() == "b\n"
    assert outcome.data is not None
    assert outcome.data["path"] == f"{tool_bench.root}/\\xff.txt"
