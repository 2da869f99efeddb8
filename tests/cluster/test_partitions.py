"""Machines in network namespaces that are cut off, hang, have other clocks or a slow link."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import pytest
from cluster_helpers import (
    CREATE,
    assert_no_member_process_is_left,
    note_figure,
    open_cluster_session,
    read_rows,
    run_turns,
)
from msgspec.structs import replace

import shoal
from agent_scripts import call_tool
from network_namespaces import (
    SERVICE_ADDRESS,
    NamespaceNetwork,
    Relay,
    explain_no_namespaces,
    relay_to_port,
    relay_to_socket,
)
from postgres_server import get_shared_server
from ray_machines import RayMachine, RayMachines
from server_scripts import find_speaker, join_text, run_provider
from shoal.core.events import AgentStarted, Event, NoteAdded
from shoal.testing import MockServer
from shoal.testing.mock_replies import ReplyLike, RequestBody
from team_scripts import send_message, spawn_member

pytestmark = [pytest.mark.exhaustive, pytest.mark.needs("ray", "postgres", "asyncpg", "ip")]
MEMBERS = ("ann", "ben", "cat", "dan")
TASKS = 24
"""More than the members do before the first fault."""
KILLED_SECONDS = 15
CUT_OFF_SECONDS = 30
_TOLD = re.compile(r"Task #(\d+) is yours")


@pytest.fixture(scope="module")
def network() -> Iterator[NamespaceNetwork]:
    if reason := explain_no_namespaces():
        pytest.skip(reason)
    network = NamespaceNetwork(2)
    try:
        network.open()
        yield network
    finally:
        network.close()


@pytest.fixture(scope="module")
def far_machines(network: NamespaceNetwork) -> Iterator[RayMachines]:
    """A head on the lead's machine, and two other machines."""
    with network.enter_lead(), TemporaryDirectory(prefix="r-", dir="/tmp") as directory:
        machines = RayMachines(Path(directory), 2, network)
        try:
            machines.start()
            yield machines
        finally:
            machines.stop()


class FarServices:
    """Database and model at an address that all machines reach, and what the model said to whom."""

    def __init__(self) -> None:
        self.replies: list[tuple[float, str, str]] = []
        """Time, machine and mark of each reply of the model."""
        self.store = ""
        self.database = ""
        self.relays: list[Relay] = []


@pytest.fixture
def services(far_machines: RayMachines, cluster_database: str) -> Iterator[FarServices]:
    services = FarServices()
    server = get_shared_server()
    relay = relay_to_socket(server.directory / ".s.PGSQL.5432")
    relay.start()
    services.relays.append(relay)
    services.database = cluster_database
    name = cluster_database.partition("@/")[2].partition("?")[0]
    services.store = f"postgresql://shoal@{SERVICE_ADDRESS}:{relay.port}/{name}"
    yield services
    for relay in services.relays:
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
        async with asyncio.timeout(90):
            while any(len(self.starts.get(name, ())) < count for name in names):
                self._changed.clear()
                await self._changed.wait()
        return max(self.starts[name][count - 1] for name in names)

    async def wait_for_completed(self, count: int) -> None:
        deadline = time.monotonic() + 120
        while self.count_completed() < count:
            assert time.monotonic() < deadline, self.describe()
            await asyncio.sleep(0.1)

    def describe(self) -> str:
        members = [(each.name, each.state, each.down_cause) for each in self.session.teams.list_members()]
        done, requests = self.count_completed(), self.count_requests()
        return f"{done} tasks done, {members}, requests by key: {requests}, notes: {self.notes}"

    def count_requests(self) -> Counter[str]:
        return Counter(request.headers.get("x-api-key", "") for request in self.server.requests)

    def count_completed(self) -> int:
        query = "SELECT count(*) FROM shoal.tasks WHERE status = 'completed'"
        return int(str(read_rows(self.services.database, query)[0][0]))

    def find_members_on(self, machine: RayMachine) -> set[str]:
        pids = machine.pids
        return {each.name for each in self.session.teams.list_members() if each.pid in pids}


AUDIT = (
    "CREATE TABLE public.audit "
    "(number bigint, was text, became text, at timestamptz DEFAULT clock_timestamp())",
    "CREATE FUNCTION public.note_status() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
    "INSERT INTO public.audit VALUES (NEW.number, OLD.status, NEW.status); RETURN NEW; END $$",
    "CREATE TRIGGER note_status AFTER UPDATE OF status ON shoal.tasks FOR EACH ROW "
    "WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION public.note_status()",
)


@asynccontextmanager
async def run_far_team(
    tmp_path: Path, machines: RayMachines, services: FarServices, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[FarTeam]:
    """Run a team until its board is done; then check that nothing is lost, doubled or left over."""
    workers = Workers()
    tasks = [call_tool("TaskCreate", f"t{n}", subject=f"task {n}", description="d") for n in range(TASKS)]
    lead: list[Any] = [CREATE, tasks, [spawn_member(name) for name in MEMBERS], "They work.", "Heard."]
    minds: dict[str, list[Any]] = {name: [workers.reply] for name in MEMBERS}
    async with run_provider(monkeypatch, lead=lead, **minds) as server:
        relay = relay_to_port(int(server.url.rpartition(":")[2]))
        relay.start()
        services.relays.append(relay)
        machines.use_provider(f"http://{SERVICE_ADDRESS}:{relay.port}")
        async with open_cluster_session(tmp_path, machines, services.store) as session:
            for statement in AUDIT:
                read_rows(services.database, statement)
            team = FarTeam(session, machines, services, server)
            async with asyncio.TaskGroup() as group:
                running = group.create_task(_run_until_done(session))
                await team.wait_for_starts(set(MEMBERS), 1)
                await team.wait_for_completed(4)
                yield team
                await running
            completed = team.count_completed()
            assert completed == TASKS, team.notes
        check_board(services)
        check_reports(services, workers)
        check_zombies(services, workers, server, team)
    await assert_no_member_process_is_left(machines)


async def _run_until_done(session: shoal.Session) -> None:
    await run_turns(session, patience=300)


def check_board(services: FarServices) -> None:
    """Each task was completed exactly once, and none was opened again afterwards."""
    rows = read_rows(services.database, "SELECT number, was, became FROM public.audit ORDER BY at")
    completions = Counter(str(number) for number, _, became in rows if became == "completed")
    assert completions == {str(number): 1 for number in range(1, TASKS + 1)}
    assert not [row for row in rows if row[1] == "completed"]


def check_reports(services: FarServices, workers: Workers) -> None:
    """Each report arrived once, and each one that its sender knows to be sent has arrived."""
    rows = read_rows(
        services.database, "SELECT convert_from(document, 'UTF8') FROM shoal.mail WHERE owner = 'team-lead'"
    )
    arrived = Counter(mark for row in rows for mark in re.findall(r"report \d+ (\w{32})", str(row[0])))
    assert arrived
    assert set(arrived.values()) == {1}
    known = {mark for mark in workers.marks if f"s-{mark}" in _read_successful_calls(services)}
    assert known <= set(arrived)
    tasks = {task for row in rows for task in re.findall(r"report (\d+) \w{32}", str(row[0]))}
    assert tasks == {str(number) for number in range(1, TASKS + 1)}


def _read_successful_calls(services: FarServices) -> set[str]:
    """Return the ids of the calls whose success is in a transcript of a member."""
    rows = read_rows(
        services.database,
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
        for row in read_rows(
            services.database,
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


@pytest.mark.parametrize("how", ["from everything", "from the lead only"])
async def test_a_machine_that_is_cut_off_is_replaced_and_writes_nothing_more(
    how: str,
    tmp_path: Path,
    network: NamespaceNetwork,
    far_machines: RayMachines,
    services: FarServices,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From the lead only: the database and the model still answer the members on the other side."""
    cut, reconnect = (
        (network.cut_off, network.reconnect)
        if how == "from everything"
        else (network.cut_off_from_lead, network.reconnect_to_lead)
    )
    number = 0
    try:
        async with run_far_team(tmp_path, far_machines, services, monkeypatch) as team:
            number, names = choose_victim(team)
            cut_at = time.monotonic()
            cut(number)
            moved = await team.wait_for_starts(names, 2) - cut_at
            note_figure(f"cut off {how}, seconds until the members work elsewhere", moved)
            assert moved <= CUT_OFF_SECONDS
            ended = await wait_until_no_members(far_machines.nodes[number]) - cut_at
            note_figure(f"cut off {how}, seconds until the old processes have ended", ended)
            assert not far_machines.nodes[number].has_members
            reconnect(number)
    finally:
        network.reconnect(number)
        restart_machine(far_machines.nodes[number])


async def wait_until_no_members(machine: RayMachine) -> float:
    async with asyncio.timeout(60):
        while machine.has_members:
            await asyncio.sleep(0.1)
    return time.monotonic()


async def test_a_machine_that_hangs_is_replaced_and_writes_nothing_when_it_continues(
    tmp_path: Path, far_machines: RayMachines, services: FarServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    number, stopped = 0, set[int]()
    try:
        async with run_far_team(tmp_path, far_machines, services, monkeypatch) as team:
            number, names = choose_victim(team)
            hung_at = time.monotonic()
            stopped = send_signal_to_all(far_machines.nodes[number], signal.SIGSTOP)
            moved = await team.wait_for_starts(names, 2) - hung_at
            note_figure("hanging machine, seconds until the members work elsewhere", moved)
            assert moved <= CUT_OFF_SECONDS
            continued_at = time.monotonic()
            send_signal_to_all(far_machines.nodes[number], signal.SIGCONT)
            ended = await wait_until_no_members(far_machines.nodes[number]) - continued_at
            note_figure("hanging machine, seconds from its return until the old processes have ended", ended)
    finally:
        for pid in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        restart_machine(far_machines.nodes[number])


def send_signal_to_all(machine: RayMachine, number: signal.Signals) -> set[int]:
    pids = machine.pids
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    return pids


async def test_a_machine_that_is_killed_is_replaced(
    tmp_path: Path, far_machines: RayMachines, services: FarServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = 0
    try:
        async with run_far_team(tmp_path, far_machines, services, monkeypatch) as team:
            number, names = choose_victim(team)
            killed_at = time.monotonic()
            far_machines.nodes[number].kill()
            moved = await team.wait_for_starts(names, 2) - killed_at
            note_figure("killed machine in a namespace, seconds until the members work elsewhere", moved)
            assert moved <= KILLED_SECONDS
    finally:
        far_machines.nodes[number].start()
        far_machines.nodes[number].wait_until_started()


@pytest.mark.needs("faketime")
async def test_clocks_that_are_ten_minutes_wrong_change_nothing(
    tmp_path: Path, far_machines: RayMachines, services: FarServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leases are measured by the clock of the database alone."""
    for machine, offset in zip(far_machines.nodes, (600, -600), strict=True):
        machine.clock_offset = offset
        restart_machine(machine)
    number = 0
    try:
        async with run_far_team(tmp_path, far_machines, services, monkeypatch) as team:
            number, names = choose_victim(team)
            killed_at = time.monotonic()
            far_machines.nodes[number].kill()
            moved = await team.wait_for_starts(names, 2) - killed_at
            note_figure("killed machine with wrong clocks, seconds until the members work elsewhere", moved)
            assert moved <= KILLED_SECONDS
        days = read_rows(services.database, "SELECT max(at) - min(at) FROM shoal.transcript_lines")
        assert days[0][0] < timedelta(minutes=9)  # type: ignore[operator]
    finally:
        for machine in far_machines.nodes:
            machine.clock_offset = 0
            restart_machine(machine)


@pytest.mark.needs("tc")
async def test_a_slow_link_makes_a_team_slow_and_loses_nothing(
    tmp_path: Path,
    network: NamespaceNetwork,
    far_machines: RayMachines,
    services: FarServices,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A machine has 1 Mbit/s, and every answer of the database takes 60 ms longer."""
    network.limit_rate(0, "1mbit")
    services.relays[0].delay = 0.03
    try:
        async with run_far_team(tmp_path, far_machines, services, monkeypatch) as team:
            assert team.find_members_on(far_machines.nodes[0]), team.describe()
        assert all(len(starts) == 1 for starts in team.starts.values())
    finally:
        services.relays[0].delay = 0.0
        network.lift_rate_limit(0)
