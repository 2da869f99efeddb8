"""Prompt, tools, agents and result of a member."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from agent_scripts import ToolGate, call_tool, read_events, run_all_turns
from shoal.app.config.system_prompt import load_default_prompt
from shoal.core.agents.identity import AgentIdentity
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.conversation.tools import ToolContext
from shoal.core.events import AgentEnded, AgentStarted
from shoal.tools.function_tool import tool
from team_scripts import (
    approve_shutdown,
    find_speaker,
    get_home,
    get_last_result,
    get_last_text,
    open_session,
    script_team,
    send_message,
    spawn_member,
)

CREATE = call_tool("TeamCreate", team_name="crew", description="builds boats")
CARPENTER = {"carpenter": {"description": "Works wood.", "prompt": "You saw along the line."}}


def is_in_order(text: str, *parts: str) -> bool:
    places = [text.find(part) for part in parts]
    return -1 not in places and places == sorted(places)


@pytest.mark.spec("LIF-07")
async def test_the_system_prompt_of_a_member_contains_team_definition_and_roster(
    tmp_path: Path,
) -> None:
    systems: dict[str, str] = {}
    (tmp_path / "CLAUDE.md").write_text("Oil the oars.")

    def ann(request: ModelRequest) -> str:
        systems["ann"] = request.system
        return "ready"

    def bob(request: ModelRequest) -> str:
        systems["bob"] = request.system
        return "ready"

    def lead(request: ModelRequest) -> str:
        systems["lead"] = request.system
        return "end"

    model = script_team(
        lead=[CREATE, spawn_member("ann", subagent_type="carpenter"), spawn_member("bob"), lead],
        ann=[ann],
        bob=[bob],
    )
    async with open_session(tmp_path, model, agents=CARPENTER) as session:
        await run_all_turns(session)
    usual = load_default_prompt().strip()
    assert systems["lead"].startswith(usual)
    assert is_in_order(
        systems["ann"],
        usual,
        "You are ann, a member of the team crew. The lead, team-lead",
        "Nobody in the team sees your plain text: use SendMessage.",
        "The team crew\nbuilds boats\n- team-lead (team-lead)\n- ann (carpenter)",
        "You saw along the line.",
        f"Working directory: {tmp_path}",
        "Oil the oars.",
    )
    assert "- ann (carpenter)\n- bob (general-purpose)" in systems["bob"]


@pytest.mark.spec("TEAM-10")
async def test_the_tool_descriptions_advise_on_team_size_tasks_messages_and_shutdown(tmp_path: Path) -> None:
    async with open_session(tmp_path, script_team(lead=["hi"]), persist=False) as session:
        told = {name: " ".join(t.schema.description.split()) for name, t in session.agent.tools.items()}
    assert "Three to five members are usually right" in told["TeamCreate"]
    assert "pieces that fit one agent's context" in told["TeamCreate"]
    assert "Message one member, not all" in told["TeamCreate"]
    assert is_in_order(told["TeamCreate"], "ask each member to shut down", "then call TeamDelete")
    assert "Write to the agent concerned: * interrupts everyone" in told["SendMessage"]
    assert "one task per piece that one agent can finish alone" in told["TaskCreate"]
    assert "ask members to shut down" in told["TeamDelete"]


@pytest.mark.spec("MOD-01")
async def test_a_member_of_a_coordinator_can_start_agents_and_wait_for_them(tmp_path: Path) -> None:
    reports: list[str] = []

    def record_report(request: ModelRequest) -> str:
        reports.append(get_last_result(request))
        return "ann ends"

    def lead(request: ModelRequest) -> Any:
        if "You carry out one task" in request.system and find_speaker(request) == "lead":
            return "the keel is straight"
        spoken = sum(message.role == "assistant" for message in request.messages)
        return [CREATE, spawn_member("ann"), "wait", "end"][min(spoken, 3)]

    helper = call_tool("Agent", description="look", prompt="Look at the keel.")
    model = script_team(lead=[lead], ann=[helper, record_report])
    async with open_session(tmp_path, model, coordinator=True) as session:
        await run_all_turns(session)
    assert "the keel is straight" in reports[0]
    started = [event for event in read_events(session) if isinstance(event, AgentStarted)]
    assert [(each.parent, each.background) for each in started if not each.team] == [("ann@crew", False)]


@pytest.mark.spec("USR-24")
async def test_the_result_of_a_member_contains_its_usage_and_evidence(tmp_path: Path) -> None:
    model = script_team(
        lead=[
            CREATE,
            spawn_member("ann"),
            "wait",
            send_message("ann", {"type": "shutdown_request"}),
            "asked",
            "end",
        ],
        ann=[
            call_tool("Write", file_path="hull.txt", content="oak"),
            call_tool("Bash", command="cat hull.txt"),
            "built",
            approve_shutdown,
        ],
    )
    async with open_session(tmp_path, model) as session:
        await run_all_turns(session)
    (done,) = [e.completion for e in read_events(session) if isinstance(e, AgentEnded)]
    assert (done.name, done.status) == ("ann", "completed")
    assert done.requests == 4
    assert done.usage.total_tokens > 0
    assert done.evidence.tool_calls == 2
    assert [Path(each).name for each in done.evidence.files] == ["hull.txt"]
    assert [(each.command, each.exit_code) for each in done.evidence.commands] == [("cat hull.txt", 0)]
    assert "cat hull.txt" in Path(done.output).read_text()


@pytest.mark.spec("PLN-02", "USR-12")
async def test_a_resumed_member_with_an_approved_plan_is_not_in_plan_mode(
    tmp_path: Path,
) -> None:
    settings = json.dumps({"shoal": {"plan_approver": "auto"}})
    seen: list[AgentIdentity] = []

    @tool(name="Who", reads_only=True)
    async def who(*, context: ToolContext) -> str:
        """Who am I?"""
        seen.append(context.agent)
        return "you"

    model = script_team(
        lead=[CREATE, [spawn_member("ann", mode="plan"), spawn_member("bob", mode="plan")], "wait", "end"],
        ann=[call_tool("ExitPlanMode", plan="Lay the keel."), "ready"],
        bob=["still thinking"],
    )
    async with open_session(tmp_path, model, settings=settings, tools=[who]) as session:
        await run_all_turns(session)
    answers: dict[str, str] = {}

    def write(request: ModelRequest) -> Any:
        return call_tool("Write", file_path=f"{find_speaker(request)}.txt", content="keel")

    def then(request: ModelRequest) -> str:
        answers[find_speaker(request)] = get_last_result(request)
        return "tried"

    parts: list[Any] = [[send_message("ann", "begin", "go"), send_message("bob", "begin", "go")], "end"]
    steps = {"ann": [write, call_tool("Who"), then], "bob": [write, then]}

    def next_of(name: str) -> Any:
        return lambda request: line(request) if callable(line := steps[name].pop(0)) else line

    again = script_team(
        lead=[lambda _: parts.pop(0) if parts else "end"], ann=[next_of("ann")], bob=[next_of("bob")]
    )
    async with open_session(tmp_path, again, settings=settings, resume=session.id, tools=[who]) as resumed:
        await run_all_turns(resumed, "Let them begin.")
    assert (tmp_path / "ann.txt").read_text() == "keel"
    assert [each.plan_required for each in seen] == [False]
    assert not (tmp_path / "bob.txt").exists(), "one whose plan was not approved is held to it as before"
    assert "plan mode allows no changes" in answers["bob"]


@pytest.mark.spec("USR-25")
async def test_a_claimed_task_cannot_be_completed_after_it_was_released(
    tmp_path: Path,
) -> None:
    gate = ToolGate()
    results: list[str] = []

    def late(request: ModelRequest) -> str:
        results.append(get_last_result(request))
        return "too late"

    def again(request: ModelRequest) -> Any:
        results.append(get_last_text(request))
        return call_tool("TaskUpdate", "again", taskId="1", status="completed")

    model = script_team(
        lead=[
            CREATE,
            spawn_member("ann"),
            "wait",
            call_tool("TaskCreate", subject="saw", description="d"),
            call_tool("Until"),
            call_tool("TaskUpdate", taskId="1", status="pending", owner=""),
            call_tool("Open"),
            "wait",
            "end",
        ],
        ann=[
            "ready",
            call_tool("Gate"),
            call_tool("TaskUpdate", "late", taskId="1", status="completed"),
            late,
            again,
            "done",
        ],
    )
    async with open_session(tmp_path, model, tools=[gate.tool, gate.wait_tool, gate.open_tool]) as session:
        await run_all_turns(session)
        task = json.loads((get_home() / "tasks" / "crew" / "1.json").read_text())
    assert "no longer held by this attempt" in results[0]
    assert "Task #1 is yours now: saw" in results[1]
    # Free again, it was taken by the same member under a new attempt, which may complete it.
    assert (task["status"], task["owner"]) == ("completed", "ann")


@pytest.mark.spec("USR-21")
async def test_a_resumed_member_sends_the_same_prefix(
    tmp_path: Path,
) -> None:
    asked: list[ModelRequest] = []

    def note(request: ModelRequest) -> str:
        asked.append(replace(request, messages=list(request.messages)))
        return "ready"

    model = script_team(
        lead=[CREATE, spawn_member("ann"), "wait", "end", send_message("ann", "go on"), "wait"], ann=[note]
    )
    async with open_session(tmp_path, model) as session:
        await run_all_turns(session)
    async with open_session(tmp_path, model, resume=session.id) as session:
        await run_all_turns(session, "Go on.")
    first, last = asked[0], asked[-1]
    assert "go on" in last.messages[-1].text
    assert (last.system, last.tools) == (first.system, first.tools)
    assert last.messages[: len(first.messages)] == first.messages
