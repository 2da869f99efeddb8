"""A report reaches its recipient whole, however many messages it took."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from agent_scripts import call_tool, run_all_turns, script_agents, spawn_agent
from session_helpers import find_tool_results, map_agent_results, open_session
from shoal.core.agents.subagents import AgentResult
from shoal.core.conversation.messages import TextBlock, extract_tool_result_text
from shoal.core.conversation.model_requests import ModelRequest
from shoal.models.scripted_model import ScriptedReply


@pytest.mark.spec("USR-02")
@pytest.mark.parametrize("background", [True, False])
async def test_a_report_of_half_a_megabyte_over_three_messages_is_stored_unchanged(
    tmp_path: Path, background: bool
) -> None:
    lines = [f"{n}: naïve – 報告 \t{'=' * (n % 60)}" for n in range(9_000)]
    whole = "\r\n".join(lines) + "\n\n"
    third = len(whole) // 3
    parts = [whole[:third], whole[third : 2 * third], whole[2 * third :]]
    cut = [ScriptedReply(content=(TextBlock(text=part),), stop_reason="max_tokens") for part in parts[:2]]

    def read(request: ModelRequest) -> Any:
        return call_tool(
            "Bash", "b1", command=f"cat '{map_agent_results(session)['child'].result}' | sha256sum"
        )

    lead = [spawn_agent("child", "c1", run_in_background=background), "wait", read, "end"]
    if not background:
        lead = [lead[0], read, "end"]
    model = script_agents(
        lead=lead, child=[["first thoughts", call_tool("Glob", "g1", pattern="*")], *cut, parts[2]]
    )
    async with open_session(tmp_path, model) as session:
        await run_all_turns(session)
        texts = [
            extract_tool_result_text(text) for text in find_tool_results(session.agent.conversation.messages)
        ]
    done: AgentResult = map_agent_results(session)["child"]
    digest = sha256(whole.encode()).hexdigest()
    assert len(whole.encode()) > 500_000
    assert Path(done.result).read_bytes() == whole.encode()
    assert done.size == len(whole)
    assert done.digest == digest
    # The lead can read every byte at the path it was given.
    assert any(digest in text for text in texts)
    assert f"{len(whole):,} characters" in str(session.agent.conversation.messages)


@pytest.mark.spec("USR-02")
@pytest.mark.parametrize("background", [True, False])
async def test_an_agent_whose_report_cannot_be_stored_is_not_done(tmp_path: Path, background: bool) -> None:
    whole = "a line of the report\n" * 10_000
    lead = [
        spawn_agent("child", "c1", run_in_background=background),
        lambda request: str(request.messages[-1]),
    ]
    model = script_agents(lead=lead if not background else [lead[0], "wait", lead[1]], child=[whole])
    async with open_session(tmp_path, model) as session:
        # The directory of stored reports is occupied by something else.
        session.agent.environment.results.directory.write_text("")
        text = await run_all_turns(session)
    done: AgentResult = map_agent_results(session)["child"]
    assert (done.status, done.text, done.result) == ("failed", "", "")
    assert "results" in done.detail
    assert "results" in text
    assert "a line of the report" not in text
