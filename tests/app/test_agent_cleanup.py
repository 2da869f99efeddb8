"""An agent's end is reported before slow cleanup, and no resource of it is left."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from app_session_helpers import get_started_agent_id

import shoal
from agent_scripts import ToolGate, call_tool, read_events, run_all_turns, script_agents, spawn_agent
from git_repository import GitRepository
from session_helpers import (
    collect_events,
    list_agent_starts,
    list_lead_results,
    map_agent_results,
    open_session,
)
from shoal.core.agents.subagents import AgentResult
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.errors import BadRequest, StateFileError
from shoal.core.events import AgentEnded, AgentStarted, JournaledEvent, NotificationDelivered
from shoal.core.ids import LEAD_ID
from shoal.testing import FakeClock
from shoal.tools.plan_tools import AgentPlan
from skill_helpers import write_skill
from team_scripts import approve_shutdown, read_team_config, script_team, send_message, spawn_member

ENDS = ("done", "failed", "killed", "interrupted", "unrecorded", "session ended")
STUBBORN = "trap '' TERM; echo up > up; while true; do sleep 1000; done"


@pytest.mark.spec("RUN-07", "CTL-05")
async def test_a_waiter_gets_the_result_of_an_agent_before_its_cleanup_finishes(tmp_path: Path) -> None:
    clock, gate = FakeClock(), ToolGate()
    model = script_agents(
        lead=[
            spawn_agent("slow", "c1", run_in_background=True),
            lambda request: call_tool(
                "TaskOutput", "t1", task_id=get_started_agent_id(request), timeout=600_000
            ),
            "the lead goes on",
        ],
        # A command that ignores SIGTERM gets a second of grace, and the clock stands still.
        slow=[
            call_tool("Bash", "b1", command=STUBBORN, run_in_background=True),
            call_tool("Gate"),
            "all done",
        ],
    )
    async with open_session(tmp_path, model, tools=[gate.tool], clock=clock) as session:
        turn = asyncio.create_task(collect_events(session.run("lead")))
        await gate.wait_until_reached()
        async with asyncio.timeout(10):
            while not (tmp_path / "up").exists():
                await asyncio.sleep(0)
        gate.is_open.set()
        (shell,) = session.runtime.processes.shells.list_shells()
        (run,) = session.supervisor.list_running_agents()
        try:
            async with asyncio.timeout(10):
                events = await turn
            assert events[-1].text == "the lead goes on"
            assert list_lead_results(session)[1].startswith("status: completed")
            assert run.is_live
            assert not shell.ended.is_set()
        finally:
            await clock.advance(1.5)
        async with asyncio.timeout(10):
            await session.supervisor.wait_until_idle()
        assert shell.ended.is_set()
    # It was seen, so no notification comes, though the clean-up ended later.
    assert [event.call for event in read_events(session) if isinstance(event, NotificationDelivered)] == [
        "t1"
    ]


def list_open_agent_files() -> list[str]:
    """List the files of agents that this process has open."""
    found = []
    for each in Path("/proc/self/fd").iterdir():
        try:
            found.append(str(each.readlink()))
        except OSError:
            continue
    return [each for each in found if "/subagents/" in each or each.endswith(".output")]


def count_agent_plans() -> int:
    gc.collect()
    return sum(isinstance(each, AgentPlan) for each in gc.get_objects())


@pytest.mark.spec("RUN-09")
@pytest.mark.needs("git", "bwrap")
@pytest.mark.parametrize("how", ENDS)
async def test_an_agent_leaves_no_resources_behind_however_it_ends(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository, gate = GitRepository(tmp_path), ToolGate()
    last: Any = BadRequest("no more") if how == "failed" else "done"
    model = script_agents(
        lead=[spawn_agent("first", "c1", name="scout", isolation="worktree"), "heard", "next"],
        You=[
            call_tool("Bash", "b1", command="sleep 1000", run_in_background=True),
            call_tool("EnterPlanMode", "p1"),
            call_tool("Gate"),
            last,
        ],
        then=[spawn_agent("second", "c2", name="scout"), "end"],
        second=["here"],
    )
    own = {"max_concurrent": 1}
    session = open_session(
        repository.top, model, tools=[gate.tool], shoal_settings=own, allowed_tools=["Gate"]
    )
    async with session:
        turn = asyncio.create_task(collect_events(session.run("lead")))
        await gate.wait_until_reached()
        (run,) = session.supervisor.list_running_agents()
        (shell,) = session.runtime.processes.shells.list_shells()
        assert list_open_agent_files()
        assert count_agent_plans() == 1
        await _begin_end(session, how, "scout", monkeypatch)
        if how != "session ended":
            gate.is_open.set()
            async with asyncio.timeout(20):
                await turn
                await session.supervisor.wait_until_idle()
            assert shell.ended.is_set()
            assert run.status == {"done": "completed", "unrecorded": "completed"}.get(
                how, "failed" if how == "failed" else "killed"
            )
            monkeypatch.undo()
            session.agent.conversation.messages.clear()
            await run_all_turns(session, "then")
            # The name and the only place are free again.
            assert [event.name for event in list_agent_starts(session)][-1] == "scout"
            assert "here" in list_lead_results(session)[-1]
    await asyncio.gather(turn, return_exceptions=True)
    assert shell.status in {"stopped", "exited"}
    assert list_open_agent_files() == []
    assert repository.has_no_leftovers()
    del run, session
    assert count_agent_plans() == 0


async def _begin_end(session: shoal.Session, how: str, agent: str, patch: pytest.MonkeyPatch) -> None:
    """Begin the end of an agent that waits at the gate; one that is done or fails only passes the gate."""
    match how:
        case "killed":
            await session.stop_task(agent)
        case "interrupted":
            await session.interrupt()
        case "unrecorded":
            _reject_end_events(session, patch)
        case _:
            pass


def _reject_end_events(session: shoal.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the journal fail for every `AgentEnded`."""
    append = session.runtime.store.journal.append

    def append_unless_end(event: JournaledEvent) -> None:
        if isinstance(event, AgentEnded):
            raise StateFileError("No space left on device", path=Path("journal"))
        append(event)

    monkeypatch.setattr(session.runtime.store.journal, "append", append_unless_end)


@pytest.mark.spec("RUN-09")
@pytest.mark.needs("git", "bwrap")
async def test_an_agent_whose_start_cannot_be_recorded_leaves_no_resources_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = GitRepository(tmp_path)
    model = script_agents(lead=[spawn_agent("first", "c1", isolation="worktree"), "heard"], You=["never"])
    async with open_session(repository.top, model) as session:
        append = session.runtime.store.journal.append

        def append_unless_end(event: JournaledEvent) -> None:
            if isinstance(event, AgentStarted):
                raise StateFileError("No space left on device", path=Path("journal"))
            append(event)

        monkeypatch.setattr(session.runtime.store.journal, "append", append_unless_end)
        await collect_events(session.run("lead"))
        assert not session.supervisor.has_running_agents
        assert repository.has_no_leftovers()
        assert list_open_agent_files() == []
    assert map_agent_results(session) == {}


@pytest.mark.spec("RUN-09")
@pytest.mark.needs("git", "bwrap")
@pytest.mark.parametrize("how", ["stopped", "asked to end", "unrecorded", "session ended"])
async def test_a_teammate_leaves_no_resources_behind_however_it_ends(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository, gate = GitRepository(tmp_path), ToolGate()
    model = script_team(
        lead=[
            call_tool("TeamCreate", team_name="crew"),
            spawn_member("ann", isolation="worktree"),
            "wait",
            send_message("ann", {"type": "shutdown_request"}),
            "asked",
            "heard",
        ],
        ann=[
            call_tool("Bash", "b1", command="sleep 1000", run_in_background=True),
            call_tool("EnterPlanMode", "p1"),
            call_tool("Gate"),
            approve_shutdown,
        ],
    )
    session = open_session(repository.top, model, tools=[gate.tool], allowed_tools=["Gate"])
    async with session:
        await collect_events(session.run("Begin."))
        await gate.wait_until_reached()
        (shell,) = session.runtime.processes.shells.list_shells()
        assert list_open_agent_files()
        assert count_agent_plans() == 1
        if how == "unrecorded":
            _reject_end_events(session, monkeypatch)
        if how in ("asked to end", "unrecorded"):
            await collect_events(session.run("End."))
            gate.is_open.set()
        elif how == "stopped":
            await session.stop_task("ann")
        if how != "session ended":
            async with asyncio.timeout(30):
                await shell.ended.wait()
                while list_open_agent_files() or read_team_config("crew")["members"][1:]:
                    await asyncio.sleep(0.001)
            assert count_agent_plans() == 0
    assert shell.status in {"stopped", "exited"}
    assert list_open_agent_files() == []
    assert repository.has_no_leftovers()
    del session
    assert count_agent_plans() == 0


@pytest.mark.spec("RUN-09")
@pytest.mark.parametrize("how", ENDS)
async def test_an_agents_timers_and_skill_permissions_end_with_it(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_skill(Path(os.environ["SHOAL_HOME"]) / "skills", "marking", allowed_tools="Bash(touch:*)")
    clock, gate = FakeClock(), ToolGate()
    touch = call_tool("Bash", "b1", command="touch marked", timeout=5000)
    model = script_agents(
        warm=["ready"],
        lead=[spawn_agent("one", "c1", name="scout"), "heard"],
        one=[
            call_tool("Skill", "s1", skill="marking"),
            touch,
            call_tool("Gate"),
            BadRequest("no more") if how == "failed" else "done",
        ],
        then=[spawn_agent("two", "c2"), "end"],
        two=[call_tool("Bash", "b2", command="touch unmarked"), "tried"],
    )
    session = open_session(
        tmp_path,
        model,
        tools=[gate.tool],
        clock=clock,
        skip_permissions=False,
        mode="dontAsk",
        allowed_tools=["Gate", "Agent", "Skill"],
    )
    async with session:
        await collect_events(session.run("warm up"))
        session.agent.conversation.messages.clear()
        before = clock.sleepers
        turn = asyncio.create_task(collect_events(session.run("lead")))
        await gate.wait_until_reached()
        assert (tmp_path / "marked").exists()
        (run,) = session.supervisor.list_running_agents()
        with monkeypatch.context() as patch:
            await _begin_end(session, how, "scout", patch)
            if how != "session ended":
                gate.is_open.set()
                async with asyncio.timeout(20):
                    await turn
                    await session.supervisor.wait_until_idle()
        del run
        if how != "session ended":
            assert clock.sleepers == before
            session.agent.conversation.messages.clear()
            await run_all_turns(session, "then")
    await asyncio.gather(turn, return_exceptions=True)
    assert clock.sleepers == 0
    assert not (tmp_path / "unmarked").exists()


def count_process_resources(clock: FakeClock) -> Counter[str]:
    """Count open files, tasks and timers of this process; debug logs and output files are among the files."""
    loop = asyncio.get_running_loop()
    names: list[str] = []
    for each in Path("/proc/self/fd").iterdir():
        try:
            names.append(re.sub(r"\d+", "N", str(each.readlink())))
        except OSError:
            continue
    names += (str(task.get_coro()).partition(" at ")[0] for task in asyncio.all_tasks())
    timers = loop._scheduled  # type: ignore[attr-defined]
    names += (re.sub(r"when=\S+", "", repr(timer)) for timer in timers if not timer.cancelled())
    names += ["sleeper"] * clock.sleepers
    return Counter(names)


@pytest.mark.spec("RUN-09")
@pytest.mark.parametrize("how", ENDS)
async def test_an_agents_timers_dumps_and_skill_state_end_with_its_run(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Path(os.environ["SHOAL_HOME"])
    write_skill(home / "skills", "marking", allowed_tools="Bash(touch:*)", effort="high")
    clock, gate = FakeClock(), ToolGate()
    thinking: list[int] = []

    def go_on(request: ModelRequest) -> Any:
        thinking.append(request.adaptive_tokens)
        if "again" not in request.messages[-1].text:
            return BadRequest("no more") if how == "failed" else "done"
        return call_tool("Bash", "b2", command="touch unmarked")

    def note_effort(request: ModelRequest) -> Any:
        thinking.append(request.adaptive_tokens)
        return call_tool("Bash", "b1", command="touch marked", timeout=5000)

    use_skill = call_tool("Skill", "s1", skill="marking")
    model = script_agents(
        warm=[spawn_agent("two", "c0"), "ready"],
        two=[call_tool("Bash", "b0", command="ls"), "done"],
        lead=[spawn_agent("one", "c1"), "heard"],
        one=[use_skill, note_effort, call_tool("Gate"), go_on, go_on, "tried"],
    )
    options = {"mode": "dontAsk", "allowed_tools": ["Gate", "Agent", "Skill"], "skip_permissions": False}
    session = open_session(tmp_path, model, tools=[gate.tool], clock=clock, debug=True, **options)
    outside = count_process_resources(clock)
    async with session:
        await collect_events(session.run("warm up"))
        session.agent.conversation.messages.clear()
        before = count_process_resources(clock)
        assert any("/debug/" in name for name in before)
        turn = asyncio.create_task(collect_events(session.run("lead")))
        await gate.wait_until_reached()
        assert (tmp_path / "marked").exists()
        (run,) = session.supervisor.list_running_agents()
        agent = run.id
        with monkeypatch.context() as patch:
            await _begin_end(session, how, agent, patch)
            if how != "session ended":
                gate.is_open.set()
                async with asyncio.timeout(20):
                    await turn
                    await session.supervisor.wait_until_idle()
        del run
        if how != "session ended":
            assert not count_process_resources(clock) - before
            (tmp_path / "marked").unlink()
            await session.send(agent, "try it again")
            async with asyncio.timeout(20):
                await session.supervisor.wait_until_idle()
            assert not count_process_resources(clock) - before
    await asyncio.gather(turn, return_exceptions=True)
    log = (home / "debug" / f"{session.id}.txt").read_text()
    del session, turn
    gc.collect()
    assert not count_process_resources(clock) - outside
    if how == "session ended":
        return
    # What the skill granted ended with the run, also for the same agent when it was resumed.
    assert not (tmp_path / "unmarked").exists()
    assert thinking[0] > 0
    assert thinking[-1] == 0
    ends = sum(agent in line for line in log.splitlines() if '"type":"agent_ended"' in line)
    assert ends == (1 if how == "unrecorded" else 2)


@pytest.mark.spec("USR-03")
async def test_an_agents_end_is_announced_after_its_resources_are_released(tmp_path: Path) -> None:
    clock, gate = FakeClock(), ToolGate()
    model = script_agents(
        lead=[spawn_agent("slow", "c1", run_in_background=True), "out", "heard"],
        # A command that ignores SIGTERM gets a second of grace, and the clock stands still.
        slow=[
            call_tool("Bash", "b1", command=STUBBORN, run_in_background=True),
            call_tool("Gate"),
            "all done",
        ],
    )
    async with open_session(tmp_path, model, clock=clock, tools=[gate.tool]) as session:
        ended = asyncio.Event()
        session.subscribe(lambda event: ended.set() if isinstance(event, AgentEnded) else None)
        await collect_events(session.run("lead"))
        await gate.wait_until_reached()
        async with asyncio.timeout(10):
            while not (tmp_path / "up").exists():
                await asyncio.sleep(0)
        gate.is_open.set()
        (shell,) = session.runtime.processes.shells.list_shells()
        try:
            async with asyncio.timeout(10):
                await ended.wait()
            assert not shell.ended.is_set()
            assert session.runtime.inbox.queue.count_waking_items(LEAD_ID) == 0
        finally:
            async with asyncio.timeout(10):
                while not shell.ended.is_set():
                    await clock.advance(0.5)
        async with asyncio.timeout(10):
            await session.runtime.inbox.queue.wait_for_waking_item(LEAD_ID)


@pytest.mark.spec("USR-03")
async def test_an_idle_lead_is_notified_of_an_agents_end_within_two_seconds(tmp_path: Path) -> None:
    clock, slow, quick = FakeClock(), ToolGate(), ToolGate("Quick")
    model = script_agents(
        lead=[[spawn_agent(who, run_in_background=True) for who in ("slow", "quick")], "out", "heard"],
        slow=[call_tool("Gate"), "at last"],
        quick=[call_tool("Quick"), "quickly found"],
    )
    async with open_session(tmp_path, model, clock=clock, tools=[slow.tool, quick.tool]) as session:
        await collect_events(session.run("lead"))
        await slow.wait_until_reached()
        await quick.wait_until_reached()
        waiting = asyncio.create_task(session.next_turn())
        quick.is_open.set()
        async with asyncio.timeout(20):
            await session.runtime.inbox.queue.wait_for_waking_item(LEAD_ID)
        ended = clock.monotonic()
        while not waiting.done() and clock.monotonic() < ended + 2:
            await clock.advance(0.05)
        assert waiting.done()
        turn = waiting.result()
        assert turn is not None
        await collect_events(turn)
        assert "quickly found" in str(session.agent.conversation.messages)
        assert [each.facts.description for each in session.supervisor.list_running_agents()] == ["slow"]
        slow.is_open.set()


@pytest.mark.spec("USR-24")
async def test_an_acceptance_command_without_permission_counts_as_failed(tmp_path: Path) -> None:
    careful = {"description": "d", "prompt": "p", "acceptance": "rm made.txt"}
    accepted = {"acceptance": "rm made.txt"}
    model = script_agents(
        lead=[
            spawn_agent("child", "c1", subagent_type="careful"),
            call_tool("TaskCreate", "t1", subject="s", description="d", metadata=accepted),
            call_tool("TaskUpdate", "t2", taskId="1", status="completed"),
            "end",
        ],
        child=["done"],
    )
    settings = json.dumps({"permissions": {"deny": ["Bash(rm *)"]}})
    async with open_session(tmp_path, model, agents={"careful": careful}, settings=settings) as session:
        await run_all_turns(session)
        assert "is not completed: its acceptance command" in list_lead_results(session)[-1]
    done: AgentResult = map_agent_results(session)["child"]
    assert done.status == "failed"
    assert done.evidence.acceptance.exit_code == 126
