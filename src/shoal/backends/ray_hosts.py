"""Processes on the machines of a cluster that each run many teammates, seen from their lead.

All teammates of a process share its connection and its lease. The lease is ended when the process is gone; a
teammate that ends alone closes its channels, and the others continue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from shoal.backends.ray_placements import RayPlacement
from shoal.backends.socket_channel import ChannelMultiplexer, SharedChannel, SocketChannel
from shoal.core.errors import ProcessError
from shoal.core.task_groups import open_task_group

if TYPE_CHECKING:
    from shoal.core.clock import Clock

CONTROL_CHANNEL = 0
CHANNELS_PER_MEMBER = 2
"""Orders and files have one channel, everything else the other."""
CLOSING_NOTICE = b"closing"
"""Message of a process that was asked to end: it takes no more teammates."""
ABORT_TIMEOUT = 10.0
"""Seconds for a teammate to end after its task was canceled. Then its whole process is killed."""
MACHINES_VALID_FOR = 10.0
"""Seconds after which the machines of the cluster are counted again."""


class StartMemberOrder(Struct, frozen=True, kw_only=True):
    """The lead wants a teammate, whose channels have this number and the next one."""

    number: int


class HostedMemberSlot:
    """Place of one teammate in a process."""

    def __init__(self, host: RayHost, number: int) -> None:
        self.host = host
        self.ended = asyncio.Event()
        self.orders = host.multiplexer.open_channel(number, self.ended.set)
        self.channel = host.multiplexer.open_channel(number + 1)

    def close(self) -> None:
        self.ended.set()
        self.orders.close()
        self.channel.close()
        self.host.slots.discard(self)


class RayHost:
    """A process that runs teammates."""

    def __init__(self, placement: RayPlacement, connection: SocketChannel) -> None:
        self._placement = placement
        placement.channel = connection
        self.multiplexer = ChannelMultiplexer(connection)
        self._control = self.multiplexer.open_channel(CONTROL_CHANNEL)
        self._next_number = CONTROL_CHANNEL + 1
        self.slots: set[HostedMemberSlot] = set()
        self._is_closing = False
        self._epochs: set[int] = set()
        self._lease_lock = asyncio.Lock()

    @property
    def is_open(self) -> bool:
        """True if it takes more teammates."""
        return not self._is_closing and not self._placement.ended.is_set()

    @property
    def has_ended(self) -> bool:
        return self._placement.ended.is_set()

    @property
    def reason(self) -> str:
        return self._placement.reason

    @property
    def clock(self) -> Clock:
        return self._placement.clock

    async def serve(self) -> None:
        """Pass messages on until the connection ends; then all its teammates have ended."""
        async with open_task_group() as tasks:
            listening = tasks.create_task(self._listen_to_host())
            watching = tasks.create_task(self._close_with_actor())
            try:
                await self.multiplexer.serve()
            finally:
                # Before the channels' readers run: they must see that the process is gone. It may only be
                # cut off, and would work for some more seconds.
                self.kill("")
                for slot in tuple(self.slots):
                    slot.ended.set()
                listening.cancel()
                watching.cancel()

    async def _close_with_actor(self) -> None:
        """Close the connection if Ray says that the process is gone."""
        await self._placement.ended.wait()
        self.multiplexer.close()

    async def _listen_to_host(self) -> None:
        while await self._control.receive() is not None:
            self._is_closing = True

    def open_slot(self) -> HostedMemberSlot:
        slot = HostedMemberSlot(self, self._next_number)
        self._control.send(msgspec.json.encode(StartMemberOrder(number=self._next_number)))
        self._next_number += CHANNELS_PER_MEMBER
        self.slots.add(slot)
        return slot

    def add_epoch(self, epoch: int) -> None:
        """Note a lease under which its teammates write."""
        self._epochs.add(epoch)

    def kill(self, reason: str) -> None:
        self._placement.kill()
        self._placement.on_end(reason)

    async def end_leases(self) -> None:
        """End the leases of a process that is gone: from then on it can write nothing."""
        async with self._lease_lock:
            while self._epochs:
                epoch = min(self._epochs)
                await self._placement.end_shared_lease(epoch)
                self._epochs.discard(epoch)


class HostedMemberProcess:
    """Handle of one teammate in a process that it shares."""

    def __init__(self, slot: HostedMemberSlot, *, pid: int, node: str) -> None:
        self._slot = slot
        self._pid = pid
        self._node = node

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def node(self) -> str:
        return self._node

    @property
    def pane(self) -> str:
        return "ray"

    @property
    def channel(self) -> SharedChannel:
        return self._slot.channel

    @property
    def is_alive(self) -> bool:
        return not self._slot.ended.is_set()

    async def wait_until_exit(self) -> str:
        """Wait until it is gone and can write nothing more."""
        slot = self._slot
        await slot.ended.wait()
        slot.host.slots.discard(slot)
        if slot.host.has_ended:
            await slot.host.end_leases()
            return slot.host.reason or f"the connection to {self._node} was lost"
        return slot.orders.end_reason or "it ended without a report"

    async def stop(self, *, grace: float = 2.0) -> None:
        """Give it the grace to end, then cancel it, then kill its process and all teammates in it."""
        slot = self._slot
        for order, seconds in ((b'{"end":true}', grace), (b'{"abort":true}', ABORT_TIMEOUT)):
            if not slot.ended.is_set():
                slot.orders.send(order)
                with suppress(TimeoutError):
                    async with slot.host.clock.deadline(seconds):
                        await slot.ended.wait()
        if not slot.ended.is_set():
            slot.host.kill("a teammate in the same process did not end")
        if slot.host.has_ended:
            await slot.host.end_leases()
        slot.close()


class RayHostPool:
    """Chooses the process for each teammate: the emptiest one, and at least one on each machine."""

    def __init__(
        self,
        max_members: int,
        *,
        clock: Clock,
        start_host: Callable[[], Awaitable[RayHost]],
        count_machines: Callable[[], Awaitable[int]],
    ) -> None:
        """`count_machines` returns 0 if the cluster does not answer."""
        self._max_members = max_members
        self._clock = clock
        self._start_host = start_host
        self._count_machines = count_machines
        self._choosing = asyncio.Lock()
        self._hosts: list[RayHost] = []
        self._machines = 0
        self._counted_at = float("-inf")

    async def open_slot(self) -> HostedMemberSlot:
        """Return a place for a teammate; start a process if necessary. Raises `ProcessError`."""
        async with self._choosing:
            self._hosts = [host for host in self._hosts if host.is_open]
            if self._clock.monotonic() - self._counted_at > MACHINES_VALID_FOR:
                self._machines = await self._count_machines()
                self._counted_at = self._clock.monotonic()
            free = [host for host in self._hosts if len(host.slots) < self._max_members]
            if not free or len(self._hosts) < self._machines:
                try:
                    free.append(await self._start_and_add_host())
                except ProcessError:
                    if not free:
                        raise
            return min(free, key=lambda host: len(host.slots)).open_slot()

    def kill_all(self, reason: str) -> None:
        for host in self._hosts:
            if not host.has_ended:
                host.kill(reason)

    async def _start_and_add_host(self) -> RayHost:
        host = await self._start_host()
        self._hosts.append(host)
        return host
