"""Names of the agents of a session."""

from __future__ import annotations

from shoal.runs.agent_registry import AgentRegistry


def test_names_that_differ_only_in_case_get_a_number() -> None:
    registry = AgentRegistry()
    names = [registry.reserve_agent_name(name) for name in ("Team-Lead", "scout", "Scout", "SCOUT", "Main")]
    assert names == ["Team-Lead-2", "scout", "Scout-2", "SCOUT-3", "Main-2"]
    registry.release_agent_name("scout")
    assert registry.reserve_agent_name("scout") == "scout"
