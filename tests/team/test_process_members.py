"""Members in separate processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from team_helpers import watch_for_event

import shoal
from agent_scripts import call_tool, read_events, run_all_turns
from server_scripts import (
    approve_shutdown,
    call_once_after,
    find_request_id,
    get_last_text,
    join_conversation,
    list_requests_of,
    open_process_session,
    run_provider,
)
from shoal.app.agents.backend_launcher import BackendMemberLauncher
from shoal.app.run_access.run_handle import RunHandle, load_agent_statuses
from shoal.core.clock import SystemClock
from shoal.core.conversation.messages import ToolUseBlock
from shoal.core.events import (
    AgentEnded,
    AgentStarted,
    MemberWentIdle,
    ModelRequestSettled,
    NoteAdded,
    QuestionAsked,
    ToolStarted,
)
from shoal.core.permissions.permission_changes import AddPermissionRulesSuggestion, SuggestedPermissionRule
from shoal.core.permissions.questions import (
    AllowAnswer,
    Answer,
    ChoiceAnswer,
    PermissionQuestion,
    PlanApprovalQuestion,
    PlanApprovedAnswer,
    Question,
)
from shoal.core.teams.team_operations import TeammateStatusSnapshot
from shoal.testing.mock_replies import RequestBody
from team_scripts import get_home, read_inbox, read_team_config, send_message, spawn_member

CREATE = call_tool("TeamCreate", team_name="crew")


@pytest.mark.spec("BCK-01", "LIF-01", "LIF-03", "BOX-06")
async def test_a_process_member_works_reports_and_shuts_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        run_provider(
            monkeypatch,
            lead=[
                CREATE,
                spawn_member("ann"),
                "Ann is at work.",
                lambda body: (
                    send_message("ann", {"type": "shutdown_request", "reason": "done"})
                    if "All is well" in join_conversation(body)
                    else "Waiting."
                ),
                "Asked.",
                "Over.",
            ],
            ann=[send_message("team-lead", "All is well.", "report"), "I am done.", approve_shutdown],
        ) as server,
        open_process_session(tmp_path) as session,
    ):
        await run_all_turns(session, "Go.")
        assert "ann" not in str(read_team_config("crew")["members"])
    assert any("All is well" in join_conversation(each.body) for each in server.requests)


async def answer_question(session: shoal.Session, answer: Callable[[Any], Answer]) -> Question:
    question = await anext(session.runtime.question_broker.watch_questions())
    session.runtime.question_broker.submit_answer(question.id, answer(question))
    return question


async def run_with_answer(session: shoal.Session, answer: Callable[[Any], Answer]) -> Question:
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        asking = group.create_task(answer_question(session, answer))
        await run_all_turns(session)
    return asking.result()


def find_member(session: shoal.Session, name: str) -> TeammateStatusSnapshot:
    return next(each for each in session.teams.list_members() if each.name == name)


@pytest.mark.spec("USR-05", "PPR-01")
async def test_the_lead_process_asks_for_permissions_of_a_process_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wish = call_tool("Write", "w1", file_path=str(tmp_path / "made.txt"), content="by ann")
    async with (
        run_provider(
            monkeypatch, lead=[CREATE, spawn_member("ann"), "Wait.", "Good."], ann=[wish, "Written."]
        ),
        open_process_session(tmp_path, skip_permissions=False, attended=True) as session,
    ):
        question = await run_with_answer(session, lambda _: AllowAnswer())
    assert isinstance(question, PermissionQuestion)
    assert (question.agent, question.tool) == ("ann@crew", "Write")
    assert (tmp_path / "made.txt").read_text() == "by ann"


@pytest.mark.spec("PPR-01")
async def test_a_process_member_works_in_the_mode_of_its_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wish = call_tool("Write", "w1", file_path=str(tmp_path / "made.txt"), content="by ann")
    asked: list[Question] = []

    async def allow_all(session: shoal.Session) -> None:
        async for question in session.runtime.question_broker.watch_questions():
            asked.append(question)
            session.runtime.question_broker.submit_answer(question.id, AllowAnswer())

    async with (
        run_provider(
            monkeypatch,
            lead=[CREATE, spawn_member("ann", mode="dontAsk"), "Wait.", "Good."],
            ann=[wish, "Over."],
        ) as server,
        open_process_session(tmp_path, skip_permissions=False, attended=True) as session,
        asyncio.TaskGroup() as aside,
    ):
        answering = aside.create_task(allow_all(session))
        await run_all_turns(session)
        answering.cancel()
    assert len(list_requests_of(server, "ann")) == 2
    assert not asked
    assert not (tmp_path / "made.txt").exists()


@pytest.mark.spec("USR-05", "PPR-01")
async def test_a_question_names_the_subagent_of_a_process_member_that_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wish = call_tool("Write", "w1", file_path=str(tmp_path / "made.txt"), content="by the helper")

    def reply(body: RequestBody) -> Any:
        spoken = sum(message["role"] == "assistant" for message in body["messages"])
        if "helper, write" in str(body["messages"][0]):
            return [wish, "wrote"][min(spoken, 1)]
        return [CREATE, spawn_member("ann"), "Wait.", "Good."][min(spoken, 3)]

    start = call_tool("Agent", description="helper", prompt="helper, write")
    async with (
        run_provider(monkeypatch, lead=[reply], ann=[start, "Over."]),
        open_process_session(tmp_path, skip_permissions=False, attended=True) as session,
    ):
        question = await run_with_answer(session, lambda _: AllowAnswer())
        statuses = load_agent_statuses(RunHandle(session=session.id, home=get_home()))
        assert "helper" in statuses.describe_agent(question.agent)
    assert question.agent not in ("lead", "ann@crew")
    assert (tmp_path / "made.txt").read_text() == "by the helper"


@pytest.mark.spec("PLN-01", "PLN-02", "USR-26")
async def test_the_plan_of_a_process_member_is_approved_by_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = call_tool("ExitPlanMode", "p1", plan="Write it.")
    wish = call_tool("Write", "w1", file_path=str(tmp_path / "made.txt"), content="planned")
    async with (
        run_provider(
            monkeypatch,
            lead=[CREATE, spawn_member("ann", mode="plan"), "Wait.", "Good."],
            ann=[wish, plan, wish, "Written."],
        ) as server,
        open_process_session(tmp_path, mode="acceptEdits", skip_permissions=False, attended=True) as session,
    ):
        question = await run_with_answer(session, lambda asked: PlanApprovedAnswer(digest=asked.digest))
    assert isinstance(question, PlanApprovalQuestion)
    refused = list_requests_of(server, "ann")[1]
    assert "plan" in get_last_text(refused)
    assert (tmp_path / "made.txt").read_text() == "planned"


@pytest.mark.spec("PLN-02", "USR-26")
async def test_a_plan_is_approved_after_the_clock_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ahead(SystemClock):
        """The lead began before the clock was set right: all that others write is older than that."""

        def now(self) -> int:
            return super().now() + 3_600_000

    def answer(body: RequestBody) -> Any:
        answer = {"type": "plan_approval_response", "request_id": find_request_id(body), "approve": True}
        return call_tool("SendMessage", "a1", to="ann", message=answer)

    plan = call_tool("ExitPlanMode", "p1", plan="Write it.")
    wish = call_tool("Write", "w1", file_path=str(tmp_path / "made.txt"), content="planned")
    settings = json.dumps({"shoal": {"teammate_mode": "process", "plan_approver": "lead"}})
    async with (
        run_provider(
            monkeypatch,
            lead=[CREATE, spawn_member("ann", mode="plan"), "Wait.", answer, "Good."],
            ann=[plan, wish, "Written."],
        ),
        open_process_session(tmp_path, settings=settings, clock=Ahead()) as session,
        asyncio.timeout(30),
    ):
        await run_all_turns(session, "Go.")
    assert (tmp_path / "made.txt").read_text() == "planned"


@pytest.mark.spec("USR-26")
async def test_a_question_of_a_process_member_reaches_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = [{"label": "Red", "description": "r"}, {"label": "Blue", "description": "b"}]
    asks = call_tool(
        "AskUserQuestion",
        questions=[{"question": "Which?", "header": "Colour", "options": options, "multiSelect": False}],
    )
    async with (
        run_provider(
            monkeypatch, lead=[CREATE, spawn_member("ann"), "Wait.", "Good."], ann=[asks, get_last_text]
        ) as server,
        open_process_session(tmp_path, attended=True) as session,
    ):
        await run_with_answer(session, lambda _: ChoiceAnswer(answers={"Which?": "Blue"}))
    last = list_requests_of(server, "ann")[-1]
    assert "Blue" in get_last_text(last)


@pytest.mark.spec("TSK-07", "USR-25")
async def test_process_members_claim_tasks_and_send_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def part(body: RequestBody) -> Any:
        """Complete each announced task once."""
        told = [each for each in join_conversation(body).splitlines() if "taskId" in each or "Task " in each]
        calls = [
            block["input"]["taskId"]
            for message in body["messages"]
            if message["role"] == "assistant"
            for block in message["content"]
            if block.get("name") == "TaskUpdate"
        ]
        for number in range(1, 7):
            if str(number) not in calls and any(f"#{number}" in line for line in told):
                return call_tool("TaskUpdate", f"t{number}", taskId=str(number), status="completed")
        return "Rest."

    tasks = [call_tool("TaskCreate", f"c{n}", subject=f"Step {n}", description="Do it.") for n in range(1, 7)]
    async with (
        run_provider(
            monkeypatch,
            lead=[CREATE, tasks, [spawn_member("ann"), spawn_member("bob")], "Wait.", "Good."],
            ann=[send_message("bob", "Hello bob.", "greeting"), part],
            bob=[part],
        ) as server,
        open_process_session(tmp_path) as session,
    ):
        await run_all_turns(session)
    owners = [task["owner"] for task in read_board("crew")]
    assert [task["status"] for task in read_board("crew")] == ["completed"] * 6
    assert set(owners) <= {"ann", "bob"}
    completed = [
        (block["input"]["taskId"])
        for name in ("ann", "bob")
        for message in list_requests_of(server, name)[-1]["messages"]
        if message["role"] == "assistant"
        for block in message["content"]
        if block.get("name") == "TaskUpdate"
    ]
    assert sorted(completed) == ["1", "2", "3", "4", "5", "6"]
    assert any("Hello bob." in join_conversation(body) for body in list_requests_of(server, "bob"))


def read_board(team: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        json.loads(each.read_text()) for each in sorted((get_home() / "tasks" / team).glob("[0-9]*.json"))
    ]
    return found


@pytest.mark.spec("LIF-04", "USR-12")
async def test_a_member_whose_process_is_killed_continues_with_its_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = call_tool("Bash", "b1", command="sleep 100", timeout=120000)
    async with (
        run_provider(
            monkeypatch,
            lead=[CREATE, spawn_member("ann", "Remember the word heron."), "Wait.", "Good."],
            ann=[wait, get_last_text, "Rest."],
        ) as server,
        open_process_session(tmp_path) as session,
        asyncio.timeout(20),
    ):
        in_a_tool = watch_for_event(session, lambda e: isinstance(e, ToolStarted) and e.agent == "ann@crew")
        again = watch_for_event(session, lambda e: isinstance(e, AgentStarted) and e.resumed)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(run_all_turns(session))
            await in_a_tool.wait()
            first = find_member(session, "ann").pid
            assert first is not None
            os.kill(first, signal.SIGKILL)
            await again.wait()
            assert find_member(session, "ann").pid != first
    last = list_requests_of(server, "ann")[-1]
    assert "Remember the word heron." in join_conversation(last)
    assert "Your process ended while you were working" in join_conversation(last)


@pytest.mark.spec("LIF-04", "USR-25")
async def test_a_member_without_restarts_left_is_reported_and_its_tasks_are_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = call_tool("Bash", "b1", command="sleep 100", timeout=120000)
    settings = '{"shoal": {"teammate_mode": "process", "teammate_restarts": 0}}'
    async with (
        run_provider(
            monkeypatch,
            lead=[
                CREATE,
                call_tool("TaskCreate", subject="One", description="x"),
                spawn_member("ann"),
                "Wait.",
                "Oh.",
            ],
            ann=[call_tool("TaskUpdate", "t1", taskId="1", status="in_progress"), wait, "Rest."],
        ) as server,
        open_process_session(tmp_path, settings=settings) as session,
        asyncio.timeout(20),
    ):
        in_a_tool = watch_for_event(
            session, lambda e: isinstance(e, ToolStarted) and e.agent == "ann@crew" and e.tool == "Bash"
        )
        async with asyncio.TaskGroup() as tasks:
            turns = tasks.create_task(run_all_turns(session))
            await in_a_tool.wait()
            assert read_board("crew")[0]["owner"] == "ann"
            os.kill(find_member(session, "ann").pid or 0, signal.SIGKILL)
            killed = asyncio.get_running_loop().time()
            await watch_for_event(
                session, lambda e: isinstance(e, AgentEnded) and e.agent == "ann@crew"
            ).wait()
            assert asyncio.get_running_loop().time() - killed < 2
            await turns
    assert "killed by signal 9" in join_conversation(list_requests_of(server, "lead")[-1])
    assert (read_board("crew")[0].get("owner"), read_board("crew")[0]["status"]) in (
        (None, "pending"),
        ("", "pending"),
    )
    assert [each["name"] for each in read_team_config("crew")["members"]] == ["team-lead"]


@pytest.mark.slow
@pytest.mark.spec("USR-08")
async def test_a_stopped_process_is_gone_within_the_grace_and_five_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = '{"shoal": {"teammate_mode": "process", "shutdown_grace": 0.5}}'
    end = send_message("ann", {"type": "shutdown_request", "reason": "done"})
    async with (
        run_provider(
            monkeypatch,
            lead=[CREATE, spawn_member("ann"), call_once_after(end, text="End it.")],
            ann=["Rest."],
        ),
        open_process_session(tmp_path, settings=settings) as session,
        asyncio.timeout(20),
    ):
        idle = watch_for_event(session, lambda e: isinstance(e, MemberWentIdle))
        turn = session.run("Go.")
        async for _ in turn:
            pass
        await idle.wait()
        pid = find_member(session, "ann").pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        asked = asyncio.get_running_loop().time()
        await run_all_turns(session, "End it.")
        assert asyncio.get_running_loop().time() - asked < 5.5
        assert not Path(f"/proc/{pid}").exists()
        assert [each["name"] for each in read_team_config("crew")["members"]] == ["team-lead"]


@pytest.mark.spec("USR-02", "USR-01")
async def test_spending_of_a_process_member_counts_for_the_shared_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(body: RequestBody) -> ToolUseBlock:
        return call_tool("Glob", pattern=f"*{len(body['messages'])}")

    async with (
        run_provider(monkeypatch, lead=[CREATE, spawn_member("ann"), "Wait.", "Good."], ann=[look]) as server,
        open_process_session(tmp_path, max_total_tokens=40_000) as session,
    ):
        await run_all_turns(session)
        spent = [event for event in read_events(session) if isinstance(event, ModelRequestSettled)]
        total = session.agent.budget.budget.usage.total_tokens
    assert sum(event.usage.total_tokens for event in spent) == total
    assert {event.agent for event in spent} == {"lead", "ann@crew"}
    assert 40_000 <= total < 60_000
    failed = [json.loads(each["text"]) for each in read_inbox("crew", "team-lead")]
    assert any("budget" in each.get("failureReason", "") for each in failed)
    assert len(server.requests) < 30


async def test_an_unknown_agent_type_is_refused_for_a_process_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        run_provider(
            monkeypatch,
            lead=[CREATE, spawn_member("ann", subagent_type="nobody"), get_last_text, "x"],
            ann=["Rest."],
        ),
        open_process_session(tmp_path) as session,
    ):
        text = await run_all_turns(session)
        assert "nobody" in text
        assert [each["name"] for each in read_team_config("crew")["members"]] == ["team-lead"]


async def test_concurrent_waits_for_an_idle_process_member_all_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        run_provider(monkeypatch, lead=[CREATE, spawn_member("ann"), "Wait.", "Good."], ann=["Done."]),
        open_process_session(tmp_path) as session,
    ):
        await run_all_turns(session)
        for _ in range(30):
            # Each asks the member's process whether it is at rest.
            await asyncio.wait_for(asyncio.gather(*(session.wait_agents_idle() for _ in range(4))), 20)
        told = [event.text for event in read_events(session) if isinstance(event, NoteAdded)]
        assert not any("has not answered" in text for text in told)
        assert find_member(session, "ann").state == "idle"


@pytest.mark.spec("USR-05")
async def test_a_session_wide_answer_applies_in_every_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ann is asked about, and what is said of it lets bob work, whose process was there already."""
    git = call_tool("Bash", "g1", command="git init -q .")
    after = call_tool("Bash", "g2", command="git init -q .")
    wakes = send_message("bob", "Your turn.", "go")

    def bob(body: RequestBody) -> Any:
        return after if "Your turn." in get_last_text(body) else "Rest."

    async with (
        run_provider(
            monkeypatch,
            lead=[CREATE, [spawn_member("ann"), spawn_member("bob")], "Wait.", "Good."],
            ann=[git, wakes, "Done."],
            bob=[bob],
        ) as server,
        open_process_session(tmp_path, skip_permissions=False, attended=True) as session,
    ):
        await run_with_answer(session, lambda _: AllowAnswer(remember="session"))
        asked = [event for event in read_events(session) if isinstance(event, QuestionAsked)]
    assert len(asked) == 1
    assert isinstance(asked[0].question, PermissionQuestion)
    assert "git init" in asked[0].question.rule, "the user sees what that would allow"
    assert any(
        block.get("id") == "g2"
        for message in list_requests_of(server, "bob")[-1]["messages"]
        for block in message["content"]
    )


@pytest.mark.spec("USR-05")
async def test_a_permission_granted_while_a_process_starts_applies_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = BackendMemberLauncher.launch_member
    granted = AddPermissionRulesSuggestion(
        rules=(SuggestedPermissionRule(tool_name="Bash", rule_content="mkdir:*"),), destination="session"
    )

    async def launch_then_grant(self: BackendMemberLauncher, *args: Any, **options: Any) -> Any:
        process = await launch(self, *args, **options)
        session.runtime.lead.permissions.apply_permission_update(granted)
        return process

    monkeypatch.setattr(BackendMemberLauncher, "launch_member", launch_then_grant)
    async with (
        run_provider(
            monkeypatch,
            lead=[CREATE, spawn_member("ann"), "Wait.", "Good."],
            ann=[call_tool("Bash", "g1", command="mkdir made"), "Done."],
        ),
        open_process_session(tmp_path, skip_permissions=False, attended=False) as session,
    ):
        await run_all_turns(session)
    assert (tmp_path / "made").is_dir()


@pytest.mark.spec("BCK-05")
async def test_a_process_member_uses_the_shell_snapshot_of_its_lead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = f"ls {get_home() / 'shell-snapshots'}"
    async with (
        run_provider(
            monkeypatch,
            lead=[CREATE, call_tool("Bash", "b0", command=look), spawn_member("ann"), "Wait.", "Good."],
            ann=[call_tool("Bash", "b1", command=look), "Rest."],
        ) as server,
        open_process_session(tmp_path) as session,
    ):
        await run_all_turns(session)
    seen = get_last_text(list_requests_of(server, "lead")[2])
    assert seen.startswith("snapshot-")
    assert get_last_text(list_requests_of(server, "ann")[1]) == seen


@pytest.mark.spec("SND-03")
async def test_a_process_member_that_writes_to_an_unknown_name_gets_the_member_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        run_provider(
            monkeypatch,
            lead=[CREATE, spawn_member("bob"), spawn_member("ann"), "Wait.", "Good."],
            ann=[send_message("carl", "Hello.", "greeting"), "Rest."],
            bob=["Rest."],
        ) as server,
        open_process_session(tmp_path) as session,
    ):
        await run_all_turns(session)
    answer = get_last_text(list_requests_of(server, "ann")[1])
    assert "carl" in answer
    assert "team-lead, ann, bob" in answer


@pytest.mark.spec("LIF-03")
async def test_a_process_member_ended_twice_at_once_reports_its_last_text_and_exits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        run_provider(monkeypatch, lead=[CREATE, spawn_member("ann"), "Wait.", "End."], ann=["My last word."]),
        open_process_session(tmp_path) as session,
        asyncio.timeout(30),
    ):
        await run_all_turns(session, "Go.")
        teams = session.teams
        async with asyncio.TaskGroup() as ending:
            ending.create_task(teams.end_member("ann", "the user wants it so"))
            for _ in range(5):  # it is told to leave, and has not said yet that it does
                await asyncio.sleep(0)
            ending.create_task(teams.end_member("ann", "somebody else does, too"))
        assert teams.list_members() == ()
    (ended,) = [event for event in read_events(session) if isinstance(event, AgentEnded)]
    assert (ended.completion.text, ended.completion.detail) == ("My last word.", "the user wants it so")
    assert not [event.text for event in read_events(session) if isinstance(event, NoteAdded)]


async def test_a_process_member_reads_only_the_setting_sources_of_its_lead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text('{"permissions": {"deny": ["Write"]}}')
    wish = call_tool("Write", "w1", file_path=str(tmp_path / "made.txt"), content="by ann")
    async with (
        run_provider(
            monkeypatch, lead=[CREATE, spawn_member("ann"), "Wait.", "Good."], ann=[wish, "Written."]
        ),
        open_process_session(tmp_path, setting_sources=("user",)) as session,
    ):
        await run_all_turns(session)
    assert (tmp_path / "made.txt").read_text() == "by ann"


@pytest.mark.spec("PRM-07")
async def test_what_a_skill_of_the_lead_takes_away_stays_away_in_later_turns_of_a_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skill = get_home() / "skills" / "narrow" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: narrow\ndescription: d\ndisallowed-tools: Bash(touch:*)\n---\nGo on.\n")
    lead = [
        *(CREATE, call_tool("Skill", "s1", skill="narrow"), spawn_member("ann"), "Wait."),
        *(send_message("ann", "Touch it.", "go"), "Good.", "Good."),
    ]
    touch = call_tool("Bash", "b1", command="touch made")
    async with (
        run_provider(monkeypatch, lead=lead, ann=["Ready.", touch, "Done."]) as server,
        open_process_session(tmp_path, skip_permissions=True) as session,
        asyncio.timeout(60),
    ):
        await run_all_turns(session, "Go.")
    assert "its lead" in get_last_text(list_requests_of(server, "ann")[-1])
    assert not (tmp_path / "made").exists()
