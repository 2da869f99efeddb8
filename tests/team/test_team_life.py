"""A team from its making to its end, in one process with real files."""

from __future__ import annotations

from pathlib import Path

import pytest

from cast import all_turns, recorded, use
from shoal.core.events import AgentEnded, AgentStarted, MemberRested
from shoal.core.messages import result_text
from shoal.core.requests import Request
from troupe import (
    approve_shutdown,
    config,
    home,
    inbox,
    last_result,
    last_words,
    member,
    opened,
    results,
    tell,
    troupe,
)

ASK_TO_END = {"type": "shutdown_request", "reason": "all done"}


@pytest.mark.spec(
    "TEAM-01", "TEAM-03", "TEAM-05", "TEAM-07", "AGT-03", "BOX-02", "LIF-01", "LIF-03", "MSG-09", "TSK-07"
)
async def test_a_team_is_made_works_is_woken_claims_a_task_is_shut_down_and_deleted(tmp_path: Path) -> None:
    seen: dict[str, object] = {}

    def spawned(request: Request) -> str:
        seen["spawned"] = last_result(request)
        seen["config"] = config("crew")
        return "ann is at work"

    def reported(request: Request) -> object:
        seen["report"] = last_words(request)
        return tell("ann", "now the other thing", "more work")

    def reported_again(request: Request) -> object:
        seen["report again"] = last_words(request)
        return use("TaskCreate", subject="third", description="the third thing")

    def task_done(request: Request) -> object:
        seen["task"] = last_words(request)
        return tell("ann", ASK_TO_END)

    def ended(request: Request) -> object:
        seen["config at the end"] = config("crew")
        seen["mail at the end"] = "".join(each["text"] for each in inbox("crew", "team-lead"))
        return use("TeamDelete")

    def first(request: Request) -> object:
        seen["prompt"] = request.messages[0].text
        seen["inbox"] = inbox("crew", "ann")
        seen["inbox of the lead"] = (home() / "teams/crew/inboxes/team-lead.json").exists()
        return tell("team-lead", "the first thing is done", "first done")

    def third(request: Request) -> object:
        seen["claimed"] = last_words(request)
        return use("TaskUpdate", taskId="1", status="completed")

    model = troupe(
        lead=[
            use("TeamCreate", team_name="crew", description="does things"),
            member("ann", "Do the first thing."),
            spawned,
            reported,
            "ann goes on",
            reported_again,
            "a task is there",
            task_done,
            "ann is asked",
            ended,
            "the end",
        ],
        ann=[
            first,
            "first",
            tell("team-lead", "the other is done", "other done"),
            "other",
            third,
            "3rd",
            approve_shutdown,
        ],
    )
    async with opened(tmp_path, model) as session:
        text = await all_turns(session, "Make a team.")
        said = [result_text(each) for each in results(session.agent.conversation.messages)]
        everything = "\n".join(message.text for message in session.agent.conversation.messages)
    assert text == "the end", everything
    assert "teammate_id: ann@crew" in str(seen["spawned"])
    roster = seen["config"]
    assert isinstance(roster, dict)
    assert [each["agentId"] for each in roster["members"]] == ["team-lead@crew", "ann@crew"]
    assert roster["members"][1]["prompt"] == "Do the first thing."
    assert roster["members"][1]["isActive"] is True
    (first_mail,) = seen["inbox"]  # type: ignore[misc]
    assert (first_mail["from"], first_mail["text"]) == ("team-lead", "Do the first thing.")
    assert not {"summary", "color"} & first_mail.keys()
    assert seen["inbox of the lead"] is False, "nobody has written to it yet"
    assert "Do the first thing." in str(seen["prompt"])
    assert "the first thing is done" in str(seen["report"])
    assert "the other is done" in str(seen["report again"])
    assert 'teammate_id="task-list"' in str(seen["claimed"])
    assert "Task #1 is yours now: third\n\nthe third thing" in str(seen["claimed"])
    assert "then go on with the open tasks" in str(seen["claimed"])
    assert "Task #1 is completed." in str(seen["task"])
    assert "3rd" in str(seen["task"])
    ended_as = "teammate_terminated: task ann@crew, type general-purpose, status completed"
    assert everything.count(ended_as) == 1
    assert "terminated" not in str(seen["mail at the end"])
    left = seen["config at the end"]
    assert isinstance(left, dict)
    assert [each["name"] for each in left["members"]] == ["team-lead"]
    assert not (home() / "teams" / "crew").exists()
    assert not (home() / "tasks" / "crew").exists()
    assert said[-1] == "The team crew is deleted."
    events = recorded(session)
    (started,) = [event for event in events if isinstance(event, AgentStarted)]
    (ended,) = [event for event in events if isinstance(event, AgentEnded)]
    assert (started.team, started.color, ended.completion.status) == ("crew", "blue", "completed")
    assert len([event for event in events if isinstance(event, MemberRested)]) == 3


@pytest.mark.spec("TEAM-01", "TEAM-07")
async def test_a_team_whose_members_rest_is_deleted_with_them_and_its_lead_makes_another(
    tmp_path: Path,
) -> None:
    model = troupe(
        lead=[
            use("TeamCreate", team_name="crew"),
            member("ann"),
            "wait",
            use("TeamDelete"),
            use("TeamCreate", team_name="next"),
            "the end",
        ],
        ann=["ready"],
    )
    async with opened(tmp_path, model) as session:
        text = await all_turns(session, "Make a team.")
        said = [result_text(each) for each in results(session.agent.conversation.messages)]
        teams = session.parts.teams
        assert teams is not None
        assert (teams.led_name, teams.members()) == ("next", ())
        assert [each["name"] for each in config("next")["members"]] == ["team-lead"]
        assert [path.name for path in (home() / "teams").iterdir()] == ["next"]
    assert text == "the end"
    assert said[-2] == "The team crew is deleted."
    assert said[-1].startswith("You lead the team next now.")
    (ended,) = [event for event in recorded(session) if isinstance(event, AgentEnded)]
    assert (ended.agent, ended.completion.status) == ("ann@crew", "killed")
