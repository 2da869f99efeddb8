"""Many members in shared processes on a Ray cluster: `python -m bench.cluster_crowd --members 1000`.

Starts a database with durable commits, a head and more machines on this machine, and a team whose members
have a scripted model without delay. They do all tasks of a board. Prints the time, the memory, and which
tasks were lost or done more than once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import shoal
from bench.bench_session import use_empty_home
from bench.store_bench import insert_tasks

_ROOT = Path(__file__).parents[1]
_TEAM = "crew"
_AUDIT = (
    "CREATE TABLE public.completions (number bigint)",
    "CREATE FUNCTION public.note_completion() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
    "INSERT INTO public.completions VALUES (NEW.number); RETURN NEW; END $$",
    "CREATE TRIGGER note_completion AFTER UPDATE OF status ON shoal.tasks FOR EACH ROW WHEN "
    "(NEW.status = 'completed') EXECUTE FUNCTION public.note_completion()",
)


def build_script(members: int) -> dict[str, Any]:
    """Return the script of the model: the lead creates a team and its members, and each member does tasks."""
    spawns = [
        {
            "name": "Agent",
            "input": {"description": "works", "prompt": "Do what is free.", "name": f"m{number}"},
        }
        for number in range(members)
    ]
    update = {"name": "TaskUpdate", "input": {"taskId": "{{task}}", "status": "completed"}}
    return {
        "steps": [
            {"match": "create", "tools": [{"name": "TeamCreate", "input": {"team_name": _TEAM}}]},
            {"match": "spawn", "tools": spawns},
            {"pattern": r"Task #(?P<task>\d+) is yours", "repeat": True, "tools": [update]},
            {"repeat": True, "text": "Ready."},
        ]
    }


async def run_turns(session: shoal.Session, prompt: str) -> None:
    turn = session.run(prompt)
    while turn is not None:
        async for _ in turn:
            pass
        turn = await session.next_turn()


def read_memory(pids: Iterable[int]) -> float:
    """Return the memory of processes in megabytes; memory that they share counts once."""
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def read_processor_seconds(pid: int) -> float:
    """Return the processor time of a process; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class CrowdProgress:
    """Follows the board and the memory from outside."""

    def __init__(self, machines: Any, server: Any, database: str) -> None:
        self._machines = machines
        self._server = server
        self._database = database
        self.peaks = {"lead": 0.0, "members": 0.0, "database": 0.0, "Ray": 0.0}
        self._seconds: dict[str, dict[int, float]] = {name: {} for name in self.peaks}
        """Processor time of each process, by group."""
        self.started_at = time.perf_counter()
        self.first_task_at = 0.0

    def count(self, query: str) -> int:
        return int(self._server.execute(query, database=self._database)[0][0])

    async def follow(self) -> None:
        while True:
            await asyncio.sleep(10)
            await asyncio.to_thread(self.note_progress)

    def note_progress(self) -> None:
        members = {pid for machine in self._machines.machines for pid in machine.member_pids}
        others = {pid for machine in self._machines.machines for pid in machine.pids} - members
        groups = {"lead": {os.getpid()}, "members": members, "database": self._server.pids, "Ray": others}
        for name, pids in groups.items():
            self.peaks[name] = max(self.peaks[name], read_memory(pids))
            for pid in pids:
                seconds = self._seconds[name]
                seconds[pid] = max(seconds.get(pid, 0.0), read_processor_seconds(pid))
        started = self.count("SELECT count(DISTINCT agent) FROM shoal.agent_metadata")
        done = self.count("SELECT count(*) FROM public.completions")
        if done and not self.first_task_at:
            self.first_task_at = time.perf_counter() - self.started_at
        seconds = time.perf_counter() - self.started_at
        sizes = ", ".join(f"{name} {size:.0f} MB" for name, size in self.peaks.items())
        print(f"{seconds:.0f} s: {started} members started, {done} tasks done, {sizes}", flush=True)

    def describe_processor_time(self) -> str:
        return ", ".join(f"{name} {sum(seconds.values()):.0f} s" for name, seconds in self._seconds.items())


async def measure(members: int, tasks: int, machine_count: int, per_process: int, concurrent: int) -> None:
    sys.path[:0] = [str(_ROOT / "tests" / "plugins"), str(_ROOT / "scripts")]
    from postgres_server import PostgresServer
    from ray_machines import RayMachines

    server = PostgresServer(fsync="on", full_page_writes="on", shared_buffers="128MB")
    server.start()
    try:
        with use_empty_home() as root, TemporaryDirectory(prefix="r-", dir="/tmp") as directory:
            machines = RayMachines(Path(directory), machine_count - 1, head_cpus=2)
            try:
                machines.start()
                script = root / "model.json"
                script.write_text(json.dumps(build_script(members)))
                settings = json.loads(machines.build_settings(members_per_process=per_process))
                settings["shoal"]["max_concurrent"] = concurrent
                address = server.create_empty_database("crowd")
                async with shoal.open(
                    cwd=root,
                    model=f"scripted:{script}",
                    store=address,
                    settings=json.dumps(settings),
                    skip_permissions=True,
                ) as session:
                    await run_turns(session, "create")
                    # Members load the file when they start. The lead's calls would be most of their memory.
                    script.write_text(json.dumps(build_script(0)))
                    await asyncio.to_thread(insert_tasks, address, root, _TEAM, tasks)
                    for statement in _AUDIT:
                        server.execute(statement, database="crowd")
                    progress = CrowdProgress(machines, server, "crowd")
                    following = asyncio.create_task(progress.follow())
                    await run_turns(session, "spawn")
                    seconds = time.perf_counter() - progress.started_at
                    following.cancel()
                    await asyncio.to_thread(progress.note_progress)
                done = progress.count("SELECT count(DISTINCT number) FROM public.completions")
                repeated = progress.count("SELECT count(*) FROM public.completions") - done
            finally:
                machines.stop()
    finally:
        server.remove()
    print(
        f"{members} members did {done} of {tasks} tasks in {seconds:.0f} s, "
        f"{tasks / seconds:.0f} per second, {repeated} of them more than once. "
        f"Memory: {sum(progress.peaks.values()):.0f} MB. "
        f"Processor time: {progress.describe_processor_time()}. "
        f"Load: {', '.join(f'{load:.0f}' for load in os.getloadavg())}."
    )
    assert done == tasks, "tasks are lost"
    assert not repeated, "tasks were done more than once"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=10_000)
    parser.add_argument("--tasks", type=int, help="default: ten for each member")
    parser.add_argument("--machines", type=int, default=2, help="with the head")
    parser.add_argument("--per-process", type=int, default=100_000, help="members in one process")
    parser.add_argument("--concurrent", type=int, default=400, help="members that work at the same time")
    arguments = parser.parse_args()
    tasks = arguments.tasks or 10 * arguments.members
    asyncio.run(
        measure(arguments.members, tasks, arguments.machines, arguments.per_process, arguments.concurrent)
    )


if __name__ == "__main__":
    main()
