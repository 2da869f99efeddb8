"""A run view built event by event, and an app that shows one panel of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

from textual.app import App, ComposeResult
from textual.pilot import Pilot
from textual.widget import Widget

import shoal
from shoal.app.outside.following import Followed
from shoal.app.outside.watching import Run
from shoal.app.picture.picture import Picture
from shoal.app.session.helm import FarHelm, Helm, OwnHelm
from shoal.core.agents import Completion
from shoal.core.clock import SystemClock
from shoal.core.errors import StoreError
from shoal.core.events import (
    AgentEnded,
    AgentStarted,
    Answered,
    Asked,
    Event,
    MailPosted,
    MailTaken,
    MemberWoken,
    RequestSettled,
    SessionStarted,
    TaskChanged,
    ToolStarted,
    TurnStarted,
)
from shoal.core.ids import LEAD, AgentId, RequestId, SessionId
from shoal.core.questions import Answer, Question
from shoal.core.usage import Usage
from shoal.surfaces.tui.answering import AnswerScreen
from shoal.surfaces.tui.panels.panel import Panel
from shoal.surfaces.tui.panels.questions import QuestionsPanel
from shoal.testing import FakeClock
from shoal.wire.control import Command

MODEL = "anthropic:claude-sonnet-4-5"


class Scene:
    """A run view with a fake clock that dates each event."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.picture = Picture()
        self._numbers = count(1)
        self.happens(
            SessionStarted(
                agent=LEAD, session=SessionId("s-1"), cwd="/project", model=MODEL, mode="default", tools=()
            )
        )

    def happens(self, event: Event) -> None:
        self.picture.hear(event, self.clock.now())

    def turn(self, agent: str = LEAD, prompt: str = "Make the tests pass.") -> None:
        self.happens(TurnStarted(agent=AgentId(agent), turn=1, prompt=prompt))

    def starts(self, name: str, about: str, **facts: Any) -> str:
        """Start an agent whose id is its name."""
        given = {
            "kind": "general-purpose",
            "name": name,
            "description": about,
            "parent": LEAD,
            "call": f"call-{name}",
            "depth": 1,
            "model": MODEL,
            "mode": "default",
            "background": False,
            "cwd": "/project",
        }
        self.happens(AgentStarted(agent=AgentId(name), **{**given, **facts}))
        if facts.get("team"):
            self.happens(MemberWoken(agent=AgentId(name)))
        return name

    def ends(self, name: str, status: Any = "completed", detail: str = "") -> None:
        completion = Completion(
            id=f"end-{name}",
            agent=AgentId(name),
            status=status,
            kind="general-purpose",
            description="",
            report_to=LEAD,
            call="",
            detail=detail,
        )
        self.happens(AgentEnded(agent=AgentId(name), completion=completion))

    def runs(self, agent: str, tool: str, preview: str) -> None:
        call = f"call-{next(self._numbers)}"
        self.happens(ToolStarted(agent=AgentId(agent), call=call, tool=tool, preview=preview))

    def spends(self, agent: str, tokens: int, usd: float | None) -> None:
        self.happens(
            RequestSettled(
                agent=AgentId(agent),
                request=RequestId(f"r-{next(self._numbers)}"),
                model=MODEL,
                usage=Usage(input_tokens=tokens),
                cost_usd=usd,
                duration_ms=10,
            )
        )

    def task(self, number: str, subject: str, status: str = "pending", **more: Any) -> None:
        given = {"board": "crew", "task": number, "subject": subject, "status": status}
        self.happens(TaskChanged(agent=LEAD, **{**given, **more}))

    def letter(self, sender: str, to: str, text: str, *, taken: bool = True, kind: str = "message") -> str:
        mail = f"mail-{next(self._numbers)}"
        facts: dict[str, Any] = {
            "agent": LEAD,
            "team": "crew",
            "mail": mail,
            "sender": sender,
            "to": to,
            "kind": kind,
            "preview": text,
        }
        self.happens(MailPosted(**facts))
        if taken:
            self.happens(MailTaken(**facts))
        return mail

    def asks(self, question: Question) -> None:
        self.happens(Asked(agent=question.agent, question=question))

    def answers(self, question: Question, answer: Answer) -> None:
        self.happens(Answered(agent=question.agent, question=question.id, answer=answer))

    async def passes(self, seconds: float) -> None:
        await self.clock.advance(seconds)


class DeadHelm:
    """Controller of a run that has ended: it refuses every command, as a remote run would."""

    def __init__(self, home: Path) -> None:
        self.run = Run(session=SessionId("s-1"), home=home)

    async def demand(self, command: Command) -> Any:
        raise StoreError(f"No live run answers: {command.__struct_config__.tag}.", path=self.run.directory)

    def answer(self, question: str, answer: Answer) -> bool:
        raise StoreError(f"There is no question {question!r}.", path=self.run.directory)


class PanelsApp(App[None]):
    """Shows one widget as large as the terminal, and records the messages it posts."""

    def __init__(self, shown: Widget) -> None:
        super().__init__()
        self.shown = shown
        self.heard: list[Any] = []
        self.words: list[str] = []
        """All notices shown at the edge of the screen, including those that have disappeared."""
        self.animation_level = "none"

    def compose(self) -> ComposeResult:
        yield self.shown

    def on_mount(self) -> None:
        self.shown.focus()

    def on_agents_panel_chosen(self, message: Any) -> None:
        self.heard.append(message)

    def on_panel_left(self, message: Any) -> None:
        self.heard.append(message)

    def notify(self, message: str, **how: Any) -> None:
        self.words.append(message)
        super().notify(message, **how)


def open_in(panel: QuestionsPanel) -> int:
    """Count the open questions that the panel knows."""
    return sum(not row.answered for row in panel._questions.values())


async def until(pilot: Pilot[Any], happened: Callable[[], object], *, within: float = 10.0) -> None:
    """Let the app run until the condition is true."""
    async with asyncio.timeout(within):
        while not happened():
            await pilot.pause()


@asynccontextmanager
async def shown_live(
    session: shoal.Session, kind: type[Panel], *, far: bool = False, size: tuple[int, int] = (120, 40)
) -> AsyncIterator[tuple[Any, Pilot[None]]]:
    """Show a panel on a run of this process, following its journal, controlled from here or remotely."""
    run = Run(session=session.id, home=session.parts.settings.home)
    helm: Helm = FarHelm(run) if far else OwnHelm(session)
    async with Followed(run, SystemClock()) as followed:
        panel = kind(followed.picture, helm)
        async with PanelsApp(panel).run_test(size=size) as pilot, asyncio.TaskGroup() as group:
            watching = group.create_task(_told(panel, followed))
            yield panel, pilot
            watching.cancel()


async def _told(panel: Panel, followed: Followed) -> None:
    async for _ in followed.frames():
        panel.look()
        for screen in panel.app.screen_stack:
            if isinstance(screen, AnswerScreen):
                screen.look()
