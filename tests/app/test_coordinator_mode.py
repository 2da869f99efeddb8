"""Coordinator mode: a lead that only delegates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import shoal
from agent_scripts import call_tool, read_events, run_all_turns, script_agents, spawn_agent
from session_helpers import list_lead_results
from shoal.app.settings.settings import load_settings
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.conversation.tools import Tool
from shoal.core.errors import SettingsError
from shoal.core.events import AgentStarted, SessionStarted
from shoal.tools.function_tool import tool

BASE = {"Agent", "SendMessage", "ListAgents", "TaskOutput", "TaskStop", "AskUserQuestion"} | {
    "TeamCreate",
    "TeamDelete",
}
BOARD = {"TaskCreate", "TaskGet", "TaskList", "TaskUpdate"}


def open_coordinator(tmp_path: Path, model: Any, **options: Any) -> shoal.Session:
    return shoal.open(cwd=tmp_path, model=model, **{"skip_permissions": True, "coordinator": True, **options})


def create_helper_tool() -> Tool:
    @tool(name="Helper", reads_only=True)
    async def help_it() -> str:
        """Help."""
        return "helped"

    return help_it


@pytest.mark.spec("MOD-01")
async def test_a_coordinator_can_only_manage_agents_and_its_agents_have_all_tools(
    tmp_path: Path,
) -> None:
    offered: list[set[str]] = []

    def lead(request: ModelRequest) -> Any:
        offered.append({each.name for each in request.tools})
        return call_tool("Bash", "b1", command="touch by-the-lead")

    model = script_agents(
        lead=[lead, spawn_agent("child", "c1"), "started", "heard"],
        child=[call_tool("Bash", "b2", command="touch by-the-child"), call_tool("Helper"), "done"],
    )
    async with open_coordinator(tmp_path, model, tools=[create_helper_tool()]) as session:
        assert await run_all_turns(session) == "heard"
        assert "coordinator" in session.agent.system
    assert offered == [BASE | BOARD]
    # What it is not offered it cannot call either.
    assert not (tmp_path / "by-the-lead").exists()
    assert (tmp_path / "by-the-child").exists()
    (child,) = [event for event in read_events(session) if isinstance(event, AgentStarted)]
    assert {"Bash", "Read", "Edit", "Helper"} <= set(child.tools)


@pytest.mark.spec("MOD-01", "RUN-05", "AGT-14")
async def test_agents_of_a_coordinator_run_in_the_background_and_ignore_the_calls_model(
    tmp_path: Path,
) -> None:
    def lead(request: ModelRequest) -> Any:
        (schema,) = [each for each in request.tools if each.name == "Agent"]
        assert not {"model", "run_in_background"} & schema.input_schema["properties"].keys()
        return spawn_agent("child", "c1", model="nobody:has-this-one", run_in_background=False)

    model = script_agents(lead=[lead, "started", "heard"], child=["done"])
    async with open_coordinator(tmp_path, model) as session:
        assert await run_all_turns(session) == "heard"
        (launched,) = list_lead_results(session)
    assert launched.startswith("It works in the background.")
    assert "The model nobody:has-this-one that was asked for is left out of account" in launched
    (child,) = [event for event in read_events(session) if isinstance(event, AgentStarted)]
    assert child.background
    assert child.model == session.agent.model.card.id


async def test_coordinator_mode_is_enabled_by_setting_or_variable_and_disabled_by_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tools(**options: Any) -> set[str]:
        async with open_coordinator(
            tmp_path, script_agents(lead=["hi"]), persist=False, **options
        ) as session:
            (started,) = [event for event in read_events(session) if isinstance(event, SessionStarted)]
            return set(started.tools)

    on = json.dumps({"shoal": {"coordinator": True}})
    assert "Bash" in await tools(coordinator=None)
    assert "Bash" not in await tools(coordinator=None, settings=on)
    assert "Bash" in await tools(coordinator=False, settings=on)
    for variable in ("CLAUDE_CODE_COORDINATOR_MODE", "SHOAL_COORDINATOR_MODE"):
        monkeypatch.setenv(variable, "1")
        assert "Bash" not in await tools(coordinator=None)
        assert load_settings(cwd=tmp_path).find_setting_origin("shoal.coordinator") == f"${variable}"
    monkeypatch.setenv("SHOAL_COORDINATOR_MODE", "0")
    assert "Bash" in await tools(coordinator=None)
    monkeypatch.setenv("SHOAL_COORDINATOR_MODE", "perhaps")
    with pytest.raises(SettingsError, match="SHOAL_COORDINATOR_MODE is 'perhaps'"):
        load_settings(cwd=tmp_path)


async def test_coordinator_mode_is_refused_without_background_agents(tmp_path: Path) -> None:
    settings = json.dumps({"shoal": {"background_agents": False}})
    with pytest.raises(SettingsError, match=r"shoal\.background_agents"):
        async with open_coordinator(tmp_path, script_agents(lead=["hi"]), settings=settings):
            pass


async def test_a_custom_system_prompt_replaces_the_coordinator_prompt(tmp_path: Path) -> None:
    async with open_coordinator(
        tmp_path, script_agents(lead=["hi"]), system_prompt="You lead.", persist=False
    ) as session:
        assert session.agent.system.startswith("You lead.")
