"""SocketChannel between a lead and a member process."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator

import pytest

from shoal.backends.socket_channel import MAX_MESSAGE_SIZE, SocketChannel


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


Pair = tuple[socket.socket, socket.socket]


async def receive_message(line: SocketChannel) -> bytes | None:
    async with asyncio.timeout(10):
        return await line.receive()


async def test_messages_keep_their_order_and_boundaries(pair: Pair) -> None:
    here, there = map(SocketChannel, pair)
    sent = [b"", b"one\ntwo", b"\x00\x01\x02\x03", *(b"%d" % n for n in range(1000))]
    for message in sent:
        here.send(message)
    assert [await receive_message(there) for _ in sent] == sent
    here.close()
    there.close()


async def test_messages_of_several_megabytes_go_both_ways_at_once(pair: Pair) -> None:
    here, there = map(SocketChannel, pair)
    big = [os.urandom(5 << 20), b"small", os.urandom(3 << 20)]
    for message in big:
        here.send(message)
        there.send(message[::-1])
    for message in big:
        assert await receive_message(there) == message
        assert await receive_message(here) == message[::-1]
    here.close()
    there.close()


async def test_send_does_not_wait_for_the_receiver(pair: Pair) -> None:
    ours, theirs = pair
    here = SocketChannel(ours)
    sent = [os.urandom(1 << 20) for _ in range(8)]
    for message in sent:
        here.send(message)
    there = SocketChannel(theirs)
    assert [await receive_message(there) for _ in sent] == sent
    here.close()
    there.close()


async def test_an_idle_receiver_does_not_buffer_without_limit(pair: Pair) -> None:
    here, there = map(SocketChannel, pair)
    for _ in range(64):
        here.send(bytes(1 << 20))
    assert await receive_message(there) == bytes(1 << 20)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await here.wait_until_sent()
    for _ in range(63):
        assert await receive_message(there) == bytes(1 << 20)
    await here.wait_until_sent()
    here.close()
    there.close()


async def test_the_end_comes_after_the_last_message(pair: Pair) -> None:
    here, there = map(SocketChannel, pair)
    here.send(b"last")
    here.close()
    assert await receive_message(there) == b"last"
    assert await receive_message(there) is None
    assert await receive_message(there) is None
    there.close()


async def test_messages_sent_before_closing_arrive_whole(pair: Pair) -> None:
    here, there = map(SocketChannel, pair)
    message = os.urandom(4 << 20)
    here.send(message)
    here.close()
    assert await receive_message(there) == message
    assert await receive_message(there) is None
    there.close()


async def test_a_truncated_message_is_dropped(pair: Pair) -> None:
    ours, theirs = pair
    there = SocketChannel(theirs)
    ours.sendall(b"\x00\x00\x00\x02ok" + b"\x00\x00\x00\x09half")
    ours.close()
    assert await receive_message(there) == b"ok"
    assert await receive_message(there) is None
    there.close()


async def test_garbage_on_a_channel_ends_it(pair: Pair) -> None:
    ours, theirs = pair
    there = SocketChannel(theirs)
    ours.sendall(b"\xff\xff\xff\xff and whatever follows")
    assert await receive_message(there) is None
    there.close()


async def test_a_too_long_message_is_refused_by_the_sender(pair: Pair) -> None:
    here = SocketChannel(pair[0])
    with pytest.raises(ValueError, match="longer than the limit of"):
        here.send(bytes(MAX_MESSAGE_SIZE + 1))
    here.close()


async def test_sending_to_a_closed_peer_does_nothing(pair: Pair) -> None:
    ours, theirs = pair
    here = SocketChannel(ours)
    here.send(bytes(4 << 20))
    theirs.close()
    here.send(b"more")
    async with asyncio.timeout(5):
        await here.wait_until_sent()
    here.send(b"and more")
    assert await receive_message(here) is None
    here.close()
    here.send(b"after closing")


async def test_a_cancelled_receive_loses_no_message(pair: Pair) -> None:
    here, there = map(SocketChannel, pair)
    for n in range(50):
        waiting = asyncio.ensure_future(there.receive())
        await asyncio.sleep(0)
        here.send(b"%d" % n)
        for _ in range(n % 5):  # so that some are cancelled before it comes, some after
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert (await receive_message(there) if waiting.cancelled() else waiting.result()) == b"%d" % n
    here.close()
    there.close()


async def test_a_channel_opens_from_an_inherited_descriptor(pair: Pair) -> None:
    ours, theirs = pair
    here, there = SocketChannel(ours), SocketChannel.from_descriptor(theirs.detach())
    here.send(b"hello")
    assert await receive_message(there) == b"hello"
    here.close()
    there.close()
