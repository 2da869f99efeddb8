"""Plans of the agents of a session."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from shoal.agent.agent_runner import AgentRunner
from shoal.app.agent_permissions import get_permission_engine
from shoal.app.settings.settings import Settings
from shoal.core.agents.identity import AgentIdentity
from shoal.core.events import JournaledEvent, PermissionModeChanged
from shoal.core.ids import AgentId, IdGenerator
from shoal.core.permissions.permission_changes import PermissionMode
from shoal.policy.permission_engine import PermissionEngine
from shoal.runs.agent_supervisor import AgentSupervisor
from shoal.stores.files.home.home_paths import write_file_atomically
from shoal.tools.plan_tools import AgentPlan


class AgentPlanRegistry:
    """Planning state of each agent of a session; that of the lead is never dropped."""

    def __init__(
        self,
        create_planning: Callable[[PermissionEngine], AgentPlan],
        emit: Callable[[JournaledEvent], None],
    ) -> None:
        self._create_plan = create_planning
        self._plans: dict[AgentId, AgentPlan] = {}
        self.supervisor: AgentSupervisor | None = None
        self.on_approved: Callable[[AgentId, PermissionMode], None] = lambda _, __: None
        """Called with the mode in which an agent other than the lead executes its plan."""
        self._emit = emit

    def get_working_agent(self, agent: AgentId) -> AgentRunner:
        """Return a working agent."""
        assert self.supervisor is not None
        return self.supervisor.require_running_agent(agent)

    def get_plan(self, agent: AgentIdentity) -> AgentPlan:
        if agent.agent not in self._plans:
            plan = self._plans[agent.agent] = self._create_plan(
                get_permission_engine(self.get_working_agent(agent.agent))
            )
            plan.on_mode_changed = lambda mode: self._emit(
                PermissionModeChanged(agent=agent.agent, mode=mode)
            )
            if not agent.is_lead:
                plan.on_approved = partial(self.on_approved, agent.agent)
            if agent.is_teammate:
                # The lead's side decides who approves: the plan is sent there in any case.
                plan.get_approver = lambda: "user"
        return self._plans[agent.agent]

    def forget_plan(self, agent: AgentId) -> None:
        self._plans.pop(agent, None)


def create_plan_registry(
    settings: Settings, ids: IdGenerator, emit: Callable[[JournaledEvent], None]
) -> AgentPlanRegistry:
    return AgentPlanRegistry(
        lambda permissions: AgentPlan(
            permissions,
            directory=settings.home / "plans",
            ids=ids,
            get_approver=lambda: settings.own.plan_approver,
            write_file=write_file_atomically,
        ),
        emit,
    )
