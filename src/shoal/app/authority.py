"""Access to the rule-based permissions of an agent."""

from __future__ import annotations

from shoal.agent.agent import Agent
from shoal.policy.permissions import RulePermissions


def authority_of(agent: Agent) -> RulePermissions:
    assert isinstance(agent.permissions, RulePermissions)
    return agent.permissions
