"""Input prompts in the process of a test: bytes typed at a pty, inputs read, rows shown."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_live.screen_terminal import ShownScreen
from shoal.surfaces.cli.plain.input_prompt import (
    EscapePressed,
    ForeignKeyPressed,
    InputClosed,
    InterruptPressed,
    LineEntered,
    LiveInputPrompt,
    PlainInputPrompt,
    PromptInput,
    PromptWoken,
    ShiftTabPressed,
)
from shoal.surfaces.terminal.prompt_history import read_prompt_history
from shoal.surfaces.terminal.screen import PlainTerminalScreen

WAIT_SECONDS = 30
CTRL_G = b"\x07"


class Keyboard:
    """The keyboard of a terminal that is standard input."""

    def __init__(self) -> None:
        self._leader, follower = os.openpty()
        self.stdin = os.fdopen(follower)

    def type_bytes(self, data: bytes) -> None:
        os.write(self._leader, data)

    def hang_up(self) -> None:
        if self._leader >= 0:
            os.close(self._leader)
        self._leader = -1

    def get_mode(self) -> list[object]:
        return list(termios.tcgetattr(self.stdin.fileno()))


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch) -> Iterator[Keyboard]:
    opened = Keyboard()
    monkeypatch.setattr(sys, "stdin", opened.stdin)
    yield opened
    opened.hang_up()
    opened.stdin.close()


class LivePrompt:
    """A prompt on a screen of 40 columns; Ctrl-B moves agents if `has_agents`."""

    def __init__(self, keyboard: Keyboard, history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TERM", "xterm")
        self.keyboard = keyboard
        self.shown = ShownScreen(41)
        self._monkeypatch = monkeypatch
        self.has_agents = False
        self.completions = ["/cost", "/clear"]
        self.prompt = LiveInputPrompt(
            self.shown.screen, history, lambda: self.completions, lambda: self.has_agents
        )

    def __enter__(self) -> None:
        self._monkeypatch.setattr(sys, "stdout", self.shown.stream)
        self.prompt.open()

    def __exit__(self, *_: object) -> None:
        self.prompt.close()

    async def read_input(self) -> PromptInput:
        async with asyncio.timeout(WAIT_SECONDS):
            return await self.prompt.read_input()

    async def press(self, data: bytes) -> PromptInput:
        self.keyboard.type_bytes(data)
        return await self.read_input()

    async def type_keys(self, data: bytes) -> None:
        """Type keys that give no input; the key after them shows that all were handled."""
        assert await self.press(data + CTRL_G) == ForeignKeyPressed("Ctrl-G")

    @property
    def rows(self) -> list[str]:
        return self.shown.lines


@pytest.fixture
def live(tmp_path: Path, keyboard: Keyboard, monkeypatch: pytest.MonkeyPatch) -> Iterator[LivePrompt]:
    prompt = LivePrompt(keyboard, tmp_path / "history", monkeypatch)
    yield prompt
    prompt.shown.stream.close()


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (b"hi\r", LineEntered("hi")),
        (b"\r", LineEntered("")),
        (b"hi\x03", InterruptPressed("hi")),
        (b"\x03", InterruptPressed("")),
        (b"\x04", InputClosed()),
        (b"\x1b[Z", ShiftTabPressed()),
        (b"\x1b", EscapePressed()),
        (b"\x07", ForeignKeyPressed("Ctrl-G")),
        (b"ab\x1b[D\x04\r", LineEntered("a")),
        (b"/co\t\r", LineEntered("/cost ")),
        (b"/c\t\r", LineEntered("/c")),
        (b"ab\x02c\r", LineEntered("acb")),
        (b"a\x0cb\r", LineEntered("ab")),
        (b"\x1b[200~a\rb\x1b[201~\r", LineEntered("a\nb")),
    ],
)
async def test_keys_give_inputs(live: LivePrompt, keys: bytes, expected: PromptInput) -> None:
    with live:
        assert await live.press(keys) == expected


async def test_the_background_key_moves_the_cursor_only_if_no_agent_was_moved(live: LivePrompt) -> None:
    with live:
        live.has_agents = True
        assert await live.press(b"ab\x02c\r") == LineEntered("abc")


async def test_an_escape_before_other_keys_is_their_prefix(live: LivePrompt) -> None:
    with live:
        await live.type_keys(b"one two")
        assert await live.press(b"\x1b") == EscapePressed()
        assert await live.press(b"\x1bb\x0b\r") == LineEntered("one ")


async def test_signals_and_a_lost_terminal_close_the_input(live: LivePrompt) -> None:
    with live:
        for number, expected in (
            (signal.SIGTERM, InputClosed(143)),
            (signal.SIGHUP, InputClosed(129)),
            (signal.SIGINT, InterruptPressed("")),
        ):
            os.kill(os.getpid(), number)
            assert await live.read_input() == expected
        live.keyboard.hang_up()
        assert await live.read_input() == InputClosed(129)
        live.prompt.wake_reader()
        assert await live.read_input() == PromptWoken()


async def test_a_new_size_redraws_the_prompt(live: LivePrompt) -> None:
    with live:
        await live.type_keys(b"one two three four")
        assert live.rows == ["› one two three four"]
        live.shown.stream.resize(16)
        written = len(live.shown.stream.raw)
        os.kill(os.getpid(), signal.SIGWINCH)
        async with asyncio.timeout(WAIT_SECONDS):
            while len(live.shown.stream.raw) == written:
                await asyncio.sleep(0)
        assert live.rows == ["› one two three", "   four"]


async def test_the_terminal_mode_and_signals_are_restored(live: LivePrompt) -> None:
    before = live.keyboard.get_mode()
    with live:
        assert live.keyboard.get_mode() != before
        assert live.shown.stream.raw.count("\x1b[?2004h") == 1
        await live.type_keys(b"half")
    assert live.keyboard.get_mode() == before
    assert live.shown.stream.raw.endswith("\x1b[?2004l")
    loop = asyncio.get_running_loop()
    assert not loop.remove_reader(live.keyboard.stdin.fileno())
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP, signal.SIGWINCH):
        assert not loop.remove_signal_handler(number), number
    assert live.rows == [""]
    live.prompt.close()
    assert live.shown.stream.raw.count("\x1b[?2004l") == 1


async def test_a_question_sets_the_typed_line_aside(live: LivePrompt) -> None:
    with live:
        await live.type_keys(b"draft")
        live.prompt.begin_question("allow?")
        assert live.rows == ["allow? ›"]
        await live.type_keys(b"ye")
        live.prompt.begin_question("sure?")
        assert live.rows == ["sure? › ye"]
        live.prompt.prepend_to_draft("back")
        assert live.rows == ["sure? › ye"]
        live.prompt.end_question()
        assert live.rows == ["› back", "  draft"]
        live.prompt.end_question()
        assert live.rows == ["› back", "  draft"]
        live.prompt.clear_input_line()
        assert live.rows == ["›"]
        live.prompt.prepend_to_draft("again")
        assert live.rows == ["› again"]
        assert await live.press(b"\r") == LineEntered("again")


async def test_prompts_are_remembered_and_answers_are_not(live: LivePrompt, tmp_path: Path) -> None:
    with live:
        assert await live.press(b"first\r") == LineEntered("first")
        assert await live.press(b"first\r") == LineEntered("first")
        live.prompt.begin_question("allow?")
        assert await live.press(b"y\r") == LineEntered("y")
        live.prompt.end_question()
        assert read_prompt_history(tmp_path / "history") == ["first"]
        assert await live.press(b"\x1b[A!\r") == LineEntered("first!")
        assert read_prompt_history(tmp_path / "history") == ["first", "first!"]


async def test_any_key_closes_the_input_after_its_notice(live: LivePrompt) -> None:
    with live:
        live.prompt.close_on_any_key("It has ended.")
        assert live.rows == ["It has ended. ›"]
        assert await live.press(b"x") == InputClosed()
        os.kill(os.getpid(), signal.SIGTERM)
        assert await live.read_input() == InputClosed(143)
        live.prompt.end_question()
        assert await live.press(b"x\r") == LineEntered("x")


async def test_rows_and_a_label_are_shown_with_the_prompt(live: LivePrompt) -> None:
    drawn: list[int] = []
    is_redrawn = asyncio.Event()

    def list_rows(columns: int) -> list[str]:
        drawn.append(columns)
        if len(drawn) > 3:
            is_redrawn.set()
        return [f"working {min(len(drawn), 3)}"]

    with live:
        live.prompt.set_prompt_label("to ann")
        assert live.rows == ["to ann ›"]
        await live.type_keys(b"ab")
        live.prompt.set_status_rows(list_rows)
        async with asyncio.timeout(WAIT_SECONDS):
            await is_redrawn.wait()
        assert live.rows == ["working 3", "to ann › ab"]
        assert live.shown.cursor == (1, 11)
        assert set(drawn) == {40}
        live.prompt.set_status_rows(None)
        assert live.rows == ["to ann › ab"]
        count = len(drawn)
        await live.type_keys(b"c")
        assert len(drawn) == count
        live.prompt.set_prompt_label("")
        assert live.rows == ["› abc"]
        raw = live.shown.stream.raw
        live.prompt.set_prompt_label("")
        assert live.shown.stream.raw == raw


@pytest.mark.parametrize(
    ("ups", "first", "row"), [(0, 5, 9), (1, 5, 8), (2, 4, 8), (5, 1, 8), (6, 0, 8), (7, 0, 7), (14, 0, 0)]
)
async def test_ten_rows_around_the_cursor_are_shown(live: LivePrompt, ups: int, first: int, row: int) -> None:
    with live:
        lines = [f"{number:02}" for number in range(15)]
        pasted = b"\x1b[200~" + "\n".join(lines).encode() + b"\x1b[201~"
        await live.type_keys(pasted + b"\x1b[A" * ups)
        marks = ["›" if number == 0 else " " for number in range(15)]
        assert live.rows == [f"{mark} {line}" for mark, line in zip(marks, lines, strict=True)][first:][:10]
        assert live.shown.cursor == (row, 4)


@pytest.fixture
def plain(keyboard: Keyboard) -> tuple[PlainInputPrompt, Keyboard, io.StringIO]:
    mode = termios.tcgetattr(keyboard.stdin.fileno())
    mode[3] &= ~termios.ECHO
    termios.tcsetattr(keyboard.stdin.fileno(), termios.TCSANOW, mode)
    stream = io.StringIO()
    return PlainInputPrompt(PlainTerminalScreen(stream)), keyboard, stream


@pytest.mark.parametrize(
    ("typed", "entered"),
    [
        (b"one\n", ["one"]),
        (b"one\ntwo\n", ["one", "two"]),
        (b"one\\\ntwo\nthree\n", ["one\ntwo", "three"]),
        (b"\n", [""]),
        (b"\xff\n", ["\ufffd"]),
    ],
)
async def test_whole_lines_are_read_without_cursor_movement(
    plain: tuple[PlainInputPrompt, Keyboard, io.StringIO], typed: bytes, entered: list[str]
) -> None:
    prompt, keyboard, _ = plain
    prompt.open()
    try:
        keyboard.type_bytes(typed)
        async with asyncio.timeout(WAIT_SECONDS):
            assert [await prompt.read_input() for _ in entered] == [LineEntered(text) for text in entered]
    finally:
        prompt.close()


async def test_a_dropped_line_is_not_continued(
    plain: tuple[PlainInputPrompt, Keyboard, io.StringIO],
) -> None:
    prompt, keyboard, stream = plain
    prompt.open()
    try:
        keyboard.type_bytes(b"one\\\n")
        keyboard.type_bytes(b"two\n")
        async with asyncio.timeout(WAIT_SECONDS):
            assert await prompt.read_input() == LineEntered("one\ntwo")
            keyboard.type_bytes(b"three\\\n")
            prompt.wake_reader()
            assert await prompt.read_input() == PromptWoken()
        prompt.prepend_to_draft("back")
        prompt.begin_question("allow?")
        assert stream.getvalue() == "Not sent: back\nallow?\n"
    finally:
        prompt.close()


async def test_signals_close_the_plain_input_and_are_restored(
    plain: tuple[PlainInputPrompt, Keyboard, io.StringIO],
) -> None:
    prompt, keyboard, stream = plain
    prompt.open()
    for number, expected in (
        (signal.SIGTERM, InputClosed(143)),
        (signal.SIGHUP, InputClosed(129)),
        (signal.SIGINT, InterruptPressed("")),
    ):
        os.kill(os.getpid(), number)
        async with asyncio.timeout(WAIT_SECONDS):
            assert await prompt.read_input() == expected
    stream.write("half")
    prompt.close()
    loop = asyncio.get_running_loop()
    assert not loop.remove_reader(keyboard.stdin.fileno())
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        assert not loop.remove_signal_handler(number)
