"""Names of teammates: reserved names and tools are refused, and names that look alike get a number."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import shoal
from agent_scripts import call_tool, run_all_turns
from shoal.core.conversation.messages import extract_tool_result_text
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.names import RESERVED_NAMES, TOOL_NAMES
from shoal.models.scripted_model import ScriptedModel
from team_scripts import find_tool_results, open_session, read_team_config, script_team, spawn_member

REFUSED = (*sorted(RESERVED_NAMES), "Bash", "ＲＥＡＤ".title(), "SendMessage")


@pytest.mark.spec("TEAM-03")
async def test_a_teammate_gets_no_reserved_name_and_no_name_of_a_tool(tmp_path: Path) -> None:
    seen: list[str] = []

    def record_results(request: ModelRequest) -> str:
        seen.extend(extract_tool_result_text(block) for block in find_tool_results(request.messages[-1:]))
        return "end"

    calls = [spawn_member(name) for name in REFUSED]
    model = script_team(lead=[call_tool("TeamCreate", team_name="crew"), calls, record_results])
    async with open_session(tmp_path, model) as session:
        await run_all_turns(session)
        members = [member["name"] for member in read_team_config("crew")["members"]]
    assert members == ["team-lead"]
    assert len(seen) == len(REFUSED)
    assert all("Choose another name" in text for text in seen), seen


async def test_the_list_of_tool_names_is_that_of_a_session(tmp_path: Path) -> None:
    tools: list[str] = []

    def record_tools(request: ModelRequest) -> str:
        tools.extend(tool.name for tool in request.tools)
        return "end"

    async with shoal.open(cwd=tmp_path, model=ScriptedModel(record_tools)) as session:
        await run_all_turns(session)
    assert set(tools) <= TOOL_NAMES


@pytest.mark.parametrize(
    "unavailable", [{"isolation": "worktree"}, {"model": "nobody:nothing"}, {"subagent_type": "lame"}]
)
async def test_a_teammate_that_cannot_start_keeps_neither_its_place_nor_its_name(
    tmp_path: Path, unavailable: dict[str, str]
) -> None:
    """The directory is no git repository, so there can be no worktree."""
    agents = tmp_path / "agents.json"
    agents.write_text(json.dumps({"lame": {"description": "d", "prompt": "p", "tools": ["NoSuchTool"]}}))
    results: list[str] = []

    def record_results(request: ModelRequest) -> str:
        results[:] = [extract_tool_result_text(block) for block in find_tool_results(request.messages)]
        return "end"

    model = script_team(
        lead=[
            call_tool("TeamCreate", team_name="crew"),
            spawn_member("ann", **unavailable),
            spawn_member("ann"),
            record_results,
        ],
        ann=["here"],
    )
    settings = json.dumps({"shoal": {"max_agents": 1, "max_concurrent": 1, "teammate_mode": "in-process"}})
    async with open_session(tmp_path, model, settings=settings, agents=str(agents)) as session:
        await run_all_turns(session)
        members = [member["name"] for member in read_team_config("crew")["members"]]
    assert members == ["team-lead", "ann"]
    assert "ann@crew" in results[2]


@pytest.mark.spec("TEAM-03")
async def test_a_name_that_looks_like_another_one_gets_a_number(tmp_path: Path) -> None:
    names = ["Team-Lead", "worker", "Worker", "ＷＯＲＫＥＲ"]
    members: list[str] = []

    def record_members(request: ModelRequest) -> str:
        members[:] = members or [member["name"] for member in read_team_config("crew")["members"]]
        return "end"

    calls = [spawn_member(name) for name in names]
    given = ["Team-Lead-2", "worker", "Worker-2", "WORKER-3"]
    scripts = {name: ["end"] for name in given}
    lead = [call_tool("TeamCreate", team_name="crew"), calls, record_members]
    async with open_session(tmp_path, script_team(lead=lead, **scripts)) as session:
        await run_all_turns(session)
    assert members == ["team-lead", *given]
