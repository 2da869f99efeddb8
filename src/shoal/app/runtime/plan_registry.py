"""Plans of the agents of a session."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from shoal.app.agent_permissions import get_permission_engine
from shoal.app.settings.settings import Settings
from shoal.core.agents.identity import AgentIdentity
from shoal.core.events import JournaledEvent, PermissionModeChanged
from shoal.core.ids import AgentId, IdGenerator
from shoal.core.permissions.permission_changes import PermissionMode
from shoal.runs.running_agents import RunningAgents
from shoal.stores.files.home.home_paths import write_file_atomically
from shoal.tools.plan_tools import AgentPlan


class AgentPlanRegistry:
    """Planning state of each agent of a session; that of the lead is never dropped."""

    def __init__(
        self,
        settings: Settings,
        ids: IdGenerator,
        running_agents: RunningAgents,
        emit: Callable[[JournaledEvent], None],
    ) -> None:
        self._settings = settings
        self._ids = ids
        self._running_agents = running_agents
        self._emit = emit
        self._plans: dict[AgentId, AgentPlan] = {}
        self._approval_listeners: tuple[Callable[[AgentId, PermissionMode], None], ...] = ()

    def add_approval_listener(self, listener: Callable[[AgentId, PermissionMode], None]) -> None:
        """Call this with the mode in which an agent other than the lead executes its approved plan."""
        self._approval_listeners = (*self._approval_listeners, listener)

    def get_plan(self, agent: AgentIdentity) -> AgentPlan:
        if agent.agent not in self._plans:
            self._plans[agent.agent] = self._create_plan(agent)
        return self._plans[agent.agent]

    def forget_plan(self, agent: AgentId) -> None:
        self._plans.pop(agent, None)

    def _create_plan(self, agent: AgentIdentity) -> AgentPlan:
        return AgentPlan(
            get_permission_engine(self._running_agents.require_agent(agent.agent)),
            directory=self._settings.writing.plans_directory,
            ids=self._ids,
            # The lead's side decides who approves a teammate's plan, so the plan is sent there in any case.
            get_approver=lambda: "user" if agent.is_teammate else self._settings.own.plan_approver,
            write_file=write_file_atomically,
            on_approved=partial(self._report_approval, agent),
            on_mode_changed=partial(self._emit_mode_change, agent.agent),
        )

    def _emit_mode_change(self, agent: AgentId, mode: PermissionMode) -> None:
        model = self._running_agents.require_agent(agent).current_model.card.id
        self._emit(PermissionModeChanged(agent=agent, mode=mode, model=model))

    def _report_approval(self, agent: AgentIdentity, mode: PermissionMode) -> None:
        for listener in () if agent.is_lead else self._approval_listeners:
            listener(agent.agent, mode)
