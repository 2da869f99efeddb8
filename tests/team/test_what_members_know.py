"""What a teammate is told of itself and its team, what it may start, and what is known of it at its end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cast import Gate, all_turns, recorded, use
from shoal.app.basis.prompt import usual_prompt
from shoal.core.events import AgentEnded, AgentStarted
from shoal.core.identity import Identity
from shoal.core.requests import Request
from shoal.core.tools import Site
from shoal.tools.define import tool
from troupe import approve_shutdown, home, last_result, last_words, member, opened, speaker, tell, troupe

CREATE = use("TeamCreate", team_name="crew", description="builds boats")
CARPENTER = {"carpenter": {"description": "Works wood.", "prompt": "You saw along the line."}}


def in_order(text: str, *parts: str) -> bool:
    places = [text.find(part) for part in parts]
    return -1 not in places and places == sorted(places)


@pytest.mark.spec("LIF-07")
async def test_a_members_prompt_holds_the_leads_its_team_its_definition_and_roster(
    tmp_path: Path,
) -> None:
    systems: dict[str, str] = {}
    (tmp_path / "CLAUDE.md").write_text("Oil the oars.")

    def ann(request: Request) -> str:
        systems["ann"] = request.system
        return "ready"

    def bob(request: Request) -> str:
        systems["bob"] = request.system
        return "ready"

    def lead(request: Request) -> str:
        systems["lead"] = request.system
        return "end"

    model = troupe(
        lead=[CREATE, member("ann", subagent_type="carpenter"), member("bob"), lead], ann=[ann], bob=[bob]
    )
    async with opened(tmp_path, model, agents=CARPENTER) as session:
        await all_turns(session)
    usual = usual_prompt().strip()
    assert systems["lead"].startswith(usual)
    assert in_order(
        systems["ann"],
        usual,
        "You are ann, a member of the team crew. The lead is team-lead",
        "Nobody in the team sees what you write as plain text. SendMessage reaches one of them by name",
        "The team crew\nbuilds boats\n- team-lead (team-lead)\n- ann (carpenter)",
        "You saw along the line.",
        f"Working directory: {tmp_path}",
        "Oil the oars.",
    )
    assert "- ann (carpenter)\n- bob (general-purpose)" in systems["bob"]


@pytest.mark.spec("TEAM-10")
async def test_the_tools_advise_on_size_pieces_messages_and_the_end_of_a_team(tmp_path: Path) -> None:
    async with opened(tmp_path, troupe(lead=["hi"]), persist=False) as session:
        told = {name: " ".join(t.schema.description.split()) for name, t in session.agent.tools.items()}
    assert "Three to five members are usually right" in told["TeamCreate"]
    assert "pieces that one agent can finish without running out of context" in told["TeamCreate"]
    assert "Write to one member rather than to all" in told["TeamCreate"]
    assert in_order(told["TeamCreate"], "ask each member to shut down", "and then use TeamDelete")
    assert "Write to the one whom it concerns: * reaches everyone" in told["SendMessage"]
    assert "one task per piece that one agent can finish alone" in told["TaskCreate"]
    assert "ask the members to shut down first" in told["TeamDelete"]


@pytest.mark.spec("MOD-01")
async def test_under_a_coordinator_a_member_still_starts_agents_and_waits_for_them(tmp_path: Path) -> None:
    reports: list[str] = []

    def heard(request: Request) -> str:
        reports.append(last_result(request))
        return "ann ends"

    def lead(request: Request) -> Any:
        if "You carry out one task" in request.system and speaker(request) == "lead":
            return "the keel is straight"
        spoken = sum(message.role == "assistant" for message in request.messages)
        return [CREATE, member("ann"), "wait", "end"][min(spoken, 3)]

    helper = use("Agent", description="look", prompt="Look at the keel.")
    model = troupe(lead=[lead], ann=[helper, heard])
    async with opened(tmp_path, model, coordinator=True) as session:
        await all_turns(session)
    assert "the keel is straight" in reports[0]
    started = [event for event in recorded(session) if isinstance(event, AgentStarted)]
    assert [(each.parent, each.background) for each in started if not each.team] == [("ann@crew", False)]


@pytest.mark.spec("USR-24")
async def test_the_end_of_a_member_tells_what_it_used_and_what_it_did(tmp_path: Path) -> None:
    model = troupe(
        lead=[CREATE, member("ann"), "wait", tell("ann", {"type": "shutdown_request"}), "asked", "end"],
        ann=[
            use("Write", file_path="hull.txt", content="oak"),
            use("Bash", command="cat hull.txt"),
            "built",
            approve_shutdown,
        ],
    )
    async with opened(tmp_path, model) as session:
        await all_turns(session)
    (done,) = [e.completion for e in recorded(session) if isinstance(e, AgentEnded)]
    assert (done.name, done.status) == ("ann", "completed")
    assert done.requests == 4
    assert done.usage.total_tokens > 0
    assert done.evidence.tool_calls == 2
    assert [Path(each).name for each in done.evidence.files] == ["hull.txt"]
    assert [(each.command, each.exit_code) for each in done.evidence.commands] == [("cat hull.txt", 0)]
    assert "cat hull.txt" in Path(done.output).read_text()


@pytest.mark.spec("PLN-02", "USR-12")
async def test_a_member_whose_plan_was_approved_need_not_plan_again_when_it_is_taken_up(
    tmp_path: Path,
) -> None:
    settings = json.dumps({"shoal": {"plan_approver": "auto"}})
    seen: list[Identity] = []

    @tool(name="Who", reads_only=True)
    async def who(*, site: Site) -> str:
        """Who am I?"""
        seen.append(site.agent)
        return "you"

    model = troupe(
        lead=[CREATE, [member("ann", mode="plan"), member("bob", mode="plan")], "wait", "end"],
        ann=[use("ExitPlanMode", plan="Lay the keel."), "ready"],
        bob=["still thinking"],
    )
    async with opened(tmp_path, model, settings=settings, tools=[who]) as session:
        await all_turns(session)
    answers: dict[str, str] = {}

    def write(request: Request) -> Any:
        return use("Write", file_path=f"{speaker(request)}.txt", content="keel")

    def then(request: Request) -> str:
        answers[speaker(request)] = last_result(request)
        return "tried"

    parts: list[Any] = [[tell("ann", "begin", "go"), tell("bob", "begin", "go")], "end"]
    steps = {"ann": [write, use("Who"), then], "bob": [write, then]}

    def next_of(name: str) -> Any:
        return lambda request: line(request) if callable(line := steps[name].pop(0)) else line

    again = troupe(
        lead=[lambda _: parts.pop(0) if parts else "end"], ann=[next_of("ann")], bob=[next_of("bob")]
    )
    async with opened(tmp_path, again, settings=settings, resume=session.id, tools=[who]) as resumed:
        await all_turns(resumed, "Let them begin.")
    assert (tmp_path / "ann.txt").read_text() == "keel"
    assert [each.plan_required for each in seen] == [False]
    assert not (tmp_path / "bob.txt").exists(), "one whose plan was not approved is held to it as before"
    assert "in plan mode nothing is changed" in answers["bob"]


@pytest.mark.spec("USR-25")
async def test_a_task_that_was_taken_by_itself_cannot_be_completed_once_it_was_taken_away(
    tmp_path: Path,
) -> None:
    gate = Gate()
    results: list[str] = []

    def late(request: Request) -> str:
        results.append(last_result(request))
        return "too late"

    def again(request: Request) -> Any:
        results.append(last_words(request))
        return use("TaskUpdate", "again", taskId="1", status="completed")

    model = troupe(
        lead=[
            CREATE,
            member("ann"),
            "wait",
            use("TaskCreate", subject="saw", description="d"),
            use("Until"),
            use("TaskUpdate", taskId="1", status="pending", owner=""),
            use("Open"),
            "wait",
            "end",
        ],
        ann=[
            "ready",
            use("Gate"),
            use("TaskUpdate", "late", taskId="1", status="completed"),
            late,
            again,
            "done",
        ],
    )
    async with opened(tmp_path, model, tools=[gate.tool, gate.until, gate.open]) as session:
        await all_turns(session)
        task = json.loads((home() / "tasks" / "crew" / "1.json").read_text())
    assert "no longer held by this attempt" in results[0]
    assert "Task #1 is yours now: saw" in results[1]
    # Free again, it was taken by the same member under a new attempt, which may complete it.
    assert (task["status"], task["owner"]) == ("completed", "ann")


@pytest.mark.spec("USR-21")
async def test_a_member_that_is_taken_up_sends_what_it_sent_before_and_goes_on_from_there(
    tmp_path: Path,
) -> None:
    asked: list[Request] = []

    def note(request: Request) -> str:
        asked.append(replace(request, messages=list(request.messages)))
        return "ready"

    model = troupe(lead=[CREATE, member("ann"), "wait", "end", tell("ann", "go on"), "wait"], ann=[note])
    async with opened(tmp_path, model) as session:
        await all_turns(session)
    async with opened(tmp_path, model, resume=session.id) as session:
        await all_turns(session, "Go on.")
    first, last = asked[0], asked[-1]
    assert "go on" in last.messages[-1].text
    assert (last.system, last.tools) == (first.system, first.tools)
    assert last.messages[: len(first.messages)] == first.messages
