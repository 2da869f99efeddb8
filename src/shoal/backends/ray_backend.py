"""Ray backend: teammates run on the machines of a cluster, and connect to their lead over TCP.

Ray only places and kills them. A teammate is alive as long as its connection, and its lease in the store is
ended before it is started anywhere else.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from shoal.backends.backend_texts import format_backend_notice
from shoal.backends.member_listener import LeadAddress, MemberListener, TlsFiles, find_own_address
from shoal.backends.order_channel import GuardianOrderChannel
from shoal.backends.process_backend import ChildProcessLog
from shoal.backends.ray_settings import RAY_ENVIRONMENT, explain_missing_ray
from shoal.backends.socket_channel import SocketChannel, receive_in_parts, send_in_parts
from shoal.core.agents.subagents import ResourceRequest
from shoal.core.clock import Clock
from shoal.core.errors import ProcessError, WorktreeError
from shoal.core.ports import ChildProcessHandle, ProcessLauncher, ProcessLaunchSpec
from shoal.core.task_groups import BackgroundTasks, open_task_group
from shoal.core.teams.member_backends import (
    MemberFiles,
    MemberProcess,
    MemberProcessLaunchSpec,
)
from shoal.core.teams.roster import BackendType

DRIVER_TIMEOUT = 45.0
"""Seconds within which a cluster must accept a driver."""
PLACEMENT_TIMEOUT = 50.0
"""Seconds within which a teammate's process must be placed, started and connected."""
DRIVER_LOG = ".ray-driver.log"
_PASSED_VARIABLES = ("HOME", "PATH", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONHOME")


class RayBackendSettings(Struct, frozen=True, kw_only=True):
    address: str
    """Head of the cluster, as HOST:PORT."""
    lead_host: str | None
    """Address at which the other machines reach this one; None to detect it."""
    cpus: float
    """Number of CPUs for a teammate that does not specify one."""
    tls: TlsFiles | None = None
    """Files for encrypted connections; None if connections are not encrypted."""


class MemberHello(Struct, frozen=True, kw_only=True):
    """First message of a teammate: where it runs, or why it cannot."""

    refusal: str = ""
    epoch: int = 0
    """Fencing epoch of its process in the store."""
    pid: int = 0
    node: str = ""


class RayMemberProcess:
    def __init__(self, placement: _Placement, channel: SocketChannel, hello: MemberHello) -> None:
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


class _Placement:
    """One actor and the connection of the teammate in it."""

    def __init__(
        self,
        key: str,
        driver: RayDriverClient,
        clock: Clock,
        *,
        end_lease: Callable[[int], Awaitable[None]],
        report_wait: Callable[[str], None],
    ) -> None:
        self.key = key
        self.driver = driver
        self.clock = clock
        self.ended = asyncio.Event()
        self.reason = ""
        self.channel: SocketChannel | None = None
        self.orders: SocketChannel | None = None
        self._end_lease = end_lease
        self._has_ended_lease = False
        self._report_wait = report_wait
        self.wait_reason = ""

    def on_wait(self, reason: str) -> None:
        """Note why Ray has not placed it yet."""
        self.wait_reason = reason
        self._report_wait(reason)

    def on_end(self, reason: str) -> None:
        """Note the end, from Ray or from the connection; the connection ends with it."""
        self.reason = self.reason or reason
        if not self.ended.is_set():
            self.ended.set()
            for channel in (self.channel, self.orders):
                if channel is not None:
                    channel.close()
            self.driver.placements.pop(self.key, None)

    def ask_to_end(self) -> None:
        if self.orders is not None:
            self.orders.send(b'{"end":true}')

    def kill(self) -> None:
        self.driver.send_order({"kill": self.key})

    async def end_lease(self, epoch: int) -> None:
        if not self._has_ended_lease:
            await self._end_lease(epoch)
            self._has_ended_lease = True


class RayBackend:
    """`entry` is `module:function`, called on the other machine; `end_lease` ends a lease in the store."""

    def __init__(  # noqa: PLR0913 - the services that it uses
        self,
        settings: RayBackendSettings,
        processes: ProcessLauncher,
        clock: Clock,
        *,
        entry: str,
        end_lease: Callable[[int], Awaitable[None]],
        log_directory: Path,
        files: MemberFiles | None = None,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Without `files`, teammates use the same path on all machines."""
        self._files = files
        self._report = report
        self._order_tasks = BackgroundTasks()
        self._settings = settings
        self._processes = processes
        self._clock = clock
        self._entry = entry
        self._end_lease = end_lease
        self._log = ChildProcessLog(log_directory / DRIVER_LOG)
        self._starting = asyncio.Lock()
        self._driver: RayDriverClient | None = None
        self._listener: MemberListener | None = None
        self._closed = False

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

    async def spawn_member(self, launch: MemberProcessLaunchSpec) -> RayMemberProcess:
        name = launch.launch_args.name
        if launch.program:
            raise ProcessError(format_backend_notice("needs_pane", program=launch.program[0]))
        driver = await self._get_responsive_driver()
        listener = self._get_or_open_listener()
        order_address, orders = listener.expect_connection()
        member_address, member = listener.expect_connection()
        placement = _Placement(
            order_address.key,
            driver,
            self._clock,
            end_lease=self._end_lease,
            report_wait=lambda reason: self._report(f"{name} is not running yet: {reason}."),
        )
        driver.spawn(
            placement,
            resources=self._build_resource_order(launch.resources),
            entry=self._entry,
            member=str(launch.launch_args.agent),
            order={"orders": _to_mapping(order_address), "member": _to_mapping(member_address)},
        )
        try:
            async with self._clock.deadline(PLACEMENT_TIMEOUT):
                placement.orders = await self._wait_for_connection(orders, placement)
                await self._send_project(placement.orders, launch)
                channel = await self._wait_for_connection(member, placement)
                channel.send(launch.bootstrap)
                hello = await self._receive_hello(channel, placement)
        except TimeoutError:
            await self._give_up(placement, driver)
            reason = placement.wait_reason or "the machines may be busy, or unable to reach this machine"
            raise ProcessError(
                format_backend_notice("not_placed", seconds=f"{PLACEMENT_TIMEOUT:g}", reason=reason)
            ) from None
        except BaseException:
            await self._give_up(placement, driver)
            raise
        finally:
            orders.cancel()
            member.cancel()
        if self._files is not None:
            self._order_tasks.start(self._store_checkpoints(placement.orders, self._files, launch))
        return RayMemberProcess(placement, channel, hello)

    async def _send_project(self, orders: SocketChannel, launch: MemberProcessLaunchSpec) -> None:
        """Send the project to the machine. Raises `ProcessError`."""
        if self._files is None:
            orders.send(b"")
            return
        try:
            origin = await self._files.describe_origin(launch.launch_args)
            orders.send(origin)
            known = await orders.receive() or b"[]"
            bundle = await self._files.build_bundle(origin, msgspec.json.decode(known, type=list[str]))
        except (WorktreeError, msgspec.MsgspecError) as error:
            raise ProcessError(format_backend_notice("project_not_sent", error=error)) from error
        send_in_parts(orders, bundle)

    async def _store_checkpoints(
        self, orders: SocketChannel, files: MemberFiles, launch: MemberProcessLaunchSpec
    ) -> None:
        """Store the work of a teammate as it arrives, and confirm it."""
        while (bundle := await receive_in_parts(orders)) is not None:
            try:
                await files.store_checkpoint(launch.launch_args, bundle)
            except WorktreeError as error:
                self._report(f"The work of {launch.launch_args.name} could not be stored: {error}")
            orders.send(b'{"stored":true}')

    def is_process_alive(self, process: MemberProcess) -> bool:
        return isinstance(process, RayMemberProcess) and process.is_alive

    async def list_nodes(self) -> list[dict[str, Any]]:
        """Return the machines of the cluster. Raises `ProcessError`."""
        return await (await self._get_or_start_driver()).list_nodes()

    async def aclose(self) -> None:
        self._closed = True
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
        self, connection: asyncio.Future[SocketChannel], placement: _Placement
    ) -> SocketChannel:
        async with open_task_group() as tasks:
            ended = tasks.create_task(placement.ended.wait())
            await asyncio.wait((connection, ended), return_when=asyncio.FIRST_COMPLETED)
            ended.cancel()
        if connection.done() and not connection.cancelled():
            return connection.result()
        raise ProcessError(f"{placement.reason or 'its process ended'}.")

    async def _receive_hello(self, channel: SocketChannel, placement: _Placement) -> MemberHello:
        message = await channel.receive()
        if message is None:
            hello = MemberHello(refusal=f"{placement.reason or 'its process ended'}.")
        else:
            hello = msgspec.json.decode(message, type=MemberHello)
        if hello.refusal:
            channel.close()
            raise ProcessError(hello.refusal)
        return hello

    async def _give_up(self, placement: _Placement, driver: RayDriverClient) -> None:
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


class RayDriverClient:
    """Handle of one driver process."""

    def __init__(self, process: ChildProcessHandle, end: socket.socket, clock: Clock) -> None:
        self._process = process
        self._clock = clock
        self.placements: dict[str, _Placement] = {}
        self._connected: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._node_lists: dict[int, asyncio.Future[list[dict[str, Any]]]] = {}
        self._number = 0
        self._channel = GuardianOrderChannel(end, self._handle_message, self._on_driver_end)

    @property
    def is_alive(self) -> bool:
        return self._channel.is_open

    async def wait_until_connected(self) -> str:
        """Return why the cluster cannot be used; empty if it can be."""
        async with self._clock.deadline(DRIVER_TIMEOUT):
            return await self._connected

    def spawn(
        self,
        placement: _Placement,
        *,
        resources: Mapping[str, Any],
        entry: str,
        member: str,
        order: Mapping[str, Any],
    ) -> None:
        self.placements[placement.key] = placement
        self.send_order(
            {
                "spawn": placement.key,
                "resources": dict(resources),
                "entry": entry,
                "member": member,
                "order": dict(order),
            }
        )

    def send_order(self, order: dict[str, Any]) -> None:
        self._channel.send_order(order)

    async def list_nodes(self) -> list[dict[str, Any]]:
        self._number = number = self._number + 1
        nodes: asyncio.Future[list[dict[str, Any]]] = asyncio.get_running_loop().create_future()
        self._node_lists[number] = nodes
        self.send_order({"list_nodes": number})
        try:
            async with self._clock.deadline(DRIVER_TIMEOUT):
                return await nodes
        except TimeoutError:
            raise ProcessError(format_backend_notice("head_silent")) from None
        finally:
            del self._node_lists[number]

    async def is_responsive(self) -> bool:
        if not self.is_alive:
            return False
        self._number = number = self._number + 1
        nodes: asyncio.Future[list[dict[str, Any]]] = asyncio.get_running_loop().create_future()
        self._node_lists[number] = nodes
        self.send_order({"list_nodes": number})
        try:
            async with self._clock.deadline(5.0):
                await nodes
        except (TimeoutError, ProcessError):
            return False
        finally:
            del self._node_lists[number]
        return True

    async def aclose(self) -> None:
        self._channel.close()
        with suppress(ProcessError):
            await self._process.stop(grace=0.5)

    def _handle_message(self, message: dict[str, Any]) -> None:
        match message:
            case {"connected": True}:
                _resolve(self._connected, "")
            case {"failed": str(reason)}:
                _resolve(self._connected, reason or "unknown error")
            case {"ended": str(key), "why": str(reason)}:
                if (placement := self.placements.get(key)) is not None:
                    placement.on_end(reason)
            case {"waiting": str(key), "why": str(reason)}:
                if (placement := self.placements.get(key)) is not None and not placement.ended.is_set():
                    placement.on_wait(reason)
            case {"nodes": int(number), "list": list(nodes)}:
                if (waiter := self._node_lists.get(number)) is not None:
                    _resolve(waiter, nodes)

    def _on_driver_end(self) -> None:
        """Note the end of the driver. Connected teammates continue without it."""
        _resolve(self._connected, "the process that connects to Ray ended")
        for placement in list(self.placements.values()):
            if placement.channel is None:
                placement.on_end("the process that connects to Ray ended")
        for waiter in self._node_lists.values():
            if not waiter.done():
                waiter.set_exception(ProcessError(format_backend_notice("ray_process_ended")))


async def start_ray_driver(
    address: str, processes: ProcessLauncher, clock: Clock, log: ChildProcessLog
) -> RayDriverClient:
    """Start a driver and connect it to the cluster. Raises `ProcessError`."""
    if reason := explain_missing_ray():
        raise ProcessError(reason)
    own_end, driver_end = socket.socketpair()
    try:
        with driver_end, log.open_for_append() as output:
            process = await processes.start_process(
                _build_driver_launch(address, driver_end.fileno(), output)
            )
    except OSError as error:
        own_end.close()
        raise ProcessError(format_backend_notice("ray_process_not_started", error=error)) from error
    except BaseException:
        own_end.close()
        raise
    client = RayDriverClient(process, own_end, clock)
    try:
        reason = await client.wait_until_connected()
    except TimeoutError:
        reason = format_backend_notice("no_answer", seconds=f"{DRIVER_TIMEOUT:g}")
    except BaseException:
        await client.aclose()
        raise
    if reason:
        await client.aclose()
        raise ProcessError(format_backend_notice("cluster_unusable", address=address, reason=reason))
    return client


def _build_driver_launch(address: str, control: int, log: int) -> ProcessLaunchSpec:
    path = os.pathsep.join(place for place in sys.path if Path(place).is_absolute())
    passed = {
        name: value
        for name, value in os.environ.items()
        if name in _PASSED_VARIABLES or name.startswith("RAY_")
    }
    return ProcessLaunchSpec(
        argv=[sys.executable, "-P", "-u", "-X", "utf8", "-m", "shoal.backends.ray_driver", address],
        cwd=Path("/"),
        env={**passed, **RAY_ENVIRONMENT, "PYTHONPATH": path},
        stdin=control,
        stdout=log,
        stderr=log,
    )


def _to_mapping(address: LeadAddress) -> dict[str, Any]:
    return msgspec.structs.asdict(address)


def _resolve(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)
