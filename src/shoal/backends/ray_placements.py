"""The process that talks to Ray for a session, and the actors that it placed."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from shoal.backends.backend_texts import format_backend_notice
from shoal.backends.order_channel import GuardianOrderChannel
from shoal.backends.process_backend import ChildProcessLog
from shoal.backends.ray_settings import RAY_ENVIRONMENT, explain_missing_ray
from shoal.backends.socket_channel import SocketChannel
from shoal.core.clock import Clock
from shoal.core.errors import ProcessError
from shoal.core.ports import ChildProcessHandle, ProcessLauncher, ProcessLaunchSpec

DRIVER_TIMEOUT = 45.0
"""Seconds within which a cluster must accept a driver."""
_PASSED_VARIABLES = ("HOME", "PATH", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONHOME")


class RayPlacement:
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
        self.order_channels: list[SocketChannel] = []
        """Channel for orders and files, once it is connected."""
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
            if self.channel is not None:
                self.channel.close()
            for orders in self.order_channels:
                orders.close()
            self.driver.placements.pop(self.key, None)

    def ask_to_end(self) -> None:
        for orders in self.order_channels:
            orders.send(b'{"end":true}')

    def kill(self) -> None:
        self.driver.send_order({"kill": self.key})

    async def end_lease(self, epoch: int) -> None:
        if not self._has_ended_lease:
            await self._end_lease(epoch)
            self._has_ended_lease = True

    async def end_shared_lease(self, epoch: int) -> None:
        """End a lease under which several teammates write."""
        await self._end_lease(epoch)


class RayDriverClient:
    """Handle of one driver process."""

    def __init__(self, process: ChildProcessHandle, end: socket.socket, clock: Clock) -> None:
        self._process = process
        self._clock = clock
        self.placements: dict[str, RayPlacement] = {}
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
        placement: RayPlacement,
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


def _resolve(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)
