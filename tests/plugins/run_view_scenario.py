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
from shoal.app.run_access.run_follower import RunFollower
from shoal.app.run_access.run_handle import RunHandle
from shoal.app.run_view.run_view import RunView
from shoal.app.session.run_controller import LocalRunController, RemoteRunController, RunController
from shoal.core.agents.subagents import AgentResult
from shoal.core.budgets.usage import Usage
from shoal.core.clock import SystemClock
from shoal.core.errors import StateFileError
from shoal.core.events import (
    AgentEnded,
    AgentStarted,
    Event,
    MailPosted,
    MailTaken,
    MemberWoken,
    ModelRequestSettled,
    QuestionAnswered,
    QuestionAsked,
    SessionStarted,
    TaskChanged,
    ToolStarted,
    TurnStarted,
)
from shoal.core.ids import LEAD_ID, AgentId, RequestId, SessionId
from shoal.core.permissions.questions import Answer, Question
from shoal.surfaces.tui.answer_screen import AnswerScreen
from shoal.surfaces.tui.panels.panel import TuiPanel
from shoal.surfaces.tui.panels.questions_panel import QuestionsPanel
from shoal.testing import FakeClock
from shoal.wire.control_codec import RunControlCommand

MODEL = "anthropic:claude-sonnet-4-5"


class RunViewScenario:
    """A run view with a fake clock that dates each event."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.run_view = RunView()
        self._numbers = count(1)
        self.apply_event(
            SessionStarted(
                agent=LEAD_ID, session=SessionId("s-1"), cwd="/project", model=MODEL, mode="default", tools=()
            )
        )

    def apply_event(self, event: Event) -> None:
        self.run_view.apply_event(event, self.clock.now())

    def start_turn(self, agent: str = LEAD_ID, prompt: str = "Make the tests pass.") -> None:
        self.apply_event(TurnStarted(agent=AgentId(agent), turn=1, prompt=prompt))

    def start_agent(self, name: str, description: str, **fields: Any) -> str:
        """Start an agent whose id is its name."""
        given = {
            "kind": "general-purpose",
            "name": name,
            "description": description,
            "parent": LEAD_ID,
            "call": f"call-{name}",
            "depth": 1,
            "model": MODEL,
            "mode": "default",
            "background": False,
            "cwd": "/project",
        }
        self.apply_event(AgentStarted(agent=AgentId(name), **{**given, **fields}))
        if fields.get("team"):
            self.apply_event(MemberWoken(agent=AgentId(name)))
        return name

    def end_agent(self, name: str, status: Any = "completed", detail: str = "") -> None:
        completion = AgentResult(
            id=f"end-{name}",
            agent=AgentId(name),
            status=status,
            kind="general-purpose",
            description="",
            report_to=LEAD_ID,
            call="",
            detail=detail,
        )
        self.apply_event(AgentEnded(agent=AgentId(name), completion=completion))

    def start_tool(self, agent: str, tool: str, preview: str) -> None:
        call = f"call-{next(self._numbers)}"
        self.apply_event(ToolStarted(agent=AgentId(agent), call=call, tool=tool, preview=preview))

    def settle_request(self, agent: str, tokens: int, usd: float | None) -> None:
        self.apply_event(
            ModelRequestSettled(
                agent=AgentId(agent),
                request=RequestId(f"r-{next(self._numbers)}"),
                model=MODEL,
                usage=Usage(input_tokens=tokens),
                cost_usd=usd,
                duration_ms=10,
            )
        )

    def change_task(self, number: str, subject: str, status: str = "pending", **more: Any) -> None:
        given = {"board": "crew", "task": number, "subject": subject, "status": status}
        self.apply_event(TaskChanged(agent=LEAD_ID, **{**given, **more}))

    def post_mail(self, sender: str, to: str, text: str, *, taken: bool = True, kind: str = "message") -> str:
        mail = f"mail-{next(self._numbers)}"
        facts: dict[str, Any] = {
            "agent": LEAD_ID,
            "team": "crew",
            "mail": mail,
            "sender": sender,
            "to": to,
            "kind": kind,
            "preview": text,
        }
        self.apply_event(MailPosted(**facts))
        if taken:
            self.apply_event(MailTaken(**facts))
        return mail

    def ask_question(self, question: Question) -> None:
        self.apply_event(QuestionAsked(agent=question.agent, question=question))

    def answer_question(self, question: Question, answer: Answer) -> None:
        self.apply_event(QuestionAnswered(agent=question.agent, question=question.id, answer=answer))

    async def advance_clock(self, seconds: float) -> None:
        await self.clock.advance(seconds)


class EndedRunController:
    """Controller of a run that has ended: it refuses every command, as a remote run would."""

    def __init__(self, home: Path) -> None:
        self.run = RunHandle(session=SessionId("s-1"), home=home)

    async def send_command(self, command: RunControlCommand) -> Any:
        raise StateFileError(
            f"No live run can respond: {command.__struct_config__.tag}.", path=self.run.directory
        )

    def answer_question(self, question: str, answer: Answer) -> bool:
        raise StateFileError(f"There is no question {question!r}.", path=self.run.directory)


class PanelsApp(App[None]):
    """Shows one widget as large as the terminal, and records the messages it posts."""

    def __init__(self, shown: Widget) -> None:
        super().__init__()
        self.shown = shown
        self.posted_messages: list[Any] = []
        self.notices: list[str] = []
        """All notices shown at the edge of the screen, including those that have disappeared."""
        self.animation_level = "none"

    def compose(self) -> ComposeResult:
        yield self.shown

    def on_mount(self) -> None:
        self.shown.focus()

    def on_agents_panel_agent_chosen(self, message: Any) -> None:
        self.posted_messages.append(message)

    def on_tui_panel_close_requested(self, message: Any) -> None:
        self.posted_messages.append(message)

    def notify(self, message: str, **options: Any) -> None:
        self.notices.append(message)
        super().notify(message, **options)


def count_open_questions(panel: QuestionsPanel) -> int:
    """Count the open questions that the panel knows."""
    return sum(not row.answered for row in panel._questions.values())


async def wait_until(pilot: Pilot[Any], condition: Callable[[], object], *, timeout: float = 10.0) -> None:
    """Let the app run until the condition is true."""
    async with asyncio.timeout(timeout):
        while not condition():
            await pilot.pause()


@asynccontextmanager
async def show_live_panel(
    session: shoal.Session, kind: type[TuiPanel], *, remote: bool = False, size: tuple[int, int] = (120, 40)
) -> AsyncIterator[tuple[Any, Pilot[None]]]:
    """Show a panel on a run of this process, following its journal, controlled from here or remotely."""
    run = RunHandle(session=session.id, home=session.runtime.settings.home)
    helm: RunController = RemoteRunController(run) if remote else LocalRunController(session)
    async with RunFollower(run, SystemClock()) as followed:
        panel = kind(followed.view, helm)
        async with PanelsApp(panel).run_test(size=size) as pilot, asyncio.TaskGroup() as group:
            watching = group.create_task(_follow_run(panel, followed))
            yield panel, pilot
            watching.cancel()


async def _follow_run(panel: TuiPanel, follower: RunFollower) -> None:
    async for _ in follower.iter_view_deltas():
        panel.request_refresh()
        for screen in panel.app.screen_stack:
            if isinstance(screen, AnswerScreen):
                row = follower.view.questions.get_row(screen.row.id)
                if row.answered:
                    screen.close_settled_elsewhere(row)
