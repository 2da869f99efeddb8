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
    """The lead, and the agents of every supervisor that was added: sub-agents and teammates."""

    def __init__(self) -> None:
        self._lead: AgentRunner | None = None
        self._sources: tuple[RunningAgentSource, ...] = ()

    @property
    def lead(self) -> AgentRunner:
        assert self._lead is not None
        return self._lead

    def set_lead(self, lead: AgentRunner) -> None:
        self._lead = lead

    def add_source(self, source: RunningAgentSource) -> None:
        self._sources = (*self._sources, source)

    def find_agent(self, agent: AgentId) -> AgentRunner | None:
        if agent == LEAD_ID:
            return self._lead
        return next((found for each in self._sources if (found := each.find_agent(agent)) is not None), None)

    def require_agent(self, agent: AgentId) -> AgentRunner:
        """Return a running agent. Raises `AgentRequestRefused`."""
        runner = self.find_agent(agent)
        if runner is None:
            raise AgentRequestRefused(format_run_notice("agent_ended", agent=agent))
        return runner
