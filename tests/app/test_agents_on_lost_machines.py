"""Agents that ran on other machines when the process of their session ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_scripts import run_all_turns, script_agents
from session_helpers import collect_events, open_session
from shoal.core.events import AgentStarted
from shoal.core.ids import LEAD_ID


@pytest.mark.spec("ISO-04", "QUE-03")
async def test_a_resumed_session_is_told_where_the_work_of_an_agent_on_another_machine_is(
    tmp_path: Path,
) -> None:
    agent = "a0123456789abcdef"
    async with open_session(tmp_path, script_agents(lead=["It runs."])) as session:
        await collect_events(session.run("lead"))
        # As the session of a killed process leaves it.
        session.emit_event(
            AgentStarted(
                agent=agent, kind="general-purpose", name="", description="far job", parent=LEAD_ID,
                call="go", depth=1, model="m", mode="", background=True, cwd="", isolation="remote",
            )
        )  # fmt: skip
        identity = session.id
    model = script_agents(lead=["Heard."])
    async with open_session(tmp_path, model, resume=identity) as session:
        await run_all_turns(session, "lead")
        told = "\n".join(message.text for message in session.agent.conversation.messages)
    assert "far job" in told
    assert f"its work is stored as refs/shoal/cluster/{identity}/{agent}" in told
    assert "it cannot be resumed" in told
    assert "worktree" not in told
