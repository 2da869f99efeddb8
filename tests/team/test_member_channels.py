"""Channels to process members: pings, deaths, restarts and questions."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from pathlib import Path

import pytest
from team_helpers import make_shoal_settings, watch_for_event

import shoal
from agent_scripts import call_tool, read_events, run_all_turns
from elapsed_times import scale_to_load
from server_scripts import (
    approve_shutdown,
    call_once_after,
    get_last_text,
    list_requests_of,
    open_process_session,
    run_provider,
)
from shoal.core.clock import Deadline, SystemClock
from shoal.core.events import (
    AgentEnded,
    AgentStarted,
    MemberWentDown,
    MemberWentIdle,
    ModelRequestSettled,
    NoteAdded,
    ToolStarted,
)
from shoal.core.ids import AgentId
from shoal.core.names import AgentName
from shoal.team.channel.member_channel_server import MemberChannelServer
from shoal.team.members.member_admission import TeamMemberObserver
from shoal.team.members.remote_member import START_TIMEOUT, RemoteMember
from shoal.testing.mock_replies import RequestBody
from team_scripts import get_home, read_inbox, read_team_config, send_message, spawn_member

CREATE = call_tool("TeamCreate", team_name="crew")


def find_member_pid(session: shoal.Session, name: str) -> int:
    pid = next(each.pid for each in session.teams.list_members() if each.name == name)
    assert pid is not None
    return pid


async def test_concurrent_idle_checks_of_a_member_are_all_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        run_provider(monkeypatch, lead=[CREATE, spawn_member("ann"), "Wait.", "Good."], ann=["Done."]),
        open_process_session(tmp_path) as session,
    ):
        await run_all_turns(session, "Go.")
        teams = session.teams
        (ann,) = teams.list_members()
        async with asyncio.timeout(9):
            for _ in range(50):
                async with asyncio.TaskGroup() as asking:
                    for _ in range(5):
                        asking.create_task(teams.wait_until_idle())
                        await asyncio.sleep(0)
        assert teams.list_members()[0].pid == ann.pid


class ShortStartClock(SystemClock):
    """Clock that gives a member two seconds to start."""

    def deadline(self, seconds: float) -> Deadline:
        return super().deadline(2 if seconds == START_TIMEOUT else seconds)


@pytest.mark.slow
@pytest.mark.spec("USR-07")
async def test_a_process_that_is_not_ready_at_its_deadline_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = {"type": "command", "command": "sleep 100", "timeout": 100}
    given = {"shoal": {"teammate_mode": "process"}, "hooks": {"SubagentStart": [{"hooks": [hangs]}]}}
    async with (
        run_provider(monkeypatch, lead=[CREATE, spawn_member("ann"), get_last_text], ann=["Never."]),
        open_process_session(tmp_path, settings=json.dumps(given), clock=ShortStartClock()) as session,
        asyncio.timeout(20),
    ):
        text = await run_all_turns(session, "Go.")
        assert [each["name"] for each in read_team_config("crew")["members"]] == ["team-lead"]
    assert "The process of ann could not be started: it did not report that it is ready." in text


async def test_a_member_that_dies_during_an_idle_check_interrupts_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        run_provider(monkeypatch, lead=[CREATE, spawn_member("ann"), "Wait.", "Good."], ann=["Done."]),
        open_process_session(
            tmp_path, settings=make_shoal_settings(teammate_mode="process", teammate_restarts=0)
        ) as session,
    ):
        await run_all_turns(session, "Go.")
        teams = session.teams
        (ann,) = teams.list_members()
        assert ann.pid is not None
        os.kill(ann.pid, signal.SIGSTOP)
        asking = asyncio.create_task(teams.wait_until_idle())
        await asyncio.sleep(0)
        os.kill(ann.pid, signal.SIGKILL)
        async with asyncio.timeout(scale_to_load(5)):
            await asyncio.wait([asking])
        assert not asking.cancelled()
        assert [each["name"] for each in read_team_config("crew")["members"]] == ["team-lead"]


@pytest.mark.slow
@pytest.mark.parametrize("at_work", [True, False])
@pytest.mark.spec("USR-07", "LIF-04")
async def test_a_member_whose_process_hangs_continues_in_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, at_work: bool
) -> None:
    monkeypatch.setattr(MemberChannelServer, "ping_timeout", 1.0)
    begin = [call_tool("Bash", "b1", command="sleep 100", timeout=120000)] if at_work else []
    async with (
        run_provider(
            monkeypatch, lead=[CREATE, spawn_member("ann"), "Wait.", "Good."], ann=[*begin, "Rest."]
        ),
        open_process_session(
            tmp_path, settings=make_shoal_settings(teammate_mode="process", stall_after=0.5)
        ) as session,
        asyncio.timeout(30),
        asyncio.TaskGroup() as tasks,
    ):
        seen = ToolStarted if at_work else MemberWentIdle
        ready = watch_for_event(session, lambda e: isinstance(e, seen) and e.agent == "ann@crew")
        turns = tasks.create_task(run_all_turns(session, "Go."))
        await ready.wait()
        pid = find_member_pid(session, "ann")
        again = watch_for_event(session, lambda e: isinstance(e, AgentStarted) and e.agent == "ann@crew")
        os.kill(pid, signal.SIGSTOP)
        await again.wait()
        await turns
        assert find_member_pid(session, "ann") != pid
        assert not Path(f"/proc/{pid}").exists()
        assert [each["name"] for each in read_team_config("crew")["members"]] == ["team-lead", "ann"]
        notes = "\n".join(event.text for event in read_events(session) if isinstance(event, NoteAdded))
    assert "ann has not answered for 1 s" in notes
    assert "it had not answered for 1 s). ann continues in a new process" in notes


async def test_the_death_of_a_member_that_waits_for_a_slot_is_noticed_within_two_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = call_tool("Bash", "b1", command="sleep 100", timeout=120000)
    async with (
        run_provider(
            monkeypatch,
            lead=[CREATE, spawn_member("ann"), spawn_member("bob"), "Wait.", "Oh."],
            ann=[wait, "Rest."],
            bob=["Rest."],
        ),
        open_process_session(
            tmp_path,
            settings=make_shoal_settings(teammate_mode="process", teammate_restarts=0, max_concurrent=1),
        ) as session,
        asyncio.timeout(20),
    ):
        ended = watch_for_event(session, lambda e: isinstance(e, AgentEnded) and e.agent == "bob@crew")
        async for _ in session.run("Go."):
            pass
        tree = session.agent.budget.budget
        while not tree._gate._waiting:
            await asyncio.sleep(0)
        os.kill(find_member_pid(session, "bob"), signal.SIGKILL)
        async with asyncio.timeout(scale_to_load(2)):
            await ended.wait()


async def test_a_question_that_cannot_be_stored_ends_neither_the_session_nor_the_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = [{"label": "Red", "description": "r"}, {"label": "Blue", "description": "b"}]
    question = {"question": "Which?", "header": "Colour", "options": options, "multiSelect": False}
    asks = call_tool("AskUserQuestion", questions=[question])
    async with (
        run_provider(
            monkeypatch, lead=[CREATE, spawn_member("ann"), "Wait.", "Good."], ann=[asks, "Then not."]
        ) as server,
        open_process_session(tmp_path, attended=True) as session,
        asyncio.timeout(20),
    ):
        # As on a disk that takes nothing more.
        (get_home() / "shoal" / "runs" / session.agent.identity.session / "questions").write_text("")
        await run_all_turns(session, "Go.")
        assert [each.name for each in session.teams.list_members()] == ["ann"]
    assert "questions" in get_last_text(list_requests_of(server, "ann")[-1])


async def test_a_member_that_dies_after_approving_its_shutdown_is_not_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = send_message("ann", {"type": "shutdown_request", "reason": "done"})
    async with (
        run_provider(
            monkeypatch,
            lead=[CREATE, spawn_member("ann"), "Wait.", call_once_after(end, text="is idle")],
            ann=["Rest.", approve_shutdown, "I live."],
        ),
        open_process_session(
            tmp_path, settings=make_shoal_settings(teammate_mode="process", teammate_restarts=1)
        ) as session,
        asyncio.timeout(20),
    ):
        async for _ in session.run("Go."):
            pass
        handle = session.teams.find_member_handle(AgentId("ann@crew"))
        assert handle is not None
        assert isinstance(handle.member, RemoteMember)
        agreed, pid = TeamMemberObserver.on_shutdown_agreed, find_member_pid(session, "ann")

        def die(observer: TeamMemberObserver, name: AgentName, request: str) -> None:
            agreed(observer, name, request)
            os.kill(pid, signal.SIGKILL)

        monkeypatch.setattr(TeamMemberObserver, "on_shutdown_agreed", die)
        await run_all_turns(session)
        assert session.teams.list_members() == ()
    started = [each for each in read_events(session) if isinstance(each, AgentStarted)]
    assert len(started) == 1
    assert any("shutdown_approved" in each["text"] for each in read_inbox("crew", "team-lead"))


async def test_a_member_ended_during_its_restart_is_gone_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        run_provider(monkeypatch, lead=[CREATE, spawn_member("ann"), "Wait.", "Good."], ann=["Rest."]),
        open_process_session(
            tmp_path, settings=make_shoal_settings(teammate_mode="process", teammate_restarts=1)
        ) as session,
        asyncio.timeout(20),
    ):
        await run_all_turns(session, "Go.")
        handle = session.teams.find_member_handle(AgentId("ann@crew"))
        assert handle is not None
        os.kill(find_member_pid(session, "ann"), signal.SIGKILL)
        while not handle.restarts:
            await asyncio.sleep(0)
        async with asyncio.timeout(scale_to_load(4)):
            assert await session.teams.end_member("ann", "the user wants it so")
        assert session.teams.list_members() == ()
        assert [each["name"] for each in read_team_config("crew")["members"]] == ["team-lead"]
    assert not any("did not end" in each.text for each in read_events(session) if isinstance(each, NoteAdded))


async def test_an_unreadable_board_at_the_death_of_a_process_does_not_end_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        run_provider(monkeypatch, lead=[CREATE, spawn_member("ann"), "Wait.", "Good."], ann=["Rest."]),
        open_process_session(
            tmp_path, settings=make_shoal_settings(teammate_mode="process", teammate_restarts=1)
        ) as session,
        asyncio.timeout(20),
    ):
        await run_all_turns(session, "Go.")
        down = watch_for_event(session, lambda e: isinstance(e, MemberWentDown))
        shutil.rmtree(get_home() / "tasks" / "crew")
        (get_home() / "tasks" / "crew").write_text("")
        os.kill(find_member_pid(session, "ann"), signal.SIGKILL)
        await down.wait()
        assert "The teammate ann is down" in await join_lead_messages(session)
        assert [each.state for each in session.list_members()] == ["down"]


@pytest.mark.spec("USR-01", "LIF-04")
async def test_the_request_in_flight_of_a_killed_process_counts_as_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The provider kills the process that asks it, and the answer may be billed."""
    opened: list[shoal.Session] = []

    def kill_asker(body: RequestBody) -> str:
        os.kill(find_member_pid(opened[0], "ann"), signal.SIGKILL)
        return "too late"

    async with (
        run_provider(monkeypatch, lead=[CREATE, spawn_member("ann"), "Wait.", "Good."], ann=[kill_asker]),
        open_process_session(
            tmp_path,
            max_total_tokens=400_000,
            settings=make_shoal_settings(teammate_mode="process", teammate_restarts=0),
        ) as session,
        asyncio.timeout(60),
    ):
        opened.append(session)
        await run_all_turns(session, "Go.")
        budget = session.agent.budget.budget
        (meter,) = (meter for meter in budget.meters if meter.limit == "tokens")
        assert meter.held == 0
        assert meter.spent > budget.usage.total_tokens + 1_000


async def join_lead_messages(session: shoal.Session) -> str:
    await run_all_turns(session)
    return "\n".join(message.text for message in session.agent.conversation.messages)


@pytest.mark.spec("LIF-03")
async def test_the_result_of_a_process_member_contains_its_evidence_and_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = send_message("ann", {"type": "shutdown_request", "reason": "done"})
    async with (
        run_provider(
            monkeypatch,
            lead=[CREATE, spawn_member("ann"), "Wait.", call_once_after(end, text="is idle")],
            ann=[call_tool("Glob", pattern="*"), "Rest.", approve_shutdown],
        ) as server,
        open_process_session(tmp_path) as session,
        asyncio.timeout(20),
    ):
        await run_all_turns(session, "Go.")
    (done,) = [each.completion for each in read_events(session) if isinstance(each, AgentEnded)]
    assert done.evidence.tool_calls >= 1
    assert done.requests == len(list_requests_of(server, "ann"))
    spent = [e for e in read_events(session) if isinstance(e, ModelRequestSettled) and e.agent == "ann@crew"]
    assert done.usage.total_tokens == sum(each.usage.total_tokens for each in spent) > 0


@pytest.mark.spec("PPR-02", "LIF-04")
@pytest.mark.parametrize("restarts", [0, 1])
async def test_open_questions_of_a_dead_process_are_withdrawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarts: int
) -> None:
    wish = call_tool("Write", "w1", file_path=str(tmp_path / "made.txt"), content="by ann")
    async with (
        run_provider(
            monkeypatch, lead=[CREATE, spawn_member("ann"), "Wait.", "Good."], ann=[wish, "Then not."]
        ),
        open_process_session(
            tmp_path,
            skip_permissions=False,
            attended=True,
            settings=make_shoal_settings(teammate_mode="process", teammate_restarts=restarts),
        ) as session,
        asyncio.timeout(20),
    ):
        broker = session.runtime.question_broker
        async for _ in session.run("Go."):
            pass
        question = await anext(broker.watch_questions())
        os.kill(find_member_pid(session, "ann"), signal.SIGKILL)
        async with asyncio.timeout(8):
            while question in broker.list_open_questions():
                await asyncio.sleep(0.01)
