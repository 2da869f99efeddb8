"""Many members share one process on each machine: a board is done, also if such a process is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from cluster_helpers import (
    CREATE,
    assert_no_member_process_is_left,
    find_member,
    has_line,
    note_figure,
    open_cluster_session,
    read_rows,
    report_done,
    run_git,
    run_turns,
    wait_for_file,
    wait_for_name,
)
from far_team import AUDIT, BoardRows, InstantWorkers, check_board, check_reports

from agent_scripts import call_tool
from ray_machines import RayMachines
from server_scripts import run_provider
from shoal.core.events import AgentStarted, Event
from team_scripts import send_message, spawn_member

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.needs("ray", "postgres", "asyncpg"),
    pytest.mark.timeout(600),
]
MEMBERS = tuple(f"m{number:03}" for number in range(200))
TASKS = 800


class Rows(BoardRows):
    def __init__(self, database: str) -> None:
        self._database = database

    def read_rows(self, query: str) -> list[list[object]]:
        return read_rows(self._database, query)


class Starts:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._changed = asyncio.Event()

    def note_event(self, event: Event) -> None:
        if isinstance(event, AgentStarted):
            self.counts[event.agent.partition("@")[0]] += 1
            self._changed.set()

    async def wait_for(self, names: set[str], count: int) -> None:
        async with asyncio.timeout(240):
            while any(self.counts[name] < count for name in names):
                self._changed.clear()
                await self._changed.wait()


@pytest.mark.spec("BCK-09")
async def test_two_hundred_members_in_shared_processes_do_a_board_although_one_is_killed(
    tmp_path: Path, machines: RayMachines, cluster_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers, rows, starts = InstantWorkers(), Rows(cluster_database), Starts()
    tasks = [call_tool("TaskCreate", f"t{n}", subject=f"task {n}", description="d") for n in range(TASKS)]
    lead: list[Any] = [CREATE, tasks, [spawn_member(name) for name in MEMBERS], "They work."]
    minds: dict[str, list[Any]] = {name: [workers.reply] for name in MEMBERS}
    async with run_provider(monkeypatch, lead=[*lead, *["Heard."] * TASKS], **minds) as server:
        machines.use_provider(server.url)
        settings = machines.build_settings(members_per_process=500)
        async with open_cluster_session(tmp_path, machines, cluster_database, settings=settings) as session:
            for statement in AUDIT:
                rows.read_rows(statement)
            session.subscribe(starts.note_event)
            async with asyncio.TaskGroup() as group:
                running = group.create_task(run_turns(session, patience=500))
                await starts.wait_for(set(MEMBERS), 1)
                pids = {name: find_member(session, name).pid for name in MEMBERS}
                assert len(set(pids.values())) == 2, pids  # one process on each machine
                assert len({machines.find_machine(pid) for pid in pids.values()}) == 2
                victim = pids[MEMBERS[0]]
                moved = {name for name, pid in pids.items() if pid == victim}
                assert rows.count_completed() < TASKS - len(moved)
                killed_at = time.monotonic()
                os.kill(victim, signal.SIGKILL)
                await starts.wait_for(moved, 2)
                note_figure(
                    f"killed process of {len(moved)} members, seconds until all work elsewhere",
                    time.monotonic() - killed_at,
                )
                assert victim not in {find_member(session, name).pid for name in MEMBERS}
                await running
            assert all(starts.counts[name] == 1 for name in set(MEMBERS) - moved)
        check_board(rows, TASKS)
        check_reports(rows, workers, TASKS)
    await assert_no_member_process_is_left(machines)


@pytest.mark.spec("BCK-09")
async def test_a_member_is_stopped_alone_and_one_with_resources_has_its_own_process(
    tmp_path: Path, machines: RayMachines, cluster_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_provider(
        monkeypatch,
        lead=[
            CREATE,
            [
                spawn_member("ann"),
                spawn_member("ben"),
                spawn_member("cat", resources={"labels": {"n": "0"}}),
            ],
            "They work.",
            "Over.",
            "Over.",
        ],
        ann=[wait_for_name("never", "ann-works"), "Done."],
        ben=[wait_for_name("go", "ben-works"), report_done("ben"), "Done."],
        cat=[report_done("cat"), "Done."],
    ) as server:
        machines.use_provider(server.url)
        machines.nodes[1].stop()
        settings = machines.build_settings(members_per_process=10)
        try:
            async with open_cluster_session(
                tmp_path, machines, cluster_database, settings=settings
            ) as session:
                starts = Starts()
                session.subscribe(starts.note_event)
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(run_turns(session))
                    await wait_for_file(tmp_path / "ann-works")
                    await wait_for_file(tmp_path / "ben-works")
                    # cat starts last, in a separate process; the lead lists members once they have started.
                    await starts.wait_for({"ann", "ben", "cat"}, 1)
                    shared, own = (find_member(session, name).pid for name in ("ben", "cat"))
                    assert find_member(session, "ann").pid == shared != own
                    await session.stop_task("ann")
                    (tmp_path / "go").touch()
                assert find_member(session, "ben").pid == shared
                assert starts.counts["ben"] == 1
        finally:
            machines.nodes[1].start()
            machines.nodes[1].wait_until_started()
        assert has_line(server, "lead", "ben is done.")
        assert has_line(server, "lead", "cat is done.")
    await assert_no_member_process_is_left(machines)


@pytest.mark.spec("BCK-09")
async def test_members_of_a_process_that_is_asked_to_end_continue_with_their_files(
    tmp_path: Path, machines: RayMachines, cluster_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, names = tmp_path / "project", ("ann", "ben", "cat", "dan")
    project.mkdir()
    (project / "notes.txt").write_text("by the lead\n")
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "first"]):
        run_git(project, *arguments)
    minds: dict[str, list[Any]] = {
        name: [
            call_tool("Bash", "b1", command=f"echo half > {name}.txt; pwd"),
            call_tool("Bash", "b2", command=f"touch {tmp_path / name}; sleep 600"),
            call_tool("Bash", "b3", command=f"echo done >> {name}.txt"),
            send_message("team-lead", f"{name} moved.", "report"),
            "Done.",
        ]
        for name in names
    }
    async with run_provider(
        monkeypatch,
        lead=[CREATE, [spawn_member(name) for name in names], "They work.", *["Heard."] * 4],
        **minds,
    ) as server:
        machines.use_provider(server.url)
        settings = machines.build_settings(files="git", members_per_process=10)
        async with open_cluster_session(project, machines, cluster_database, settings=settings) as session:
            refs = {name: f"refs/shoal/cluster/{session.id}/{name}" for name in names}
            starts = Starts()
            session.subscribe(starts.note_event)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(run_turns(session))
                for name in names:
                    await wait_for_file(tmp_path / name)
                await starts.wait_for(set(names), 1)
                pids = {name: find_member(session, name).pid for name in names}
                for pid in set(pids.values()):
                    os.kill(pid, signal.SIGTERM)
                await starts.wait_for(set(names), 2)
            assert not {find_member(session, name).pid for name in names} & set(pids.values())
        for name, ref in refs.items():
            assert has_line(server, "lead", f"{name} moved.")
            assert run_git(project, "show", f"{ref}:{name}.txt").split() == ["half", "done"]
    await assert_no_member_process_is_left(machines)
