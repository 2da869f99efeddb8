"""SocketChannel between a lead and a member process."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator

import pytest

from shoal.backends.socket_channel import MAX_MESSAGE_SIZE, ChannelMultiplexer, SocketChannel


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
    async with asyncio.timeout(60):
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


async def test_channels_of_one_connection_keep_their_messages_apart_and_end_alone(pair: Pair) -> None:
    here, there = (ChannelMultiplexer(SocketChannel(end)) for end in pair)
    async with asyncio.TaskGroup() as tasks, asyncio.timeout(10):
        serving = [tasks.create_task(each.serve()) for each in (here, there)]
        first, second = here.open_channel(1), here.open_channel(2)
        for number in range(100):
            first.send(b"first %d" % number)
            second.send(b"second %d" % number)
        first.send(b"")
        await asyncio.sleep(0)
        # Opened after the messages have arrived, as a process does that is told about them by a message.
        ended: list[int] = []
        others = {
            number: there.open_channel(number, lambda number=number: ended.append(number))  # type: ignore[misc]
            for number in (1, 2)
        }
        expected = [b"first %d" % number for number in range(100)]
        assert [await others[1].receive() for _ in range(101)] == [*expected, b""]
        first.close("it is over")
        assert await others[1].receive() is None
        assert others[1].end_reason == "it is over"
        assert ended == [1]
        others[1].send(b"nobody receives this")
        others[2].send(b"answer")
        assert await second.receive() == b"answer"
        assert await others[2].receive() == b"second 0"
        here.close()
        await asyncio.gather(*serving)
        # What has arrived is still there; then the channel ends with the connection.
        assert [await others[2].receive() for _ in range(99)][-1] == b"second 99"
        assert await others[2].receive() is None
        assert ended == [1, 2]
        assert await there.open_channel(3).receive() is None
    there.close()


async def test_a_channel_that_ended_before_it_was_opened_has_its_messages_and_ends(pair: Pair) -> None:
    here, there = (ChannelMultiplexer(SocketChannel(end)) for end in pair)
    async with asyncio.TaskGroup() as tasks, asyncio.timeout(10):
        serving = tasks.create_task(there.serve())
        control, other_control = there.open_channel(0), here.open_channel(0)
        early = here.open_channel(5)
        early.send(b"hello")
        early.close("bye")
        other_control.send(b"after it")
        assert await control.receive() == b"after it"
        ended = asyncio.Event()
        late = there.open_channel(5, ended.set)
        assert ended.is_set()
        assert await late.receive() == b"hello"
        assert await late.receive() is None
        here.close()
        assert await control.receive() is None
        await serving
    there.close()
