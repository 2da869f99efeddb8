"""Coordinator mode: a lead that has its agents do the work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import shoal
from cast import agent, all_turns, cast, recorded, use
from shoal.app.settings.settings import load_settings
from shoal.core.errors import SettingsError
from shoal.core.events import AgentStarted, SessionStarted
from shoal.core.messages import ToolResult, result_text
from shoal.core.requests import Request
from shoal.core.tools import Tool
from shoal.tools.define import tool

BASE = {"Agent", "SendMessage", "ListAgents", "TaskOutput", "TaskStop", "AskUserQuestion"} | {
    "TeamCreate",
    "TeamDelete",
}
BOARD = {"TaskCreate", "TaskGet", "TaskList", "TaskUpdate"}


def opened(tmp_path: Path, model: Any, **options: Any) -> shoal.Session:
    return shoal.open(cwd=tmp_path, model=model, **{"skip_permissions": True, "coordinator": True, **options})


def results(session: shoal.Session) -> list[str]:
    blocks = (block for message in session.agent.conversation.messages for block in message.content)
    return [result_text(block) for block in blocks if isinstance(block, ToolResult)]


def helper() -> Tool:
    @tool(name="Helper", reads_only=True)
    async def help_it() -> str:
        """Help."""
        return "helped"

    return help_it


@pytest.mark.spec("MOD-01")
async def test_the_lead_can_only_start_tell_and_stop_and_its_agents_have_all_they_usually_have(
    tmp_path: Path,
) -> None:
    offered: list[set[str]] = []

    def lead(request: Request) -> Any:
        offered.append({each.name for each in request.tools})
        return use("Bash", "b1", command="touch by-the-lead")

    model = cast(
        lead=[lead, agent("child", "c1"), "started", "heard"],
        child=[use("Bash", "b2", command="touch by-the-child"), use("Helper"), "done"],
    )
    async with opened(tmp_path, model, tools=[helper()]) as session:
        assert await all_turns(session) == "heard"
        assert "coordinator" in session.agent.system
    assert offered == [BASE | BOARD]
    # What it is not offered it cannot call either.
    assert not (tmp_path / "by-the-lead").exists()
    assert (tmp_path / "by-the-child").exists()
    (child,) = [event for event in recorded(session) if isinstance(event, AgentStarted)]
    assert {"Bash", "Read", "Edit", "Helper"} <= set(child.tools)


@pytest.mark.spec("MOD-01", "RUN-05", "AGT-14")
async def test_every_agent_runs_in_the_background_and_the_model_of_the_call_is_left_out_of_account(
    tmp_path: Path,
) -> None:
    def lead(request: Request) -> Any:
        (schema,) = [each for each in request.tools if each.name == "Agent"]
        assert not {"model", "run_in_background"} & schema.input_schema["properties"].keys()
        return agent("child", "c1", model="nobody:has-this-one", run_in_background=False)

    model = cast(lead=[lead, "started", "heard"], child=["done"])
    async with opened(tmp_path, model) as session:
        assert await all_turns(session) == "heard"
        (launched,) = results(session)
    assert launched.startswith("It works in the background.")
    assert "The model nobody:has-this-one that was asked for is left out of account" in launched
    (child,) = [event for event in recorded(session) if isinstance(event, AgentStarted)]
    assert child.background
    assert child.model == session.agent.model.card.id


async def test_it_is_turned_on_by_a_setting_or_a_variable_and_off_by_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tools(**options: Any) -> set[str]:
        async with opened(tmp_path, cast(lead=["hi"]), persist=False, **options) as session:
            (started,) = [event for event in recorded(session) if isinstance(event, SessionStarted)]
            return set(started.tools)

    on = json.dumps({"shoal": {"coordinator": True}})
    assert "Bash" in await tools(coordinator=None)
    assert "Bash" not in await tools(coordinator=None, settings=on)
    assert "Bash" in await tools(coordinator=False, settings=on)
    for variable in ("CLAUDE_CODE_COORDINATOR_MODE", "SHOAL_COORDINATOR_MODE"):
        monkeypatch.setenv(variable, "1")
        assert "Bash" not in await tools(coordinator=None)
        assert load_settings(cwd=tmp_path).origin("shoal.coordinator") == f"${variable}"
    monkeypatch.setenv("SHOAL_COORDINATOR_MODE", "0")
    assert "Bash" in await tools(coordinator=None)
    monkeypatch.setenv("SHOAL_COORDINATOR_MODE", "perhaps")
    with pytest.raises(SettingsError, match="SHOAL_COORDINATOR_MODE is 'perhaps'"):
        load_settings(cwd=tmp_path)


async def test_where_agents_may_not_run_in_the_background_it_is_refused(tmp_path: Path) -> None:
    settings = json.dumps({"shoal": {"background_agents": False}})
    with pytest.raises(SettingsError, match=r"shoal\.background_agents"):
        async with opened(tmp_path, cast(lead=["hi"]), settings=settings):
            pass


async def test_a_prompt_of_the_callers_own_stands_in_place_of_the_coordinators(tmp_path: Path) -> None:
    async with opened(tmp_path, cast(lead=["hi"]), system_prompt="You lead.", persist=False) as session:
        assert session.agent.system.startswith("You lead.")
