"""Actors of the team demo: one answers questions for the user, one kills a member's process."""

from __future__ import annotations

import asyncio
import os
import signal

from msgspec import Struct

from shoal.app.session.session import Session
from shoal.core.events import Event, RequestSent, ToolFinished
from shoal.surfaces.cli.demo.voices import Voices
from shoal.surfaces.cli.plain.asking import Asking
from shoal.surfaces.terminal.paint import BOLD, DIM
from shoal.surfaces.terminal.screen import Screen


class StandIn:
    """Answers yes to each question, on the screen where the user would be asked."""

    def __init__(self, screen: Screen, session: Session, voices: Voices, *, pause: float) -> None:
        self._screen = screen
        self._session = session
        self._voices = voices
        self._pause = pause
        self.answered = 0

    async def answer(self) -> None:
        desk = self._session.parts.desk
        async for question in desk.incoming():
            asking = Asking(question, question.agent.partition("@")[0])
            with self._voices.question():
                asking.show(self._screen)
                self._screen.write("  allow? ", DIM)
                await self._session.agent.clock.sleep(self._pause)
                self._screen.write("y", BOLD)
                self._screen.write("  (the demo types this, in your place)\n", DIM)
            answer = asking.take("y")
            if answer is not None and desk.answer(question.id, answer):
                self.answered += 1


class Target(Struct, frozen=True, kw_only=True):
    """Member whose process is killed after `calls` of its tool calls, while it waits for its model."""

    name: str
    calls: int


class Kill(Struct, frozen=True, kw_only=True):
    name: str
    pid: int
    at: float


class Killer:
    def __init__(self, session: Session, target: Target, *, pause: float) -> None:
        self._session = session
        self._target = target
        self._pause = pause
        self._calls = 0
        self._met = asyncio.Event()
        self._unwatch = session.watch(self._hear)

    async def strike(self) -> Kill | None:
        """Kill the target's process once it is at work; return None if it has no process."""
        await self._met.wait()
        self._unwatch()
        clock = self._session.agent.clock
        await clock.sleep(self._pause)
        pid = pid_of(self._session, self._target.name)
        if pid is None:
            return None
        os.kill(pid, signal.SIGKILL)
        return Kill(name=self._target.name, pid=pid, at=clock.monotonic())

    def _hear(self, event: Event) -> None:
        if event.agent.partition("@")[0] != self._target.name:
            return
        if isinstance(event, ToolFinished):
            self._calls += 1
        elif isinstance(event, RequestSent) and self._calls >= self._target.calls:
            self._met.set()


def pid_of(session: Session, name: str) -> int | None:
    return next((each.pid for each in session.parts.teams.members() if each.name == name), None)
