"""Teammates in processes of their own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shoal
from cast import all_turns, recorded, use
from fleet import approve, asked_of, everything, once, opened, provider, request_id, said_to
from shoal.core.clock import SystemClock
from shoal.core.events import (
    AgentEnded,
    AgentStarted,
    Asked,
    Event,
    MemberRested,
    Noted,
    RequestSettled,
    ToolStarted,
)
from shoal.core.questions import Allowed, Answer, Approved, ApprovePlan, Chosen, MayRun, Question
from shoal.core.teams import Teammate
from shoal.testing.replies import Body
from troupe import config, home, inbox, member, tell

CREATE = use("TeamCreate", team_name="crew")


@pytest.mark.spec("BCK-01", "LIF-01", "LIF-03", "BOX-06")
async def test_a_teammate_in_a_process_of_its_own_works_reports_and_shuts_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        provider(
            monkeypatch,
            lead=[
                CREATE,
                member("ann"),
                "Ann is at work.",
                lambda body: (
                    tell("ann", {"type": "shutdown_request", "reason": "done"})
                    if "All is well" in everything(body)
                    else "Waiting."
                ),
                "Asked.",
                "Over.",
            ],
            ann=[tell("team-lead", "All is well.", "report"), "I am done.", approve],
        ) as server,
        opened(tmp_path) as session,
    ):
        await all_turns(session, "Go.")
        assert "ann" not in str(config("crew")["members"])
    assert any("All is well" in everything(each.body) for each in server.requests)


async def answered(session: shoal.Session, answer: Callable[[Any], Answer]) -> Question:
    question = await anext(session.parts.desk.incoming())
    session.parts.desk.answer(question.id, answer(question))
    return question


async def turns_with(session: shoal.Session, answer: Callable[[Any], Answer]) -> Question:
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        asking = group.create_task(answered(session, answer))
        await all_turns(session)
    return asking.result()


def named(session: shoal.Session, name: str) -> Teammate:
    return next(each for each in session.parts.teams.members() if each.name == name)


def watched(session: shoal.Session, wanted: Callable[[Event], bool]) -> asyncio.Event:
    """Set when such an event is shown."""
    seen = asyncio.Event()
    session.watch(lambda event: seen.set() if wanted(event) else None)
    return seen


@pytest.mark.spec("USR-05", "PPR-01")
async def test_permission_for_another_process_is_given_at_the_lead_s_desk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wish = use("Write", "w1", file_path=str(tmp_path / "made.txt"), content="by ann")
    async with (
        provider(monkeypatch, lead=[CREATE, member("ann"), "Wait.", "Good."], ann=[wish, "Written."]),
        opened(tmp_path, skip_permissions=False, attended=True) as session,
    ):
        question = await turns_with(session, lambda _: Allowed())
    assert isinstance(question, MayRun)
    assert (question.agent, question.tool) == ("ann@crew", "Write")
    assert (tmp_path / "made.txt").read_text() == "by ann"


@pytest.mark.spec("PLN-01", "PLN-02", "USR-26")
async def test_a_plan_of_another_process_is_approved_by_the_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = use("ExitPlanMode", "p1", plan="Write it.")
    wish = use("Write", "w1", file_path=str(tmp_path / "made.txt"), content="planned")
    async with (
        provider(
            monkeypatch,
            lead=[CREATE, member("ann", mode="plan"), "Wait.", "Good."],
            ann=[wish, plan, wish, "Written."],
        ) as server,
        opened(tmp_path, mode="acceptEdits", skip_permissions=False, attended=True) as session,
    ):
        question = await turns_with(session, lambda asked: Approved(digest=asked.digest))
    assert isinstance(question, ApprovePlan)
    refused = asked_of(server, "ann")[1]
    assert "plan" in said_to(refused)
    assert (tmp_path / "made.txt").read_text() == "planned"


@pytest.mark.spec("PLN-02", "USR-26")
async def test_a_plan_is_approved_though_the_clock_was_set_back_since_its_process_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ahead(SystemClock):
        """The lead began before the clock was set right: all that others write is older than that."""

        def now(self) -> int:
            return super().now() + 3_600_000

    def answer(body: Body) -> Any:
        answer = {"type": "plan_approval_response", "request_id": request_id(body), "approve": True}
        return use("SendMessage", "a1", to="ann", message=answer)

    plan = use("ExitPlanMode", "p1", plan="Write it.")
    wish = use("Write", "w1", file_path=str(tmp_path / "made.txt"), content="planned")
    settings = json.dumps({"shoal": {"teammate_mode": "process", "plan_approver": "lead"}})
    async with (
        provider(
            monkeypatch,
            lead=[CREATE, member("ann", mode="plan"), "Wait.", answer, "Good."],
            ann=[plan, wish, "Written."],
        ),
        opened(tmp_path, settings=settings, clock=Ahead()) as session,
        asyncio.timeout(30),
    ):
        await all_turns(session, "Go.")
    assert (tmp_path / "made.txt").read_text() == "planned"


@pytest.mark.spec("USR-26")
async def test_a_question_of_another_process_reaches_the_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = [{"label": "Red", "description": "r"}, {"label": "Blue", "description": "b"}]
    asks = use(
        "AskUserQuestion",
        questions=[{"question": "Which?", "header": "Colour", "options": options, "multiSelect": False}],
    )
    async with (
        provider(monkeypatch, lead=[CREATE, member("ann"), "Wait.", "Good."], ann=[asks, said_to]) as server,
        opened(tmp_path, attended=True) as session,
    ):
        await turns_with(session, lambda _: Chosen(answers={"Which?": "Blue"}))
    last = asked_of(server, "ann")[-1]
    assert "Blue" in said_to(last)


@pytest.mark.spec("TSK-07", "USR-25")
async def test_members_in_processes_take_tasks_and_write_to_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def part(body: Body) -> Any:
        """Completes each task it is told of, once."""
        told = [each for each in everything(body).splitlines() if "taskId" in each or "Task " in each]
        calls = [
            block["input"]["taskId"]
            for message in body["messages"]
            if message["role"] == "assistant"
            for block in message["content"]
            if block.get("name") == "TaskUpdate"
        ]
        for number in range(1, 7):
            if str(number) not in calls and any(f"#{number}" in line for line in told):
                return use("TaskUpdate", f"t{number}", taskId=str(number), status="completed")
        return "Rest."

    tasks = [use("TaskCreate", f"c{n}", subject=f"Step {n}", description="Do it.") for n in range(1, 7)]
    async with (
        provider(
            monkeypatch,
            lead=[CREATE, tasks, [member("ann"), member("bob")], "Wait.", "Good."],
            ann=[tell("bob", "Hello bob.", "greeting"), part],
            bob=[part],
        ) as server,
        opened(tmp_path) as session,
    ):
        await all_turns(session)
    owners = [task["owner"] for task in board("crew")]
    assert [task["status"] for task in board("crew")] == ["completed"] * 6
    assert set(owners) <= {"ann", "bob"}
    completed = [
        (block["input"]["taskId"])
        for name in ("ann", "bob")
        for message in asked_of(server, name)[-1]["messages"]
        if message["role"] == "assistant"
        for block in message["content"]
        if block.get("name") == "TaskUpdate"
    ]
    assert sorted(completed) == ["1", "2", "3", "4", "5", "6"]
    assert any("Hello bob." in everything(body) for body in asked_of(server, "bob"))


def board(team: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        json.loads(each.read_text()) for each in sorted((home() / "tasks" / team).glob("[0-9]*.json"))
    ]
    return found


@pytest.mark.spec("LIF-04", "USR-12")
async def test_a_member_whose_process_is_killed_goes_on_with_its_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = use("Bash", "b1", command="sleep 100", timeout=120000)
    async with (
        provider(
            monkeypatch,
            lead=[CREATE, member("ann", "Remember the word heron."), "Wait.", "Good."],
            ann=[wait, said_to, "Rest."],
        ) as server,
        opened(tmp_path) as session,
        asyncio.timeout(20),
    ):
        in_a_tool = watched(session, lambda e: isinstance(e, ToolStarted) and e.agent == "ann@crew")
        again = watched(session, lambda e: isinstance(e, AgentStarted) and e.resumed)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(all_turns(session))
            await in_a_tool.wait()
            first = named(session, "ann").pid
            assert first is not None
            os.kill(first, signal.SIGKILL)
            await again.wait()
            assert named(session, "ann").pid != first
    last = asked_of(server, "ann")[-1]
    assert "Remember the word heron." in everything(last)
    assert "Your process ended while you were at work" in everything(last)


@pytest.mark.spec("LIF-04", "USR-25")
async def test_a_member_that_dies_again_and_again_is_reported_and_its_tasks_are_freed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = use("Bash", "b1", command="sleep 100", timeout=120000)
    settings = '{"shoal": {"teammate_mode": "process", "teammate_restarts": 0}}'
    async with (
        provider(
            monkeypatch,
            lead=[CREATE, use("TaskCreate", subject="One", description="x"), member("ann"), "Wait.", "Oh."],
            ann=[use("TaskUpdate", "t1", taskId="1", status="in_progress"), wait, "Rest."],
        ) as server,
        opened(tmp_path, settings=settings) as session,
        asyncio.timeout(20),
    ):
        in_a_tool = watched(
            session, lambda e: isinstance(e, ToolStarted) and e.agent == "ann@crew" and e.tool == "Bash"
        )
        async with asyncio.TaskGroup() as tasks:
            turns = tasks.create_task(all_turns(session))
            await in_a_tool.wait()
            assert board("crew")[0]["owner"] == "ann"
            os.kill(named(session, "ann").pid or 0, signal.SIGKILL)
            killed = asyncio.get_running_loop().time()
            await watched(session, lambda e: isinstance(e, AgentEnded) and e.agent == "ann@crew").wait()
            assert asyncio.get_running_loop().time() - killed < 2
            await turns
    assert "killed by signal 9" in everything(asked_of(server, "lead")[-1])
    assert (board("crew")[0].get("owner"), board("crew")[0]["status"]) in ((None, "pending"), ("", "pending"))
    assert [each["name"] for each in config("crew")["members"]] == ["team-lead"]


@pytest.mark.spec("USR-08")
async def test_a_stopped_process_is_gone_within_the_grace_and_five_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = '{"shoal": {"teammate_mode": "process", "shutdown_grace": 0.5}}'
    end = tell("ann", {"type": "shutdown_request", "reason": "done"})
    async with (
        provider(monkeypatch, lead=[CREATE, member("ann"), once(end, when="End it.")], ann=["Rest."]),
        opened(tmp_path, settings=settings) as session,
        asyncio.timeout(20),
    ):
        idle = watched(session, lambda e: isinstance(e, MemberRested))
        turn = session.run("Go.")
        async for _ in turn:
            pass
        await idle.wait()
        pid = named(session, "ann").pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        asked = asyncio.get_running_loop().time()
        await all_turns(session, "End it.")
        assert asyncio.get_running_loop().time() - asked < 5.5
        assert not Path(f"/proc/{pid}").exists()
        assert [each["name"] for each in config("crew")["members"]] == ["team-lead"]


@pytest.mark.spec("USR-02", "USR-01")
async def test_what_a_process_spends_counts_against_the_budget_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = use("Glob", pattern="*")
    async with (
        provider(monkeypatch, lead=[CREATE, member("ann"), "Wait.", "Good."], ann=[look]) as server,
        opened(tmp_path, max_total_tokens=40_000) as session,
    ):
        await all_turns(session)
        spent = [event for event in recorded(session) if isinstance(event, RequestSettled)]
        total = session.agent.purse.tree.usage.total_tokens
    assert sum(event.usage.total_tokens for event in spent) == total
    assert {event.agent for event in spent} == {"lead", "ann@crew"}
    assert 40_000 <= total < 60_000
    failed = [json.loads(each["text"]) for each in inbox("crew", "team-lead")]
    assert any("budget" in each.get("failureReason", "") for each in failed)
    assert len(server.requests) < 30


async def test_what_no_other_process_can_have_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        provider(
            monkeypatch, lead=[CREATE, member("ann", subagent_type="nobody"), said_to, "x"], ann=["Rest."]
        ),
        opened(tmp_path) as session,
    ):
        text = await all_turns(session)
        assert "nobody" in text
        assert [each["name"] for each in config("crew")["members"]] == ["team-lead"]


async def test_several_that_wait_for_an_idle_member_at_once_are_all_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        provider(monkeypatch, lead=[CREATE, member("ann"), "Wait.", "Good."], ann=["Done."]),
        opened(tmp_path) as session,
    ):
        await all_turns(session)
        for _ in range(30):
            # Each asks the member's process whether it is at rest.
            await asyncio.wait_for(asyncio.gather(*(session.agents_idle() for _ in range(4))), 20)
        told = [event.text for event in recorded(session) if isinstance(event, Noted)]
        assert not any("has not answered" in text for text in told)
        assert named(session, "ann").state == "idle"


@pytest.mark.spec("USR-05")
async def test_an_answer_for_the_session_holds_in_every_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ann is asked about, and what is said of it lets bob work, whose process was there already."""
    git = use("Bash", "g1", command="git init -q .")
    after = use("Bash", "g2", command="git init -q .")
    wakes = tell("bob", "Your turn.", "go")

    def bob(body: Body) -> Any:
        return after if "Your turn." in said_to(body) else "Rest."

    async with (
        provider(
            monkeypatch,
            lead=[CREATE, [member("ann"), member("bob")], "Wait.", "Good."],
            ann=[git, wakes, "Done."],
            bob=[bob],
        ) as server,
        opened(tmp_path, skip_permissions=False, attended=True) as session,
    ):
        await turns_with(session, lambda _: Allowed(remember="session"))
        asked = [event for event in recorded(session) if isinstance(event, Asked)]
    assert len(asked) == 1
    assert isinstance(asked[0].question, MayRun)
    assert "git init" in asked[0].question.rule, "the person sees what that would allow"
    assert any(
        block.get("id") == "g2"
        for message in asked_of(server, "bob")[-1]["messages"]
        for block in message["content"]
    )


@pytest.mark.spec("BCK-05")
async def test_a_process_uses_the_snapshot_of_the_shell_that_its_lead_has_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = f"ls {home() / 'shell-snapshots'}"
    async with (
        provider(
            monkeypatch,
            lead=[CREATE, use("Bash", "b0", command=look), member("ann"), "Wait.", "Good."],
            ann=[use("Bash", "b1", command=look), "Rest."],
        ) as server,
        opened(tmp_path) as session,
    ):
        await all_turns(session)
    seen = said_to(asked_of(server, "lead")[2])
    assert seen.startswith("snapshot-")
    assert said_to(asked_of(server, "ann")[1]) == seen


@pytest.mark.spec("SND-03")
async def test_who_writes_to_nobody_from_a_process_is_told_who_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        provider(
            monkeypatch,
            lead=[CREATE, [member("ann"), member("bob")], "Wait.", "Good."],
            ann=[tell("carl", "Hello.", "greeting"), "Rest."],
            bob=["Rest."],
        ) as server,
        opened(tmp_path) as session,
    ):
        await all_turns(session)
    answer = said_to(asked_of(server, "ann")[1])
    assert "carl" in answer
    assert "team-lead, ann, bob" in answer


@pytest.mark.spec("LIF-03")
async def test_one_that_is_ended_twice_at_once_says_its_last_word_and_is_gone_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        provider(monkeypatch, lead=[CREATE, member("ann"), "Wait.", "End."], ann=["My last word."]),
        opened(tmp_path) as session,
        asyncio.timeout(30),
    ):
        await all_turns(session, "Go.")
        teams = session.parts.teams
        async with asyncio.TaskGroup() as ending:
            ending.create_task(teams.end("ann", "the person wants it so"))
            for _ in range(5):  # it is told to leave, and has not said yet that it does
                await asyncio.sleep(0)
            ending.create_task(teams.end("ann", "somebody else does, too"))
        assert teams.members() == ()
    (ended,) = [event for event in recorded(session) if isinstance(event, AgentEnded)]
    assert (ended.completion.text, ended.completion.detail) == ("My last word.", "the person wants it so")
    assert not [event.text for event in recorded(session) if isinstance(event, Noted)]


async def test_the_process_of_a_member_reads_the_settings_that_count_for_its_lead_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text('{"permissions": {"deny": ["Write"]}}')
    wish = use("Write", "w1", file_path=str(tmp_path / "made.txt"), content="by ann")
    async with (
        provider(monkeypatch, lead=[CREATE, member("ann"), "Wait.", "Good."], ann=[wish, "Written."]),
        opened(tmp_path, setting_sources=("user",)) as session,
    ):
        await all_turns(session)
    assert (tmp_path / "made.txt").read_text() == "by ann"
