"""Running agents of a process, and what a lookup returns before they exist."""

from __future__ import annotations

from pathlib import Path

import pytest
from agent_harness import create_harness

from shoal.core.errors import AgentRequestRefused
from shoal.core.ids import LEAD_ID, AgentId
from shoal.runs.running_agents import RunningAgents


def test_the_lead_is_refused_until_it_is_registered(tmp_path: Path) -> None:
    running_agents = RunningAgents()
    with pytest.raises(AgentRequestRefused):
        _ = running_agents.lead
    assert running_agents.find_agent(LEAD_ID) is None
    lead = create_harness([], root=tmp_path).agent
    running_agents.register_agent(lead)
    assert running_agents.lead is lead
    assert running_agents.require_agent(LEAD_ID) is lead
    assert running_agents.find_agent(AgentId("a1")) is None
