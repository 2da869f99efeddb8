"""Notifies the person of a waiting question by terminal bell, desktop notification or neither."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from shoal.core.events import AgentStarted, Asked, Event
from shoal.core.ids import LEAD, AgentId
from shoal.core.questions import ApprovePlan, MayRun, Question
from shoal.core.wording import one_line

if TYPE_CHECKING:
    from shoal.app.session.session import Session

TITLE = "Shoal"
PATIENCE = 5.0
"""Seconds that the program may take to show a notification."""
LONGEST = 200
_OF_THE_MAC = (
    "on run argv",
    "display notification (item 2 of argv) with title (item 1 of argv)",
    "end run",
)


def attach(session: Session, tasks: asyncio.TaskGroup) -> None:
    """Attach the notifier if a person may answer and wants notifications."""
    wanted = session.parts.settings.own.notify
    if wanted == "off" or (session.parts.desk.attended is False and session.parts.desk.patience is None):
        return
    environ = session.parts.settings.environ
    askers: dict[AgentId, str] = {LEAD: "The lead"}

    def hear(event: Event) -> None:
        if isinstance(event, AgentStarted):
            askers[event.agent] = _described(event)
        if not isinstance(event, Asked):
            return
        if wanted in ("bell", "both"):
            to_terminal("\a")
        if wanted in ("desktop", "both"):
            said = words(event.question, askers.get(event.agent, event.agent))
            tasks.create_task(asyncio.to_thread(show, TITLE, said, environ))

    session.watch(hear)


def _described(agent: AgentStarted) -> str:
    """Describe a teammate by its name, a one-job agent also by its job."""
    name = agent.name or agent.kind
    return name if agent.team or not agent.description else f"{name} ({agent.description})"


def words(question: Question, who: str) -> str:
    match question:
        case MayRun(tool=tool, input=given):
            about = next((str(value) for value in given.values()), "")
            said = f"{who} asks to run {tool}: {about}"
        case ApprovePlan():
            said = f"{who} has a plan for you to approve"
        case _:
            said = f"{who} has a question: {question.choices[0].question if question.choices else ''}"
    return one_line(said)[:LONGEST]


def show(
    title: str,
    text: str,
    environ: Mapping[str, str],
    *,
    write: Callable[[str], None] | None = None,
) -> None:
    """Show it on the desktop if there is one; else through the terminal, which may be remote."""
    argv = _program(title, text, environ)
    if argv is None:
        (write or to_terminal)(_asked_of_terminal(title, text, in_tmux=bool(environ.get("TMUX"))))
        return
    with suppress(OSError, ValueError, subprocess.TimeoutExpired):
        subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=PATIENCE,
            check=False,
        )


def _program(title: str, text: str, environ: Mapping[str, str]) -> list[str] | None:
    path = environ.get("PATH")
    if sys.platform == "darwin" and (script := shutil.which("osascript", path=path)):
        return [script, *(word for line in _OF_THE_MAC for word in ("-e", line)), title, text]
    if (environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY")) and (
        send := shutil.which("notify-send", path=path)
    ):
        return [send, "--app-name=shoal", "--", title, text]
    return None


def _asked_of_terminal(title: str, text: str, *, in_tmux: bool) -> str:
    text = text.replace(";", ",")
    said = f"\x1b]777;notify;{title};{text}\x07"
    if not in_tmux:
        return said
    # tmux passes wrapped sequences through if its user allows it.
    escaped = said.replace("\x1b", "\x1b\x1b")
    return f"\x1bPtmux;{escaped}\x1b\\"


def to_terminal(text: str) -> None:
    """Write to the terminal; do nothing if there is none or it is stopped, because a run must not block."""
    with suppress(OSError, ValueError):
        terminal = os.open("/dev/tty", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            os.write(terminal, text.encode())
        finally:
            os.close(terminal)
