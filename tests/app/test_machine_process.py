"""A process on a machine of a cluster, without Ray and store: its orders, its checkouts and its ends."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import msgspec
import pytest
from app_session_helpers import create_git_repository
from msgspec.structs import replace

import shoal
from agent_scripts import call_tool, read_events, script_agents
from git_servers import run_silent_server
from session_helpers import collect_events, list_lead_results, open_session
from shoal.app.agents.cluster_files import ClusterFiles
from shoal.app.agents.member_bootstrap import (
    LeadPaths,
    MemberBootstrap,
    build_inherited_options,
    encode_member_bootstrap,
)
from shoal.app.options import Options
from shoal.app.session import ray_member_main
from shoal.app.session.member_main import end_session_on_signals, request_session_end
from shoal.app.session.ray_member_main import (
    CheckpointSender,
    SharedMemberProcess,
    _adapt_to_machine,
    _create_checkout,
    _HostedMember,
    _receive_and_run_member,
    _SoleMember,
    _watch_lead,
    host_main,
    main,
)
from shoal.backends.guardian import (
    STATE_FIELD,
    collect_descendant_pids,
    read_process_stat,
    read_process_tree,
)
from shoal.backends.heap_trim import StartedObjects
from shoal.backends.member_listener import MemberListener
from shoal.backends.ray_backend import MemberHello, RayBackend, RayBackendSettings, RayEntryPoints
from shoal.backends.ray_hosts import CLOSING_NOTICE, CONTROL_CHANNEL, StartMemberOrder
from shoal.backends.socket_channel import ChannelMultiplexer, SharedChannel, SocketChannel, send_in_parts
from shoal.core.clock import SystemClock
from shoal.core.conversation.messages import ToolUseBlock
from shoal.core.errors import ShoalError, WorktreeError
from shoal.core.events import NoteAdded, TurnEnded
from shoal.core.teams.member_backends import (
    AGENT_ENVIRONMENT_MARKS,
    MemberLaunchArgs,
    MemberProcessLaunchSpec,
)
from shoal.stores.files.file_store import FileStore
from shoal.workspaces.checkout import find_git_checkout
from shoal.workspaces.git_runner import GitRunner
from shoal.workspaces.project_transfer import (
    KnownCommits,
    MachineCheckout,
    bundle_project,
    find_project_origin,
    store_checkpoint,
)
from team_scripts import get_home

CLOCK = SystemClock()
REF = "refs/shoal/cluster/s1/ann"
MEMBER = MemberLaunchArgs(
    agent="ann@crew", name="ann", team="crew", color=None, session="s1", kind="worker", model="m"
)
PATIENCE = 60


def build_bootstrap(cwd: Path | str) -> MemberBootstrap:
    opened = build_inherited_options(
        Options(), cwd=Path(cwd), model="m", mode="default", seed=None, store=FileStore(get_home()), trace=""
    )
    return msgspec.convert(
        {
            "name": "ann",
            "team": "roof",
            "order": None,
            "mode": None,
            "call": "c",
            "session": "s",
            "paths": {"run": "/run", "transcript": "/transcript", "snapshot": "/snapshot"},
            "rules": {},
            "answered": [],
            "denied": [],
            "opened": msgspec.to_builtins(opened),
        },
        MemberBootstrap,
    )


@contextmanager
def pair() -> Iterator[tuple[SocketChannel, SocketChannel]]:
    ends = socket.socketpair()
    here, there = map(SocketChannel, ends)
    try:
        yield here, there
    finally:
        here.close()
        there.close()


async def receive(channel: SocketChannel | SharedChannel) -> bytes | None:
    async with asyncio.timeout(30):
        return await channel.receive()


class Lead:
    """The lead's end of a process that runs several members."""

    def __init__(self, connection: SocketChannel) -> None:
        self.connection = connection
        self.multiplexer = ChannelMultiplexer(connection)
        self.control = self.multiplexer.open_channel(CONTROL_CHANNEL)
        self.serving = asyncio.create_task(self.multiplexer.serve())
        self._next_number = CONTROL_CHANNEL + 1

    def order_member(self) -> tuple[SharedChannel, SharedChannel]:
        number = self._next_number
        self._next_number += 2
        self.control.send(msgspec.json.encode(StartMemberOrder(number=number)))
        return self.multiplexer.open_channel(number), self.multiplexer.open_channel(number + 1)


@asynccontextmanager
async def run_process() -> AsyncIterator[tuple[Lead, asyncio.Task[None]]]:
    with pair() as (here, there):
        lead = Lead(here)
        serving = asyncio.create_task(SharedMemberProcess(ChannelMultiplexer(there), CLOCK).serve())
        try:
            yield lead, serving
        finally:
            lead.multiplexer.close()
            lead.serving.cancel()
            async with asyncio.timeout(30):
                await serving


async def refuse_member(lead: Lead, directory: Path) -> None:
    """Order a member that cannot start, because its directory is missing."""
    orders, channel = lead.order_member()
    orders.send(b"")
    channel.send(encode_member_bootstrap(build_bootstrap(directory)))
    message = await receive(channel)
    assert message is not None
    hello = msgspec.json.decode(message, type=MemberHello)
    assert hello.refusal == f"The directory {directory} does not exist on the machine {socket.gethostname()}."
    assert (hello.epoch, hello.pid) == (0, 0)
    assert await receive(channel) is None
    assert await receive(orders) is None
    assert orders.end_reason == ""


@pytest.mark.parametrize(
    ("message", "reason"),
    [(b"{}", "ValidationError: Object missing"), (b"x", "DecodeError: "), ("own", "AssertionError: ")],
)
async def test_a_member_that_fails_ends_alone_and_its_lead_gets_the_reason(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], message: bytes | str, reason: str
) -> None:
    async with run_process() as (lead, serving):
        other_orders, other_channel = lead.order_member()
        orders, channel = lead.order_member()
        orders.send(b"")
        # A session on a machine of a cluster has its store in a database.
        channel.send(
            message if isinstance(message, bytes) else encode_member_bootstrap(build_bootstrap(tmp_path))
        )
        assert await receive(channel) is None
        assert await receive(orders) is None
        assert orders.end_reason.startswith(reason)
        assert "A member failed.\nTraceback" in capfd.readouterr().err
        assert not serving.done()
        # The others go on.
        other_orders.send(b"")
        other_channel.send(encode_member_bootstrap(build_bootstrap(tmp_path / "missing")))
        assert b"does not exist" in (await receive(other_channel) or b"")
        await refuse_member(lead, tmp_path / "missing")


@pytest.mark.parametrize("ends", ["orders", "channel"])
async def test_a_member_whose_lead_leaves_before_it_starts_ends_without_a_word(
    tmp_path: Path, ends: str
) -> None:
    async with run_process() as (lead, serving):
        orders, channel = lead.order_member()
        if ends == "channel":
            orders.send(b"")
            channel.close()
            assert await receive(orders) is None
        else:
            orders.close()
            assert await receive(channel) is None
        await refuse_member(lead, tmp_path / "missing")
        assert not serving.done()


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("count", [0, 1, 3])
async def test_a_process_that_must_end_says_so_once_ends_its_members_and_then_itself(
    tmp_path: Path, count: int, signal_number: signal.Signals
) -> None:
    async with run_process() as (lead, serving):
        await refuse_member(lead, tmp_path / "missing")  # it serves
        members = [lead.order_member() for _ in range(count)]
        if members:
            await refuse_member(lead, tmp_path / "missing")
        for _ in range(2):
            os.kill(os.getpid(), signal_number)
        assert await receive(lead.control) == CLOSING_NOTICE
        assert await receive(lead.control) is None
        for orders, channel in members:
            assert await receive(channel) is None
            assert await receive(orders) is None
            assert orders.end_reason == ""
        async with asyncio.timeout(30):
            await serving


async def test_a_process_whose_lead_is_gone_ends_with_its_members(tmp_path: Path) -> None:
    async with run_process() as (lead, serving):
        lead.order_member()
        await refuse_member(lead, tmp_path / "missing")
        lead.multiplexer.close()
        async with asyncio.timeout(30):
            await serving


def run_lead_and_child(enter: Callable[[str], None], lead: Callable[[int], None]) -> int:
    """Fork a process that waits for its address in a pipe; return its exit code."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 7
        try:
            os.close(writer)
            with os.fdopen(reader) as file:
                enter(file.read())
            code = 0 if {*AGENT_ENVIRONMENT_MARKS.items()} <= {*os.environ.items()} else 8
        finally:
            os._exit(code)
    os.close(reader)
    try:
        lead(writer)
    finally:
        status = os.waitpid(child, 0)[1]
    return os.waitstatus_to_exitcode(status)


def send_addresses(writer: int, addresses: dict[str, object]) -> None:
    with os.fdopen(writer, "w") as file:
        json.dump(msgspec.to_builtins(addresses), file)


def test_a_process_for_several_members_serves_its_lead_until_that_closes(tmp_path: Path) -> None:
    async def lead_process(writer: int) -> None:
        listener = MemberListener("127.0.0.1", CLOCK)
        listener.open()
        address, connected = listener.expect_connection()
        send_addresses(writer, {"host": address})
        async with asyncio.timeout(60):
            lead = Lead(await connected)
            await refuse_member(lead, tmp_path / "missing")
            lead.control.close()
            lead.multiplexer.close()
            await listener.aclose()

    code = run_lead_and_child(
        lambda text: host_main(json.loads(text)), lambda writer: asyncio.run(lead_process(writer))
    )
    assert code in (0, 1)  # whether it ends itself or is ended because the connection is gone


def test_a_process_for_one_member_refuses_it_and_ends(tmp_path: Path) -> None:
    async def lead_process(writer: int) -> None:
        listener = MemberListener("127.0.0.1", CLOCK)
        listener.open()
        (address, orders), (second, channel) = listener.expect_connection(), listener.expect_connection()
        send_addresses(writer, {"orders": address, "member": second})
        async with asyncio.timeout(60):
            (await orders).send(b"")
            (await channel).send(encode_member_bootstrap(build_bootstrap(tmp_path / "missing")))
            assert b"does not exist" in (await channel.result().receive() or b"")
            assert await channel.result().receive() is None
            assert await orders.result().receive() is None
            channel.result().close()
            orders.result().close()
            await listener.aclose()

    code = run_lead_and_child(
        lambda text: main(json.loads(text)), lambda writer: asyncio.run(lead_process(writer))
    )
    assert code == 0


def test_a_process_ends_when_the_connection_to_its_lead_is_gone_and_not_before() -> None:
    here, there = socket.socketpair()
    child = os.fork()
    if child == 0:
        try:
            here.close()
            ray_member_main.LOST_LEAD_GRACE = 0.01
            _watch_lead(there.fileno())
        finally:
            os._exit(7)
    there.close()
    watched = os.pidfd_open(child)
    here.send(b"data")
    assert select.select([watched], [], [], 0.2)[0] == []
    here.close()
    assert select.select([watched], [], [], 30)[0] == [watched]
    os.close(watched)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


async def test_a_hosted_member_ends_its_session_or_is_aborted_before_it_has_one(tmp_path: Path) -> None:
    member = _HostedMember(StartedObjects())
    assert member.changes_directory is False
    member.end()  # it has not begun
    work: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait() -> None:
        await work

    for has_session in (False, True):
        member = _HostedMember(StartedObjects())
        running = asyncio.create_task(member.run(wait()))
        await asyncio.sleep(0)
        async with open_session(tmp_path, script_agents(lead=["x"])) as session:
            if has_session:
                member.watch_session(session)
            member.end()
            await asyncio.sleep(0)
            assert session.stop_requested.is_set() is has_session
            assert running.done() is not has_session
            member.abort()
            with pytest.raises(asyncio.CancelledError):
                await running
        work = asyncio.get_running_loop().create_future()


async def test_the_only_member_of_a_process_ends_with_a_signal(tmp_path: Path) -> None:
    assert _SoleMember.changes_directory is True
    async with open_session(tmp_path, script_agents(lead=["x"])) as session:
        member = _SoleMember()
        member.watch_session(session)
        assert not session.stop_requested.is_set()
        member.end()
        async with asyncio.timeout(30):
            await session.stop_requested.wait()
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        async with open_session(tmp_path, script_agents(lead=["x"])) as session:
            end_session_on_signals(session)
            os.kill(os.getpid(), number)
            async with asyncio.timeout(30):
                await session.stop_requested.wait()
    async with open_session(tmp_path, script_agents(lead=["x"])) as session:
        request_session_end(session)
        assert session.stop_requested.is_set()


def test_what_exists_only_on_the_machine_of_the_lead_is_left_out(tmp_path: Path) -> None:
    adapted = _adapt_to_machine(build_bootstrap(tmp_path), None)
    assert adapted.paths == LeadPaths()
    assert adapted.opened.cwd == str(tmp_path)
    with pytest.raises(ShoalError, match=socket.gethostname()):
        _adapt_to_machine(build_bootstrap(tmp_path / "missing"), None)


def run_git(directory: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@localhost")
    subprocess.run(["git", *identity, *arguments], cwd=directory, check=True, capture_output=True)


@pytest.fixture
def git() -> GitRunner:
    return GitRunner(os.environ, CLOCK)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project" / "src"
    directory.mkdir(parents=True)
    (directory / "a.txt").write_text("one\n")
    for arguments in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "first")):
        run_git(directory, *arguments)
    return directory


async def create_checkout(git: GitRunner, project: Path, *, sends_bundle: bool = True) -> MachineCheckout:
    checkout = await find_git_checkout(git, project)
    assert checkout is not None
    origin = await find_project_origin(git, checkout, REF, name="s1-ann")
    with pair() as (lead, orders):
        creating = asyncio.create_task(_create_checkout(orders, msgspec.json.encode(origin), CLOCK))
        known = await receive(lead)
        assert known is not None
        if sends_bundle:
            commits = msgspec.json.decode(known, type=KnownCommits).commits
            send_in_parts(lead, await bundle_project(git, checkout, origin, commits))
        else:
            lead.close()
        async with asyncio.timeout(60):
            created = await creating
    assert created is not None
    return created


async def test_a_checkout_is_created_from_what_the_lead_sends(git: GitRunner, project: Path) -> None:
    checkout = await create_checkout(git, project)
    assert (checkout.cwd / "a.txt").read_text() == "one\n"
    assert checkout.top.is_relative_to(get_home())
    assert _adapt_to_machine(build_bootstrap("/missing"), checkout).opened.cwd == str(checkout.cwd)
    checkout.remove()
    # The machine knows the commit now, so an empty bundle is enough.
    assert ((await create_checkout(git, project, sends_bundle=False)).cwd / "a.txt").exists()
    with pair() as (_, orders):
        assert await _create_checkout(orders, b"", CLOCK) is None


async def test_a_checkout_that_cannot_be_created_is_refused_after_the_bundle_was_read(
    git: GitRunner, project: Path
) -> None:
    repositories = get_home() / "shoal" / "cluster" / "repositories"
    checkout = await create_checkout(git, project)
    for repository in repositories.iterdir():
        repository.rename(repository.with_suffix(".old"))
        (repository.with_suffix(".old") / "HEAD").rename(repositories / "HEAD")
        repository.mkdir()
        (repository / "HEAD").write_text("damaged")
        break
    checkout.remove()
    with pytest.raises(WorktreeError):
        await create_checkout(git, project)
    async with run_process() as (lead, serving):
        found = await find_git_checkout(git, project)
        assert found is not None
        origin = await find_project_origin(git, found, REF, name="s1-ann")
        orders, channel = lead.order_member()
        orders.send(msgspec.json.encode(origin))
        assert await receive(orders) == b'{"commits":[],"machine":"","problem":""}'
        send_in_parts(orders, b"bundle")
        channel.send(encode_member_bootstrap(build_bootstrap(project)))
        hello = msgspec.json.decode(await receive(channel) or b"", type=MemberHello)
        assert "git" in hello.refusal
        assert not serving.done()


async def test_a_machine_fetches_what_is_pushed_and_gets_the_rest_from_the_lead(
    tmp_path: Path, project: Path
) -> None:
    run_git(tmp_path, "init", "-q", "--bare", "remote.git")
    (project / "large.bin").write_bytes(os.urandom(300_000))
    for arguments in (
        ("add", "-A"),
        ("commit", "-qm", "large"),
        ("remote", "add", "origin", str(tmp_path / "remote.git")),
        ("push", "-q", "-u", "origin", "HEAD"),
    ):
        run_git(project, *arguments)
    (project / "a.txt").write_text("not pushed\n")
    notes: list[str] = []
    files = ClusterFiles(project, environ=os.environ, clock=CLOCK, report=notes.append, uncommitted=True)
    with pair() as (lead, orders):
        origin = await files.describe_origin(MEMBER)
        creating = asyncio.create_task(_create_checkout(orders, origin, CLOCK))
        bundle = await files.build_bundle(origin, await receive(lead) or b"")
        send_in_parts(lead, bundle)
        async with asyncio.timeout(60):
            checkout = await creating
    assert checkout is not None
    assert (checkout.cwd / "a.txt").read_text() == "not pushed\n"
    assert (checkout.cwd / "large.bin").exists()
    assert 0 < len(bundle) < 10_000
    assert notes == []


class MachineProcess:
    """A real process of a machine, which waits for the order of its lead."""

    def __init__(self) -> None:
        self.lead, there = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self.lead.close()
                asyncio.run(self._run_member(there))
            finally:
                os._exit(7)
        there.close()

    async def _run_member(self, connection: socket.socket) -> None:
        orders = SocketChannel(connection)
        await _receive_and_run_member(orders, orders, CLOCK, _SoleMember())

    async def send_order(self, origin: bytes) -> None:
        channel = SocketChannel(self.lead)
        channel.send(origin)
        await channel.wait_until_sent()

    def kill(self, victims: list[int]) -> None:
        """Kill processes at once, and wait until this one is gone."""
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in victims:
                os.kill(pid, number)
        os.waitpid(self.pid, 0)
        self.lead.close()


def is_running(pid: int) -> bool:
    stat = read_process_stat(pid)
    return stat is not None and stat[STATE_FIELD] not in b"ZX"


@pytest.mark.parametrize("scheme", ["git", "https"])
@pytest.mark.parametrize("victims", ["process", "process and guardian"])
def test_a_process_that_is_killed_during_a_fetch_leaves_no_git_process(
    tmp_path: Path, git: GitRunner, project: Path, victims: str, scheme: str
) -> None:
    run_git(tmp_path, "init", "-q", "--bare", "remote.git")
    run_git(project, "remote", "add", "origin", str(tmp_path / "remote.git"))
    run_git(project, "push", "-q", "-u", "origin", "HEAD")
    files = ClusterFiles(project, environ=os.environ, clock=CLOCK, report=lambda _: None)

    def order_fetch(process: MachineProcess, url: str) -> None:
        run_git(project, "config", "remote.origin.url", url)
        asyncio.run(process.send_order(asyncio.run(files.describe_origin(MEMBER))))

    processes = [MachineProcess(), MachineProcess()]
    with run_silent_server(scheme) as server:
        order_fetch(processes[0], f"{server.address}/remote.git")
        assert server.connected.wait(PATIENCE)
        (guardian,) = read_process_tree()[processes[0].pid]
        started = collect_descendant_pids(guardian, read_process_tree())
        assert started
        is_guardian_killed = victims != "process"
        processes[0].kill([processes[0].pid, *([guardian] if is_guardian_killed else [])])
        if is_guardian_killed:
            # The next fetch on the machine ends what nobody guards.
            with run_silent_server(scheme) as other:
                order_fetch(processes[1], f"{other.address}/remote.git")
                assert other.connected.wait(PATIENCE)
                assert server.ended.wait(PATIENCE)
        assert server.ended.wait(PATIENCE)
    processes[1].kill([processes[1].pid])
    deadline = time.monotonic() + PATIENCE
    while any(map(is_running, started)):
        assert time.monotonic() < deadline
        time.sleep(0.01)


async def order_checkout(lead: Lead, git: GitRunner, project: Path) -> tuple[SharedChannel, SharedChannel]:
    """Order a member up to its bootstrap message; its checkout exists then."""
    checkout = await find_git_checkout(git, project)
    origin = await find_project_origin(git, checkout, REF, name="s1-ann")
    orders, channel = lead.order_member()
    orders.send(msgspec.json.encode(origin))
    known = msgspec.json.decode(await receive(orders) or b"", type=KnownCommits)
    send_in_parts(orders, await bundle_project(git, checkout, origin, known.commits))
    async with asyncio.timeout(60):
        while not (list_checkouts() and (list_checkouts()[0] / "a.txt").exists()):
            await asyncio.sleep(0.01)
    return orders, channel


def list_checkouts() -> list[Path]:
    return [*(get_home() / "shoal" / "cluster").glob("checkouts/[!.]*")]


def build_bootstrap_with_store(store: str) -> bytes:
    bootstrap = build_bootstrap("/missing")
    return encode_member_bootstrap(replace(bootstrap, opened=replace(bootstrap.opened, store=store)))


@pytest.mark.needs("asyncpg")
async def test_a_member_that_is_refused_leaves_no_checkout(git: GitRunner, project: Path) -> None:
    async with run_process() as (lead, _):
        _, channel = await order_checkout(lead, git, project)
        channel.send(build_bootstrap_with_store("postgresql://127.0.0.1:1/none"))
        hello = msgspec.json.decode(await receive(channel) or b"", type=MemberHello)
        assert "Cannot reach the store" in hello.refusal
        assert list_checkouts() == []  # before the lead kills the process


@pytest.mark.parametrize("how", ["left", "failed"])
async def test_a_member_whose_lead_leaves_or_fails_leaves_no_checkout(
    git: GitRunner, project: Path, how: str
) -> None:
    async with run_process() as (lead, _):
        orders, channel = await order_checkout(lead, git, project)
        if how == "left":
            channel.close()
        else:
            channel.send(b"{}")
        assert await receive(orders) is None
        assert list_checkouts() == []


@pytest.mark.needs("postgres", "asyncpg")
async def test_a_session_that_cannot_be_opened_leaves_no_checkout(
    git: GitRunner, project: Path, database: str
) -> None:
    async with run_process() as (lead, _):
        _, channel = await order_checkout(lead, git, project)
        channel.send(build_bootstrap_with_store(database))  # it does not have the session
        assert msgspec.json.decode(await receive(channel) or b"", type=MemberHello).epoch
        assert b'"type":"Refused"' in (await receive(channel) or b"")
        assert list_checkouts() == []


class MemberLog:
    """Notes how a member is asked to end."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def end(self) -> None:
        self.asked.append("end")

    def abort(self) -> None:
        self.asked.append("abort")


@asynccontextmanager
async def send_checkpoints(
    checkout: MachineCheckout | None,
) -> AsyncIterator[tuple[SocketChannel, CheckpointSender, MemberLog]]:
    with pair() as (lead, orders):
        log = MemberLog()
        sender = CheckpointSender(orders, checkout, CLOCK, log)  # type: ignore[arg-type]
        tasks = [asyncio.create_task(sender.listen()), asyncio.create_task(sender.send_changes())]
        try:
            yield lead, sender, log
        finally:
            for task in tasks:
                task.cancel()


def use_checkpoints(session: shoal.Session, sender: CheckpointSender) -> None:
    """Let the agent of a session store its files, as in the process of a member."""
    sender.watch_session(session)
    session.agent.environment = replace(session.agent.environment, checkpoints=sender)


async def answer_checkpoints(lead: SocketChannel, *answers: bytes) -> None:
    """Receive as many checkpoints as there are answers."""
    for answer in answers:
        assert await receive(lead) == b"1"
        assert (await receive(lead) or b"").startswith(b"# v")
        lead.send(answer)


STORED, REFUSED = b'{"stored":true}', b'{"stored":false}'


def write(name: str, call: str, *, then: str = "true") -> ToolUseBlock:
    return call_tool("Bash", call, command=f"echo {call} > {name}; {then}")


async def test_the_result_of_a_call_is_stored_after_the_files_that_it_changed(
    git: GitRunner, project: Path
) -> None:
    checkout = await create_checkout(git, project)
    read = call_tool("Read", "r", file_path=str(checkout.cwd / "a.txt"))
    # A command that fails can have changed files too.
    model = script_agents(lead=["said", read, "read", write("a.txt", "w", then="false"), "wrote"])
    async with send_checkpoints(checkout) as (lead, sender, _), open_session(checkout.cwd, model) as session:
        use_checkpoints(session, sender)
        received = asyncio.create_task(lead.receive())
        for _ in range(2):
            await collect_events(session.run("lead"))
        assert not received.done(), "nothing was changed"
        count = len(session.agent.conversation.messages)
        turn = asyncio.create_task(collect_events(session.run("lead")))
        async with asyncio.timeout(30):
            assert await received == b"1"
        assert (await receive(lead) or b"").startswith(b"# v")
        assert len(session.agent.conversation.messages) == count + 2, "the prompt and the call"
        lead.send(STORED)
        async with asyncio.timeout(30):
            await turn
        assert len(session.agent.conversation.messages) == count + 4
        assert "not stored" not in "".join(list_lead_results(session))
        async with asyncio.timeout(30):
            await sender.finish()
        assert not checkout.top.exists()


async def test_a_call_has_no_result_if_its_lead_is_lost_before_the_files_are_stored(
    git: GitRunner, project: Path
) -> None:
    """The next process of the member has none of these files, so it must repeat the call."""
    checkout = await create_checkout(git, project)
    async with send_checkpoints(checkout) as (lead, sender, log):
        (checkout.cwd / "a.txt").write_text("changed\n")
        sender.note_change()
        stored = asyncio.create_task(sender.store_changes())
        assert await receive(lead) == b"1"
        assert (await receive(lead) or b"").startswith(b"# v")
        lead.close()
        async with asyncio.timeout(30):
            while not log.asked:
                await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
        assert not stored.done()
        stored.cancel()


async def test_no_task_is_completed_and_nothing_sent_before_the_files_are_stored(
    git: GitRunner, project: Path
) -> None:
    checkout = await create_checkout(git, project)
    complete = [call_tool("TaskUpdate", f"u{n}", taskId="1", status="completed") for n in range(2)]
    claim = call_tool("TaskUpdate", "u", taskId="1", status="in_progress")
    message = call_tool("SendMessage", "m", to="nobody", message="done", summary="done")
    model = script_agents(
        lead=[
            call_tool("TaskCreate", "t", subject="s", description="d"),
            [write("a.txt", "w"), claim, complete[0], message],
            complete[1],
            "Done.",
        ]
    )
    async with send_checkpoints(checkout) as (lead, sender, _), open_session(checkout.cwd, model) as session:
        use_checkpoints(session, sender)
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            tasks.create_task(answer_checkpoints(lead, REFUSED, REFUSED, REFUSED, STORED))
            await collect_events(session.run("lead"))
        _, wrote, claimed, refused, unsent, completed = list_lead_results(session)
        problem = "the lead could not store them, and has told its user why."
        assert f"The files that you changed are not stored yet: {problem}" in wrote
        assert "Until they are, you cannot" not in claimed
        assert refused.startswith("TaskUpdate was not run, because others would rely on files")
        assert unsent.startswith("SendMessage was not run, because others would rely on files")
        assert problem in refused
        assert "not run" not in completed


async def test_a_turn_does_not_end_as_done_while_files_are_not_stored(git: GitRunner, project: Path) -> None:
    checkout = await create_checkout(git, project)
    model = script_agents(
        lead=[write("a.txt", "w"), *(["Done."] * 4), write("a.txt", "w2"), "Done.", "Done."]
    )
    async with send_checkpoints(checkout) as (lead, sender, _), open_session(checkout.cwd, model) as session:
        use_checkpoints(session, sender)
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            # After the call, and each time that it ends its turn.
            tasks.create_task(answer_checkpoints(lead, *[REFUSED] * 5))
            events = await collect_events(session.run("lead"))
        (end,) = [event for event in events if isinstance(event, TurnEnded)]
        assert end.reason == "blocked"
        assert "the lead could not store them" in end.detail
        sent_back = [
            m for m in session.agent.conversation.messages if "You cannot end your turn yet" in m.text
        ]
        assert len(sent_back) == 3
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            tasks.create_task(answer_checkpoints(lead, REFUSED, STORED))
            events = await collect_events(session.run("lead"))
        assert [event.reason for event in events if isinstance(event, TurnEnded)] == ["done"]


async def test_a_lead_that_does_not_answer_in_time_has_not_stored_the_files(
    git: GitRunner, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_member_main, "CHECKPOINT_TIMEOUT", 0.05)
    checkout = await create_checkout(git, project)
    async with send_checkpoints(checkout) as (lead, sender, _):
        assert await sender.store_changes() == ""
        (checkout.cwd / "a.txt").write_text("two")
        sender.note_change()
        for _ in range(2):
            assert "has not confirmed them within 0.05 seconds" in await sender.store_changes()
        monkeypatch.setattr(ray_member_main, "CHECKPOINT_TIMEOUT", 60.0)
        await answer_checkpoints(lead, STORED)
        assert await sender.store_changes() == ""


async def test_changes_of_a_background_command_are_stored(git: GitRunner, project: Path) -> None:
    checkout = await create_checkout(git, project)
    go = checkout.top / ".git" / "go"
    command = f"while [ ! -e {go} ]; do sleep 0.05; done; echo late > late.txt"
    model = script_agents(
        lead=[call_tool("Bash", "b", command=command, run_in_background=True), "Started.", "Ended."]
    )
    async with send_checkpoints(checkout) as (lead, sender, _), open_session(checkout.cwd, model) as session:
        use_checkpoints(session, sender)
        await collect_events(session.run("lead"))
        go.touch()
        async with asyncio.timeout(60):
            await answer_checkpoints(lead, STORED)


async def test_undone_work_replaces_work_that_the_lead_could_not_store(git: GitRunner, project: Path) -> None:
    checkout = await create_checkout(git, project)
    lead_checkout = await find_git_checkout(git, project)
    (checkout.cwd / "a.txt").write_text("two\n")
    await store_checkpoint(git, lead_checkout, await checkout.build_checkpoint(), REF)
    checkout.note_answer(is_stored=True)
    (checkout.cwd / "a.txt").write_text("three\n")
    assert await checkout.build_checkpoint()
    checkout.note_answer(is_stored=False)
    (checkout.cwd / "a.txt").write_text("one\n")
    await store_checkpoint(git, lead_checkout, await checkout.build_checkpoint(), REF)
    checkout.note_answer(is_stored=True)
    assert await checkout.build_checkpoint() == b""
    shown = subprocess.run(["git", "show", f"{REF}:a.txt"], cwd=project, capture_output=True, check=True)
    assert shown.stdout == b"one\n"


async def test_the_last_work_is_sent_and_each_part_of_it_must_be_stored(
    git: GitRunner, project: Path
) -> None:
    checkout = await create_checkout(git, project)
    async with send_checkpoints(checkout) as (lead, sender, log):
        for text in ("two", "three"):
            (checkout.cwd / "a.txt").write_text(text)
            await sender._send_checkpoint()
        (checkout.cwd / "a.txt").write_text("four")
        finishing = asyncio.create_task(sender.finish())
        for number in range(3):
            assert await receive(lead) == b"1"
            assert await receive(lead)
            assert checkout.top.exists(), number
        for _ in range(3):
            assert not finishing.done()
            lead.send(b"stored")
            await asyncio.sleep(0.02)
        async with asyncio.timeout(30):
            await finishing
        assert not checkout.top.exists()
        assert log.asked == []


async def test_one_checkpoint_waits_for_the_answer_of_the_lead_and_the_next_has_all_changes(
    git: GitRunner, project: Path
) -> None:
    """On a slow connection, a checkpoint for each tool call would fill the memory."""
    checkout = await create_checkout(git, project)
    lead_checkout = await find_git_checkout(git, project)
    async with send_checkpoints(checkout) as (lead, sender, _), asyncio.TaskGroup() as tasks:
        for number in range(3):
            (checkout.cwd / f"{number}.txt").write_text("new\n")
            sender.note_change()
            tasks.create_task(sender.store_changes())
            if not number:
                assert await receive(lead) == b"1"
                await store_checkpoint(git, lead_checkout, await receive(lead) or b"", REF)
        received = asyncio.create_task(lead.receive())
        for _ in range(40):
            await asyncio.sleep(0.005)
        assert not received.done()
        lead.send(b"stored")
        async with asyncio.timeout(30):
            assert await received == b"1"
        await store_checkpoint(git, lead_checkout, await receive(lead) or b"", REF)
        lead.send(b"stored")
    done = subprocess.run(
        ["git", "ls-tree", "--name-only", REF], cwd=project, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["0.txt", "1.txt", "2.txt", "a.txt"]


async def test_nothing_reads_a_checkout_that_is_removed(git: GitRunner, project: Path) -> None:
    """The lead answers a checkpoint for which the next one waits while the member ends."""
    checkout = await create_checkout(git, project)
    async with send_checkpoints(checkout) as (lead, sender, _):
        (checkout.cwd / "a.txt").write_text("two\n")
        finishing = asyncio.create_task(sender.finish())
        assert await receive(lead) == b"1"
        assert await receive(lead)
        lead.send(b"stored")
        async with asyncio.timeout(30):
            await finishing
        assert await sender._send_checkpoint() == ""
    assert [*checkout.top.parent.iterdir()] == []


async def test_files_that_cannot_be_sent_are_named_once_and_stay_on_the_machine(
    git: GitRunner, project: Path
) -> None:
    checkout = await create_checkout(git, project)
    (checkout.cwd / "inner").mkdir()
    create_git_repository(checkout.cwd / "inner")
    model = script_agents(lead=[write("a.txt", "w1"), "one", write("a.txt", "w2"), "two"])
    async with send_checkpoints(checkout) as (lead, sender, _), open_session(checkout.cwd, model) as session:
        use_checkpoints(session, sender)
        for _ in range(2):
            async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
                tasks.create_task(answer_checkpoints(lead, STORED))
                await collect_events(session.run("lead"))
        async with asyncio.timeout(30):
            await sender.finish()
        notes = [event.text for event in read_events(session) if isinstance(event, NoteAdded)]
    (note,) = notes
    assert str(checkout.top) in note
    assert "inner" in note
    assert (checkout.cwd / "inner" / "code.txt").exists()


@pytest.mark.parametrize("lead_leaves", [False, True])
async def test_work_that_the_lead_has_not_stored_stays_on_the_machine(
    git: GitRunner, project: Path, monkeypatch: pytest.MonkeyPatch, lead_leaves: bool
) -> None:
    monkeypatch.setattr(ray_member_main, "STORE_TIMEOUT", 20.0 if lead_leaves else 0.05)
    checkout = await create_checkout(git, project)
    async with send_checkpoints(checkout) as (lead, sender, log):
        (checkout.cwd / "a.txt").write_text("two")
        finishing = asyncio.create_task(sender.finish())
        await receive(lead)
        if lead_leaves:
            lead.close()
        async with asyncio.timeout(10):
            await finishing
        assert log.asked == ["end"] * lead_leaves
    assert (checkout.cwd / "a.txt").read_text() == "two"


async def test_work_that_the_lead_could_not_store_is_sent_again_and_stays_on_the_machine(
    tmp_path: Path, git: GitRunner, project: Path
) -> None:
    def run_git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=project, check=True, capture_output=True, text=True)
        return done.stdout

    async def end_lease(epoch: int) -> None:
        raise AssertionError(epoch)

    reports: list[str] = []
    files = ClusterFiles(project, environ=os.environ, clock=CLOCK, report=reports.append)
    backend = RayBackend(
        RayBackendSettings(address="127.0.0.1:1", lead_host=None, cpus=0.1),
        None,  # type: ignore[arg-type]
        CLOCK,
        entry_points=RayEntryPoints(member="unused:unused", host="unused:unused"),
        end_lease=end_lease,
        log_directory=tmp_path,
        report=reports.append,
    )
    launch = MemberProcessLaunchSpec(launch_args=MEMBER, cwd=project, env={})
    checkout = await create_checkout(git, project)
    blocking = REF.rpartition("/")[0]
    run_git("update-ref", blocking, "HEAD")  # no ref can be below it
    async with send_checkpoints(checkout) as (lead, sender, _):
        storing = asyncio.create_task(backend._store_checkpoints(lead, files, launch))
        (checkout.cwd / "a.txt").write_text("two")
        async with asyncio.timeout(PATIENCE):
            await sender._send_checkpoint()
            await sender._confirmed.wait()
            if reports:
                run_git("update-ref", "-d", blocking)
            await sender.finish()
        storing.cancel()
    assert "could not be stored, so its checkout stays on its machine" in reports[0]
    assert run_git("show", f"{REF}:a.txt") == "two"
    assert not checkout.top.exists()

    run_git("update-ref", "-d", REF)
    run_git("update-ref", blocking, "HEAD")
    checkout = await create_checkout(git, project)
    async with send_checkpoints(checkout) as (lead, sender, _):
        storing = asyncio.create_task(backend._store_checkpoints(lead, files, launch))
        (checkout.cwd / "a.txt").write_text("three")
        async with asyncio.timeout(PATIENCE):
            await sender.finish()
        storing.cancel()
    assert (checkout.cwd / "a.txt").read_text() == "three"


async def test_a_member_is_ended_or_aborted_as_its_lead_says() -> None:
    async with send_checkpoints(None) as (lead, sender, log):
        async with asyncio.timeout(30):
            await sender.finish()  # without a checkout there is nothing to store
            for order in (b'{"type":"stop"}', b'{"type":"abort"}'):
                lead.send(order)
            while len(log.asked) < 2:
                await asyncio.sleep(0.005)
            assert log.asked == ["end", "abort"]
            lead.close()
            while len(log.asked) < 3:
                await asyncio.sleep(0.005)
        assert log.asked == ["end", "abort", "end"]
