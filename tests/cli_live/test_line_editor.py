"""Keyboard input: key decoding, the edited line, its history and its rows."""

from __future__ import annotations

import asyncio
import io
import os
import stat
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.surfaces.cli.plain.input_prompt import InputClosed, PlainInputPrompt, PromptWoken
from shoal.surfaces.cli.plain.key_decoder import (
    KeyPress,
    NamedKeyPress,
    PastedText,
    TerminalKeyDecoder,
    TypedText,
)
from shoal.surfaces.cli.plain.line_editor import TerminalLineEditor
from shoal.surfaces.terminal.prompt_history import (
    append_prompt_history,
    prepend_to_draft,
    read_prompt_history,
)
from shoal.surfaces.terminal.screen import PlainTerminalScreen
from shoal.surfaces.terminal.text_styles import measure_text_width


async def test_the_end_of_input_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    leader, follower = os.openpty()
    with os.fdopen(follower) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        prompt = PlainInputPrompt(PlainTerminalScreen(io.StringIO()))
        prompt.open()
        try:
            os.close(leader)
            assert await prompt.read_input() == InputClosed()
            for _ in range(10):
                await asyncio.sleep(0)
            prompt.wake_reader()
            assert await prompt.read_input() == PromptWoken()
        finally:
            prompt.close()


def decode_presses(data: bytes) -> list[KeyPress]:
    return list(TerminalKeyDecoder().decode_key_presses(data))


def type_keys(data: bytes, line: TerminalLineEditor | None = None) -> tuple[TerminalLineEditor, list[str]]:
    line = TerminalLineEditor() if line is None else line
    entered = [text for press in decode_presses(data) if (text := line.handle_key_press(press)) is not None]
    return line, entered


@pytest.mark.spec("CMP-081")
@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("/co", "/cost "),
        ("@agent-re", "@agent-reviewer "),
        ("ask @agent-re", "ask @agent-reviewer "),
        ("ask @agent-", "ask @agent-"),
        ("ask /co", "ask /co"),
        ("", ""),
    ],
)
def test_tab_completes_commands_and_mentions(typed: str, completed: str) -> None:
    line = TerminalLineEditor()
    line.set_text(typed)
    line.complete_text(["/cost", "/memory", "@agent-reviewer", "@agent-painter"])
    assert line.text == completed


def test_keys_are_distinguished_from_text() -> None:
    assert decode_presses(b"ab\x1b[D\x7f\r") == [
        TypedText("ab"),
        NamedKeyPress("left"),
        NamedKeyPress("backspace"),
        NamedKeyPress("enter"),
    ]


@given(st.integers(min_value=1, max_value=40))
def test_a_sequence_cut_at_any_byte_means_the_same(cut: int) -> None:
    data = "é\x1b[1;5Cx\x1b[200~a\r\nb\x1b[201~\x1bOHfin".encode()
    keys = TerminalKeyDecoder()
    together = [*keys.decode_key_presses(data[:cut]), *keys.decode_key_presses(data[cut:])]
    assert join_typed_text(together) == join_typed_text(decode_presses(data))


def join_typed_text(presses: list[KeyPress]) -> list[KeyPress]:
    out: list[KeyPress] = []
    for press in presses:
        if isinstance(press, TypedText) and out and isinstance(out[-1], TypedText):
            out[-1] = TypedText(out[-1].text + press.text)
        else:
            out.append(press)
    return out


def test_a_paste_of_several_lines_is_entered_only_by_the_enter_after_it() -> None:
    line, entered = type_keys(b"\x1b[200~one\rtwo\x1b[201~")
    assert (line.text, entered) == ("one\ntwo", [])
    assert type_keys(b"\r", line)[1] == ["one\ntwo"]


def test_control_codes_are_removed_from_pasted_text() -> None:
    assert decode_presses(b"\x1b[200~a\x1b[31mb\x03\x1b[201~") == [PastedText("a\x1b[31mb\x03")]
    line, _ = type_keys(b"\x1b[200~a\x1b[31mb\x03\x1b[201~")
    assert line.text == "ab"


def test_a_backslash_at_the_end_of_a_line_continues_it() -> None:
    _, entered = type_keys(b"one\\\rtwo\r")
    assert entered == ["one\ntwo"]


def test_a_line_is_edited_in_the_middle() -> None:
    _, entered = type_keys(b"hello wrld\x1b[D\x1b[D\x1b[Do\x01>\x05!\r")
    assert entered == [">hello world!"]


def test_kill_keys_delete_a_word_or_the_rest_of_the_line() -> None:
    assert type_keys(b"one two three\x17\r")[1] == ["one two "]
    assert type_keys(b"one two\x1b[D\x1b[D\x1b[D\x0b\r")[1] == ["one "]
    assert type_keys(b"one two\x1b[D\x1b[D\x1b[D\x15\r")[1] == ["two"]


def put_cursor(marked: str) -> TerminalLineEditor:
    """Return an editor with this text; `|` marks the cursor."""
    before, _, after = marked.partition("|")
    line = TerminalLineEditor()
    line.set_text(before + after)
    line.cursor = len(before)
    return line


def mark_cursor(line: TerminalLineEditor) -> str:
    return f"{line.text[: line.cursor]}|{line.text[line.cursor :]}"


@pytest.mark.parametrize(
    ("before", "key", "after"),
    [
        ("|", "left", "|"),
        ("a|b", "left", "|ab"),
        ("|ab", "left", "|ab"),
        ("ab|", "right", "ab|"),
        ("a|bc", "right", "ab|c"),
        ("one\ntw|o\nthree", "home", "one\n|two\nthree"),
        ("one\n|two\nthree", "home", "one\n|two\nthree"),
        ("on|e\ntwo", "home", "|one\ntwo"),
        ("one\nt|wo\nthree", "end", "one\ntwo|\nthree"),
        ("one\ntwo|\nthree", "end", "one\ntwo|\nthree"),
        ("one\nt|wo", "end", "one\ntwo|"),
        ("one two|", "word-left", "one |two"),
        ("one two  |", "word-left", "one |two  "),
        ("one |two", "word-left", "|one two"),
        ("one\ntw|o", "word-left", "one\n|two"),
        ("one\n|two", "word-left", "|one\ntwo"),
        ("|one", "word-left", "|one"),
        ("|one two", "word-right", "one| two"),
        ("one| two three", "word-right", "one two| three"),
        ("one|  two\nthree", "word-right", "one  two|\nthree"),
        ("one|\ntwo", "word-right", "one\ntwo|"),
        ("one|  ", "word-right", "one  |"),
        ("one|", "word-right", "one|"),
        ("|ab", "backspace", "|ab"),
        ("ab|c", "backspace", "a|c"),
        ("ab|", "delete", "ab|"),
        ("a|bc", "delete", "a|c"),
        ("one\n|two", "backspace", "one|two"),
        ("one|\ntwo", "delete", "one|two"),
        ("one two| three", "kill-word", "one | three"),
        ("one two  |three", "kill-word", "one |three"),
        ("|one", "kill-word", "|one"),
        ("one\ntw|o", "kill-to-start", "one\n|o"),
        ("one\nt|wo\nthree", "kill-to-end", "one\nt|\nthree"),
        ("a|b", "newline", "a\n|b"),
        ("a|b", "unknown-key", "a|b"),
        ("abc\nde|f", "up", "ab|c\ndef"),
        ("a\nbcd|ef", "up", "a|\nbcdef"),
        ("abc\n|def", "up", "|abc\ndef"),
        ("x\nabc\nd|ef", "up", "x\na|bc\ndef"),
        ("x\nabc\n\nd|ef", "up", "x\nabc\n|\ndef"),
        ("a|bc\ndef", "up", "a|bc\ndef"),
        ("ab|c\ndef", "down", "abc\nde|f"),
        ("abcd|ef\ng", "down", "abcdef\ng|"),
        ("abcd|ef\ng\nhi", "down", "abcdef\ng|\nhi"),
        ("x\na|bc\ndef", "down", "x\nabc\nd|ef"),
        ("ab|c\n\nx", "down", "abc\n|\nx"),
        ("abc\nd|ef", "down", "abc\nd|ef"),
    ],
)
def test_every_editing_key_moves_or_deletes_exactly_what_it_names(before: str, key: str, after: str) -> None:
    line = put_cursor(before)
    assert line.handle_key_press(NamedKeyPress(key)) is None
    assert mark_cursor(line) == after


@pytest.mark.parametrize("press", [TypedText("x\x1b[31my"), PastedText("x\x1b[31my")])
def test_text_is_inserted_at_the_cursor(press: KeyPress) -> None:
    line = put_cursor("a|b")
    assert line.handle_key_press(press) is None
    assert mark_cursor(line) == "axy|b"


@pytest.mark.parametrize(
    ("before", "entered", "after"),
    [
        ("one|", "one", "|"),
        ("o|ne", "one", "|"),
        ("one\\|", None, "one\n|"),
        ("on|e\\", "one\\", "|"),
        ("|", "", "|"),
    ],
)
def test_enter_submits_the_text_unless_a_backslash_is_before_the_cursor(
    before: str, entered: str | None, after: str
) -> None:
    line = put_cursor(before)
    assert line.handle_key_press(NamedKeyPress("enter")) == entered
    assert mark_cursor(line) == after


def test_the_history_ends_at_its_first_text_and_at_the_draft() -> None:
    line = TerminalLineEditor(["first", "second"])
    shown = []
    for key in ("down", "up", "up", "up", "down", "down", "down"):
        line.handle_key_press(NamedKeyPress(key))
        shown.append(mark_cursor(line))
    assert shown == ["|", "second|", "first|", "first|", "second|", "|", "|"]


def test_a_submitted_text_ends_the_recall() -> None:
    line = TerminalLineEditor(["first", "second"])
    _, entered = type_keys(b"\x1b[A\x1b[A\r\x1b[A", line)
    assert entered == ["first"]
    assert line.text == "second"


def test_the_history_takes_a_text_once_and_no_blank_one() -> None:
    line = TerminalLineEditor(["old"])
    assert [line.add_to_history(text) for text in ("new", "new", "old", " \n", "")] == [
        True,
        False,
        True,
        False,
        False,
    ]
    assert line.history == ["old", "new", "old"]
    type_keys(b"\x1b[A\x1b[A", line)
    assert line.text == "new"
    line.add_to_history("old")
    type_keys(b"\x1b[A", line)
    assert line.text == "old"


def test_history_is_recalled_and_the_draft_comes_back() -> None:
    line = TerminalLineEditor(["first", "second"])
    type_keys(b"draft\x1b[A\x1b[A", line)
    assert line.text == "first"
    type_keys(b"\x1b[A\x1b[B\x1b[B", line)
    assert line.text == "draft"


def test_the_up_key_moves_between_lines_before_it_recalls_history() -> None:
    line = TerminalLineEditor(["old"])
    type_keys(b"\x1b[200~abc\ndef\x1b[201~\x1b[AX", line)
    assert line.text == "abcX\ndef"


@given(st.text(alphabet="ab 界\né", max_size=80), st.integers(min_value=4, max_value=20))
def test_rows_hold_the_whole_text_and_never_more_than_fits(text: str, columns: int) -> None:
    line = TerminalLineEditor()
    line.set_text(text)
    rows, (row, column) = line.lay_out_rows("› ", columns)
    assert all(measure_text_width(each) <= columns for each in rows)
    assert "".join(each[2:] for each in rows) == text.replace("\n", "")
    assert row == len(rows) - 1
    assert column == measure_text_width(rows[-1])


@pytest.mark.parametrize(
    ("marked", "columns", "rows", "cursor"),
    [
        ("|", 10, ["> "], (0, 2)),
        ("ab|cd", 10, ["> abcd"], (0, 4)),
        ("|abcdefgh", 10, ["> abcdefgh"], (0, 2)),
        ("abcdefgh|", 10, ["> abcdefgh"], (0, 10)),
        ("abcdefgh|i", 10, ["> abcdefgh", "  i"], (1, 2)),
        ("abcdefghi|", 10, ["> abcdefgh", "  i"], (1, 3)),
        ("a|\nb", 10, ["> a", "  b"], (0, 3)),
        ("a\n|b", 10, ["> a", "  b"], (1, 2)),
        ("a\n|\nb", 10, ["> a", "  ", "  b"], (1, 2)),
        ("a\n\n|b", 10, ["> a", "  ", "  b"], (2, 2)),
        ("界|界", 5, ["> 界", "  界"], (1, 2)),
        ("ab|c", 2, ["> a", "  b", "  c"], (2, 2)),
    ],
)
def test_the_cursor_is_in_the_row_of_the_next_character(
    marked: str, columns: int, rows: list[str], cursor: tuple[int, int]
) -> None:
    assert put_cursor(marked).lay_out_rows("> ", columns) == (rows, cursor)


@pytest.mark.parametrize("data", [b"a\x00b", b"a\x1fb", b"a\x1b[99~b", b"a\x1bqb", b"a\x1bOzb"])
def test_unknown_keys_do_nothing(data: bytes) -> None:
    assert decode_presses(data) == [TypedText("a"), TypedText("b")]


def test_an_escape_is_a_key_only_if_nothing_follows() -> None:
    keys = TerminalKeyDecoder()
    assert not keys.has_pending_escape
    assert list(keys.flush_escape()) == []
    assert list(keys.decode_key_presses(b"a\x1b")) == [TypedText("a")]
    assert keys.has_pending_escape
    assert list(keys.flush_escape()) == [NamedKeyPress("escape")]
    assert not keys.has_pending_escape
    assert list(keys.decode_key_presses(b"\x1b")) == []
    assert list(keys.decode_key_presses(b"[")) == []
    assert not keys.has_pending_escape
    assert list(keys.flush_escape()) == []
    assert list(keys.decode_key_presses(b"Ax")) == [NamedKeyPress("up"), TypedText("x")]


def test_the_history_file_is_private_and_survives_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "shoal" / "history"
    append_prompt_history(path, "one\ntwo")
    with path.open("ab") as file:
        file.write(b'"torn')
    assert read_prompt_history(path) == ["one\ntwo"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_only_the_last_thousand_prompts_are_read(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_text("".join(f'"{number}"\n' for number in range(1_002)))
    texts = read_prompt_history(path)
    assert (len(texts), texts[0], texts[-1]) == (1_000, "2", "1001")


@pytest.mark.parametrize(("draft", "together"), [("", "back"), ("typed", "back\ntyped")])
def test_a_text_put_back_keeps_the_draft(draft: str, together: str) -> None:
    assert prepend_to_draft("back", draft) == together
