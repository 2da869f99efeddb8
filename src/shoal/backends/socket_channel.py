"""Channel between a lead and a teammate's process: whole messages over a stream socket, in order."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

from shoal.core.compact_event import CompactEvent

MAX_MESSAGE_SIZE = 64 << 20
"""Maximum bytes of one message; the sender refuses a longer one, the receiver closes the channel."""
_PREFIX_SIZE = 4
_PART_SIZE = 8 << 20
_CHUNK = 1 << 18
_NUMBER_SIZE = 4
_DATA, _CLOSE = 0, 1
_MAX_JOINED = 1 << 16
"""Maximum bytes of a message of a shared connection that is sent together with others."""
_MAX_READ_AHEAD = 1 << 20
"""Maximum number of bytes of whole messages read before anyone requests them."""


class SocketChannel:
    """One end of a channel; created inside the running event loop, owns the socket from then on."""

    def __init__(
        self, end: socket.socket, *, not_ready: tuple[type[OSError], ...] = (BlockingIOError,)
    ) -> None:
        """`not_ready` are the errors with which the socket says that a call would have to wait."""
        self._socket = end
        self._not_ready = not_ready
        self._socket.setblocking(False)  # noqa: FBT003
        self._loop = asyncio.get_running_loop()
        self._outbox: deque[memoryview] = deque()
        self._inbox = bytearray()
        self._messages: deque[bytes] = deque()
        self._read_ahead = 0
        self._message_arrived = CompactEvent()
        self._sent = CompactEvent()
        self._sent.set()
        self._ended = False
        """No further message will be received."""
        self._is_closed_for_sending = False
        """No further message can be sent."""
        self._paused = False
        self._loop.add_reader(self._socket, self._read_available)

    @classmethod
    def from_descriptor(cls, fd: int) -> SocketChannel:
        """Create the channel in a teammate's process, from the descriptor it was started with."""
        return cls(socket.socket(fileno=fd))

    @property
    def descriptor(self) -> int:
        return self._socket.fileno()

    def send(self, message: bytes) -> None:
        """Send without waiting; does nothing if the other end is gone. Raises ValueError if too long."""
        if len(message) > MAX_MESSAGE_SIZE:
            raise ValueError(
                f"A message of {len(message)} bytes is longer than the limit of {MAX_MESSAGE_SIZE}."
            )
        if self._is_closed_for_sending:
            return
        self._outbox.append(memoryview(len(message).to_bytes(_PREFIX_SIZE, "big") + message))
        if self._sent.is_set():
            self._write_pending()

    def send_together(self, messages: Sequence[bytes]) -> None:
        """Send short messages with as few calls of the system as possible."""
        if self._is_closed_for_sending or not messages:
            return
        parts = [part for each in messages for part in (len(each).to_bytes(_PREFIX_SIZE, "big"), each)]
        self._outbox.append(memoryview(b"".join(parts)))
        if self._sent.is_set():
            self._write_pending()

    async def wait_until_sent(self) -> None:
        """Wait until the system has everything that was sent; needed before a process ends."""
        await self._sent.wait()

    async def receive(self) -> bytes | None:
        """Return the next message, or None when the other end is gone; an incomplete message is dropped."""
        while not self._messages:
            if self._ended:
                return None
            self._message_arrived.clear()
            await self._message_arrived.wait()
        message = self._messages.popleft()
        self._read_ahead -= len(message)
        if self._paused and not self._ended and self._read_ahead < _MAX_READ_AHEAD:
            self._paused = False
            self._loop.add_reader(self._socket, self._read_available)
        return message

    def close(self) -> None:
        """Close; messages already sent still go out while the other end reads and the loop runs."""
        self._messages.clear()
        self._stop_reading()
        if self._sent.is_set():
            self._socket.close()
        self._is_closed_for_sending = True

    def _write_pending(self) -> None:
        try:
            while self._outbox:
                sent = self._socket.send(self._outbox[0])
                if sent < len(self._outbox[0]):
                    self._outbox[0] = self._outbox[0][sent:]
                else:
                    self._outbox.popleft()
        except self._not_ready:
            self._sent.clear()
            self._loop.add_writer(self._socket, self._write_pending)
            return
        except OSError:
            self._outbox.clear()
            self._is_closed_for_sending = True
        if not self._sent.is_set():
            self._loop.remove_writer(self._socket)
            self._sent.set()
        if self._is_closed_for_sending and self._ended:
            self._socket.close()

    def _read_available(self) -> None:
        try:
            data = self._socket.recv(_CHUNK)
        except self._not_ready:
            return
        except OSError:
            data = b""
        self._inbox += data
        if not data or not self._take_whole_messages():
            self._stop_reading()
        elif self._read_ahead >= _MAX_READ_AHEAD:
            self._paused = True
            self._loop.remove_reader(self._socket)

    def _take_whole_messages(self) -> bool:
        """Extract whole messages; return False if the data is not a message."""
        start = 0
        while (body := start + _PREFIX_SIZE) <= len(self._inbox):
            size = int.from_bytes(self._inbox[start:body], "big")
            if size > MAX_MESSAGE_SIZE:
                return False
            if len(self._inbox) < body + size:
                break
            self._messages.append(bytes(self._inbox[body : body + size]))
            self._read_ahead += size
            start = body + size
        del self._inbox[:start]
        if self._messages:
            self._message_arrived.set()
        return True

    def _stop_reading(self) -> None:
        if self._ended:
            return
        self._ended = True
        self._inbox.clear()
        self._loop.remove_reader(self._socket)
        self._message_arrived.set()


class ChannelMultiplexer:
    """Many channels over one connection, each with a number that both ends know."""

    def __init__(self, connection: SocketChannel) -> None:
        self._connection = connection
        self._channels: dict[int, SharedChannel] = {}
        self._unopened: dict[int, SharedChannel] = {}
        """Channels with messages that this end has not opened yet."""
        self._highest = -1
        self._ended = False
        self._waiting: list[bytes] = []
        """Messages that are sent at the end of this step of the event loop."""

    def open_channel(self, number: int, on_end: Callable[[], None] = lambda: None) -> SharedChannel:
        """Open a channel, with a higher number than any before.

        `on_end` is called when the other end closes it or the connection ends.
        """
        if (early := self._unopened.pop(number, None)) is not None:
            early.add_end_listener(on_end)
            return early
        self._highest = max(self._highest, number)
        channel = SharedChannel(self, number, on_end)
        if self._ended:
            channel.handle_end("")
        else:
            self._channels[number] = channel
        return channel

    async def serve(self) -> None:
        """Pass messages on until the connection ends; then all channels end."""
        while (message := await self._connection.receive()) is not None:
            number, kind = int.from_bytes(message[:_NUMBER_SIZE], "big"), message[_NUMBER_SIZE]
            if number > self._highest:
                self._unopened[number] = self.open_channel(number)
            channel = self._channels.get(number)
            if channel is None:
                continue  # this end has closed it
            if kind == _DATA:
                channel.handle_message(message[_NUMBER_SIZE + 1 :])
            else:
                del self._channels[number]
                channel.handle_end(message[_NUMBER_SIZE + 1 :].decode(errors="replace"))
        self._ended = True
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            channel.handle_end("")

    def send(self, number: int, message: bytes) -> None:
        self._send(number, _DATA, message)

    def close_channel(self, number: int, reason: str) -> None:
        if self._channels.pop(number, None) is not None:
            self._send(number, _CLOSE, reason.encode())

    def _send(self, number: int, kind: int, content: bytes) -> None:
        """Send the messages of all channels together, at the end of this step of the event loop."""
        message = number.to_bytes(_NUMBER_SIZE, "big") + bytes([kind]) + content
        if len(message) > _MAX_JOINED:
            self._send_waiting()
            self._connection.send(message)
            return
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._send_waiting)
        self._waiting.append(message)

    def _send_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._connection.send_together(waiting)

    async def wait_until_sent(self) -> None:
        self._send_waiting()
        await self._connection.wait_until_sent()

    def close(self) -> None:
        self._send_waiting()
        self._connection.close()


class SharedChannel:
    """One of the channels of a multiplexer."""

    def __init__(self, multiplexer: ChannelMultiplexer, number: int, on_end: Callable[[], None]) -> None:
        self._multiplexer = multiplexer
        self._number = number
        self._end_listeners = [on_end]
        self._messages: list[bytes] = []  # a deque takes 700 bytes even if it is empty
        self._arrived = CompactEvent()
        self._ended = False
        self.end_reason = ""
        """Why the other end closed it, if it said so."""

    def send(self, message: bytes) -> None:
        """Send without waiting; does nothing if either end has closed the channel."""
        if not self._ended:
            self._multiplexer.send(self._number, message)

    async def wait_until_sent(self) -> None:
        await self._multiplexer.wait_until_sent()

    async def receive(self) -> bytes | None:
        """Return the next message; None after the last one."""
        while not self._messages:
            if self._ended:
                return None
            self._arrived.clear()
            await self._arrived.wait()
        return self._messages.pop(0)

    def close(self, reason: str = "") -> None:
        """Close both directions; messages that were sent still arrive."""
        self._messages.clear()
        self._multiplexer.close_channel(self._number, reason)
        self._ended = True
        self._arrived.set()

    def add_end_listener(self, on_end: Callable[[], None]) -> None:
        self._end_listeners.append(on_end)
        if self._ended:
            on_end()

    def handle_message(self, message: bytes) -> None:
        self._messages.append(message)
        self._arrived.set()

    def handle_end(self, reason: str) -> None:
        self._ended, self.end_reason = True, reason
        self._arrived.set()
        for on_end in self._end_listeners:
            on_end()


MessageChannel: TypeAlias = SocketChannel | SharedChannel


def send_in_parts(channel: MessageChannel, content: bytes) -> None:
    """Send content of any size as several messages."""
    parts = [content[start : start + _PART_SIZE] for start in range(0, len(content), _PART_SIZE)]
    channel.send(str(len(parts)).encode())
    for part in parts:
        channel.send(part)


async def receive_in_parts(channel: MessageChannel) -> bytes | None:
    """Return content from `send_in_parts`; None when the other end is gone, or sent something else."""
    count = await channel.receive()
    if count is None or not count.isdigit():
        return None
    parts: list[bytes] = []
    for _ in range(int(count)):
        part = await channel.receive()
        if part is None:
            return None
        parts.append(part)
    return b"".join(parts)
