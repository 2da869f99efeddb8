"""Options of the Agent tool: which ones the model sees, which are accepted, and which source wins."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from agent_scripts import ToolGate, call_tool, read_events, run_all_turns, script_agents, spawn_agent
from git_repository import GitRepository
from session_helpers import (
    collect_events,
    get_last_result,
    list_agent_starts,
    list_lead_results,
    open_session,
)
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.events import AgentMovedToBackground, Event, ToolOutputReturned

HIDDEN = {"run_in_background", "cwd"}


@pytest.mark.spec("AGT-02", "AGT-01")
@pytest.mark.parametrize(
    ("own", "shown"),
    [
        ({}, {"run_in_background"}),
        ({"background_agents": False}, set()),
        ({"agent_cwd": True}, {"run_in_background", "cwd"}),
    ],
)
async def test_the_agent_tool_schema_shows_only_options_that_have_an_effect(
    tmp_path: Path, own: dict[str, Any], shown: set[str]
) -> None:
    async with open_session(tmp_path, script_agents(lead=["end"]), shoal_settings=own) as session:
        schema = session.agent.tools["Agent"].schema.input_schema
    properties = schema["properties"]
    assert HIDDEN & properties.keys() == shown
    assert set(schema["required"]) == {"description", "prompt"}
    assert {"subagent_type", "model", "name", "team_name", "mode", "isolation", "effort"} <= properties.keys()
    assert properties["isolation"]["enum"] == ["worktree"]


@pytest.mark.spec("AGT-02")
async def test_the_agent_tool_mentions_forks_only_in_sessions_that_enable_them(tmp_path: Path) -> None:
    described: list[str] = []
    for forks in (True, False):
        options = {"shoal_settings": {"forks": forks}, "attended": True}
        async with open_session(tmp_path, script_agents(lead=["end"]), **options) as session:
            schema = session.agent.tools["Agent"].schema.input_schema
            described.append(schema["properties"]["subagent_type"]["description"])
    assert ["fork" in each for each in described] == [True, False]


@pytest.mark.spec("AGT-02", "AGT-15", "RUN-14")
async def test_hidden_options_are_accepted_even_with_a_slightly_wrong_type(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    model = script_agents(
        lead=[spawn_agent("child", "c1", run_in_background="true", cwd="sub", mode="plan"), "end"],
        child=[call_tool("Bash", "b1", command="pwd"), get_last_result],
    )
    async with open_session(tmp_path, model, shoal_settings={"background_agents": False}) as session:
        await run_all_turns(session)
    (started,) = list_agent_starts(session)
    assert started.cwd == str(tmp_path / "sub")
    assert not started.background
    assert list_lead_results(session)[0].startswith(str(tmp_path / "sub"))


@pytest.mark.spec("AGT-01")
@pytest.mark.parametrize("tool", ["Agent", "Task"])
async def test_every_option_of_a_call_works_under_the_new_and_the_old_tool_name(
    tmp_path: Path, tool: str
) -> None:
    (tmp_path / "sub").mkdir()
    asked: list[ModelRequest] = []

    def child(request: ModelRequest) -> str:
        asked.append(request)
        return "done"

    call = {"description": "looks around", "prompt": "child look", "subagent_type": "reader", "name": "scout",
            "model": "inherit", "run_in_background": True, "cwd": "sub", "effort": 3_000}  # fmt: skip
    agents = {"reader": {"description": "d", "prompt": "You only read.", "tools": ["Read"]}}
    model = script_agents(lead=[call_tool(tool, "c1", **call), "wait", "end"], child=[child])
    async with open_session(tmp_path, model, agents=agents, shoal_settings={"agent_cwd": True}) as session:
        await run_all_turns(session)
    (started,) = list_agent_starts(session)
    assert (started.call, started.kind, started.name, started.background) == ("c1", "reader", "scout", True)
    assert (started.description, started.cwd) == ("looks around", str(tmp_path / "sub"))
    (request,) = asked
    assert request.messages[0].text == "child look"
    assert request.thinking_tokens == 3_000


@pytest.mark.spec("AGT-07")
async def test_an_agent_can_have_tools_that_its_parent_lacks(tmp_path: Path) -> None:
    agents = {"narrow": {"description": "d", "prompt": "p", "tools": ["Agent", "Read"]}}
    model = script_agents(
        lead=[spawn_agent("middle", subagent_type="narrow"), "end"],
        middle=[spawn_agent("child", subagent_type="general-purpose"), "done"],
        child=["done"],
    )
    async with open_session(tmp_path, model, agents=agents) as session:
        await run_all_turns(session)
    narrow, wide = list_agent_starts(session)
    assert narrow.tools == ("Read", "Agent")
    assert {"Read", "Write", "Bash"} <= {*wide.tools}


@pytest.mark.spec("AGT-07")
@pytest.mark.parametrize(
    ("source", "wish", "mode"),
    [
        ("project", "acceptEdits", "default"),
        ("person", "acceptEdits", "acceptEdits"),
        ("person", "bypassPermissions", "default"),
        ("project", "plan", "plan"),
    ],
)
async def test_only_a_users_own_agent_definition_can_widen_the_permission_mode(
    tmp_path: Path, source: str, wish: str, mode: str
) -> None:
    directory = tmp_path / ".claude" if source == "project" else Path(os.environ["SHOAL_HOME"])
    (directory / "agents").mkdir(parents=True)
    front = f"---\nname: one\ndescription: d\npermissionMode: {wish}\n---\np\n"
    (directory / "agents" / "one.md").write_text(front)
    again = call_tool("SendMessage", to="joe", message="again", summary="again")
    model = script_agents(
        lead=[spawn_agent("child", subagent_type="one", name="joe"), again, "wait", "end"],
        child=["done", "again"],
    )
    async with open_session(tmp_path, model, skip_permissions=False, mode="default") as session:
        await run_all_turns(session)
    assert [(each.mode, each.resumed) for each in list_agent_starts(session)] == [(mode, False), (mode, True)]


@pytest.mark.spec("DEF-11")
@pytest.mark.parametrize(("effort", "tokens"), [("low", 1_024), (5_000, 5_000)])
async def test_the_definition_sets_the_effort_of_an_agent(
    tmp_path: Path, effort: str | int, tokens: int
) -> None:
    asked: list[int | None] = []

    def child(request: ModelRequest) -> str:
        asked.append(request.thinking_tokens)
        return "done"

    agents = {"reader": {"description": "d", "prompt": "p", "effort": effort}}
    model = script_agents(lead=[spawn_agent("child", subagent_type="reader"), "end"], child=[child])
    async with open_session(tmp_path, model, agents=agents) as session:
        await run_all_turns(session)
    assert asked == [tokens]


@pytest.mark.spec("AGT-15")
@pytest.mark.parametrize("field", ["tools", "hooks", "skills", "permissionMode"])
async def test_a_call_cannot_set_options_reserved_for_definitions(tmp_path: Path, field: str) -> None:
    model = script_agents(
        lead=[spawn_agent("child", "c1", **{field: ["Bash"]}), get_last_result], child=["never"]
    )
    async with open_session(tmp_path, model) as session:
        answer = await run_all_turns(session)
    assert f"`{field}` is not an argument of Agent." in answer
    # What it says it takes is what the model is shown, nothing more.
    assert "cwd" not in answer
    assert not list_agent_starts(session)


@pytest.mark.spec("AGT-08", "AGT-01")
@pytest.mark.needs("git", "bwrap")
async def test_the_isolation_of_a_call_overrides_that_of_the_definition(tmp_path: Path) -> None:
    agents = {
        "far": {"description": "d", "prompt": "p", "isolation": "remote"},
        "near": {"description": "d", "prompt": "p", "isolation": "worktree"},
    }
    model = script_agents(
        lead=[
            [
                spawn_agent("child 1", "c1", subagent_type="far", isolation="worktree"),
                spawn_agent("child 2", "c2", subagent_type="near", isolation="remote"),
                spawn_agent("child 3", "c3", subagent_type="near"),
            ],
            "end",
        ],
        You=["ok"],
    )
    async with open_session(GitRepository(tmp_path).top, model, agents=agents) as session:
        await run_all_turns(session)
    near, far, usual = list_lead_results(session)
    assert near.startswith("ok")
    assert "no Ray cluster is configured" in far
    assert usual.startswith("ok")
    assert [event.isolation for event in list_agent_starts(session)] == ["worktree", "worktree"]


@pytest.mark.spec("AGT-08", "RUN-05")
@pytest.mark.parametrize("defined", [True, False])
@pytest.mark.parametrize("called", [True, False])
async def test_an_agent_runs_in_the_background_if_the_call_or_the_definition_sets_it(
    tmp_path: Path, defined: bool, called: bool
) -> None:
    agents = {"one": {"description": "d", "prompt": "p", "background": defined}}
    model = script_agents(
        lead=[spawn_agent("child", "c1", subagent_type="one", run_in_background=called), "end"], child=["ok"]
    )
    async with open_session(tmp_path, model, agents=agents) as session:
        await run_all_turns(session)
    (started,) = list_agent_starts(session)
    assert started.background is (defined or called)
    assert list_lead_results(session)[0].startswith(
        "It works in the background" if defined or called else "ok"
    )


BOLD = {"bold": {"description": "d", "prompt": "p", "permissionMode": "bypassPermissions"}}


@pytest.mark.spec("PRM-07")
@pytest.mark.parametrize("enabled", [True, False])
async def test_a_definition_skips_permissions_only_if_the_user_enabled_that(
    tmp_path: Path, enabled: bool
) -> None:
    model = script_agents(
        lead=[spawn_agent("child", "c1", subagent_type="bold"), "end"],
        child=[call_tool("Bash", "b1", command="touch made"), "done"],
    )
    async with open_session(tmp_path, model, agents=BOLD, skip_permissions=enabled) as session:
        session.set_mode("default")
        await run_all_turns(session)
    (started,) = list_agent_starts(session)
    assert started.mode == ("bypassPermissions" if enabled else "default")
    assert (tmp_path / "made").exists() is enabled


@pytest.mark.spec("PRM-07")
async def test_a_resumed_agent_that_skipped_permissions_asks_when_skipping_is_disabled(
    tmp_path: Path,
) -> None:
    again = call_tool("SendMessage", "m1", to="smith", message="again", summary="again")
    script: dict[str, Any] = {
        "lead": [
            spawn_agent("child", "c1", subagent_type="bold", name="smith"),
            "noted",
            again,
            "wait",
            "end",
        ],
        "child": ["first", call_tool("Bash", "b1", command="touch made"), "second"],
    }
    async with open_session(tmp_path, script_agents(**script), agents=BOLD) as session:
        await run_all_turns(session)
    options = {"skip_permissions": False, "resume": session.id}
    async with open_session(tmp_path, script_agents(**script), agents=BOLD, **options) as session:
        await run_all_turns(session, "again")
    assert [event.mode for event in list_agent_starts(session)] == ["bypassPermissions", "default"]
    assert not (tmp_path / "made").exists()


@pytest.mark.spec("AGT-11")
@pytest.mark.parametrize("mode", ["plan", "bypassPermissions", "acceptEdits", "delegate", None])
async def test_the_mode_of_a_call_does_not_affect_a_sub_agent(tmp_path: Path, mode: str | None) -> None:
    model = script_agents(
        lead=[spawn_agent("child", "c1", mode=mode), get_last_result],
        child=[
            [
                call_tool("Write", "w1", file_path="made.txt", content="x"),
                call_tool("Bash", "b1", command="make other.txt"),
            ],
            "done",
        ],
    )
    (tmp_path / "Makefile").write_text("other.txt:\n\ttouch other.txt\n")
    options = {"skip_permissions": False, "mode": "acceptEdits"}
    async with open_session(
        tmp_path, model, shoal_settings={"sandbox": {"enabled": False}}, **options
    ) as session:
        await run_all_turns(session)
    (started,) = list_agent_starts(session)
    assert started.mode == "acceptEdits"
    assert (tmp_path / "made.txt").exists()
    assert not (tmp_path / "other.txt").exists()


def find_returned_data(events: list[Event], call: str) -> Any:
    (found,) = [each for each in events if isinstance(each, ToolOutputReturned) and each.call == call]
    return found.data


@pytest.mark.spec("AGT-12")
@pytest.mark.needs("git", "bwrap")
async def test_tool_results_carry_structured_data_for_every_status(tmp_path: Path) -> None:
    writes = call_tool("Write", "w1", file_path="new.txt", content="x")
    model = script_agents(
        lead=[
            [spawn_agent("child one", "c1"), spawn_agent("work apart", "c2", isolation="worktree")],
            call_tool("Agent", "c3", description="the second", prompt="child two", run_in_background=True),
            "end",
        ],
        child=[call_tool("Glob", "g1", pattern="*"), "found it"],
        # The prompt of an agent in a worktree starts with its location.
        You=[writes, "kept it"],
    )
    async with open_session(GitRepository(tmp_path).top, model) as session:
        events = await collect_events(session.run("lead"))
        done, retained, launched = (find_returned_data(events, f"c{n}") for n in (1, 2, 3))
        await session.supervisor.wait_until_idle()
    one, apart, two = list_agent_starts(session)
    assert done["status"] == "completed"
    assert done["content"] == "found it"
    assert done["agentId"] == one.agent
    assert done["totalTokens"] > 0
    assert done["totalToolUseCount"] == 1
    assert done["totalDurationMs"] >= 0
    assert "worktreePath" not in done
    assert Path(retained["worktreePath"], "new.txt").exists()
    assert apart.agent[:8] in retained["worktreeBranch"]
    launch_fields = {
        key: launched[key] for key in ("status", "agentId", "description", "prompt", "canReadOutputFile")
    }
    assert launch_fields == {
        "status": "async_launched",
        "agentId": two.agent,
        "description": "the second",
        "prompt": "child two",
        "canReadOutputFile": True,
    }
    assert Path(launched["outputFile"]).exists()


@pytest.mark.spec("AGT-12", "RUN-04")
async def test_structured_data_reports_an_agent_moved_to_the_background_as_launched(tmp_path: Path) -> None:
    gate = ToolGate()
    model = script_agents(lead=[spawn_agent("slow", "c1"), "end"], slow=[call_tool("Gate"), "done"])
    async with open_session(tmp_path, model, tools=[gate.tool]) as session:
        turn = asyncio.create_task(collect_events(session.run("lead")))
        await gate.wait_until_reached()
        session.move_to_background()
        data = find_returned_data(await turn, "c1")
        gate.is_open.set()
        await session.supervisor.wait_until_idle()
    assert data["status"] == "async_launched"
    assert [event.agent for event in read_events(session) if isinstance(event, AgentMovedToBackground)] == [
        data["agentId"]
    ]


@pytest.mark.spec("AGT-05")
@pytest.mark.parametrize("form", ["in-process", "process"])
async def test_an_in_process_member_cannot_start_members_or_background_agents(
    tmp_path: Path, form: Any
) -> None:
    agents = {"later": {"description": "d", "prompt": "p", "background": True}}
    calls = [
        spawn_agent("child 1", "c1", name="bob"),
        spawn_agent("child 2", "c2", run_in_background=True),
        spawn_agent("child 3", "c3", subagent_type="later"),
        spawn_agent("child 4", "c4"),
    ]
    model = script_agents(lead=[calls, "end"], child=["done"])
    async with open_session(tmp_path, model, agents=agents, team="roof") as session:
        session.agent.identity = replace(session.agent.identity, name="ann", teammate=form)
        await collect_events(session.run("lead"))
        await session.wait_agents_idle()
    named, *background, own = list_lead_results(session)
    assert "A teammate cannot start teammates" in named
    refused = ["cannot have background agents" in each for each in background]
    assert refused == [form == "in-process"] * 2
    assert own.startswith("done")
