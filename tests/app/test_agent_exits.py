"""However an agent ends: its end is known before anything slow, and nothing of it is left."""

from __future__ import annotations

import asyncio
import gc
import json
from pathlib import Path
from typing import Any

import pytest

import shoal
from cast import Gate, agent, all_turns, cast, recorded, use
from crew_rig import drain, ends, opened, results, starts, texts
from git_rig import Repository
from shoal.core.agents import Completion
from shoal.core.errors import BadRequest, StoreError
from shoal.core.events import AgentEnded, AgentStarted, Journaled, Notified
from shoal.core.ids import LEAD
from shoal.core.messages import result_text
from shoal.core.requests import Request
from shoal.testing import FakeClock
from shoal.tools.plan import Planning

STUBBORN = "trap '' TERM; echo up > up; while true; do sleep 1000; done"


def started_id(request: Request) -> str:
    told = result_text(results(request.messages)[0])
    return told.partition("agentId: ")[2].split()[0].rstrip(",")


@pytest.mark.spec("RUN-07", "CTL-05")
async def test_who_waits_for_an_agent_hears_of_its_end_while_its_clean_up_still_runs(tmp_path: Path) -> None:
    clock, gate = FakeClock(), Gate()
    model = cast(
        lead=[
            agent("slow", "c1", run_in_background=True),
            lambda request: use("TaskOutput", "t1", task_id=started_id(request), timeout=600_000),
            "the lead goes on",
        ],
        # A command that does not hear TERM has a second of grace, and the clock stands still.
        slow=[use("Bash", "b1", command=STUBBORN, run_in_background=True), use("Gate"), "all done"],
    )
    async with opened(tmp_path, model, tools=[gate.tool], clock=clock) as session:
        turn = asyncio.create_task(drain(session.run("lead")))
        await gate.wait()
        async with asyncio.timeout(10):
            while not (tmp_path / "up").exists():
                await asyncio.sleep(0)
        gate.opened.set()
        (shell,) = session.parts.shells.list()
        (run,) = session.parts.crew.at_work()
        try:
            async with asyncio.timeout(10):
                events = await turn
            assert events[-1].text == "the lead goes on"
            assert texts(session)[1].startswith("status: completed")
            assert run.live
            assert not shell.ended.is_set()
        finally:
            await clock.advance(1.5)
        async with asyncio.timeout(10):
            await session.parts.crew.quiet()
        assert shell.ended.is_set()
    # It was seen, so no notification comes, though the clean-up ended later.
    assert [event.call for event in recorded(session) if isinstance(event, Notified)] == ["t1"]


def descriptors() -> list[str]:
    """What this process has open below the homes of agents."""
    found = []
    for each in Path("/proc/self/fd").iterdir():
        try:
            found.append(str(each.readlink()))
        except OSError:
            continue
    return [each for each in found if "/subagents/" in each or each.endswith(".output")]


def plans() -> int:
    gc.collect()
    return sum(isinstance(each, Planning) for each in gc.get_objects())


@pytest.mark.spec("RUN-09")
@pytest.mark.needs("git", "bwrap")
@pytest.mark.parametrize("how", ["done", "failed", "killed", "interrupted", "unrecorded", "session ended"])
async def test_nothing_of_an_agent_is_left_whichever_way_it_ends(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository, gate = Repository(tmp_path), Gate()
    last: Any = BadRequest("no more") if how == "failed" else "done"
    model = cast(
        lead=[agent("first", "c1", name="scout", isolation="worktree"), "heard", "next"],
        You=[
            use("Bash", "b1", command="sleep 1000", run_in_background=True),
            use("EnterPlanMode", "p1"),
            use("Gate"),
            last,
        ],
        then=[agent("second", "c2", name="scout"), "end"],
        second=["here"],
    )
    own = {"max_concurrent": 1}
    session = opened(repository.top, model, tools=[gate.tool], own=own, allowed_tools=["Gate"])
    async with session:
        turn = asyncio.create_task(drain(session.run("lead")))
        await gate.wait()
        (run,) = session.parts.crew.at_work()
        (shell,) = session.parts.shells.list()
        assert descriptors()
        assert plans() == 1
        match how:
            case "killed":
                await session.stop_task("scout")
            case "interrupted":
                await session.interrupt()
            case "unrecorded":
                _full_disk(session, monkeypatch)
            case _:
                pass
        if how != "session ended":
            gate.opened.set()
            async with asyncio.timeout(20):
                await turn
                await session.parts.crew.quiet()
            assert shell.ended.is_set()
            assert run.status == {"done": "completed", "unrecorded": "completed"}.get(
                how, "failed" if how == "failed" else "killed"
            )
            monkeypatch.undo()
            session.agent.conversation.messages.clear()
            await all_turns(session, "then")
            # The name and the only place are free again.
            assert [event.name for event in starts(session)][-1] == "scout"
            assert "here" in texts(session)[-1]
    await asyncio.gather(turn, return_exceptions=True)
    assert shell.status in {"stopped", "exited"}
    assert descriptors() == []
    assert repository.nothing_left()
    del run, session
    assert plans() == 0


def _full_disk(session: shoal.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal takes no ends of agents any more."""
    append = session.parts.journal.append

    def full(event: Journaled) -> None:
        if isinstance(event, AgentEnded):
            raise StoreError("No space left on device", path=Path("journal"))
        append(event)

    monkeypatch.setattr(session.parts.journal, "append", full)


@pytest.mark.spec("RUN-09")
@pytest.mark.needs("git", "bwrap")
async def test_an_agent_whose_start_cannot_be_recorded_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = Repository(tmp_path)
    model = cast(lead=[agent("first", "c1", isolation="worktree"), "heard"], You=["never"])
    async with opened(repository.top, model) as session:
        append = session.parts.journal.append

        def full(event: Journaled) -> None:
            if isinstance(event, AgentStarted):
                raise StoreError("No space left on device", path=Path("journal"))
            append(event)

        monkeypatch.setattr(session.parts.journal, "append", full)
        await drain(session.run("lead"))
        assert not session.parts.crew.working
        assert repository.nothing_left()
        assert descriptors() == []
    assert ends(session) == {}


@pytest.mark.spec("USR-03")
async def test_an_end_is_announced_when_nothing_of_the_agent_is_left(tmp_path: Path) -> None:
    clock, gate = FakeClock(), Gate()
    model = cast(
        lead=[agent("slow", "c1", run_in_background=True), "out", "heard"],
        # A command that does not hear TERM has a second of grace, and the clock stands still.
        slow=[use("Bash", "b1", command=STUBBORN, run_in_background=True), use("Gate"), "all done"],
    )
    async with opened(tmp_path, model, clock=clock, tools=[gate.tool]) as session:
        ended = asyncio.Event()
        session.watch(lambda event: ended.set() if isinstance(event, AgentEnded) else None)
        await drain(session.run("lead"))
        await gate.wait()
        async with asyncio.timeout(10):
            while not (tmp_path / "up").exists():
                await asyncio.sleep(0)
        gate.opened.set()
        (shell,) = session.parts.shells.list()
        try:
            async with asyncio.timeout(10):
                await ended.wait()
            assert not shell.ended.is_set()
            assert session.parts.queue.size(LEAD) == 0
        finally:
            async with asyncio.timeout(10):
                while not shell.ended.is_set():
                    await clock.advance(0.5)
        async with asyncio.timeout(10):
            await session.parts.queue.arrival(LEAD)


@pytest.mark.spec("USR-03")
async def test_a_lead_at_rest_hears_of_an_end_within_two_seconds_while_others_work(tmp_path: Path) -> None:
    clock, slow, quick = FakeClock(), Gate(), Gate("Quick")
    model = cast(
        lead=[[agent(who, run_in_background=True) for who in ("slow", "quick")], "out", "heard"],
        slow=[use("Gate"), "at last"],
        quick=[use("Quick"), "quickly found"],
    )
    async with opened(tmp_path, model, clock=clock, tools=[slow.tool, quick.tool]) as session:
        await drain(session.run("lead"))
        await slow.wait()
        await quick.wait()
        waiting = asyncio.create_task(session.next_turn())
        quick.opened.set()
        async with asyncio.timeout(20):
            await session.parts.queue.arrival(LEAD)
        ended = clock.monotonic()
        while not waiting.done() and clock.monotonic() < ended + 2:
            await clock.advance(0.05)
        assert waiting.done()
        turn = waiting.result()
        assert turn is not None
        await drain(turn)
        assert "quickly found" in str(session.agent.conversation.messages)
        assert [each.facts.description for each in session.parts.crew.at_work()] == ["slow"]
        slow.opened.set()


@pytest.mark.spec("USR-24")
async def test_an_acceptance_command_that_may_not_run_has_not_passed(tmp_path: Path) -> None:
    careful = {"description": "d", "prompt": "p", "acceptance": "rm made.txt"}
    accepted = {"acceptance": "rm made.txt"}
    model = cast(
        lead=[
            agent("child", "c1", subagent_type="careful"),
            use("TaskCreate", "t1", subject="s", description="d", metadata=accepted),
            use("TaskUpdate", "t2", taskId="1", status="completed"),
            "end",
        ],
        child=["done"],
    )
    settings = json.dumps({"permissions": {"deny": ["Bash(rm *)"]}})
    async with opened(tmp_path, model, agents={"careful": careful}, settings=settings) as session:
        await all_turns(session)
        assert "is not completed: its acceptance command" in texts(session)[-1]
    done: Completion = ends(session)["child"]
    assert done.status == "failed"
    assert done.evidence.acceptance.exit_code == 126
