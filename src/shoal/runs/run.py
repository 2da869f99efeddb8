"""Agent run: the status, waiters and result of one agent."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from shoal.core.agents import Completion, Glimpse, Status
from shoal.core.events import AgentStarted
from shoal.core.ids import AgentId

if TYPE_CHECKING:
    from shoal.agent.agent import Agent
    from shoal.runs.witness import Witness


class Run:
    """Run of one agent. It stays after its end without the agent, which is reloaded when it is resumed."""

    __slots__ = (
        "_changed",
        "agent",
        "background",
        "completion",
        "facts",
        "live",
        "report_to",
        "since",
        "stopping",
        "taken_by",
        "task",
        "witness",
    )

    def __init__(
        self, facts: AgentStarted, witness: Witness | None, agent: Agent | None, *, since: float
    ) -> None:
        self.facts = facts
        self.witness = witness
        self.agent = agent
        self.report_to: AgentId = facts.parent
        self.background = facts.background
        self.since = since
        self.completion: Completion | None = None
        self.live = True
        """True until its resources are released and its end is reported."""
        self.taken_by = ""
        """Tool call that saw the end and replaced the notification, if any."""
        self.stopping = ""
        """Reason why it is being stopped; empty if it is not."""
        self.task: asyncio.Task[None] | None = None
        self._changed: asyncio.Event | None = None

    @classmethod
    def earlier(cls, completion: Completion) -> Run:
        """Create the run of an agent that ended in another process of the session."""
        facts = AgentStarted(
            agent=completion.agent,
            kind=completion.kind,
            name=completion.name,
            description=completion.description,
            parent=completion.report_to,
            call=completion.call,
            depth=1,
            model="",
            mode="",
            background=completion.background,
            cwd="",
        )
        run = cls(facts, None, None, since=0.0)
        run.completion, run.live = completion, False
        return run

    @property
    def id(self) -> AgentId:
        return self.facts.agent

    @property
    def status(self) -> Status:
        return "running" if self.completion is None else self.completion.status

    def change(self) -> None:
        """Wake all waiters to check again."""
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    async def ended(self) -> None:
        """Wait until it has a result."""
        while self.completion is None:
            await self._change()

    async def left(self) -> None:
        """Wait until it is closed, including clean-up, or moved to the background."""
        while self.live and not self.background:
            await self._change()

    async def over(self) -> None:
        while self.live:
            await self._change()

    async def _change(self) -> None:
        self._changed = self._changed or asyncio.Event()
        await self._changed.wait()

    def glimpse(self, now: float) -> Glimpse:
        done, witness = self.completion, self.witness
        return Glimpse(
            agent=self.id,
            kind=self.facts.kind,
            name=self.facts.name,
            description=self.facts.description,
            status=self.status,
            parent=self.facts.parent,
            background=self.background,
            tool_calls=witness.tool_calls if witness else done.evidence.tool_calls if done else 0,
            tokens=witness.usage.total_tokens if witness else done.usage.total_tokens if done else 0,
            seconds=done.duration_ms / 1000 if done else now - self.since,
            doing="" if done or witness is None else witness.doing,
            completion=done,
            output=done.output if done else str(witness.output) if witness else "",
        )
