"""Ray backend: teammates run on the machines of a cluster, and connect to their lead over TCP.

Ray only places and kills them. A teammate is alive as long as its connection, and its lease in the store is
ended before it is started anywhere else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from shoal.backends.backend_texts import format_backend_notice
from shoal.backends.member_listener import LeadAddress, MemberListener, TlsFiles, find_own_address
from shoal.backends.process_backend import ChildProcessLog
from shoal.backends.ray_hosts import HostedMemberProcess, RayHost, RayHostPool
from shoal.backends.ray_placements import RayDriverClient, RayPlacement, start_ray_driver
from shoal.backends.ray_settings import explain_missing_ray
from shoal.backends.socket_channel import MessageChannel, SocketChannel, receive_in_parts, send_in_parts
from shoal.core.agents.subagents import ResourceRequest
from shoal.core.clock import Clock
from shoal.core.errors import ProcessError, ShoalError
from shoal.core.ports import ProcessLauncher
from shoal.core.task_groups import BackgroundTasks, open_task_group
from shoal.core.teams.member_backends import (
    MemberFiles,
    MemberProcess,
    MemberProcessLaunchSpec,
)
from shoal.core.teams.roster import BackendType

PLACEMENT_TIMEOUT = 50.0
"""Seconds within which a teammate's process must be placed, started and connected."""
MACHINE_COUNT_TIMEOUT = 5.0
SHARED_PROCESS_NAME = "shared process"
"""Name in place of a member for a process that runs several."""
DRIVER_LOG = ".ray-driver.log"


class RayBackendSettings(Struct, frozen=True, kw_only=True):
    address: str
    """Head of the cluster, as HOST:PORT."""
    lead_host: str | None
    """Address at which the other machines reach this one; None to detect it."""
    cpus: float
    """Number of CPUs for a teammate that does not specify one."""
    members_per_process: int = 1
    """Number of teammates that share a process."""
    tls: TlsFiles | None = None
    """Files for encrypted connections; None if connections are not encrypted."""


class RayEntryPoints(Struct, frozen=True, kw_only=True):
    """Functions that an actor calls on its machine, each as `module:function`."""

    member: str
    host: str
    """Entry point of a process for several teammates."""


class MemberHello(Struct, frozen=True, kw_only=True):
    """First message of a teammate: where it runs, or why it cannot."""

    refusal: str = ""
    epoch: int = 0
    """Fencing epoch of its process in the store."""
    pid: int = 0
    node: str = ""


class RayMemberProcess:
    def __init__(self, placement: RayPlacement, channel: SocketChannel, hello: MemberHello) -> None:
        self._placement = placement
        self._channel = _WatchedChannel(channel, placement.on_end)
        self._hello = hello
        placement.channel = channel

    @property
    def pid(self) -> int:
        return self._hello.pid

    @property
    def node(self) -> str:
        return self._hello.node

    @property
    def pane(self) -> str:
        return "ray"

    @property
    def channel(self) -> _WatchedChannel:
        return self._channel

    @property
    def is_alive(self) -> bool:
        return not self._placement.ended.is_set()

    async def wait_until_exit(self) -> str:
        """Wait until it is gone, and end its lease: from then on it can write nothing."""
        await self._placement.ended.wait()
        await self._placement.end_lease(self._hello.epoch)
        return self._placement.reason or f"the connection to {self._hello.node} was lost"

    async def stop(self, *, grace: float = 2.0) -> None:
        """Give it the grace to end, then kill it. When this returns, it can no longer write."""
        placement = self._placement
        if not placement.ended.is_set():
            placement.ask_to_end()
            with suppress(TimeoutError):
                async with placement.clock.deadline(grace):
                    await placement.ended.wait()
        placement.kill()
        placement.on_end("")
        await placement.end_lease(self._hello.epoch)


class _WatchedChannel:
    """Channel whose end is noticed by the handle of its process too."""

    def __init__(self, channel: SocketChannel, on_end: Callable[[str], None]) -> None:
        self._channel = channel
        self._on_end = on_end

    def send(self, message: bytes) -> None:
        self._channel.send(message)

    async def receive(self) -> bytes | None:
        message = await self._channel.receive()
        if message is None:
            self._on_end("")
        return message

    def close(self) -> None:
        self._channel.close()


class RayBackend:
    """`end_lease` ends a lease in the store."""

    def __init__(  # noqa: PLR0913 - the services that it uses
        self,
        settings: RayBackendSettings,
        processes: ProcessLauncher,
        clock: Clock,
        *,
        entry_points: RayEntryPoints,
        end_lease: Callable[[int], Awaitable[None]],
        log_directory: Path,
        files: MemberFiles | None = None,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Without `files`, teammates use the same path on all machines."""
        self._files = files
        self._report = report
        self._order_tasks = BackgroundTasks()
        self._current_orders: dict[str, MessageChannel] = {}
        """Connection of the last process of each agent; others can store nothing more."""
        self._file_locks: dict[str, asyncio.Lock] = {}
        self._settings = settings
        self._processes = processes
        self._clock = clock
        self._entry_points = entry_points
        self._end_lease = end_lease
        self._log = ChildProcessLog(log_directory / DRIVER_LOG)
        self._starting = asyncio.Lock()
        self._driver: RayDriverClient | None = None
        self._listener: MemberListener | None = None
        self._closed = False
        self._hosts = RayHostPool(
            settings.members_per_process,
            clock=clock,
            start_host=self._start_host,
            count_machines=self._count_machines,
        )

    @property
    def type(self) -> BackendType:
        return "ray"

    async def explain_unavailable(self) -> str:
        if reason := explain_missing_ray():
            return reason
        try:
            await self._get_or_start_driver()
        except ProcessError as error:
            return str(error)
        return ""

    async def start_setup(self) -> None:
        """Do nothing: choosing this backend has already connected to the cluster."""

    async def spawn_member(self, launch: MemberProcessLaunchSpec) -> RayMemberProcess | HostedMemberProcess:
        if launch.program:
            raise ProcessError(format_backend_notice("needs_pane", program=launch.program[0]))
        # Ray reserves resources for processes, so a teammate that asks for some does not share one.
        if self._settings.members_per_process > 1 and launch.resources == ResourceRequest():
            return await self._spawn_in_shared_process(launch)
        return await self._spawn_in_own_process(launch)

    async def _spawn_in_own_process(self, launch: MemberProcessLaunchSpec) -> RayMemberProcess:
        driver = await self._get_responsive_driver()
        listener = self._get_or_open_listener()
        order_address, orders = listener.expect_connection()
        member_address, member = listener.expect_connection()
        name = launch.launch_args.name
        placement = RayPlacement(
            order_address.key,
            driver,
            self._clock,
            end_lease=self._end_lease,
            report_wait=lambda reason: self._report(f"{name} is not running yet: {reason}."),
        )
        driver.spawn(
            placement,
            resources=self._build_resource_order(launch.resources),
            entry=self._entry_points.member,
            member=str(launch.launch_args.agent),
            order={"orders": _to_mapping(order_address), "member": _to_mapping(member_address)},
        )
        async with self._giving_up(placement, driver):
            try:
                order_channel = await self._wait_for_connection(orders, placement)
                placement.order_channels.append(order_channel)
                await self._send_project(order_channel, launch)
                channel = await self._wait_for_connection(member, placement)
                channel.send(launch.bootstrap)
                hello = await self._receive_hello(channel, lambda: placement.reason)
            finally:
                orders.cancel()
                member.cancel()
        if self._files is not None:
            self._order_tasks.start(self._store_checkpoints(order_channel, self._files, launch))
        return RayMemberProcess(placement, channel, hello)

    async def _spawn_in_shared_process(self, launch: MemberProcessLaunchSpec) -> HostedMemberProcess:
        slot = await self._hosts.open_slot()
        try:
            async with self._clock.deadline(PLACEMENT_TIMEOUT):
                await self._send_project(slot.orders, launch)
                slot.channel.send(launch.bootstrap)
                hello = await self._receive_hello(
                    slot.channel, lambda: slot.orders.end_reason or slot.host.reason
                )
        except BaseException as error:
            await HostedMemberProcess(slot, pid=0, node="").stop(grace=0)
            if isinstance(error, TimeoutError):
                raise self._build_not_placed_error("") from None
            raise
        slot.host.add_epoch(hello.epoch)
        if self._files is not None:
            self._order_tasks.start(self._store_checkpoints(slot.orders, self._files, launch))
        return HostedMemberProcess(slot, pid=hello.pid, node=hello.node)

    async def _start_host(self) -> RayHost:
        """Start a process for several teammates on the machine that Ray chooses. Raises `ProcessError`."""
        driver = await self._get_responsive_driver()
        address, connected = self._get_or_open_listener().expect_connection()
        placement = RayPlacement(
            address.key,
            driver,
            self._clock,
            end_lease=self._end_lease,
            report_wait=lambda reason: self._report(f"A process for teammates is not running yet: {reason}."),
        )
        driver.spawn(
            placement,
            resources=self._build_resource_order(ResourceRequest()),
            entry=self._entry_points.host,
            member=SHARED_PROCESS_NAME,
            order={"host": _to_mapping(address)},
        )
        async with self._giving_up(placement, driver):
            try:
                host = RayHost(placement, await self._wait_for_connection(connected, placement))
            finally:
                connected.cancel()
        self._order_tasks.start(host.serve())
        return host

    async def _count_machines(self) -> int:
        """Return the number of machines that can run teammates; 0 if the cluster does not answer."""
        try:
            driver = await self._get_responsive_driver()
            async with self._clock.deadline(MACHINE_COUNT_TIMEOUT):
                nodes = await driver.list_nodes()
        except (ProcessError, TimeoutError):
            return 0
        return sum(node["is_alive"] and node["cpus"] >= self._settings.cpus for node in nodes)

    @asynccontextmanager
    async def _giving_up(self, placement: RayPlacement, driver: RayDriverClient) -> AsyncIterator[None]:
        """Limit the time until a process runs, and kill it if it does not."""
        try:
            async with self._clock.deadline(PLACEMENT_TIMEOUT):
                yield
        except TimeoutError:
            await self._give_up(placement, driver)
            raise self._build_not_placed_error(placement.wait_reason) from None
        except BaseException:
            await self._give_up(placement, driver)
            raise

    def _build_not_placed_error(self, reason: str) -> ProcessError:
        reason = reason or "the machines may be busy, or unable to reach this machine"
        return ProcessError(
            format_backend_notice("not_placed", seconds=f"{PLACEMENT_TIMEOUT:g}", reason=reason)
        )

    async def _send_project(self, orders: MessageChannel, launch: MemberProcessLaunchSpec) -> None:
        """Send the project to the machine. Raises `ProcessError`."""
        if self._files is None:
            orders.send(b"")
            return
        agent = launch.launch_args.agent
        self._current_orders[agent] = orders
        try:
            # A checkpoint of its earlier process may be arriving; this one starts from it.
            async with self._get_file_lock(agent):
                origin = await self._files.describe_origin(launch.launch_args)
            orders.send(origin)
            known = await orders.receive() or b"{}"
            bundle = await self._files.build_bundle(origin, known)
        except (ShoalError, msgspec.MsgspecError) as error:
            raise ProcessError(format_backend_notice("project_not_sent", error=error)) from error
        send_in_parts(orders, bundle)

    async def _store_checkpoints(
        self, orders: MessageChannel, files: MemberFiles, launch: MemberProcessLaunchSpec
    ) -> None:
        """Store the work of a teammate as it arrives, and confirm it."""
        while (bundle := await receive_in_parts(orders)) is not None:
            agent = launch.launch_args.agent
            try:
                async with self._get_file_lock(agent):
                    if self._current_orders.get(agent, orders) is not orders:
                        return
                    await files.store_checkpoint(launch.launch_args, bundle)
            except ShoalError as error:
                self._report(
                    f"The work of {launch.launch_args.name} could not be stored, so its checkout stays on "
                    f"its machine: {error}"
                )
                orders.send(b'{"stored":false}')
            else:
                orders.send(b'{"stored":true}')

    def _get_file_lock(self, agent: str) -> asyncio.Lock:
        return self._file_locks.setdefault(agent, asyncio.Lock())

    def is_process_alive(self, process: MemberProcess) -> bool:
        return isinstance(process, RayMemberProcess | HostedMemberProcess) and process.is_alive

    async def list_nodes(self) -> list[dict[str, Any]]:
        """Return the machines of the cluster. Raises `ProcessError`."""
        return await (await self._get_or_start_driver()).list_nodes()

    async def aclose(self) -> None:
        self._closed = True
        self._hosts.kill_all("the session was closed")
        await self._order_tasks.aclose()
        async with self._starting:
            if self._driver is not None:
                for placement in list(self._driver.placements.values()):
                    placement.kill()
                    placement.on_end("the session was closed")
                await self._driver.aclose()
            if self._listener is not None:
                await self._listener.aclose()

    def _build_resource_order(self, resources: ResourceRequest) -> dict[str, Any]:
        return {
            "cpus": self._settings.cpus if resources.cpus is None else resources.cpus,
            "memory": resources.memory,
            "gpus": resources.gpus,
            "labels": dict(resources.labels),
        }

    async def _wait_for_connection(
        self, connection: asyncio.Future[SocketChannel], placement: RayPlacement
    ) -> SocketChannel:
        async with open_task_group() as tasks:
            ended = tasks.create_task(placement.ended.wait())
            await asyncio.wait((connection, ended), return_when=asyncio.FIRST_COMPLETED)
            ended.cancel()
        if connection.done() and not connection.cancelled():
            return connection.result()
        raise ProcessError(f"{placement.reason or 'its process ended'}.")

    async def _receive_hello(self, channel: MessageChannel, get_end_reason: Callable[[], str]) -> MemberHello:
        message = await channel.receive()
        if message is None:
            hello = MemberHello(refusal=f"{get_end_reason() or 'its process ended'}.")
        else:
            hello = msgspec.json.decode(message, type=MemberHello)
        if hello.refusal:
            channel.close()
            raise ProcessError(hello.refusal)
        return hello

    async def _give_up(self, placement: RayPlacement, driver: RayDriverClient) -> None:
        placement.kill()
        placement.on_end("it was not started in time")
        if not await driver.is_responsive():
            await self._discard_driver(driver)

    async def _get_responsive_driver(self) -> RayDriverClient:
        driver = await self._get_or_start_driver()
        if await driver.is_responsive():
            return driver
        await self._discard_driver(driver)
        return await self._get_or_start_driver()

    async def _discard_driver(self, driver: RayDriverClient) -> None:
        """End a driver that may be connected to a head that is gone. Running teammates do not need it."""
        async with self._starting:
            if self._driver is driver:
                self._driver = None
        await driver.aclose()

    def _get_or_open_listener(self) -> MemberListener:
        if self._listener is None:
            host = self._settings.lead_host or find_own_address(self._settings.address)
            listener = MemberListener(host, self._clock, self._settings.tls)
            listener.open()
            self._listener = listener
        return self._listener

    async def _get_or_start_driver(self) -> RayDriverClient:
        async with self._starting:
            if self._closed:
                raise ProcessError(format_backend_notice("lead_closed"))
            if self._driver is None or not self._driver.is_alive:
                self._driver = await start_ray_driver(
                    self._settings.address, self._processes, self._clock, self._log
                )
            return self._driver


def _to_mapping(address: LeadAddress) -> dict[str, Any]:
    return msgspec.structs.asdict(address)
