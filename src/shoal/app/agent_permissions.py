"""Access to the rule-based permissions of an agent."""

from __future__ import annotations

from shoal.agent.agent_runner import AgentRunner
from shoal.policy.permission_engine import PermissionEngine


def get_permission_engine(agent: AgentRunner) -> PermissionEngine:
    assert isinstance(agent.permissions, PermissionEngine)
    return agent.permissions
