"""The full screen in a real terminal, driven through tmux."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from cli_live.conftest import TERMINAL_PROGRAM
from cli_live.pty_terminal import build_environment
from cli_live.terminal_helpers import make_bash_call
from tmux_server import TmuxServer

pytestmark = [pytest.mark.needs("tmux"), pytest.mark.spec("USR-18", "USR-26")]
PANE = "person:0.0"


class TmuxTerminal:
    """Starts the program in a pane of 80 columns and 24 rows."""

    def __init__(self, tmux: TmuxServer, root: Path, *steps: dict[str, Any], **env: str) -> None:
        self.tmux = tmux
        self.project = root / "project"
        self.project.mkdir()
        (root / "home").mkdir()
        script = root / "script.json"
        script.write_text(json.dumps(steps))
        environment = build_environment(root / "home", SHOAL_PLAIN="0", **env)
        command = ["env", "-i", *(f"{name}={value}" for name, value in environment.items())]
        command += [sys.executable, str(TERMINAL_PROGRAM), str(script), "default", "0.02", ""]
        shell_line = f"stty -g; {shlex.join(command)}; status=$?; stty -g; echo status=$status; cat"
        tmux("new-session", "-d", "-s", "person", "-c", str(self.project), "-x", "80", "-y", "24", shell_line)

    def press_keys(self, *keys: str) -> None:
        self.tmux("send-keys", "-t", PANE, *keys)

    def type_text(self, text: str) -> None:
        self.tmux("send-keys", "-t", PANE, "-l", text)

    async def wait_for_text(self, *texts: str) -> None:
        for text in texts:
            await self.tmux.wait_for_text(PANE, text)

    @property
    def is_full_screen(self) -> bool:
        return self.tmux("display-message", "-p", "-t", PANE, "#{alternate_on}") == "1"


@pytest.mark.slow
async def test_a_whole_session_works_and_restores_the_terminal(tmux: TmuxServer, tmp_path: Path) -> None:
    steps: list[dict[str, Any]] = [
        {"text": "one two three " * 30 + "the **end**"},
        {"tools": [make_bash_call("touch made")]},
        {"text": "made it"},
        {"text": "on and on " * 2_000},
    ]
    terminal = TmuxTerminal(tmux, tmp_path, *steps)
    await terminal.wait_for_text("/help lists the commands")
    assert terminal.is_full_screen

    terminal.type_text("count")
    await terminal.wait_for_text("│ count")
    terminal.press_keys("Enter")
    await terminal.wait_for_text("› count", "one two three", "the end")

    terminal.type_text("make it")
    terminal.press_keys("Enter")
    await terminal.wait_for_text("lead wants to run Bash", "y  Allow it once")
    # The question ignores keys at first, and only the program knows for how long: press again.
    polls = itertools.count(1)
    made = terminal.project / "made"
    await tmux.wait_until(
        lambda: (next(polls) % 60 == 0 and terminal.press_keys("y")) or made.exists(), "the answer"
    )
    await terminal.wait_for_text("made it")

    terminal.press_keys("BTab")
    await terminal.wait_for_text(" accepts edits")

    terminal.press_keys("C-u")
    terminal.type_text("go on")
    terminal.press_keys("Enter")
    await terminal.wait_for_text("on and on")
    terminal.press_keys("Escape")
    await terminal.wait_for_text("interrupted")

    terminal.press_keys("C-d")
    await terminal.wait_for_text("Resume it:  shoal --resume", "status=0")
    assert not terminal.is_full_screen
    before, after = (line for line in tmux.capture_pane(PANE).splitlines() if line.count(":") > 20)
    assert after == before, "the terminal's own settings"


@pytest.mark.slow
async def test_clear_starts_a_new_session_and_resume_returns_to_an_old_one(
    tmux: TmuxServer, tmp_path: Path
) -> None:
    terminal = TmuxTerminal(tmux, tmp_path, {"text": "first answer"}, {"text": "second answer"})
    await terminal.wait_for_text("/help lists the commands")
    terminal.type_text("remember me")
    terminal.press_keys("Enter")
    await terminal.wait_for_text("first answer")
    session = next((tmp_path / "home" / "projects").glob("*/*.jsonl")).stem

    terminal.type_text("/clear")
    terminal.press_keys("Enter")
    await tmux.wait_until(
        lambda: " tokens " not in tmux.capture_pane(PANE), "a session in which nothing was said"
    )
    await terminal.wait_for_text("/help lists the commands")

    terminal.type_text(f"/resume {session[:8]}")
    terminal.press_keys("Enter")
    await terminal.wait_for_text(" tokens ", "› remember me", "first answer")
    terminal.type_text("and again")

    def enter_until_answered() -> bool:
        screen = tmux.capture_pane(PANE)
        if "│ and again" in screen:
            # A line that is entered while a session starts may be put back into the composer.
            terminal.press_keys("Enter")
        return "second answer" in screen

    await tmux.wait_until(enter_until_answered, "second answer")
    terminal.press_keys("C-d")
    await terminal.wait_for_text(f"shoal --resume {session}", "status=0")


@pytest.mark.spec("CMP-103")
async def test_the_letter_of_an_alt_shortcut_is_not_typed(tmux: TmuxServer, tmp_path: Path) -> None:
    terminal = TmuxTerminal(tmux, tmp_path, {"text": "heard"})
    await terminal.wait_for_text("/help lists the commands")
    terminal.type_text("hello")
    await terminal.wait_for_text("│ hello ")
    terminal.press_keys("M-t")
    await terminal.wait_for_text("Shoal does not switch thinking on or off.")
    terminal.press_keys("M-x")
    terminal.type_text("!")
    await terminal.wait_for_text("│ hello! ")


async def test_no_color_turns_off_all_colours(tmux: TmuxServer, tmp_path: Path) -> None:
    terminal = TmuxTerminal(tmux, tmp_path, {"text": "an answer with `code`"}, NO_COLOR="1")
    await terminal.wait_for_text("/help lists the commands")
    terminal.type_text("say")
    terminal.press_keys("Enter")
    await terminal.wait_for_text("an answer with code")
    painted = tmux("capture-pane", "-p", "-e", "-t", PANE)
    assert find_colours(painted) == set()
    terminal.press_keys("C-d")
    await terminal.wait_for_text("status=0")


def find_colours(painted: str) -> set[str]:
    """Return the colours of a captured pane, without greys."""
    found = set()
    for kind, number in re.findall(r"\x1b\[(?:[\d;]*;)?([34]8;5);(\d+)", painted):
        grey = int(number) in (0, 7, 8, 15, 16, 59, 102, 145, 188, 231) or 232 <= int(number) <= 255
        found |= set() if grey else {f"{kind};{number}"}
    for kind, *parts in re.findall(r"\x1b\[(?:[\d;]*;)?([34]8;2);(\d+);(\d+);(\d+)", painted):
        found |= {f"{kind};{parts}"} if len(set(parts)) > 1 else set()
    return found


async def test_alt_enter_inserts_a_newline_and_doctor_is_a_command(tmux: TmuxServer, tmp_path: Path) -> None:
    terminal = TmuxTerminal(tmux, tmp_path, {"text": "heard it"})
    await terminal.wait_for_text("/help lists the commands")
    terminal.type_text("one")
    await terminal.wait_for_text("│ one")
    terminal.press_keys("M-Enter")
    terminal.type_text("two")
    await terminal.wait_for_text("│ two")
    terminal.press_keys("Enter")
    await terminal.wait_for_text("› one", "heard it")

    terminal.type_text("/doctor")
    terminal.press_keys("Enter")
    await terminal.wait_for_text("encoding")
