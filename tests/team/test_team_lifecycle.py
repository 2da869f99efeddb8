"""A team from creation to deletion, in one process with real files."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_scripts import call_tool, read_events, run_all_turns
from shoal.core.conversation.messages import extract_tool_result_text
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.events import AgentEnded, AgentStarted, MemberWentIdle
from team_scripts import (
    approve_shutdown,
    find_tool_results,
    get_home,
    get_last_result,
    get_last_text,
    open_session,
    read_inbox,
    read_team_config,
    script_team,
    send_message,
    spawn_member,
)

ASK_TO_END = {"type": "shutdown_request", "reason": "all done"}


@pytest.mark.spec(
    "TEAM-01", "TEAM-03", "TEAM-05", "TEAM-07", "AGT-03", "BOX-02", "LIF-01", "LIF-03", "MSG-09", "TSK-07"
)
async def test_a_team_is_created_works_wakes_claims_shuts_down_and_is_deleted(tmp_path: Path) -> None:
    seen: dict[str, object] = {}

    def record_spawn(request: ModelRequest) -> str:
        seen["spawned"] = get_last_result(request)
        seen["config"] = read_team_config("crew")
        return "ann is at work"

    def answer_report(request: ModelRequest) -> object:
        seen["report"] = get_last_text(request)
        return send_message("ann", "now the other thing", "more work")

    def answer_second_report(request: ModelRequest) -> object:
        seen["report again"] = get_last_text(request)
        return call_tool("TaskCreate", subject="third", description="the third thing")

    def task_done(request: ModelRequest) -> object:
        seen["task"] = get_last_text(request)
        return send_message("ann", ASK_TO_END)

    def delete_team(request: ModelRequest) -> object:
        seen["config at the end"] = read_team_config("crew")
        seen["mail at the end"] = "".join(each["text"] for each in read_inbox("crew", "team-lead"))
        return call_tool("TeamDelete")

    def first(request: ModelRequest) -> object:
        seen["prompt"] = request.messages[0].text
        seen["inbox"] = read_inbox("crew", "ann")
        seen["inbox of the lead"] = (get_home() / "teams/crew/inboxes/team-lead.json").exists()
        return send_message("team-lead", "the first thing is done", "first done")

    def third(request: ModelRequest) -> object:
        seen["claimed"] = get_last_text(request)
        return call_tool("TaskUpdate", taskId="1", status="completed")

    model = script_team(
        lead=[
            call_tool("TeamCreate", team_name="crew", description="does things"),
            spawn_member("ann", "Do the first thing."),
            record_spawn,
            answer_report,
            "ann goes on",
            answer_second_report,
            "a task is there",
            task_done,
            "ann is asked",
            delete_team,
            "the end",
        ],
        ann=[
            first,
            "first",
            send_message("team-lead", "the other is done", "other done"),
            "other",
            third,
            "3rd",
            approve_shutdown,
        ],
    )
    async with open_session(tmp_path, model) as session:
        text = await run_all_turns(session, "Make a team.")
        said = [
            extract_tool_result_text(each) for each in find_tool_results(session.agent.conversation.messages)
        ]
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
    assert "then continue with the open tasks" in str(seen["claimed"])
    assert "Task #1 is completed." in str(seen["task"])
    assert "3rd" in str(seen["task"])
    ended_as = "teammate_terminated: task ann@crew, type general-purpose, status completed"
    assert everything.count(ended_as) == 1
    assert "terminated" not in str(seen["mail at the end"])
    left = seen["config at the end"]
    assert isinstance(left, dict)
    assert [each["name"] for each in left["members"]] == ["team-lead"]
    assert not (get_home() / "teams" / "crew").exists()
    assert not (get_home() / "tasks" / "crew").exists()
    assert said[-1] == "The team crew was deleted."
    events = read_events(session)
    (started,) = [event for event in events if isinstance(event, AgentStarted)]
    (delete_team,) = [event for event in events if isinstance(event, AgentEnded)]
    assert (started.team, started.color, delete_team.completion.status) == ("crew", "blue", "completed")
    assert len([event for event in events if isinstance(event, MemberWentIdle)]) == 3


@pytest.mark.spec("TEAM-01", "TEAM-07")
async def test_a_team_with_idle_members_can_be_deleted_and_replaced(
    tmp_path: Path,
) -> None:
    model = script_team(
        lead=[
            call_tool("TeamCreate", team_name="crew"),
            spawn_member("ann"),
            "wait",
            call_tool("TeamDelete"),
            call_tool("TeamCreate", team_name="next"),
            "the end",
        ],
        ann=["ready"],
    )
    async with open_session(tmp_path, model) as session:
        text = await run_all_turns(session, "Make a team.")
        said = [
            extract_tool_result_text(each) for each in find_tool_results(session.agent.conversation.messages)
        ]
        teams = session.teams
        assert teams is not None
        assert (teams.led_team_name, teams.list_members()) == ("next", ())
        assert [each["name"] for each in read_team_config("next")["members"]] == ["team-lead"]
        assert [path.name for path in (get_home() / "teams").iterdir()] == ["next"]
    assert text == "the end"
    assert said[-2] == "The team crew was deleted."
    assert said[-1].startswith("You now lead the team next.")
    (ended,) = [event for event in read_events(session) if isinstance(event, AgentEnded)]
    assert (ended.agent, ended.completion.status) == ("ann@crew", "killed")
