"""What a lead hears and does not hear of members in processes of their own, and what comes of it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shoal
from cast import all_turns, recorded, use
from fleet import approve, asked_of, once, opened, provider, said_to
from shoal.core.clock import Deadline, SystemClock
from shoal.core.events import (
    AgentEnded,
    AgentStarted,
    Event,
    MemberRested,
    Noted,
    RequestSettled,
    ToolStarted,
)
from shoal.core.ids import AgentId
from shoal.team.afar import STARTING, Afar
from troupe import config, home, inbox, member, tell

CREATE = use("TeamCreate", team_name="crew")


def settings(**own: Any) -> str:
    return json.dumps({"shoal": {"teammate_mode": "process", **own}})


def watched(session: shoal.Session, wanted: Callable[[Event], bool]) -> asyncio.Event:
    """Set when such an event is shown."""
    seen = asyncio.Event()
    session.watch(lambda event: seen.set() if wanted(event) else None)
    return seen


def pid_of(session: shoal.Session, name: str) -> int:
    pid = next(each.pid for each in session.parts.teams.members() if each.name == name)
    assert pid is not None
    return pid


async def test_several_who_ask_a_member_at_once_whether_it_rests_are_all_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        provider(monkeypatch, lead=[CREATE, member("ann"), "Wait.", "Good."], ann=["Done."]),
        opened(tmp_path) as session,
    ):
        await all_turns(session, "Go.")
        teams = session.parts.teams
        (ann,) = teams.members()
        async with asyncio.timeout(9):
            for _ in range(50):
                async with asyncio.TaskGroup() as asking:
                    for _ in range(5):
                        asking.create_task(teams.quiet())
                        await asyncio.sleep(0)
        assert teams.members()[0].pid == ann.pid


class HastyClock(SystemClock):
    """Has two seconds for a member to get ready."""

    def deadline(self, seconds: float) -> Deadline:
        return super().deadline(2 if seconds == STARTING else seconds)


@pytest.mark.spec("USR-07")
async def test_a_process_that_does_not_get_ready_is_given_up_at_its_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = {"type": "command", "command": "sleep 100", "timeout": 100}
    given = {"shoal": {"teammate_mode": "process"}, "hooks": {"SubagentStart": [{"hooks": [hangs]}]}}
    async with (
        provider(monkeypatch, lead=[CREATE, member("ann"), said_to], ann=["Never."]),
        opened(tmp_path, settings=json.dumps(given), clock=HastyClock()) as session,
        asyncio.timeout(20),
    ):
        text = await all_turns(session, "Go.")
        assert [each["name"] for each in config("crew")["members"]] == ["team-lead"]
    assert "The process of ann could not be started: it did not say that it is ready." in text


async def test_a_member_that_dies_while_it_is_asked_whether_it_rests_interrupts_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        provider(monkeypatch, lead=[CREATE, member("ann"), "Wait.", "Good."], ann=["Done."]),
        opened(tmp_path, settings=settings(teammate_restarts=0)) as session,
    ):
        await all_turns(session, "Go.")
        teams = session.parts.teams
        (ann,) = teams.members()
        assert ann.pid is not None
        os.kill(ann.pid, signal.SIGSTOP)
        asking = asyncio.create_task(teams.quiet())
        await asyncio.sleep(0)
        os.kill(ann.pid, signal.SIGKILL)
        async with asyncio.timeout(5):
            await asyncio.wait([asking])
        assert not asking.cancelled()
        assert [each["name"] for each in config("crew")["members"]] == ["team-lead"]


@pytest.mark.parametrize("at_work", [True, False])
@pytest.mark.spec("USR-07", "LIF-04")
async def test_one_whose_process_stands_still_for_good_goes_on_in_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, at_work: bool
) -> None:
    monkeypatch.setattr("shoal.team.afar.PATIENCE", 1.0)
    begin = [use("Bash", "b1", command="sleep 100", timeout=120000)] if at_work else []
    async with (
        provider(monkeypatch, lead=[CREATE, member("ann"), "Wait.", "Good."], ann=[*begin, "Rest."]),
        opened(tmp_path, settings=settings(stall_after=0.5)) as session,
        asyncio.timeout(30),
        asyncio.TaskGroup() as tasks,
    ):
        seen = ToolStarted if at_work else MemberRested
        ready = watched(session, lambda e: isinstance(e, seen) and e.agent == "ann@crew")
        turns = tasks.create_task(all_turns(session, "Go."))
        await ready.wait()
        pid = pid_of(session, "ann")
        again = watched(session, lambda e: isinstance(e, AgentStarted) and e.agent == "ann@crew")
        os.kill(pid, signal.SIGSTOP)
        await again.wait()
        await turns
        assert pid_of(session, "ann") != pid
        assert not Path(f"/proc/{pid}").exists()
        assert [each["name"] for each in config("crew")["members"]] == ["team-lead", "ann"]
        notes = "\n".join(event.text for event in recorded(session) if isinstance(event, Noted))
    assert "ann has not answered for 1 s" in notes
    assert "it had not answered for 1 s); it goes on in a new one" in notes


async def test_the_death_of_one_that_waits_for_its_turn_is_noticed_in_two_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = use("Bash", "b1", command="sleep 100", timeout=120000)
    async with (
        provider(
            monkeypatch,
            lead=[CREATE, member("ann"), member("bob"), "Wait.", "Oh."],
            ann=[wait, "Rest."],
            bob=["Rest."],
        ),
        opened(tmp_path, settings=settings(teammate_restarts=0, max_concurrent=1)) as session,
        asyncio.timeout(20),
    ):
        ended = watched(session, lambda e: isinstance(e, AgentEnded) and e.agent == "bob@crew")
        async for _ in session.run("Go."):
            pass
        tree = session.agent.purse.tree
        while not tree._gate._waiting:
            await asyncio.sleep(0)
        os.kill(pid_of(session, "bob"), signal.SIGKILL)
        async with asyncio.timeout(2):
            await ended.wait()


async def test_a_question_that_cannot_be_kept_ends_neither_the_session_nor_who_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = [{"label": "Red", "description": "r"}, {"label": "Blue", "description": "b"}]
    question = {"question": "Which?", "header": "Colour", "options": options, "multiSelect": False}
    asks = use("AskUserQuestion", questions=[question])
    async with (
        provider(
            monkeypatch, lead=[CREATE, member("ann"), "Wait.", "Good."], ann=[asks, "Then not."]
        ) as server,
        opened(tmp_path, attended=True) as session,
        asyncio.timeout(20),
    ):
        # As on a disk that takes nothing more.
        (home() / "shoal" / "runs" / session.agent.identity.session / "questions").write_text("")
        await all_turns(session, "Go.")
        assert [each.name for each in session.parts.teams.members()] == ["ann"]
    assert "questions" in said_to(asked_of(server, "ann")[-1])


async def test_one_that_agreed_to_shut_down_and_died_of_it_is_not_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = tell("ann", {"type": "shutdown_request", "reason": "done"})
    async with (
        provider(
            monkeypatch,
            lead=[CREATE, member("ann"), "Wait.", once(end, when="is idle")],
            ann=["Rest.", approve, "I live."],
        ),
        opened(tmp_path, settings=settings(teammate_restarts=1)) as session,
        asyncio.timeout(20),
    ):
        async for _ in session.run("Go."):
            pass
        post = session.parts.teams.post_of(AgentId("ann@crew"))
        assert post is not None
        assert isinstance(post.member, Afar)
        agreed, pid = post.member.agreed, pid_of(session, "ann")

        def die(request: str) -> None:
            agreed(request)
            os.kill(pid, signal.SIGKILL)

        post.member.agreed = die
        await all_turns(session)
        assert session.parts.teams.members() == ()
    started = [each for each in recorded(session) if isinstance(each, AgentStarted)]
    assert len(started) == 1
    assert any("shutdown_approved" in each["text"] for each in inbox("crew", "team-lead"))


async def test_one_that_is_ended_while_it_is_started_again_is_gone_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        provider(monkeypatch, lead=[CREATE, member("ann"), "Wait.", "Good."], ann=["Rest."]),
        opened(tmp_path, settings=settings(teammate_restarts=1)) as session,
        asyncio.timeout(20),
    ):
        await all_turns(session, "Go.")
        post = session.parts.teams.post_of(AgentId("ann@crew"))
        assert post is not None
        os.kill(pid_of(session, "ann"), signal.SIGKILL)
        while not post.revivals:
            await asyncio.sleep(0)
        async with asyncio.timeout(4):
            assert await session.parts.teams.end("ann", "the person wants it so")
        assert session.parts.teams.members() == ()
        assert [each["name"] for each in config("crew")["members"]] == ["team-lead"]
    assert not any("did not end" in each.text for each in recorded(session) if isinstance(each, Noted))


async def test_a_board_that_cannot_be_read_when_a_process_dies_does_not_end_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        provider(monkeypatch, lead=[CREATE, member("ann"), "Wait.", "Good."], ann=["Rest."]),
        opened(tmp_path, settings=settings(teammate_restarts=1)) as session,
        asyncio.timeout(20),
    ):
        await all_turns(session, "Go.")
        ended = watched(session, lambda e: isinstance(e, AgentEnded) and e.agent == "ann@crew")
        shutil.rmtree(home() / "tasks" / "crew")
        (home() / "tasks" / "crew").write_text("")
        os.kill(pid_of(session, "ann"), signal.SIGKILL)
        await ended.wait()
        assert "signal 9" in await all_told(session)


async def all_told(session: shoal.Session) -> str:
    await all_turns(session)
    return "\n".join(message.text for message in session.agent.conversation.messages)


@pytest.mark.spec("LIF-03")
async def test_what_a_process_did_and_used_is_told_with_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = tell("ann", {"type": "shutdown_request", "reason": "done"})
    async with (
        provider(
            monkeypatch,
            lead=[CREATE, member("ann"), "Wait.", once(end, when="is idle")],
            ann=[use("Glob", pattern="*"), "Rest.", approve],
        ) as server,
        opened(tmp_path) as session,
        asyncio.timeout(20),
    ):
        await all_turns(session, "Go.")
    (done,) = [each.completion for each in recorded(session) if isinstance(each, AgentEnded)]
    assert done.evidence.tool_calls >= 1
    assert done.requests == len(asked_of(server, "ann"))
    spent = [e for e in recorded(session) if isinstance(e, RequestSettled) and e.agent == "ann@crew"]
    assert done.usage.total_tokens == sum(each.usage.total_tokens for each in spent) > 0


@pytest.mark.spec("PPR-02", "LIF-04")
@pytest.mark.parametrize("restarts", [0, 1])
async def test_what_a_dead_process_asked_does_not_stay_on_the_person_s_desk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarts: int
) -> None:
    wish = use("Write", "w1", file_path=str(tmp_path / "made.txt"), content="by ann")
    async with (
        provider(monkeypatch, lead=[CREATE, member("ann"), "Wait.", "Good."], ann=[wish, "Then not."]),
        opened(
            tmp_path, skip_permissions=False, attended=True, settings=settings(teammate_restarts=restarts)
        ) as session,
        asyncio.timeout(20),
    ):
        desk = session.parts.desk
        async for _ in session.run("Go."):
            pass
        question = await anext(desk.incoming())
        os.kill(pid_of(session, "ann"), signal.SIGKILL)
        async with asyncio.timeout(8):
            while question in desk.open_questions():
                await asyncio.sleep(0.01)
