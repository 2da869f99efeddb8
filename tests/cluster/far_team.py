"""A team on machines in network namespaces that does a board, and what must hold afterward."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from cluster_helpers import CREATE, assert_no_member_process_is_left, open_cluster_session, run_turns
from msgspec.structs import replace

import shoal
from agent_scripts import call_tool
from network_namespaces import SERVICE_ADDRESS, Relay, relay_to_port, relay_to_socket
from postgres_server import PostgresServer
from ray_machines import RayMachine, RayMachines
from server_scripts import find_speaker, join_text, run_provider
from shoal.core.events import AgentStarted, Event, NoteAdded
from shoal.testing import MockServer
from shoal.testing.mock_replies import ReplyLike, RequestBody
from team_scripts import send_message, spawn_member

MEMBERS = ("ann", "ben", "cat", "dan")
TASKS = 24
"""More than the members do before the first fault."""
_TOLD = re.compile(r"Task #(\d+) is yours")


AUDIT = (
    "CREATE TABLE public.audit "
    "(number bigint, was text, became text, at timestamptz DEFAULT clock_timestamp())",
    "CREATE FUNCTION public.note_status() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
    "INSERT INTO public.audit VALUES (NEW.number, OLD.status, NEW.status); RETURN NEW; END $$",
    "CREATE TRIGGER note_status AFTER UPDATE OF status ON shoal.tasks FOR EACH ROW "
    "WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION public.note_status()",
)


class BoardRows:
    """What the database says about a board."""

    def read_rows(self, query: str) -> list[list[object]]:
        raise NotImplementedError

    def count_completed(self) -> int:
        return int(str(self.read_rows("SELECT count(*) FROM shoal.tasks WHERE status = 'completed'")[0][0]))


class FarServices(BoardRows):
    """Database and model at an address that all machines reach."""

    def __init__(self, server: PostgresServer, database: str) -> None:
        self.server = server
        self.database = database
        relay = relay_to_socket(server.directory / ".s.PGSQL.5432")
        relay.start()
        self.relays: list[Relay] = [relay]
        name = database.partition("@/")[2].partition("?")[0]
        self.store = f"postgresql://shoal@{SERVICE_ADDRESS}:{relay.port}/{name}"

    def read_rows(self, query: str) -> list[list[object]]:
        return self.server.execute(query, database=urlsplit(self.database).path[1:])

    def watch_tasks(self) -> None:
        """Note each change of a task's status, by the database itself."""
        for statement in AUDIT:
            self.read_rows(statement)

    async def wait_for_completed(self, count: int, describe: Callable[[], str] = str) -> None:
        deadline = time.monotonic() + 120
        while self.count_completed() < count:
            assert time.monotonic() < deadline, describe()
            await asyncio.sleep(0.1)

    def stop(self) -> None:
        for relay in self.relays:
            relay.stop()


class Workers:
    """Minds of the members: each does its tasks one by one, and reports each of them."""

    def __init__(self) -> None:
        self.marks: dict[str, RequestBody] = {}
        """Requests by the mark of their reply."""

    def reply(self, body: RequestBody) -> ReplyLike:
        mark = uuid4().hex
        self.marks[mark] = body
        told = _TOLD.findall("\n".join(join_text(each["content"]) for each in body["messages"]))
        results = _find_results(body)
        finished = {use["taskId"] for name, use in results if name == "TaskUpdate"}
        worked = {use["command"].split()[1] for name, use in results if name == "Bash"}
        task = next((task for task in reversed(told) if task not in finished), None)
        if task is None:
            return "Ready."
        if task not in worked:
            return call_tool("Bash", f"b-{mark}", command=f"echo {task} {mark}; sleep 0.3")
        return [
            replace(send_message("team-lead", f"report {task} {mark}"), id=f"s-{mark}"),
            call_tool("TaskUpdate", f"u-{mark}", taskId=task, status="completed"),
        ]


class InstantWorkers(Workers):
    """Members that complete a task with one reply, without a command."""

    def reply(self, body: RequestBody) -> ReplyLike:
        mark = uuid4().hex
        self.marks[mark] = body
        told = _TOLD.findall("\n".join(join_text(each["content"]) for each in body["messages"]))
        finished = {use["taskId"] for name, use in _find_results(body) if name == "TaskUpdate"}
        task = next((task for task in reversed(told) if task not in finished), None)
        if task is None:
            return "Ready."
        return [
            replace(send_message("team-lead", f"report {task} {mark}"), id=f"s-{mark}"),
            call_tool("TaskUpdate", f"u-{mark}", taskId=task, status="completed"),
        ]


def _find_results(body: RequestBody) -> list[tuple[str, dict[str, Any]]]:
    """Return the tools and inputs of all calls that were not interrupted."""
    calls: dict[str, tuple[str, dict[str, Any]]] = {}
    found = []
    for message in body["messages"]:
        for block in message["content"] if isinstance(message["content"], list) else ():
            if block["type"] == "tool_use":
                calls[block["id"]] = (block["name"], block["input"])
            elif (
                block["type"] == "tool_result"
                and "interrupted" not in join_text(block.get("content")).lower()
            ):
                found.append(calls[block["tool_use_id"]])
    return found


def is_interrupted(block: dict[str, Any]) -> bool:
    return "interrupted" in join_text(block.get("content")).lower()


class FarTeam:
    """A team at work on a board, with what happened to it."""

    def __init__(
        self, session: shoal.Session, machines: RayMachines, services: FarServices, server: MockServer
    ) -> None:
        self.session = session
        self.server = server
        self.machines = machines
        self.services = services
        self.starts: dict[str, list[float]] = {}
        self.notes: list[str] = []
        self._changed = asyncio.Event()
        session.subscribe(self._note_event)

    def _note_event(self, event: Event) -> None:
        if isinstance(event, NoteAdded):
            self.notes.append(event.text)
        if isinstance(event, AgentStarted):
            self.starts.setdefault(event.agent.partition("@")[0], []).append(time.monotonic())
        self._changed.set()

    async def wait_for_starts(self, names: set[str], count: int) -> float:
        """Return when the last of the members was started for the given time."""
        try:
            async with asyncio.timeout(240):
                while any(len(self.starts.get(name, ())) < count for name in names):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pytest.fail(f"Not started {count} times: {names}. {self.starts}. {self.describe()}")
        return max(self.starts[name][count - 1] for name in names)

    async def wait_for_completed(self, count: int) -> None:
        await self.services.wait_for_completed(count, self.describe)

    def describe(self) -> str:
        members = [(each.name, each.state, each.down_cause) for each in self.session.teams.list_members()]
        done, requests = self.services.count_completed(), self.count_requests()
        left = self.services.read_rows(
            "SELECT number, status, owner FROM shoal.tasks WHERE status <> 'completed' ORDER BY number"
        )
        errors = self.services.read_rows(
            "SELECT agent, convert_from(line, 'UTF8') FROM shoal.transcript_lines "
            """WHERE convert_from(line, 'UTF8') ~ '"is_error": ?true'"""
        )
        return (
            f"{done} tasks done, left: {left}, {members}, requests by key: {requests}, notes: {self.notes}, "
            f"failed calls: {errors}"
        )

    def count_requests(self) -> Counter[str]:
        return Counter(request.headers.get("x-api-key", "") for request in self.server.requests)

    def find_members_on(self, machine: RayMachine) -> set[str]:
        pids = machine.pids
        return {each.name for each in self.session.teams.list_members() if each.pid in pids}


@asynccontextmanager
async def run_far_team(
    tmp_path: Path,
    machines: RayMachines,
    services: FarServices,
    monkeypatch: pytest.MonkeyPatch,
    *,
    members: Sequence[str] = MEMBERS,
    task_count: int = TASKS,
) -> AsyncIterator[FarTeam]:
    """Run a team until its board is done; then check that nothing is lost, doubled or left over."""
    async with run_minds(machines, services, monkeypatch, members, task_count) as (workers, server):
        async with open_cluster_session(tmp_path, machines, services.store) as session:
            services.watch_tasks()
            team = FarTeam(session, machines, services, server)
            async with asyncio.TaskGroup() as group:
                running = group.create_task(_run_until_done(session))
                await team.wait_for_starts(set(members), 1)
                await team.wait_for_completed(4)
                yield team
                await running
            assert services.count_completed() == task_count, team.describe()
        check_board(services, task_count)
        check_reports(services, workers, task_count)
        check_zombies(services, workers, server, team)
    await assert_no_member_process_is_left(machines)


@asynccontextmanager
async def run_minds(
    machines: RayMachines,
    services: FarServices,
    monkeypatch: pytest.MonkeyPatch,
    members: Sequence[str],
    task_count: int,
) -> AsyncIterator[tuple[Workers, MockServer]]:
    """Run the model of a lead that creates the tasks and the members, and of the members."""
    workers = Workers()
    tasks = [
        call_tool("TaskCreate", f"t{n}", subject=f"task {n}", description="d") for n in range(task_count)
    ]
    lead: list[Any] = [CREATE, tasks, [spawn_member(name) for name in members], "They work.", "Heard."]
    minds: dict[str, list[Any]] = {name: [workers.reply] for name in members}
    async with run_provider(monkeypatch, lead=lead, **minds) as server:
        relay = relay_to_port(int(server.url.rpartition(":")[2]))
        relay.start()
        services.relays.append(relay)
        machines.use_provider(f"http://{SERVICE_ADDRESS}:{relay.port}")
        yield workers, server


async def _run_until_done(session: shoal.Session) -> None:
    await run_turns(session, patience=300)


def check_board(services: BoardRows, task_count: int) -> None:
    """Each task was completed exactly once, and none was opened again afterwards."""
    rows = services.read_rows("SELECT number, was, became FROM public.audit ORDER BY at")
    completions = Counter(str(number) for number, _, became in rows if became == "completed")
    assert completions == {str(number): 1 for number in range(1, task_count + 1)}
    assert not [row for row in rows if row[1] == "completed"]


def check_reports(services: BoardRows, workers: Workers, task_count: int) -> None:
    """Each report arrived once, and each one that its sender knows to be sent has arrived."""
    rows = services.read_rows(
        "SELECT convert_from(document, 'UTF8') FROM shoal.mail WHERE owner = 'team-lead'"
    )
    arrived = Counter(mark for row in rows for mark in re.findall(r"report \d+ (\w{32})", str(row[0])))
    assert arrived
    assert set(arrived.values()) == {1}
    successful = _read_successful_calls(services)
    known = {mark for mark in workers.marks if f"s-{mark}" in successful}
    assert known <= set(arrived)
    tasks = {task for row in rows for task in re.findall(r"report (\d+) \w{32}", str(row[0]))}
    assert tasks == {str(number) for number in range(1, task_count + 1)}


def _read_successful_calls(services: BoardRows) -> set[str]:
    """Return the ids of the calls whose success is in a transcript of a member."""
    rows = services.read_rows(
        "SELECT convert_from(line, 'UTF8') FROM shoal.transcript_lines WHERE agent <> 'lead'",
    )
    found: set[str] = set()
    for row in rows:
        content = json.loads(str(row[0])).get("message", {}).get("content")
        for block in content if isinstance(content, list) else ():
            if block.get("type") == "tool_result" and not block.get("is_error"):
                found.add(block["tool_use_id"])
    return found


def check_zombies(services: FarServices, workers: Workers, server: MockServer, team: FarTeam) -> None:
    """Nothing that a replaced process learned after its successor started is stored."""
    marks = {id(body): mark for mark, body in workers.marks.items()}
    stored = "\n".join(
        str(row[0])
        for row in services.read_rows(
            "SELECT convert_from(line, 'UTF8') FROM shoal.transcript_lines WHERE agent <> 'lead'",
        )
    )
    for name, starts in team.starts.items():
        for start in starts[1:]:
            own = [
                request
                for request in server.requests
                if find_speaker(request.body) == name and id(request.body) in marks
            ]
            before = {request.headers["x-api-key"] for request in own if request.at < start}
            after = [request for request in own if request.at >= start]
            if not after:
                continue
            for request in after:
                key = request.headers["x-api-key"]
                if key in before and key != after[-1].headers["x-api-key"]:
                    assert marks[id(request.body)] not in stored


def choose_victim(team: FarTeam) -> tuple[int, set[str]]:
    """Return the number of a machine that runs members, and their names."""
    found = [team.find_members_on(machine) for machine in team.machines.nodes]
    number = max(range(len(found)), key=lambda each: len(found[each]))
    assert found[number]
    return number, found[number]


def restart_machine(machine: RayMachine) -> None:
    machine.stop()
    machine.start()
    machine.wait_until_started()


async def wait_until_no_members(machine: RayMachine) -> float:
    async with asyncio.timeout(60):
        while machine.has_members:
            await asyncio.sleep(0.1)
    return time.monotonic()
