"""Hooks of the session lifecycle: its start, its end, and waiting for a person."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from shoal.agent.hooked import add_context
from shoal.app.options import Options
from shoal.core.errors import StoreError
from shoal.core.events import Asked, Event, Finished, TurnStarted
from shoal.core.groups import leave
from shoal.core.hooks import UNMOVED, HookEvent, Verdict
from shoal.core.ids import LEAD
from shoal.core.questions import ApprovePlan, MayRun, Question

if TYPE_CHECKING:
    from shoal.agent.agent import Agent
    from shoal.app.session.session import Session

IDLE = 60.0
"""Seconds after a turn until an attending person is notified that the session is idle."""


class Occasions:
    """Runs lifecycle hooks; entered while the session is open, leaving it cancels running hooks."""

    def __init__(self, lead: Agent, session: Session, options: Options) -> None:
        self._lead = lead
        self._session = session
        self._options = options
        self._tasks = asyncio.TaskGroup()
        self._running: set[asyncio.Task[Verdict]] = set()
        self._opening: asyncio.Task[Verdict] | None = None
        self._idling: asyncio.Task[Verdict] | None = None
        self._begun = False
        self.ending = "other"
        """Reason of the session end that hooks receive."""

    async def __aenter__(self) -> Occasions:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._running:
            task.cancel()
        await leave(self._tasks, kind, error, trace)

    def begin(self, *, resumed: bool) -> None:
        """Start the SessionStart hooks; nobody waits for them before the first turn."""
        self._begun = True
        hooks = self._lead.hooks
        if hooks.wants("SessionStart"):
            source = "resume" if resumed else self._options.begun
            self._opening = self._task("SessionStart", {"source": source, "model": self._lead.model.card.id})
        if hooks.wants("Notification"):
            self._session.watch(self._look)

    async def enter(self) -> None:
        """Add the output of the SessionStart hooks to the conversation before a turn."""
        if self._opening is None:
            return
        # An interrupt here does not cancel the hooks: the next turn gets their output.
        verdict = await asyncio.shield(self._opening)
        self._opening = None
        await add_context(self._lead, "SessionStart", verdict)

    async def end(self) -> None:
        for task in self._running:
            task.cancel()
        if self._begun and self._lead.hooks.wants("SessionEnd"):
            await self._told("SessionEnd", {"reason": self.ending}, after=0)

    def _look(self, event: Event) -> None:
        match event:
            case Asked(question=question) if self._session.parts.desk.waits:
                self._task("Notification", _waits_for_answer(question))
            case TurnStarted() if self._idling is not None:
                self._idling.cancel()
                self._idling = None
            case Finished() if self._options.attended:
                facts = {
                    "message": "Shoal is waiting for your input",
                    "title": "Shoal",
                    "notification_type": "idle_prompt",
                }
                self._idling = self._task("Notification", facts, after=IDLE)

    def _task(self, event: HookEvent, facts: Mapping[str, Any], after: float = 0.0) -> asyncio.Task[Verdict]:
        task = self._tasks.create_task(self._told(event, facts, after))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _told(self, event: HookEvent, facts: Mapping[str, Any], after: float) -> Verdict:
        if after:
            await self._lead.clock.sleep(after)
        try:
            return await self._lead.hooks.run(event, facts)
        except StoreError:
            # The journal is what failed: the next turn that writes to it reports that.
            return UNMOVED


def _waits_for_answer(question: Question) -> dict[str, str]:
    kind = "permission_prompt"
    match question:
        case MayRun(tool=tool):
            words = f"Shoal needs your permission to use {tool}"
        case ApprovePlan():
            words = "A plan waits for your approval"
        case _:
            words, kind = "An agent has a question for you", "elicitation_dialog"
    facts = {"message": words, "title": "Shoal", "notification_type": kind}
    return facts if question.agent == LEAD else {**facts, "agent_id": question.agent}
