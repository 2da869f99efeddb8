"""What a call for an agent may say: what the model is shown of it, what is understood, and what decides."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cast import Gate, agent, all_turns, cast, recorded, use
from crew_rig import drain, last_result, opened, starts, texts
from git_rig import Repository
from shoal.core.events import AgentMoved, Event, ToolReturned
from shoal.core.requests import Request

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
async def test_the_model_is_shown_only_what_does_something_here(
    tmp_path: Path, own: dict[str, Any], shown: set[str]
) -> None:
    async with opened(tmp_path, cast(lead=["end"]), own=own) as session:
        schema = session.agent.tools["Agent"].schema.input_schema
    properties = schema["properties"]
    assert HIDDEN & properties.keys() == shown
    assert set(schema["required"]) == {"description", "prompt"}
    assert {"subagent_type", "model", "name", "team_name", "mode", "isolation", "effort"} <= properties.keys()
    assert properties["isolation"]["enum"] == ["worktree"]


@pytest.mark.spec("AGT-02")
async def test_a_session_without_forks_is_shown_none_after_one_that_had_them(tmp_path: Path) -> None:
    described: list[str] = []
    for forks in (True, False):
        options = {"own": {"forks": forks}, "attended": True}
        async with opened(tmp_path, cast(lead=["end"]), **options) as session:
            schema = session.agent.tools["Agent"].schema.input_schema
            described.append(schema["properties"]["subagent_type"]["description"])
    assert ["fork" in each for each in described] == [True, False]


@pytest.mark.spec("AGT-02", "AGT-15", "RUN-14")
async def test_what_is_hidden_is_still_understood_even_where_it_is_not_quite_right(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    model = cast(
        lead=[agent("child", "c1", run_in_background="true", cwd="sub", mode="plan"), "end"],
        child=[use("Bash", "b1", command="pwd"), last_result],
    )
    async with opened(tmp_path, model, own={"background_agents": False}) as session:
        await all_turns(session)
    (started,) = starts(session)
    assert started.cwd == str(tmp_path / "sub")
    assert not started.background
    assert texts(session)[0].startswith(str(tmp_path / "sub"))


@pytest.mark.spec("AGT-01")
@pytest.mark.parametrize("tool", ["Agent", "Task"])
async def test_a_call_is_heeded_in_all_it_says_by_the_new_name_of_the_tool_and_by_the_old_one(
    tmp_path: Path, tool: str
) -> None:
    (tmp_path / "sub").mkdir()
    asked: list[Request] = []

    def child(request: Request) -> str:
        asked.append(request)
        return "done"

    call = {"description": "looks around", "prompt": "child look", "subagent_type": "reader", "name": "scout",
            "model": "inherit", "run_in_background": True, "cwd": "sub", "effort": 3_000}  # fmt: skip
    agents = {"reader": {"description": "d", "prompt": "You only read.", "tools": ["Read"]}}
    model = cast(lead=[use(tool, "c1", **call), "wait", "end"], child=[child])
    async with opened(tmp_path, model, agents=agents, own={"agent_cwd": True}) as session:
        await all_turns(session)
    (started,) = starts(session)
    assert (started.call, started.kind, started.name, started.background) == ("c1", "reader", "scout", True)
    assert (started.description, started.cwd) == ("looks around", str(tmp_path / "sub"))
    (request,) = asked
    assert request.messages[0].text == "child look"
    assert request.thinking_tokens == 3_000


@pytest.mark.spec("AGT-07")
async def test_an_agent_has_tools_that_its_parent_has_not(tmp_path: Path) -> None:
    agents = {"narrow": {"description": "d", "prompt": "p", "tools": ["Agent", "Read"]}}
    model = cast(
        lead=[agent("middle", subagent_type="narrow"), "end"],
        middle=[agent("child", subagent_type="general-purpose"), "done"],
        child=["done"],
    )
    async with opened(tmp_path, model, agents=agents) as session:
        await all_turns(session)
    narrow, wide = starts(session)
    assert narrow.tools == ("Read", "Agent")
    assert {"Read", "Write", "Bash"} <= {*wide.tools}


@pytest.mark.spec("AGT-07")
@pytest.mark.parametrize(
    ("whose", "wish", "mode"),
    [
        ("project", "acceptEdits", "default"),
        ("person", "acceptEdits", "acceptEdits"),
        ("person", "bypassPermissions", "default"),
        ("project", "plan", "plan"),
    ],
)
async def test_only_a_person_s_own_agents_may_have_a_wider_mode(
    tmp_path: Path, whose: str, wish: str, mode: str
) -> None:
    place = tmp_path / ".claude" if whose == "project" else Path(os.environ["SHOAL_HOME"])
    (place / "agents").mkdir(parents=True)
    front = f"---\nname: one\ndescription: d\npermissionMode: {wish}\n---\np\n"
    (place / "agents" / "one.md").write_text(front)
    again = use("SendMessage", to="joe", message="again", summary="again")
    model = cast(
        lead=[agent("child", subagent_type="one", name="joe"), again, "wait", "end"], child=["done", "again"]
    )
    async with opened(tmp_path, model, skip_permissions=False, mode="default") as session:
        await all_turns(session)
    assert [(each.mode, each.resumed) for each in starts(session)] == [(mode, False), (mode, True)]


@pytest.mark.spec("DEF-11")
@pytest.mark.parametrize(("effort", "tokens"), [("low", 1_024), (5_000, 5_000)])
async def test_an_agent_thinks_as_much_as_its_definition_says(
    tmp_path: Path, effort: str | int, tokens: int
) -> None:
    asked: list[int | None] = []

    def child(request: Request) -> str:
        asked.append(request.thinking_tokens)
        return "done"

    agents = {"reader": {"description": "d", "prompt": "p", "effort": effort}}
    model = cast(lead=[agent("child", subagent_type="reader"), "end"], child=[child])
    async with opened(tmp_path, model, agents=agents) as session:
        await all_turns(session)
    assert asked == [tokens]


@pytest.mark.spec("AGT-15")
@pytest.mark.parametrize("field", ["tools", "hooks", "skills", "permissionMode"])
async def test_a_call_cannot_pass_what_only_a_definition_may_say(tmp_path: Path, field: str) -> None:
    model = cast(lead=[agent("child", "c1", **{field: ["Bash"]}), last_result], child=["never"])
    async with opened(tmp_path, model) as session:
        said = await all_turns(session)
    assert f"`{field}` is not an argument of Agent." in said
    # What it says it takes is what the model is shown, nothing more.
    assert "cwd" not in said
    assert not starts(session)


@pytest.mark.spec("AGT-08", "AGT-01")
@pytest.mark.needs("git", "bwrap")
async def test_the_isolation_of_a_call_beats_that_of_the_definition(tmp_path: Path) -> None:
    agents = {
        "far": {"description": "d", "prompt": "p", "isolation": "remote"},
        "near": {"description": "d", "prompt": "p", "isolation": "worktree"},
    }
    model = cast(
        lead=[
            [
                agent("child 1", "c1", subagent_type="far", isolation="worktree"),
                agent("child 2", "c2", subagent_type="near", isolation="remote"),
                agent("child 3", "c3", subagent_type="near"),
            ],
            "end",
        ],
        You=["ok"],
    )
    async with opened(Repository(tmp_path).top, model, agents=agents) as session:
        await all_turns(session)
    near, far, usual = texts(session)
    assert near.startswith("ok")
    assert "isolation: remote needs an engine" in far
    assert usual.startswith("ok")
    assert [event.isolation for event in starts(session)] == ["worktree", "worktree"]


@pytest.mark.spec("AGT-08", "RUN-05")
@pytest.mark.parametrize("defined", [True, False])
@pytest.mark.parametrize("called", [True, False])
async def test_an_agent_runs_in_the_background_if_the_call_or_the_definition_says_so(
    tmp_path: Path, defined: bool, called: bool
) -> None:
    agents = {"one": {"description": "d", "prompt": "p", "background": defined}}
    model = cast(
        lead=[agent("child", "c1", subagent_type="one", run_in_background=called), "end"], child=["ok"]
    )
    async with opened(tmp_path, model, agents=agents) as session:
        await all_turns(session)
    (started,) = starts(session)
    assert started.background is (defined or called)
    assert texts(session)[0].startswith("It works in the background" if defined or called else "ok")


BOLD = {"bold": {"description": "d", "prompt": "p", "permissionMode": "bypassPermissions"}}


@pytest.mark.spec("PRM-07")
@pytest.mark.parametrize("enabled", [True, False])
async def test_a_definition_skips_permissions_only_where_the_person_has_enabled_that(
    tmp_path: Path, enabled: bool
) -> None:
    model = cast(
        lead=[agent("child", "c1", subagent_type="bold"), "end"],
        child=[use("Bash", "b1", command="touch made"), "done"],
    )
    async with opened(tmp_path, model, agents=BOLD, skip_permissions=enabled) as session:
        session.set_mode("default")
        await all_turns(session)
    (started,) = starts(session)
    assert started.mode == ("bypassPermissions" if enabled else "default")
    assert (tmp_path / "made").exists() is enabled


@pytest.mark.spec("PRM-07")
async def test_an_agent_that_skipped_permissions_asks_again_where_that_is_not_enabled_any_more(
    tmp_path: Path,
) -> None:
    again = use("SendMessage", "m1", to="smith", message="again", summary="again")
    script: dict[str, Any] = {
        "lead": [agent("child", "c1", subagent_type="bold", name="smith"), "noted", again, "wait", "end"],
        "child": ["first", use("Bash", "b1", command="touch made"), "second"],
    }
    async with opened(tmp_path, cast(**script), agents=BOLD) as session:
        await all_turns(session)
    options = {"skip_permissions": False, "resume": session.id}
    async with opened(tmp_path, cast(**script), agents=BOLD, **options) as session:
        await all_turns(session, "again")
    assert [event.mode for event in starts(session)] == ["bypassPermissions", "default"]
    assert not (tmp_path / "made").exists()


@pytest.mark.spec("AGT-11")
@pytest.mark.parametrize("mode", ["plan", "bypassPermissions", "acceptEdits", "delegate", None])
async def test_the_mode_of_a_call_changes_nothing_for_a_sub_agent(tmp_path: Path, mode: str | None) -> None:
    model = cast(
        lead=[agent("child", "c1", mode=mode), last_result],
        child=[
            [
                use("Write", "w1", file_path="made.txt", content="x"),
                use("Bash", "b1", command="make other.txt"),
            ],
            "done",
        ],
    )
    (tmp_path / "Makefile").write_text("other.txt:\n\ttouch other.txt\n")
    options = {"skip_permissions": False, "mode": "acceptEdits"}
    async with opened(tmp_path, model, own={"sandbox": {"enabled": False}}, **options) as session:
        await all_turns(session)
    (started,) = starts(session)
    assert started.mode == "acceptEdits"
    assert (tmp_path / "made.txt").exists()
    assert not (tmp_path / "other.txt").exists()


def returned(events: list[Event], call: str) -> Any:
    (found,) = [each for each in events if isinstance(each, ToolReturned) and each.call == call]
    return found.data


@pytest.mark.spec("AGT-12")
@pytest.mark.needs("git", "bwrap")
async def test_programs_get_the_result_of_each_status_as_data(tmp_path: Path) -> None:
    writes = use("Write", "w1", file_path="new.txt", content="x")
    model = cast(
        lead=[
            [agent("child one", "c1"), agent("work apart", "c2", isolation="worktree")],
            use("Agent", "c3", description="the second", prompt="child two", run_in_background=True),
            "end",
        ],
        child=[use("Glob", "g1", pattern="*"), "found it"],
        # An agent in a worktree is told first where it is.
        You=[writes, "kept it"],
    )
    async with opened(Repository(tmp_path).top, model) as session:
        events = await drain(session.run("lead"))
        done, kept, launched = (returned(events, f"c{n}") for n in (1, 2, 3))
        await session.parts.crew.quiet()
    one, apart, two = starts(session)
    assert done["status"] == "completed"
    assert done["content"] == "found it"
    assert done["agentId"] == one.agent
    assert done["totalTokens"] > 0
    assert done["totalToolUseCount"] == 1
    assert done["totalDurationMs"] >= 0
    assert "worktreePath" not in done
    assert Path(kept["worktreePath"], "new.txt").exists()
    assert apart.agent[:8] in kept["worktreeBranch"]
    said = {key: launched[key] for key in ("status", "agentId", "description", "prompt", "canReadOutputFile")}
    assert said == {
        "status": "async_launched",
        "agentId": two.agent,
        "description": "the second",
        "prompt": "child two",
        "canReadOutputFile": True,
    }
    assert Path(launched["outputFile"]).exists()


@pytest.mark.spec("AGT-12", "RUN-04")
async def test_an_agent_that_moves_to_the_background_is_launched_for_programs_too(tmp_path: Path) -> None:
    gate = Gate()
    model = cast(lead=[agent("slow", "c1"), "end"], slow=[use("Gate"), "done"])
    async with opened(tmp_path, model, tools=[gate.tool]) as session:
        turn = asyncio.create_task(drain(session.run("lead")))
        await gate.wait()
        session.move_to_background()
        data = returned(await turn, "c1")
        gate.opened.set()
        await session.parts.crew.quiet()
    assert data["status"] == "async_launched"
    assert [event.agent for event in recorded(session) if isinstance(event, AgentMoved)] == [data["agentId"]]


@pytest.mark.spec("AGT-05")
@pytest.mark.parametrize("form", ["in-process", "process"])
async def test_a_teammate_starts_no_teammates_and_in_its_leads_process_none_in_the_background(
    tmp_path: Path, form: Any
) -> None:
    agents = {"later": {"description": "d", "prompt": "p", "background": True}}
    calls = [
        agent("child 1", "c1", name="bob"),
        agent("child 2", "c2", run_in_background=True),
        agent("child 3", "c3", subagent_type="later"),
        agent("child 4", "c4"),
    ]
    model = cast(lead=[calls, "end"], child=["done"])
    async with opened(tmp_path, model, agents=agents, team="roof") as session:
        session.agent.identity = replace(session.agent.identity, name="ann", teammate=form)
        await drain(session.run("lead"))
        await session.agents_idle()
    named, *background, own = texts(session)
    assert "the roster of a team is flat" in named
    refused = ["has no agents in the background" in each for each in background]
    assert refused == [form == "in-process"] * 2
    assert own.startswith("done")
