"""Implicit teams: created when a named agent is started, if configured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_scripts import ToolGate, call_tool, run_all_turns, spawn_agent
from shoal.core.conversation.model_requests import ModelRequest
from team_scripts import (
    find_tool_results,
    get_home,
    get_last_text,
    open_session,
    read_team_config,
    script_team,
    send_message,
    spawn_member,
)

ON = json.dumps({"shoal": {"implicit_team": True}})


@pytest.mark.spec("AGT-09")
async def test_named_agents_of_one_message_create_and_join_one_team(tmp_path: Path) -> None:
    heard: list[str] = []

    def ann(request: ModelRequest) -> str:
        heard.append(get_last_text(request))
        return "ann ends"

    def lead(request: ModelRequest) -> Any:
        if request.messages[0].text.startswith("nameless"):
            return "a report"
        return [spawn_member("ann"), spawn_member("bob"), spawn_agent("nameless", "n1")]

    model = script_team(
        lead=[lead, "wait", call_tool("TeamDelete"), "end"],
        ann=[ann],
        bob=[send_message("ann", "hello from bob", "hello"), "bob ends"],
    )
    async with open_session(tmp_path, model, settings=ON) as session:
        name = f"session-{session.id[:8]}"
        async for _ in session.run("Begin."):
            pass
        roster = read_team_config(name)
        while (turn := await session.next_turn()) is not None:
            async for _ in turn:
                pass
        texts = [str(each.content) for each in find_tool_results(session.agent.conversation.messages)]
    assert [each["name"] for each in roster["members"]] == ["team-lead", "ann", "bob"]
    assert roster["leadSessionId"] == session.id
    assert f"ann has joined the team {name}" in texts[0]
    assert f"teammate_id: ann@{name}" in texts[0]
    assert f"bob has joined the team {name}" in texts[1]
    assert texts[2].startswith("a report"), "one without a name is an agent for one job"
    assert "hello from bob" in "".join(heard)
    assert texts[3] == f"The team {name} was deleted."
    assert not (get_home() / "teams" / name).exists()


async def test_implicit_teams_are_off_by_default_and_without_team_tools(tmp_path: Path) -> None:
    async def first_result(**options: Any) -> str:
        def lead(request: ModelRequest) -> Any:
            return "a report" if request.messages[0].text == "Begin." else spawn_member("ann")

        model = script_team(lead=[lead, "end"], ann=["ready"])
        async with open_session(tmp_path, model, **options) as session:
            await run_all_turns(session, "Go.")
            return str(find_tool_results(session.agent.conversation.messages)[0].content)

    assert (await first_result()).startswith("a report")
    assert (await first_result(settings=ON, disallowed_tools=["TeamCreate"])).startswith("a report")
    assert "has joined the team session-" in await first_result(settings=ON)


async def test_named_agents_join_an_existing_team(tmp_path: Path) -> None:
    gate = ToolGate()
    model = script_team(
        lead=[
            call_tool("TeamCreate", team_name="crew"),
            spawn_member("ann"),
            call_tool("Until"),
            call_tool("Open"),
            "end",
        ],
        ann=[call_tool("Gate"), "end"],
    )
    tools = [gate.tool, gate.wait_tool, gate.open_tool]
    async with open_session(tmp_path, model, settings=ON, tools=tools) as session:
        await run_all_turns(session)
        assert [each.name for each in (get_home() / "teams").iterdir()] == ["crew"]
