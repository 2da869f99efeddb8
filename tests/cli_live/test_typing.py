"""What a person types: keys, the line they edit, its history and its rows."""

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

from shoal.surfaces.cli.plain.keys import Key, Keys, Pasted, Press, Typed
from shoal.surfaces.cli.plain.line import Line
from shoal.surfaces.cli.plain.prompt import HungUp, PlainPrompt, Woken
from shoal.surfaces.terminal.history import append_history, read_history
from shoal.surfaces.terminal.paint import width
from shoal.surfaces.terminal.screen import PlainScreen


async def test_the_end_of_the_input_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.openpty()
    with os.fdopen(theirs) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        prompt = PlainPrompt(PlainScreen(io.StringIO()))
        prompt.open()
        try:
            os.close(ours)
            assert await prompt.input() == HungUp()
            for _ in range(10):
                await asyncio.sleep(0)
            prompt.wake()
            assert await prompt.input() == Woken()
        finally:
            prompt.close()


def pressed(data: bytes) -> list[Press]:
    return list(Keys().presses(data))


def typed(data: bytes, line: Line | None = None) -> tuple[Line, list[str]]:
    line = Line() if line is None else line
    entered = [text for press in pressed(data) if (text := line.press(press)) is not None]
    return line, entered


def test_keys_are_told_from_text() -> None:
    assert pressed(b"ab\x1b[D\x7f\r") == [Typed("ab"), Key("left"), Key("backspace"), Key("enter")]


@given(st.integers(min_value=1, max_value=40))
def test_a_sequence_cut_at_any_byte_means_the_same(cut: int) -> None:
    data = "é\x1b[1;5Cx\x1b[200~a\r\nb\x1b[201~\x1bOHfin".encode()
    keys = Keys()
    together = [*keys.presses(data[:cut]), *keys.presses(data[cut:])]
    assert _joined(together) == _joined(pressed(data))


def _joined(presses: list[Press]) -> list[Press]:
    out: list[Press] = []
    for press in presses:
        if isinstance(press, Typed) and out and isinstance(out[-1], Typed):
            out[-1] = Typed(out[-1].text + press.text)
        else:
            out.append(press)
    return out


def test_a_paste_of_several_lines_is_entered_only_by_the_enter_after_it() -> None:
    line, entered = typed(b"\x1b[200~one\rtwo\x1b[201~")
    assert (line.text, entered) == ("one\ntwo", [])
    assert typed(b"\r", line)[1] == ["one\ntwo"]


def test_a_paste_brings_no_control_codes() -> None:
    assert pressed(b"\x1b[200~a\x1b[31mb\x03\x1b[201~") == [Pasted("a\x1b[31mb\x03")]
    line, _ = typed(b"\x1b[200~a\x1b[31mb\x03\x1b[201~")
    assert line.text == "ab"


def test_a_backslash_at_the_end_of_a_line_continues_it() -> None:
    _, entered = typed(b"one\\\rtwo\r")
    assert entered == ["one\ntwo"]


def test_a_line_is_edited_in_the_middle() -> None:
    _, entered = typed(b"hello wrld\x1b[D\x1b[D\x1b[Do\x01>\x05!\r")
    assert entered == [">hello world!"]


def test_words_and_ends_are_killed() -> None:
    assert typed(b"one two three\x17\r")[1] == ["one two "]
    assert typed(b"one two\x1b[D\x1b[D\x1b[D\x0b\r")[1] == ["one "]
    assert typed(b"one two\x1b[D\x1b[D\x1b[D\x15\r")[1] == ["two"]


def test_history_is_recalled_and_the_draft_comes_back() -> None:
    line = Line(["first", "second"])
    typed(b"draft\x1b[A\x1b[A", line)
    assert line.text == "first"
    typed(b"\x1b[A\x1b[B\x1b[B", line)
    assert line.text == "draft"


def test_up_moves_within_several_lines_before_it_recalls() -> None:
    line = Line(["old"])
    typed(b"\x1b[200~abc\ndef\x1b[201~\x1b[AX", line)
    assert line.text == "abcX\ndef"


@given(st.text(alphabet="ab 界\né", max_size=80), st.integers(min_value=4, max_value=20))
def test_rows_hold_the_whole_text_and_never_more_than_fits(text: str, columns: int) -> None:
    line = Line()
    line.put(text)
    rows, (row, column) = line.rows("› ", columns)
    assert all(width(each) <= columns for each in rows)
    assert "".join(each[2:] for each in rows) == text.replace("\n", "")
    assert row == len(rows) - 1
    assert column == width(rows[-1])


def test_history_is_kept_for_this_user_alone_and_survives_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "shoal" / "history"
    append_history(path, "one\ntwo")
    with path.open("ab") as file:
        file.write(b'"torn')
    assert read_history(path) == ["one\ntwo"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
