"""Notifies the user of a waiting question by terminal bell, desktop notification or neither."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from shoal.core.events import AgentStarted, Event, QuestionAsked
from shoal.core.ids import LEAD_ID, AgentId
from shoal.core.permissions.questions import PermissionQuestion, PlanApprovalQuestion, Question
from shoal.core.text.text_format import to_one_line

if TYPE_CHECKING:
    from shoal.app.session.session import Session

TITLE = "Shoal"
SHOW_TIMEOUT = 5.0
"""Seconds that the program may take to show a notification."""
MAX_LENGTH = 200
_APPLESCRIPT = (
    "on run argv",
    "display notification (item 2 of argv) with title (item 1 of argv)",
    "end run",
)


def attach_person_notifier(session: Session, tasks: asyncio.TaskGroup) -> None:
    """Attach the notifier if a person may answer and wants notifications."""
    notify_setting = session.runtime.settings.own.notify
    if notify_setting == "off" or (
        session.runtime.question_broker.attended is False
        and session.runtime.question_broker.answer_timeout is None
    ):
        return
    environ = session.runtime.settings.environ
    askers: dict[AgentId, str] = {LEAD_ID: "The lead"}

    def notify_on_event(event: Event) -> None:
        if isinstance(event, AgentStarted):
            askers[event.agent] = _describe_asking_agent(event)
        if not isinstance(event, QuestionAsked):
            return
        if notify_setting in ("bell", "both"):
            write_to_terminal("\a")
        if notify_setting in ("desktop", "both"):
            text = format_question_notification(event.question, askers.get(event.agent, event.agent))
            tasks.create_task(asyncio.to_thread(show_notification, TITLE, text, environ))

    session.subscribe(notify_on_event)


def _describe_asking_agent(agent: AgentStarted) -> str:
    """Describe a teammate by its name, a one-job agent also by its job."""
    name = agent.name or agent.kind
    return name if agent.team or not agent.description else f"{name} ({agent.description})"


def format_question_notification(question: Question, asker: str) -> str:
    match question:
        case PermissionQuestion(tool=tool, input=arguments):
            first_argument = next((str(value) for value in arguments.values()), "")
            text = f"{asker} asks to run {tool}: {first_argument}"
        case PlanApprovalQuestion():
            text = f"{asker} has a plan that needs your approval"
        case _:
            text = f"{asker} has a question: {question.choices[0].question if question.choices else ''}"
    return to_one_line(text)[:MAX_LENGTH]


def show_notification(
    title: str,
    text: str,
    environ: Mapping[str, str],
    *,
    write: Callable[[str], None] | None = None,
) -> None:
    """Show it on the desktop if there is one; else through the terminal, which may be remote."""
    argv = _build_notifier_argv(title, text, environ)
    if argv is None:
        (write or write_to_terminal)(
            _build_notification_escape(title, text, in_tmux=bool(environ.get("TMUX")))
        )
        return
    with suppress(OSError, ValueError, subprocess.TimeoutExpired):
        subprocess.run(
            argv,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=SHOW_TIMEOUT,
            check=False,
        )


def _build_notifier_argv(title: str, text: str, environ: Mapping[str, str]) -> list[str] | None:
    import shutil

    path = environ.get("PATH")
    if sys.platform == "darwin" and (osascript := shutil.which("osascript", path=path)):
        return [osascript, *(word for line in _APPLESCRIPT for word in ("-e", line)), title, text]
    if (environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY")) and (
        notify_send := shutil.which("notify-send", path=path)
    ):
        return [notify_send, "--app-name=shoal", "--", title, text]
    return None


def _build_notification_escape(title: str, text: str, *, in_tmux: bool) -> str:
    text = text.replace(";", ",")
    sequence = f"\x1b]777;notify;{title};{text}\x07"
    if not in_tmux:
        return sequence
    # tmux passes wrapped sequences through if its user allows it.
    escaped = sequence.replace("\x1b", "\x1b\x1b")
    return f"\x1bPtmux;{escaped}\x1b\\"


def write_to_terminal(text: str) -> None:
    """Write to the terminal; do nothing if there is none or it is stopped, because a run must not block."""
    with suppress(OSError, ValueError):
        terminal = os.open("/dev/tty", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            os.write(terminal, text.encode())
        finally:
            os.close(terminal)
