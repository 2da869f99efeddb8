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
from shoal.surfaces.terminal.prompt_history import append_prompt_history, read_prompt_history
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


def test_the_history_file_is_private_and_survives_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "shoal" / "history"
    append_prompt_history(path, "one\ntwo")
    with path.open("ab") as file:
        file.write(b'"torn')
    assert read_prompt_history(path) == ["one\ntwo"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
