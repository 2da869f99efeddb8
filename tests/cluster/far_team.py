"""A team on machines in network namespaces that does a board, and what must hold afterward."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from cluster_helpers import (
    CREATE,
    assert_no_member_process_is_left,
    note_figure,
    open_cluster_session,
    run_git,
    run_turns,
)
from msgspec import Struct
from msgspec.structs import replace
from refused_writes import RefusedWrites

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
EARLY_TASKS = 4
"""Tasks that are done before a test breaks anything."""
_FILE_OF_TASK = re.compile(r"task-(\d+)\.txt")
_TOLD = re.compile(r"Task #(\d+) is yours")


AUDIT = (
    "CREATE TABLE public.audit "
    "(number bigint, was text, became text, owner text, at timestamptz DEFAULT clock_timestamp())",
    "CREATE FUNCTION public.note_status() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
    "INSERT INTO public.audit VALUES (NEW.number, OLD.status, NEW.status, NEW.owner); RETURN NEW; END $$",
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
        self.refused_writes: RefusedWrites | None = None
        name = database.partition("@/")[2].partition("?")[0]
        self.store = f"postgresql://shoal@{SERVICE_ADDRESS}:{relay.port}/{name}"

    def read_rows(self, query: str) -> list[list[object]]:
        return self.server.execute(query, database=urlsplit(self.database).path[1:])

    def watch_tasks(self) -> None:
        """Note each change of a task's status and each refused write, by the database itself."""
        for statement in AUDIT:
            self.read_rows(statement)
        self.refused_writes = RefusedWrites(self.server, urlsplit(self.database).path[1:])

    def read_clock(self) -> str:
        return str(self.read_rows("SELECT clock_timestamp()::text")[0][0])

    def read_transcripts(self) -> str:
        """Return the conversations of all members."""
        rows = self.read_rows(
            "SELECT convert_from(line, 'UTF8') FROM shoal.transcript_lines WHERE agent <> 'lead'"
        )
        return "\n".join(str(row[0]) for row in rows)

    async def wait_for_completed(self, count: int, describe: Callable[[], str] = str) -> None:
        deadline = time.monotonic() + 120
        while self.count_completed() < count:
            assert time.monotonic() < deadline, describe()
            await asyncio.sleep(0.1)

    def stop(self) -> None:
        for relay in self.relays:
            relay.stop()


class Workers:
    """Minds of the members: each does its tasks one by one, and reports each to the lead and to a member."""

    def __init__(self, members: Sequence[str] = ()) -> None:
        self.marks: dict[str, RequestBody] = {}
        """Requests by the mark of their reply."""
        self.gate: Path | None = None
        """File for which the commands of later tasks wait."""
        self._members = members

    def reply(self, body: RequestBody) -> ReplyLike:
        mark = uuid4().hex
        self.marks[mark] = body
        told = _TOLD.findall("\n".join(join_text(each["content"]) for each in body["messages"]))
        results = _find_results(body)
        finished = {use["taskId"] for name, use in results if name == "TaskUpdate"}
        worked = {_FILE_OF_TASK.findall(use["command"])[0] for name, use in results if name == "Bash"}
        task = next((task for task in reversed(told) if task not in finished), None)
        if task is None:
            return "Ready."
        if task not in worked:
            return call_tool("Bash", f"b-{mark}", command=self._build_command(task, mark), timeout=600_000)
        return [
            replace(send_message("team-lead", f"report {task} {mark}"), id=f"s-{mark}"),
            replace(send_message(self._choose_neighbor(body), f"done {task} {mark}"), id=f"n-{mark}"),
            call_tool("TaskUpdate", f"u-{mark}", taskId=task, status="completed"),
        ]

    def _build_command(self, task: str, mark: str) -> str:
        """Return a command that prints the time of its machine and writes a file, which git carries."""
        wait = ""
        if self.gate is not None and int(task) > EARLY_TASKS:
            wait = f"touch {self.gate}-{task}; while [ ! -e {self.gate} ]; do sleep 0.1; done; "
        return f"{wait}echo {task} {mark} time=$(date +%s); echo {mark} > task-{task}.txt; sleep 0.3"

    def _choose_neighbor(self, body: RequestBody) -> str:
        place = self._members.index(find_speaker(body))
        return self._members[(place + 1) % len(self._members)]


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


class ReplacedProcess(Struct, frozen=True, kw_only=True):
    """A process of a member that may still run when its successor has started."""

    name: str
    key: str
    """Key of the model on its machine."""
    epoch: int
    starts: int
    """How often the member had been started until then."""
    writes_on: bool
    """True if it must have tried to write after the start of its successor."""


class FarTeam:
    """A team at work on a board, with what happened to it."""

    def __init__(
        self,
        session: shoal.Session,
        machines: RayMachines,
        services: FarServices,
        server: MockServer,
        workers: Workers,
    ) -> None:
        self.session = session
        self.workers = workers
        self.replaced: list[ReplacedProcess] = []
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

    def note_processes(self, number: int, *, writing_on: Collection[str] = ()) -> None:
        """Check after the run that the processes of members on a machine stored nothing once replaced.

        Those of the members `writing_on` must have tried it.
        """
        machine = self.machines.nodes[number]
        names = self.find_members_on(machine)
        assert names, self.describe()
        rows = self.services.read_rows("SELECT split_part(process, ' ', 1)::int, epoch FROM shoal.holders")
        epochs = dict(rows)
        self.replaced += [
            ReplacedProcess(
                name=each.name,
                key=self.get_key(number),
                epoch=int(str(epochs[each.pid])),
                starts=len(self.starts[each.name]),
                writes_on=each.name in writing_on,
            )
            for each in self.session.teams.list_members()
            if each.name in names
        ]

    def get_key(self, number: int) -> str:
        """Return the key of the model on a machine."""
        return f"key-{self.machines.machines.index(self.machines.nodes[number])}"

    async def wait_until_all_wait(self) -> None:
        """Wait until each member runs a command that waits for the gate."""
        gate, members = self.workers.gate, len(self.starts)
        assert gate is not None
        deadline = time.monotonic() + 120
        while len([*gate.parent.glob(f"{gate.name}-*")]) < members:
            assert time.monotonic() < deadline, self.describe()
            await asyncio.sleep(0.1)

    def count_lines_of_replaced(self, since: str) -> Counter[str]:
        """Count the lines of conversations that replaced processes wrote after a moment, by member.

        Each was written before the lease of the process had ended, so before its successor could write.
        """
        return Counter(
            {
                each.name: self._count_lines(
                    f"split_part(agent, '@', 1) = '{each.name}' AND at > '{since}' AND at < "
                    f"(SELECT at FROM public.ended_leases WHERE epoch = {each.epoch})"
                )
                for each in self.replaced
            }
        )

    def count_lines_of_others(self, since: str) -> int:
        """Count the lines of conversations that members wrote whose processes were not replaced."""
        replaced = ", ".join(f"'{each.name}'" for each in self.replaced)
        return self._count_lines(f"split_part(agent, '@', 1) NOT IN ('lead', {replaced}) AND at > '{since}'")

    def _count_lines(self, condition: str) -> int:
        query = f"SELECT count(*) FROM shoal.transcript_lines WHERE {condition}"
        return int(str(self.services.read_rows(query)[0][0]))

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
    files: str = "shared",
    gate: Path | None = None,
) -> AsyncIterator[FarTeam]:
    """Run a team until its board is done; then check that nothing is lost, doubled or left over.

    All but the first tasks wait for the file `gate`, if it is given.
    """
    project = tmp_path if files == "shared" else create_project(tmp_path)
    settings = machines.build_settings(files)
    async with run_minds(machines, services, monkeypatch, members, task_count) as (workers, server):
        workers.gate = gate
        async with open_cluster_session(project, machines, services.store, settings=settings) as session:
            services.watch_tasks()
            team = FarTeam(session, machines, services, server, workers)
            async with asyncio.TaskGroup() as group:
                running = group.create_task(_run_until_done(team))
                await team.wait_for_starts(set(members), 1)
                await team.wait_for_completed(EARLY_TASKS)
                yield team
                await running
            assert services.count_completed() == task_count, team.describe()
        check_board(services, task_count)
        check_reports(services, workers, task_count)
        check_mail_of_members(services, members)
        check_zombies(services, workers, server, team)
        if files == "git":
            check_refs(project, session, services)
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
    workers = Workers(members)
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


async def _run_until_done(team: FarTeam) -> None:
    try:
        await run_turns(team.session, patience=300)
    except TimeoutError:
        pytest.fail(team.describe())


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


def check_mail_of_members(services: BoardRows, members: Sequence[str]) -> None:
    """Each message between members that its sender knows to be sent is stored once, and read once."""
    rows = services.read_rows(
        "SELECT convert_from(document, 'UTF8'), owner, is_read FROM shoal.mail WHERE owner <> 'team-lead'"
    )
    found = [(mark, *row[1:]) for row in rows for mark in re.findall(r"done \d+ (\w{32})", str(row[0]))]
    arrived = Counter(str(mark) for mark, *_ in found)
    assert set(arrived.values()) == {1}
    assert {owner for _, owner, _ in found} == set(members)
    known = {call[2:] for call in _read_successful_calls(services) if call.startswith("n-")}
    assert known
    assert known <= set(arrived)
    received = _count_received_marks(services)
    read = {(owner, mark) for mark, owner, is_read in found if is_read}
    assert read
    assert {each: received[each] for each in read} == dict.fromkeys(read, 1)


def _count_received_marks(services: BoardRows) -> Counter[tuple[object, object]]:
    """Count how often a message is in the conversation of a member, by member and mark."""
    rows = services.read_rows(
        "SELECT split_part(agent, '@', 1), convert_from(line, 'UTF8') FROM shoal.transcript_lines "
        """WHERE agent <> 'lead' AND convert_from(line, 'UTF8') ~ '"type": ?"user"'"""
    )
    return Counter(
        (name, mark) for name, line in rows for mark in re.findall(r"done \d+ (\w{32})", str(line))
    )


def check_refs(project: Path, session: shoal.Session, services: BoardRows) -> None:
    """The file of each completed task is under the ref of the member that completed it."""
    rows = services.read_rows("SELECT number, owner FROM public.audit WHERE became = 'completed'")
    owners = [str(owner).partition("@")[0] for _, owner in rows]
    files = {
        owner: run_git(project, "ls-tree", "--name-only", f"refs/shoal/cluster/{session.id}/{owner}").split()
        for owner in set(owners)
    }
    assert rows
    assert not [
        (number, owner)
        for (number, _), owner in zip(rows, owners, strict=True)
        if f"task-{number}.txt" not in files[owner]
    ]


def create_project(directory: Path) -> Path:
    """Create a repository with one commit."""
    project = directory / "project"
    project.mkdir()
    (project / "notes.txt").write_text("by the lead\n")
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "first"]):
        run_git(project, *arguments)
    return project


def check_zombies(services: FarServices, workers: Workers, server: MockServer, team: FarTeam) -> None:
    """Nothing that a replaced process learned after its successor started is stored, even if it tried."""
    marks = {id(body): mark for mark, body in workers.marks.items()}
    stored = services.read_transcripts()
    for zombie in team.replaced:
        replaced_at = team.starts[zombie.name][zombie.starts]
        for request in server.requests:
            if (
                request.at >= replaced_at
                and request.headers["x-api-key"] == zombie.key
                and find_speaker(request.body) == zombie.name
                and id(request.body) in marks
            ):
                assert marks[id(request.body)] not in stored
    assert services.refused_writes is not None
    refused = {
        each.name: services.refused_writes.count(each.epoch) for each in team.replaced if each.writes_on
    }
    if refused:
        assert any(refused.values()), refused
        note_figure("refused writes of replaced processes", sum(refused.values()))


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
    deadline = time.monotonic() + 60
    while machine.has_members:
        assert time.monotonic() < deadline, machine.list_programs_of_agents()
        await asyncio.sleep(0.1)
    return time.monotonic()
