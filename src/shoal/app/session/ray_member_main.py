"""Entry points of a process on a machine of a cluster that runs members of a team whose lead is elsewhere."""

from __future__ import annotations

import asyncio
import gc
import os
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from shoal.app.agents.member_bootstrap import LeadPaths, MemberBootstrap, decode_member_bootstrap
from shoal.app.model_notices import format_session_notice
from shoal.app.session.member_main import end_session_on_signals, request_session_end, run_member_session
from shoal.app.session.session import Session
from shoal.app.settings.settings import load_settings
from shoal.backends.guarded_processes import GuardedProcessLauncher
from shoal.backends.heap_trim import StartedObjects
from shoal.backends.member_listener import LeadAddress, connect_to_lead, read_tls_files
from shoal.backends.ray_backend import MemberHello
from shoal.backends.ray_hosts import CLOSING_NOTICE, CONTROL_CHANNEL, StartMemberOrder
from shoal.backends.socket_channel import (
    ChannelMultiplexer,
    MessageChannel,
    receive_in_parts,
    send_in_parts,
)
from shoal.core.clock import Clock, SystemClock
from shoal.core.compact_event import CompactEvent
from shoal.core.errors import ShoalError, WorktreeError
from shoal.core.events import BackgroundShellEnded, BackgroundShellStarted, Event, ToolFinished
from shoal.core.teams.member_backends import AGENT_ENVIRONMENT_MARKS
from shoal.stores.files.home.home_paths import get_process_records_directory
from shoal.stores.files.home.trust_file import store_sent_decisions
from shoal.stores.postgres.suspended_tasks import create_member_context, install_suspendable_tasks
from shoal.workspaces.git_runner import GitRunner
from shoal.workspaces.project_transfer import KnownCommits, MachineCheckout, ProjectOrigin

STORE_TIMEOUT = 20.0
"""Seconds to wait at the end until the lead has stored the last work."""

CHECKPOINT_TIMEOUT = 60.0
"""Seconds to wait until the lead has stored what a call has changed."""

LOST_LEAD_GRACE = 5.0
"""Seconds for a clean end after the connection to the lead is lost."""

_GC_THRESHOLD = 50_000


def main(order: Mapping[str, Any]) -> None:
    """Run the process that Ray started for one member."""
    _run_in_process(_run_ordered_member(order))


async def _run_ordered_member(order: Mapping[str, Any]) -> None:
    clock = SystemClock()
    tls = read_tls_files(os.environ)
    orders = await connect_to_lead(msgspec.convert(order["orders"], LeadAddress), clock, tls)
    channel = await connect_to_lead(msgspec.convert(order["member"], LeadAddress), clock, tls)
    # Not closed: the connection must last as long as this process.
    threading.Thread(target=_watch_lead, args=(os.dup(orders.descriptor),), daemon=True).start()
    try:
        await _receive_and_run_member(orders, channel, clock, _SoleMember())
    finally:
        await channel.wait_until_sent()
        channel.close()
        orders.close()


def host_main(order: Mapping[str, Any]) -> None:
    """Run the process that Ray started for several members."""
    gc.set_threshold(_GC_THRESHOLD)
    _run_in_process(_run_host(order))


def _run_in_process(work: Coroutine[Any, Any, None]) -> None:
    os.environ.update(AGENT_ENVIRONMENT_MARKS)
    # Ray chooses uvloop if it is installed. Its pipes raise other errors than those of Python's event loop
    # when a program ends before it has read its input.
    asyncio.set_event_loop_policy(None)
    asyncio.run(work)


async def _run_host(order: Mapping[str, Any]) -> None:
    clock = SystemClock()
    address = msgspec.convert(order["host"], LeadAddress)
    connection = await connect_to_lead(address, clock, read_tls_files(os.environ))
    threading.Thread(target=_watch_lead, args=(os.dup(connection.descriptor),), daemon=True).start()
    multiplexer = ChannelMultiplexer(connection)
    try:
        await SharedMemberProcess(multiplexer, clock).serve()
    finally:
        await multiplexer.wait_until_sent()
        multiplexer.close()


class SharedMemberProcess:
    """This process, which runs the members that its lead orders until the connection to the lead ends."""

    def __init__(self, multiplexer: ChannelMultiplexer, clock: Clock) -> None:
        self._multiplexer = multiplexer
        self._clock = clock
        self._control = multiplexer.open_channel(CONTROL_CHANNEL)
        self._members: set[_HostedMember] = set()
        self._started_objects = StartedObjects()
        self._is_closing = False

    async def serve(self) -> None:
        loop = asyncio.get_running_loop()
        install_suspendable_tasks(loop)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._begin_to_close)
        async with asyncio.TaskGroup() as tasks:
            receiving = tasks.create_task(self._multiplexer.serve())
            while (message := await self._control.receive()) is not None:
                order = msgspec.json.decode(message, type=StartMemberOrder)
                tasks.create_task(self._run_member(order.number), context=create_member_context())
            self._begin_to_close()  # the lead is gone
            receiving.cancel()

    def _begin_to_close(self) -> None:
        """End all members so that they can be started elsewhere, and then this process."""
        if self._is_closing:
            return
        self._is_closing = True
        self._control.send(CLOSING_NOTICE)
        for member in tuple(self._members):
            member.end()
        if not self._members:
            self._control.close()

    async def _run_member(self, number: int) -> None:
        """Run one member. Its failure ends only itself."""
        orders = self._multiplexer.open_channel(number)
        channel = self._multiplexer.open_channel(number + 1)
        member, reason = _HostedMember(self._started_objects), ""
        self._members.add(member)
        try:
            await member.run(_receive_and_run_member(orders, channel, self._clock, member))
        except Exception as error:  # noqa: BLE001 - boundary around members: a crash ends only this one
            reason = f"{type(error).__name__}: {error}"
            sys.stderr.write(f"A member failed.\n{traceback.format_exc()}\n")
        finally:
            self._members.discard(member)
            member.note_end()
            channel.close()
            orders.close(reason)
            if self._is_closing and not self._members:
                self._control.close()


class _SoleMember:
    """The one member of a process, which ends with it."""

    changes_directory = True

    def watch_session(self, session: Session) -> None:
        end_session_on_signals(session)

    def end(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    abort = end


class _HostedMember:
    """A member that shares its process, and can be ended without the others."""

    changes_directory = False

    def __init__(self, started_objects: StartedObjects) -> None:
        self._started_objects = started_objects
        self._sessions: list[Session] = []
        self._task: asyncio.Task[Any] | None = None

    async def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the member until it has ended or is aborted."""
        self._task = asyncio.current_task()
        await work

    def watch_session(self, session: Session) -> None:
        self._sessions.append(session)
        self._started_objects.add_teammate()

    def note_end(self) -> None:
        if self._sessions:
            self._started_objects.remove_teammate()

    def end(self) -> None:
        """Ask it to end; before its session is open, there is nothing to store."""
        if not self._sessions:
            self.abort()
        for session in self._sessions:
            request_session_end(session)

    def abort(self) -> None:
        if self._task is not None:
            self._task.cancel()


async def _receive_and_run_member(
    orders: MessageChannel, channel: MessageChannel, clock: Clock, member: _SoleMember | _HostedMember
) -> None:
    origin = await orders.receive()
    if origin is None:
        return
    checkout: MachineCheckout | None = None
    problem = ""
    try:
        checkout = await _create_checkout(orders, origin, clock)
    except ShoalError as error:
        problem = str(error)
    bootstrap: MemberBootstrap | None = None
    try:
        hello, bootstrap = await _answer_lead(channel, checkout, problem, member)
    finally:
        # Before the answer: the lead kills a process that refuses.
        if bootstrap is None and checkout is not None:
            await asyncio.to_thread(checkout.remove)
    if hello is not None:
        channel.send(msgspec.json.encode(hello))
    if bootstrap is None:
        return
    checkpoints = CheckpointSender(orders, checkout, clock, member)

    def watch_session(session: Session) -> None:
        member.watch_session(session)
        checkpoints.watch_session(session)

    async with asyncio.TaskGroup() as tasks:
        listening = tasks.create_task(checkpoints.listen())
        sending = tasks.create_task(checkpoints.send_changes())
        await run_member_session(channel, bootstrap, watch_session, checkpoints=checkpoints)
        await checkpoints.finish()
        listening.cancel()
        sending.cancel()


async def _answer_lead(
    channel: MessageChannel,
    checkout: MachineCheckout | None,
    problem: str,
    member: _SoleMember | _HostedMember,
) -> tuple[MemberHello | None, MemberBootstrap | None]:
    """Return the answer to the lead, and the member to run; neither if the lead has left."""
    message = await channel.receive()
    if message is None:
        return None, None
    try:
        if problem:
            raise WorktreeError(problem)
        bootstrap = _adapt_to_machine(decode_member_bootstrap(message), checkout)
        if member.changes_directory:
            os.chdir(bootstrap.opened.cwd)
        epoch = await asyncio.to_thread(_open_lease, bootstrap)
    except ShoalError as error:
        return MemberHello(refusal=str(error)), None
    return MemberHello(epoch=epoch, pid=os.getpid(), node=socket.gethostname()), bootstrap


class CheckpointSender:
    """Sends the member's work to the lead, and waits until it is stored."""

    def __init__(
        self,
        orders: MessageChannel,
        checkout: MachineCheckout | None,
        clock: Clock,
        member: _SoleMember | _HostedMember,
    ) -> None:
        self._orders = orders
        self._member = member
        self._checkout = checkout
        self._clock = clock
        self._has_changes = CompactEvent()
        self._is_sending = False
        self._lock = asyncio.Lock()
        self._sessions: list[Session] = []
        self._noted = ""
        self._unconfirmed = 0
        self._is_stored = True
        """False if the lead could not store the last checkpoint, which has all changes so far."""
        self._is_finished = False
        self._is_lead_lost = False
        self._confirmed = CompactEvent()
        self._confirmed.set()
        self._change_count = 0
        """Number of changes that may have been made."""
        self._stored_count = 0
        """Number of changes that are stored."""
        self._attempts = 0
        """Number of checkpoints that were stored, or could not be."""
        self._attempt_ended = CompactEvent()
        self._failure = ""
        """Why the last attempt failed."""
        self._running_shells: set[str] = set()
        """Background commands, which can change files at any time."""

    def watch_session(self, session: Session) -> None:
        def note_background_commands(event: Event) -> None:
            match event:
                case BackgroundShellStarted():
                    self._running_shells.add(event.facts.shell)
                case BackgroundShellEnded():
                    self._running_shells.discard(event.end.facts.shell)
                    self.note_change()
                    self._has_changes.set()
                case ToolFinished() if self._running_shells:
                    self.note_change()
                    self._has_changes.set()
                case _:
                    pass

        self._sessions.append(session)
        session.subscribe(note_background_commands)

    def note_change(self) -> None:
        self._change_count += 1

    async def store_changes(self) -> str:
        if self._checkout is None:
            return ""
        if self._running_shells:
            self.note_change()
        wanted = self._change_count
        if self._stored_count >= wanted:
            return ""
        try:
            async with self._clock.deadline(CHECKPOINT_TIMEOUT):
                return await self._wait_until_stored(wanted)
        except TimeoutError:
            return format_session_notice("checkpoint_too_slow", seconds=f"{CHECKPOINT_TIMEOUT:g}")

    async def _wait_until_stored(self, wanted: int) -> str:
        """Return when that many changes are stored, or why an attempt that began after now failed."""
        # The current attempt may have begun before the last change.
        last_attempt = self._attempts + (2 if self._is_sending else 1)
        self._has_changes.set()
        while self._stored_count < wanted:
            if self._attempts >= last_attempt:
                return self._failure
            self._attempt_ended.clear()
            await self._attempt_ended.wait()
        return ""

    async def listen(self) -> None:
        """Handle messages from the lead: it has stored something, or the member must end."""
        while (message := await self._orders.receive()) is not None:
            if b"stored" in message:
                self._unconfirmed -= 1
                self._is_stored = b"false" not in message
                if self._checkout is not None:
                    self._checkout.note_answer(is_stored=self._is_stored)
                    self._mark_checkout(self._checkout)
                if not self._unconfirmed:
                    self._confirmed.set()
            elif b"abort" in message:
                self._member.abort()
            else:
                self._member.end()
        self._is_lead_lost = True
        self._confirmed.set()
        self._member.end()

    async def send_changes(self) -> None:
        while True:
            await self._has_changes.wait()
            # On a slow connection, the next one has all changes that were made meanwhile.
            await self._confirmed.wait()
            self._has_changes.clear()
            self._is_sending, count = True, self._change_count
            problem = await self._send_checkpoint()
            self._note_problem(problem)
            await self._confirmed.wait()
            self._note_attempt(count)
            self._is_sending = False

    def _note_attempt(self, count: int) -> None:
        if self._is_lead_lost:
            # The call gets no result, so that the next process of this agent repeats it: this one ends soon.
            return
        if not self._is_stored or self._unconfirmed:
            self._failure = format_session_notice("checkpoint_refused")
        if not self._failure:
            self._stored_count = count
        self._attempts += 1
        self._attempt_ended.set()

    def _note_problem(self, problem: str) -> None:
        if problem and problem != self._noted and self._checkout is not None:
            for session in self._sessions:
                session.note(
                    f"Some files of this agent could not be stored; they are in {self._checkout.top} on "
                    f"{socket.gethostname()}. {problem}"
                )
        self._noted = problem

    async def finish(self) -> None:
        """Send the last changes, and wait until the lead has stored everything.

        The checkout stays if it has files that could not be sent.
        """
        if self._is_finished:
            return
        self._is_finished = True
        problem = await self._send_checkpoint(is_last=True)
        with suppress(TimeoutError):
            async with self._clock.deadline(STORE_TIMEOUT):
                await self._confirmed.wait()
        if self._checkout is None:
            return
        if self._unconfirmed or not self._is_stored or problem:
            self._checkout.mark_unsent_files(has_some=True)
        else:
            await asyncio.to_thread(self._checkout.remove)

    def _mark_checkout(self, checkout: MachineCheckout) -> None:
        """Note on the disk whether files could not be sent, or may not be stored yet."""
        is_unsent = bool(checkout.problem) or not self._is_stored or bool(self._unconfirmed)
        checkout.mark_unsent_files(has_some=is_unsent)

    async def _send_checkpoint(self, *, is_last: bool = False) -> str:
        """Send the changes; return why some of them could not be sent, or an empty string."""
        if self._checkout is None:
            return ""
        async with self._lock:
            if self._is_finished and not is_last:
                return ""  # the checkout is about to be removed
            try:
                bundle = await self._checkout.build_checkpoint()
            except WorktreeError as error:  # for example, files changed while they were read
                self._checkout.mark_unsent_files(has_some=True)
                self._failure = str(error)
                return str(error)
            self._failure = self._checkout.read_error
            if bundle:
                self._unconfirmed += 1
                self._confirmed.clear()
            self._mark_checkout(self._checkout)
            if bundle:
                send_in_parts(self._orders, bundle)
            return self._checkout.problem


def _watch_lead(descriptor: int) -> None:
    """End this process when the connection to the lead has ended, after a grace period.

    In a thread, because the event loop may wait for a store that this machine cannot reach. The lead has
    given this process up, so nothing that it could still store counts.
    """
    connection = select.poll()
    connection.register(descriptor, getattr(select, "POLLRDHUP", select.POLLHUP))
    connection.poll()
    threading.Event().wait(LOST_LEAD_GRACE)
    os._exit(1)


async def _create_checkout(orders: MessageChannel, origin: bytes, clock: Clock) -> MachineCheckout | None:
    """Create the checkout that the lead ordered; None if the machines share their files."""
    if not origin:
        return None
    home = load_settings(cwd=Path("/")).home
    git = GitRunner(os.environ, clock)
    checkout = MachineCheckout(git, home, msgspec.json.decode(origin, type=ProjectOrigin))
    known = KnownCommits()
    problem: ShoalError | None = None
    try:
        await checkout.list_known_commits()  # creates the repository
        reason = await _fetch_from_remote(checkout, home, clock)
        commits = await checkout.list_known_commits()
        known = KnownCommits(commits=commits, machine=socket.gethostname(), problem=reason)
    except ShoalError as error:
        problem = error
    orders.send(msgspec.json.encode(known))
    bundle = await receive_in_parts(orders)
    if problem is not None:
        raise problem
    await checkout.create(bundle or b"")
    return checkout


async def _fetch_from_remote(checkout: MachineCheckout, home: Path, clock: Clock) -> str:
    """Fetch with processes that end with this one; return why this fails, or an empty string."""
    processes = GuardedProcessLauncher(clock, get_process_records_directory(home))
    try:
        return await checkout.fetch_from_remote(clock, processes)
    finally:
        await processes.aclose()


def _open_lease(bootstrap: MemberBootstrap) -> int:
    """Return the epoch of this process in the store, which all its stores share."""
    from shoal.stores.postgres.database_client import get_shared_client

    assert bootstrap.opened.store is not None
    return get_shared_client(bootstrap.opened.store).epoch


def _adapt_to_machine(bootstrap: MemberBootstrap, checkout: MachineCheckout | None) -> MemberBootstrap:
    """Leave out what exists only on the lead's machine. Raises `ShoalError`."""
    cwd = Path(bootstrap.opened.cwd) if checkout is None else checkout.cwd
    if not cwd.is_dir():
        raise ShoalError(f"The directory {cwd} does not exist on the machine {socket.gethostname()}.")
    if checkout is not None:
        store_sent_decisions(checkout.top, bootstrap.trusted)
    return replace(
        bootstrap,
        paths=LeadPaths(),
        opened=replace(bootstrap.opened, cwd=str(cwd)),
        checkout=None if checkout is None else checkout.paths,
    )
