"""The full-screen terminal in a real one: what a person types and sees in tmux."""

from __future__ import annotations

import itertools
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from cli_live.conftest import TALKER
from cli_live.terminal import environment
from tmux_rig import TmuxServer

pytestmark = [pytest.mark.needs("tmux"), pytest.mark.spec("USR-18", "USR-26")]
PANE = "person:0.0"


def bash(command: str) -> dict[str, Any]:
    return {"name": "Bash", "input": {"command": command}}


class Person:
    """Starts the program in a pane of 80 columns and 24 rows."""

    def __init__(self, tmux: TmuxServer, root: Path, *steps: dict[str, Any], **env: str) -> None:
        self.tmux = tmux
        self.project = root / "project"
        self.project.mkdir()
        (root / "home").mkdir()
        script = root / "script.json"
        script.write_text(json.dumps(steps))
        given = environment(root / "home", SHOAL_PLAIN="0", **env)
        words = ["env", "-i", *(f"{name}={value}" for name, value in given.items())]
        words += [sys.executable, str(TALKER), str(script), "default", "0.02", ""]
        whole = f"stty -g; {shlex.join(words)}; echo status=$?; stty -g; cat"
        tmux("new-session", "-d", "-s", "person", "-c", str(self.project), "-x", "80", "-y", "24", whole)

    def press(self, *keys: str) -> None:
        self.tmux("send-keys", "-t", PANE, *keys)

    def type(self, text: str) -> None:
        self.tmux("send-keys", "-t", PANE, "-l", text)

    async def sees(self, *words: str) -> None:
        for each in words:
            await self.tmux.shows(PANE, each)

    @property
    def on_other_screen(self) -> bool:
        return self.tmux("display-message", "-p", "-t", PANE, "#{alternate_on}") == "1"


async def test_a_person_talks_answers_and_leaves_and_the_terminal_is_as_before(
    tmux: TmuxServer, tmp_path: Path
) -> None:
    steps: list[dict[str, Any]] = [
        {"text": "one two three " * 30 + "the **end**"},
        {"tools": [bash("touch made")]},
        {"text": "made it"},
        {"text": "on and on " * 2_000},
    ]
    person = Person(tmux, tmp_path, *steps)
    await person.sees("/help lists the commands")
    assert person.on_other_screen

    person.type("count")
    await person.sees("│ count")
    person.press("Enter")
    await person.sees("› count", "one two three", "the end")

    person.type("make it")
    person.press("Enter")
    await person.sees("lead wants to run Bash", "y  Allow it once")
    # It takes no key before the person has seen it; when that is, only the program knows.
    looks = itertools.count(1)
    made = person.project / "made"
    await tmux.until(lambda: (next(looks) % 60 == 0 and person.press("y")) or made.exists(), "the answer")
    await person.sees("made it")

    person.press("BTab")
    await person.sees(" accepts edits")

    person.press("C-u")
    person.type("go on")
    person.press("Enter")
    await person.sees("on and on")
    person.press("Escape")
    await person.sees("interrupted")

    person.press("C-d")
    await person.sees("Go on with: shoal --resume", "status=0")
    assert not person.on_other_screen
    before, after = (line for line in tmux.screen(PANE).splitlines() if line.count(":") > 20)
    assert after == before, "the terminal's own settings"


async def test_a_new_session_begins_and_an_old_one_is_gone_on_with(tmux: TmuxServer, tmp_path: Path) -> None:
    person = Person(tmux, tmp_path, {"text": "first answer"}, {"text": "second answer"})
    await person.sees("/help lists the commands")
    person.type("remember me")
    person.press("Enter")
    await person.sees("first answer")
    session = next((tmp_path / "home" / "projects").glob("*/*.jsonl")).stem

    person.type("/clear")
    person.press("Enter")
    await tmux.until(lambda: " tokens " not in tmux.screen(PANE), "a session in which nothing was said")
    await person.sees("/help lists the commands")

    person.type(f"/resume {session[:8]}")
    person.press("Enter")
    await person.sees(" tokens ", "› remember me", "first answer")
    person.type("and again")

    def answered() -> bool:
        screen = tmux.screen(PANE)
        if "│ and again" in screen:
            # What is entered while a session is still coming up may be put back into the line.
            person.press("Enter")
        return "second answer" in screen

    await tmux.until(answered, "second answer")
    person.press("C-d")
    await person.sees(f"shoal --resume {session}", "status=0")


async def test_without_colours_there_are_none(tmux: TmuxServer, tmp_path: Path) -> None:
    person = Person(tmux, tmp_path, {"text": "an answer with `code`"}, NO_COLOR="1")
    await person.sees("/help lists the commands")
    person.type("say")
    person.press("Enter")
    await person.sees("an answer with code")
    painted = tmux("capture-pane", "-p", "-e", "-t", PANE)
    assert _hues(painted) == set()
    person.press("C-d")
    await person.sees("status=0")


def _hues(painted: str) -> set[str]:
    """Colours in a screen that are no grey."""
    import re

    found = set()
    for kind, number in re.findall(r"\x1b\[(?:[\d;]*;)?([34]8;5);(\d+)", painted):
        grey = int(number) in (0, 7, 8, 15, 16, 59, 102, 145, 188, 231) or 232 <= int(number) <= 255
        found |= set() if grey else {f"{kind};{number}"}
    for kind, *parts in re.findall(r"\x1b\[(?:[\d;]*;)?([34]8;2);(\d+);(\d+);(\d+)", painted):
        found |= {f"{kind};{parts}"} if len(set(parts)) > 1 else set()
    return found


async def test_alt_enter_makes_a_line_and_the_doctor_is_at_hand(tmux: TmuxServer, tmp_path: Path) -> None:
    person = Person(tmux, tmp_path, {"text": "heard it"})
    await person.sees("/help lists the commands")
    person.type("one")
    await person.sees("│ one")
    person.press("M-Enter")
    person.type("two")
    await person.sees("│ two")
    person.press("Enter")
    await person.sees("› one", "heard it")

    person.type("/doctor")
    person.press("Enter")
    await person.sees("encoding")
