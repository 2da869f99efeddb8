"""A person is called when a question waits: by the bell of the terminal, on the desktop, or as they wish."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import termios
from pathlib import Path

import pytest

from cast import Part, agent, cast, use
from shoal.app.session.notifying import show, to_terminal, words
from shoal.core.ids import LEAD, AgentId
from shoal.core.questions import ApprovePlan, Choice, Choose, MayRun
from shoal.stores.files.watch import DirectoryWatch
from troupe import opened


def stand_in(directory: Path) -> Path:
    """A program of the desktop, which keeps what it is told."""
    directory.mkdir()
    told = directory / "told"
    program = directory / "notify-send"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {told}.part; mv {told}.part {told}\n')
    program.chmod(0o755)
    return told


TOUCH = use("Bash", command="touch 'a file'; echo \x1b[31m")


async def asked(tmp_path: Path, settings: dict[str, object], told: Path | None = None, **parts: Part) -> None:
    """A session whose one call needs a permission, up to the question, and until it is told."""
    project = tmp_path / "project"
    project.mkdir()
    model = cast(**{"lead": [TOUCH, "done"], **parts})
    raw = json.dumps({"shoal": settings})
    async with opened(project, model, settings=raw, skip_permissions=False, attended=True) as session:
        turn = session.run("lead, go")
        async for _ in session.parts.desk.incoming():
            break
        if told is not None:
            changed = asyncio.Event()
            watch = DirectoryWatch(told.parent, changed.set)
            async with asyncio.timeout(20):
                while not told.exists():
                    await changed.wait()
                    changed.clear()
            watch.close()
        await turn.aclose()


@pytest.mark.spec("USR-05")
async def test_a_question_is_shown_on_the_desktop_with_who_asks_what(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = stand_in(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{told.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("DISPLAY", ":7")
    await asked(tmp_path, {"notify": "desktop"}, told)
    said = told.read_text().splitlines()
    assert said[-2:] == ["Shoal", "The lead asks to run Bash: touch 'a file'; echo"]
    assert "\x1b" not in told.read_text()


@pytest.mark.spec("USR-05")
async def test_an_agent_that_asks_is_named_by_what_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = stand_in(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{told.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("DISPLAY", ":7")
    await asked(tmp_path, {"notify": "desktop"}, told, lead=[agent("Dig here"), "so"], Dig=[TOUCH, "dug"])
    said = told.read_text().splitlines()[-1]
    assert said == "general-purpose (Dig here) asks to run Bash: touch 'a file'; echo"


async def test_nobody_is_called_who_does_not_want_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = stand_in(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{told.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("DISPLAY", ":7")
    await asked(tmp_path, {"notify": "off"})
    assert not told.exists()


def test_without_a_desktop_the_terminal_is_asked_to_show_it() -> None:
    written: list[str] = []
    show("Shoal", "bob; asks", {"PATH": "/nowhere"}, write=written.append)
    show("Shoal", "bob asks", {"PATH": "/nowhere", "TMUX": "/tmp/x,1,0"}, write=written.append)
    assert written[0] == "\x1b]777;notify;Shoal;bob, asks\x07"
    assert written[1].startswith("\x1bPtmux;\x1b\x1b]777;")


@pytest.mark.spec("USR-05")
def test_the_bell_of_the_terminal_rings_for_a_question(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    child, terminal = pty.fork()
    if child == 0:
        try:
            asyncio.run(asked(tmp_path / "project", {}))
        finally:
            os._exit(0)
    heard = b""
    while b"\a" not in heard:
        try:
            heard += os.read(terminal, 1024) or b"\a(end)"
        except OSError:
            break
    os.waitpid(child, 0)
    os.close(terminal)
    assert b"\a" in heard
    assert b"(end)" not in heard


def test_a_terminal_that_a_person_has_halted_holds_nobody_up() -> None:
    child, terminal = pty.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(5)
        termios.tcflow(0, termios.TCOOFF)  # as Ctrl-S does
        to_terminal("\a")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    os.close(terminal)


def test_what_is_asked_is_one_line_and_never_too_long() -> None:
    may = MayRun(
        id="q", agent=AgentId("ann@crew"), tool_use_id="t", tool="Bash", input={"c": "x\n" * 500}, reason=""
    )
    assert words(may, "ann").startswith("ann asks to run Bash: x x")
    assert len(words(may, "ann")) == 200
    plan = ApprovePlan(id="q", agent=LEAD, plan="p", path="/p", digest="d")
    assert words(plan, "The lead") == "The lead has a plan for you to approve"
    choice = Choose(id="q", agent=LEAD, choices=(Choice(question="Red?", header="h", options=()),))
    assert words(choice, "The lead") == "The lead has a question: Red?"
