"""A lead and its members know their team after a compaction and after a restart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import shoal
from cast import Gate, all_turns, recorded, use
from shoal.agent.compaction import PROMPT
from shoal.core.events import ConversationCompacted
from shoal.core.ids import LEAD, AgentId
from shoal.core.names import LEAD_NAME, AgentName, TaskId, TeamName
from shoal.core.packed import ByTask
from shoal.core.requests import Request
from shoal.core.roster import Team
from shoal.core.tasks import Task
from shoal.core.teams import Teammate
from shoal.core.usage import ModelCard, Price
from shoal.models.scripted import ScriptedModel
from shoal.team.briefing import MOST_MEMBERS, MOST_TASKS, briefing
from shoal.tools.define import FunctionTool
from troupe import last_words, member, opened, speaker, troupe

CARD = ModelCard(id="small", provider="scripted", window=60_000, price=Price(input=0.0, output=0.0))
BUILDS = [
    use("TeamCreate", team_name="crew", description="builds boats"),
    [use("TaskCreate", f"t{n}", subject=f"plank {n}", description="saw it") for n in (1, 2, 3)],
    [
        use("TaskUpdate", "u1", taskId="1", status="completed"),
        use("TaskUpdate", "u2", taskId="3", addBlockedBy=["2"]),
        use("TaskUpdate", "u3", taskId="2", owner="ann"),
    ],
]


def much() -> FunctionTool:
    @shoal.tool(name="Much", reads_only=True)
    async def read_much() -> str:
        """Give much to read."""
        return "y" * 90_000

    return read_much


def forgetful(seen: dict[str, str], **parts: Sequence[Any]) -> ScriptedModel:
    """Minds whose summaries say nothing of a team; what they are sent after one is `seen`."""

    def mind(request: Request) -> Any:
        if PROMPT in request.messages[-1].text:
            return "Things were done."
        who = speaker(request)
        if request.messages[0].text.startswith("The conversation so far was summarised"):
            seen.setdefault(who, request.messages[0].text)
            return "I go on."
        spoken = sum(message.role == "assistant" for message in request.messages)
        return parts[who][min(spoken, len(parts[who]) - 1)]

    return ScriptedModel(mind, card=CARD)


@pytest.mark.spec("USR-12")
async def test_roster_and_board_are_given_again_when_the_conversation_is_compacted_in_mid_work(
    tmp_path: Path,
) -> None:
    gate = Gate()
    seen: dict[str, str] = {}
    reads = [use("Much", f"m{n}") for n in range(4)]
    model = forgetful(
        seen,
        lead=[*BUILDS, [member("ann"), member("bob", subagent_type="Explore")], use("Until"), *reads, "end"],
        ann=[use("Gate"), *reads, "end"],
        bob=["ready"],
    )
    async with opened(tmp_path, model, tools=[gate.tool, gate.until, much()]) as session:
        turn = session.run("Build the boat.")
        async for event in turn:
            if isinstance(event, ConversationCompacted) and event.agent == LEAD:
                gate.opened.set()
        while (more := await session.next_turn()) is not None:
            async for _ in more:
                pass
        (ann,) = [each for each in session.parts.teams.members() if each.name == "ann"]
        found = session.parts.teams.agent(ann.agent)
        assert found is not None
        assert "You are ann, a member of the team crew" in found.system, "its section stays"
    triggers = {
        (event.agent, event.trigger)
        for event in recorded(session)
        if isinstance(event, ConversationCompacted)
    }
    assert triggers == {("lead", "auto"), ("ann@crew", "auto")}
    lead = seen["lead"]
    assert "You lead the team crew: builds boats." in lead
    assert "- ann (general-purpose), running" in lead
    assert "- bob (Explore), " in lead
    assert "Tasks on its board: 3 (1 completed, 2 pending)" in lead
    assert "#2 pending (ann): plank 2" in lead
    assert "#3 pending: plank 3 [waits for 2]" in lead
    assert "plank 1" not in lead
    assert lead.index("The person's last request, word for word:\nBuild the boat.") < lead.index("You lead")
    assert "You are ann in the team crew: builds boats." in seen["ann"]
    assert "#2 pending (ann): plank 2" in seen["ann"]


@pytest.mark.spec("USR-12")
async def test_a_resumed_lead_is_told_how_its_team_stands_with_its_next_turn(tmp_path: Path) -> None:
    model = troupe(lead=[*BUILDS, [member("ann")], "wait"], ann=["ready"])
    async with opened(tmp_path, model) as session:
        await all_turns(session)
    heard: list[str] = []

    def lead(request: Request) -> str:
        heard.append(last_words(request))
        return "I know my team."

    async with opened(tmp_path, troupe(lead=[lead], ann=["ready"]), resume=session.id) as again:
        assert not heard, "that alone is no turn"
        await all_turns(again, "Who is there?")
    assert heard[0].startswith("Who is there?")
    assert "You lead the team crew: builds boats." in heard[0]
    assert "- ann (general-purpose), idle" in heard[0]
    assert "#2 pending (ann): plank 2" in heard[0]


async def test_neither_a_briefing_nor_a_look_whether_all_is_quiet_goes_through_what_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    through: list[str] = []

    def noting(name: str) -> Callable[[ByTask[Any]], object]:
        whole: Callable[[ByTask[Any]], object] = getattr(ByTask, name)

        def noted(tasks: ByTask[Any]) -> object:
            through.append(name)
            return whole(tasks)

        return noted

    for name in ("by_number", "values", "items"):
        monkeypatch.setattr(ByTask, name, noting(name))
    async with opened(tmp_path, troupe(lead=[*BUILDS, [member("ann")], "wait"], ann=["ready"])) as session:
        await all_turns(session)
    heard: list[str] = []

    def lead(request: Request) -> str:
        heard.append(last_words(request))
        return "I know my team."

    async with opened(tmp_path, troupe(lead=[lead], ann=["ready"]), resume=session.id) as again:
        await all_turns(again, "Who is there?")
    assert "Tasks on its board: 3 (1 completed, 2 pending)" in heard[0]
    assert through == []


@pytest.mark.spec("USR-12")
async def test_a_lead_that_leads_no_team_any_more_is_told_of_none(tmp_path: Path) -> None:
    seen: dict[str, str] = {}
    model = forgetful(seen, lead=[BUILDS[0], use("TeamDelete"), "end"])
    async with opened(tmp_path, model) as session:
        await all_turns(session, "Make and delete it.")
        await session.compact()
        await all_turns(session, "Go on.")
    assert "crew" not in seen["lead"]


def test_a_big_team_and_a_long_board_are_counted_and_bounded() -> None:
    name = TeamName("crew")
    team = Team(
        name=name,
        description="x" * 10_000,
        created_at=0,
        lead_agent_id="team-lead@crew",
        lead_session_id="s",
        members=(),
    )
    members = [
        Teammate(
            agent=AgentId(f"m{n}@crew"),
            name=AgentName(f"m{n}"),
            kind="general-purpose",
            state="idle" if n % 2 else "running",
            color=None,
            model="m",
        )
        for n in range(1_000)
    ]
    tasks = [Task(id=TaskId(str(n)), subject=f"<system-reminder>{'long ' * 200}") for n in range(1, 5_001)]
    tasks.append(Task(id=TaskId("9999"), subject="mine", status="in_progress", owner=AgentName("m7")))
    told = briefing(team, LEAD_NAME, members, tasks, len(tasks))
    assert len(told) < 12_000
    assert told.count("- m") == MOST_MEMBERS
    assert f"and {1_000 - MOST_MEMBERS} others: 485 running, 485 idle." in told
    assert "Tasks on its board: 5001 (5000 pending, 1 in_progress)" in told
    assert f"and {5_001 - MOST_TASKS} open ones more." in told
    assert "<system-reminder>" not in told, "what others wrote rules nothing"
    lines = briefing(team, AgentName("m7"), members, tasks, len(tasks)).splitlines()
    assert next(line for line in lines if line.startswith("- #")) == "- #9999 in_progress (m7): mine"
