"""Actors of the team demo: one answers questions for the user, one kills a member's process."""

from __future__ import annotations

import asyncio
import os
import signal

from msgspec import Struct

from shoal.app.session.session import Session
from shoal.core.events import Event, ModelRequestSent, ToolFinished
from shoal.surfaces.cli.demo.demo_narrator import DemoNarrator
from shoal.surfaces.cli.plain.question_dialog import TerminalQuestionDialog
from shoal.surfaces.terminal.screen import TerminalScreen
from shoal.surfaces.terminal.text_styles import BOLD, DIM


class AutoApprovingDemoUser:
    """Answers yes to each question, on the screen where the user would be asked."""

    def __init__(
        self, screen: TerminalScreen, session: Session, narrator: DemoNarrator, *, pause: float
    ) -> None:
        self._screen = screen
        self._session = session
        self._narrator = narrator
        self._pause = pause
        self.answered_count = 0

    async def approve_all_questions(self) -> None:
        question_broker = self._session.questions
        async for question in question_broker.watch_questions():
            dialog = TerminalQuestionDialog(question, question.agent.partition("@")[0])
            with self._narrator.pause_for_question():
                dialog.show(self._screen)
                self._screen.write("  allow? ", DIM)
                await self._session.clock.sleep(self._pause)
                self._screen.write("y", BOLD)
                self._screen.write("  (the demo types this for you)\n", DIM)
            answer = dialog.parse_answer_line("y")
            if answer is not None and question_broker.submit_answer(question.id, answer):
                self.answered_count += 1


class DemoMemberKillTarget(Struct, frozen=True, kw_only=True):
    """Member whose process is killed after `calls` of its tool calls, while it waits for its model."""

    name: str
    calls: int


class DemoMemberKillRecord(Struct, frozen=True, kw_only=True):
    name: str
    pid: int
    at: float


class DemoMemberKiller:
    def __init__(self, session: Session, target: DemoMemberKillTarget, *, pause: float) -> None:
        self._session = session
        self._target = target
        self._pause = pause
        self._calls = 0
        self._target_ready = asyncio.Event()
        self._unwatch = session.subscribe(self._track_target_activity)

    async def kill_target_once_working(self) -> DemoMemberKillRecord | None:
        """Kill the target's process once it is working; return None if it has no process."""
        await self._target_ready.wait()
        self._unwatch()
        clock = self._session.clock
        await clock.sleep(self._pause)
        pid = find_member_pid(self._session, self._target.name)
        if pid is None:
            return None
        os.kill(pid, signal.SIGKILL)
        return DemoMemberKillRecord(name=self._target.name, pid=pid, at=clock.monotonic())

    def _track_target_activity(self, event: Event) -> None:
        if event.agent.partition("@")[0] != self._target.name:
            return
        if isinstance(event, ToolFinished):
            self._calls += 1
        elif isinstance(event, ModelRequestSent) and self._calls >= self._target.calls:
            self._target_ready.set()


def find_member_pid(session: Session, name: str) -> int | None:
    return next((each.pid for each in session.list_members() if each.name == name), None)
