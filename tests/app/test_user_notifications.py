"""Users are notified of a waiting question by terminal bell, on the desktop or as configured."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import termios
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent_scripts import AgentScript, call_tool, script_agents, spawn_agent
from shoal.app.session import person_notifier
from shoal.app.session.person_notifier import (
    format_question_notification,
    show_notification,
    write_to_terminal,
)
from shoal.core.ids import LEAD_ID, AgentId
from shoal.core.permissions.questions import (
    ChoiceQuestion,
    MultipleChoice,
    PermissionQuestion,
    PlanApprovalQuestion,
)
from shoal.stores.files.access.file_watch import DirectoryWatch
from team_scripts import open_session


def install_notify_program(directory: Path) -> Path:
    """Install a notify-send that writes its arguments to a file; return that file.

    The program of macOS is there, too, and is for another system.
    """
    directory.mkdir()
    (directory / "osascript").symlink_to("/bin/false")
    notification = directory / "told"
    program = directory / "notify-send"
    program.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" > {notification}.part; mv {notification}.part {notification}\n'
    )
    program.chmod(0o755)
    return notification


TOUCH = call_tool("Bash", command="touch 'a file'; echo \x1b[31m")


async def run_until_question(
    tmp_path: Path, settings: dict[str, object], notification: Path | None = None, **parts: AgentScript
) -> None:
    """Run a session until its permission question is open and, if given, the notification file exists."""
    project = tmp_path / "project"
    project.mkdir()
    model = script_agents(**{"lead": [TOUCH, "done"], **parts})
    raw = json.dumps({"shoal": settings})
    async with open_session(project, model, settings=raw, skip_permissions=False, attended=True) as session:
        turn = session.run("lead, go")
        async for _ in session.runtime.question_broker.watch_questions():
            break
        if notification is not None:
            changed = asyncio.Event()
            watch = DirectoryWatch(notification.parent, changed.set)
            async with asyncio.timeout(20):
                while not notification.exists():
                    await changed.wait()
                    changed.clear()
            watch.close()
        await turn.aclose()


@pytest.mark.spec("USR-05")
async def test_a_desktop_notification_shows_who_asks_and_the_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notification = install_notify_program(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{notification.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("DISPLAY", ":7")
    await run_until_question(tmp_path, {"notify": "desktop"}, notification)
    lines = notification.read_text().splitlines()
    assert lines[-2:] == ["Shoal", "The lead asks to run Bash: touch 'a file'; echo"]
    assert "\x1b" not in notification.read_text()


@pytest.mark.spec("USR-05")
async def test_a_desktop_notification_names_a_sub_agent_by_its_description(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notification = install_notify_program(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{notification.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("DISPLAY", ":7")
    await run_until_question(
        tmp_path,
        {"notify": "desktop"},
        notification,
        lead=[spawn_agent("Dig here"), "so"],
        Dig=[TOUCH, "dug"],
    )
    body = notification.read_text().splitlines()[-1]
    assert body == "general-purpose (Dig here) asks to run Bash: touch 'a file'; echo"


async def test_no_notification_is_sent_when_notifications_are_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notification = install_notify_program(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{notification.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("DISPLAY", ":7")
    await run_until_question(tmp_path, {"notify": "off"})
    assert not notification.exists()


def test_on_macos_the_notification_is_shown_by_its_own_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notification = install_notify_program(tmp_path / "bin")
    program = notification.parent / "osascript"
    program.unlink()
    (notification.parent / "notify-send").rename(program)
    monkeypatch.setattr(person_notifier, "sys", SimpleNamespace(platform="darwin"))
    environ = {"PATH": f"{program.parent}:{os.environ['PATH']}", "DISPLAY": ":7"}
    show_notification("Shoal", "bob asks", environ)
    *script, title, text = notification.read_text().splitlines()
    assert (title, text) == ("Shoal", "bob asks")
    assert script[::2] == ["-e"] * 3


def test_without_a_desktop_the_notification_is_a_terminal_escape_sequence() -> None:
    written: list[str] = []
    show_notification("Shoal", "bob; asks", {"PATH": "/nowhere"}, write=written.append)
    show_notification("Shoal", "bob asks", {"PATH": "/nowhere", "TMUX": "/tmp/x,1,0"}, write=written.append)
    assert written[0] == "\x1b]777;notify;Shoal;bob, asks\x07"
    assert written[1].startswith("\x1bPtmux;\x1b\x1b]777;")


@pytest.mark.spec("USR-05")
def test_a_question_rings_the_terminal_bell(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    child, terminal = pty.fork()
    if child == 0:
        try:
            asyncio.run(run_until_question(tmp_path / "project", {}))
        finally:
            os._exit(0)
    output = b""
    while b"\a" not in output:
        try:
            output += os.read(terminal, 1024) or b"\a(end)"
        except OSError:
            break
    os.waitpid(child, 0)
    os.close(terminal)
    assert b"\a" in output
    assert b"(end)" not in output


def test_a_halted_terminal_does_not_block_a_notification() -> None:
    child, terminal = pty.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)
        termios.tcflow(0, termios.TCOOFF)  # as Ctrl-S does
        write_to_terminal("\a")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    os.close(terminal)


def test_a_notification_is_one_line_of_bounded_length() -> None:
    may = PermissionQuestion(
        id="q", agent=AgentId("ann@crew"), tool_use_id="t", tool="Bash", input={"c": "x\n" * 500}, reason=""
    )
    assert format_question_notification(may, "ann").startswith("ann asks to run Bash: x x")
    assert len(format_question_notification(may, "ann")) == 200
    plan = PlanApprovalQuestion(id="q", agent=LEAD_ID, plan="p", path="/p", digest="d")
    assert format_question_notification(plan, "The lead") == "The lead has a plan that needs your approval"
    choice = ChoiceQuestion(
        id="q", agent=LEAD_ID, choices=(MultipleChoice(question="Red?", header="h", options=()),)
    )
    assert format_question_notification(choice, "The lead") == "The lead has a question: Red?"


def test_the_desktop_program_gets_only_the_variables_of_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, seen = tmp_path / "notify-send", tmp_path / "seen"
    program.write_text(f"#!/bin/sh\n/usr/bin/env > {seen}\n")
    program.chmod(0o755)
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", "of-the-process")
    show_notification("Shoal", "ana asks", {"PATH": str(tmp_path), "DISPLAY": ":1"})
    assert "DISPLAY=:1" in seen.read_text()
    assert "of-the-process" not in seen.read_text()
