"""Budget and agent limits of a whole session tree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent_scripts import ToolGate, call_tool, read_events, run_all_turns, script_agents, spawn_agent
from session_helpers import find_tool_results, list_agent_starts, map_agent_results, open_session
from shoal.core.conversation.messages import extract_tool_result_text
from shoal.core.events import ModelRequestSettled, RunFinished


@pytest.mark.spec("USR-01")
async def test_the_lead_and_all_nested_agents_share_one_budget(tmp_path: Path) -> None:
    look = call_tool("Glob", pattern="*")
    model = script_agents(
        lead=[spawn_agent("one", "c1"), "end"], one=[spawn_agent("two", "c2"), "end"], two=[look]
    )
    async with open_session(tmp_path, model, shoal_settings={"max_requests": 6}) as session:
        finished = [event async for event in session.run("lead") if isinstance(event, RunFinished)]
        asked = [event.agent for event in read_events(session) if isinstance(event, ModelRequestSettled)]
    one, two = (started.agent for started in list_agent_starts(session))
    assert asked == ["lead", one, *[two] * 4]
    assert [
        "the budget of 6 requests is spent" in map_agent_results(session)[each].detail
        for each in ("one", "two")
    ] == [
        True,
        True,
    ]
    assert (finished[-1].reason, finished[-1].limit) == ("budget", "requests")


@pytest.mark.spec("USR-01")
@pytest.mark.parametrize(
    ("own", "options", "sentence"),
    [
        ({"max_agents": 2}, {}, "the limit of 2 agents per run is reached (2 started)"),
        ({}, {"max_agents": 2}, "the limit of 2 agents per run is reached (2 started)"),
        ({"max_concurrent": 2}, {}, "2 may run at once"),
    ],
)
async def test_a_spawn_above_the_agent_limit_fails_with_the_reason(
    tmp_path: Path, own: dict[str, Any], options: dict[str, Any], sentence: str
) -> None:
    gate = ToolGate()
    calls = [spawn_agent(f"child {n}", f"c{n}", run_in_background=True) for n in range(5)]
    model = script_agents(lead=[calls, call_tool("Open"), "end"], child=[call_tool("Gate"), "done"])
    tools = [gate.tool, gate.open_tool]
    async with open_session(
        tmp_path, model, shoal_settings={**own, "fan_out_preview": None}, tools=tools, **options
    ) as session:
        await run_all_turns(session)
        answers = find_tool_results(session.agent.conversation.messages)[:5]
    assert len(list_agent_starts(session)) == 2
    refused = [extract_tool_result_text(answer) for answer in answers if answer.is_error]
    assert len(refused) == 3
    assert all("The agent was not started" in each and sentence in each for each in refused), refused


@pytest.mark.spec("USR-19")
async def test_an_agent_with_an_unpriced_model_is_not_started_under_a_dollar_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-for-tests")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    model = script_agents(lead=[spawn_agent("child", "c1", model="openai:mine:1b"), "end"])
    async with open_session(tmp_path, model, max_budget_usd=1.0) as session:
        await run_all_turns(session)
        (answer,) = find_tool_results(session.agent.conversation.messages)
    assert answer.is_error
    assert (
        "Shoal cannot enforce a budget of $1 because the price of mine:1b is unknown."
        in extract_tool_result_text(answer)
    )
    assert list_agent_starts(session) == []
