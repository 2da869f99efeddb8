"""Agent run: the status, waiters and result of one agent."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from shoal.core.agents.subagents import AgentResult, AgentRunStatus, AgentStatusSnapshot
from shoal.core.events import AgentStarted
from shoal.core.ids import AgentId

if TYPE_CHECKING:
    from shoal.agent.agent_runner import AgentRunner
    from shoal.runs.progress_monitor import ProgressMonitor


class AgentRun:
    """Run of one agent. It stays after its end without the agent, which is reloaded when it is resumed."""

    __slots__ = (
        "_changed",
        "agent",
        "background",
        "completion",
        "facts",
        "for_program",
        "is_live",
        "monitor",
        "report_to",
        "seen_by_call",
        "started_at",
        "stop_reason",
        "task",
    )

    def __init__(
        self,
        facts: AgentStarted,
        monitor: ProgressMonitor | None,
        agent: AgentRunner | None,
        *,
        started_at: float,
        for_program: bool = False,
    ) -> None:
        """`for_program` is True if a program started it and reads its result instead of the lead."""
        self.facts = facts
        self.monitor = monitor
        self.agent = agent
        self.report_to: AgentId = facts.parent
        self.background = facts.background
        self.for_program = for_program
        self.started_at = started_at
        self.completion: AgentResult | None = None
        self.is_live = True
        """True until its resources are released and its end is reported."""
        self.seen_by_call = ""
        """Tool call that saw the end and replaced the notification, if any."""
        self.stop_reason = ""
        """Reason why it is being stopped; empty if it is not."""
        self.task: asyncio.Task[None] | None = None
        self._changed: asyncio.Event | None = None

    @classmethod
    def from_result(cls, completion: AgentResult) -> AgentRun:
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
        run = cls(facts, None, None, started_at=0.0)
        run.completion, run.is_live = completion, False
        return run

    @property
    def id(self) -> AgentId:
        return self.facts.agent

    @property
    def is_remote(self) -> bool:
        """True if it runs on another machine; then it cannot be resumed after its end."""
        return self.facts.isolation == "remote"

    @property
    def status(self) -> AgentRunStatus:
        return "running" if self.completion is None else self.completion.status

    def notify_waiters(self) -> None:
        """Wake all waiters to check again."""
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    async def wait_until_ended(self) -> None:
        """Wait until it has a result."""
        while self.completion is None:
            await self._wait_for_change()

    async def wait_until_detached(self) -> None:
        """Wait until it is closed, including cleanup, or moved to the background."""
        while self.is_live and not self.background:
            await self._wait_for_change()

    async def wait_until_closed(self) -> None:
        while self.is_live:
            await self._wait_for_change()

    async def _wait_for_change(self) -> None:
        self._changed = self._changed or asyncio.Event()
        await self._changed.wait()

    def take_snapshot(self, now: float) -> AgentStatusSnapshot:
        completion, monitor = self.completion, self.monitor
        return AgentStatusSnapshot(
            agent=self.id,
            kind=self.facts.kind,
            name=self.facts.name,
            description=self.facts.description,
            status=self.status,
            parent=self.facts.parent,
            background=self.background,
            tool_calls=monitor.tool_call_count
            if monitor
            else completion.evidence.tool_calls
            if completion
            else 0,
            tokens=monitor.usage.total_tokens
            if monitor
            else completion.usage.total_tokens
            if completion
            else 0,
            seconds=completion.duration_ms / 1000 if completion else now - self.started_at,
            doing="" if completion or monitor is None else monitor.activity,
            completion=completion,
            output=completion.output if completion else monitor.output if monitor else "",
        )
