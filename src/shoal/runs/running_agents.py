"""Running agents of a process, by id."""

from __future__ import annotations

from typing import Protocol

from shoal.agent.agent_runner import AgentRunner
from shoal.core.errors import AgentRequestRefused
from shoal.core.ids import LEAD_ID, AgentId
from shoal.runs.run_texts import format_run_notice


class RunningAgentSource(Protocol):
    def find_agent(self, agent: AgentId) -> AgentRunner | None: ...


class RunningAgents:
    """Agents that were registered, as the lead is, and those of every source: sub-agents and teammates."""

    def __init__(self) -> None:
        self._registered: dict[AgentId, AgentRunner] = {}
        self._sources: tuple[RunningAgentSource, ...] = ()

    @property
    def lead(self) -> AgentRunner:
        """The lead. Raises `AgentRequestRefused` if it does not run."""
        return self.require_agent(LEAD_ID)

    def register_agent(self, agent: AgentRunner) -> None:
        """Register an agent that runs until the session ends."""
        self._registered[agent.identity.agent] = agent

    def add_source(self, source: RunningAgentSource) -> None:
        self._sources = (*self._sources, source)

    def find_agent(self, agent: AgentId) -> AgentRunner | None:
        if (registered := self._registered.get(agent)) is not None:
            return registered
        return next((found for each in self._sources if (found := each.find_agent(agent)) is not None), None)

    def require_agent(self, agent: AgentId) -> AgentRunner:
        """Return a running agent. Raises `AgentRequestRefused`."""
        runner = self.find_agent(agent)
        if runner is None:
            raise AgentRequestRefused(format_run_notice("agent_ended", agent=agent))
        return runner
