"""The line between a lead and a teammate's process, over real sockets."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator

import pytest

from shoal.backends.line import LIMIT, SocketLine


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


Pair = tuple[socket.socket, socket.socket]


async def heard(line: SocketLine) -> bytes | None:
    async with asyncio.timeout(10):
        return await line.receive()


async def test_messages_keep_their_order_and_their_edges(pair: Pair) -> None:
    here, there = map(SocketLine, pair)
    sent = [b"", b"one\ntwo", b"\x00\x01\x02\x03", *(b"%d" % n for n in range(1000))]
    for message in sent:
        here.send(message)
    assert [await heard(there) for _ in sent] == sent
    here.close()
    there.close()


async def test_messages_of_several_megabytes_go_both_ways_at_once(pair: Pair) -> None:
    here, there = map(SocketLine, pair)
    big = [os.urandom(5 << 20), b"small", os.urandom(3 << 20)]
    for message in big:
        here.send(message)
        there.send(message[::-1])
    for message in big:
        assert await heard(there) == message
        assert await heard(here) == message[::-1]
    here.close()
    there.close()


async def test_send_does_not_wait_for_one_that_does_not_listen(pair: Pair) -> None:
    ours, theirs = pair
    here = SocketLine(ours)
    sent = [os.urandom(1 << 20) for _ in range(8)]
    for message in sent:
        here.send(message)
    there = SocketLine(theirs)
    assert [await heard(there) for _ in sent] == sent
    here.close()
    there.close()


async def test_one_that_is_not_asked_does_not_take_in_more_and_more(pair: Pair) -> None:
    here, there = map(SocketLine, pair)
    for _ in range(64):
        here.send(bytes(1 << 20))
    assert await heard(there) == bytes(1 << 20)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await here.sent()
    for _ in range(63):
        assert await heard(there) == bytes(1 << 20)
    await here.sent()
    here.close()
    there.close()


async def test_the_end_comes_after_the_last_message(pair: Pair) -> None:
    here, there = map(SocketLine, pair)
    here.send(b"last")
    here.close()
    assert await heard(there) == b"last"
    assert await heard(there) is None
    assert await heard(there) is None
    there.close()


async def test_what_was_sent_before_closing_still_arrives_whole(pair: Pair) -> None:
    here, there = map(SocketLine, pair)
    message = os.urandom(4 << 20)
    here.send(message)
    here.close()
    assert await heard(there) == message
    assert await heard(there) is None
    there.close()


async def test_a_message_cut_short_by_the_end_is_dropped(pair: Pair) -> None:
    ours, theirs = pair
    there = SocketLine(theirs)
    ours.sendall(b"\x00\x00\x00\x02ok" + b"\x00\x00\x00\x09half")
    ours.close()
    assert await heard(there) == b"ok"
    assert await heard(there) is None
    there.close()


async def test_a_line_on_which_no_messages_come_is_at_its_end(pair: Pair) -> None:
    ours, theirs = pair
    there = SocketLine(theirs)
    ours.sendall(b"\xff\xff\xff\xff and whatever follows")
    assert await heard(there) is None
    there.close()


async def test_a_message_over_the_limit_is_refused_where_it_is_sent(pair: Pair) -> None:
    here = SocketLine(pair[0])
    with pytest.raises(ValueError, match="longer than a line takes"):
        here.send(bytes(LIMIT + 1))
    here.close()


async def test_sending_to_one_that_is_gone_does_nothing(pair: Pair) -> None:
    ours, theirs = pair
    here = SocketLine(ours)
    here.send(bytes(4 << 20))
    theirs.close()
    here.send(b"more")
    async with asyncio.timeout(5):
        await here.sent()
    here.send(b"and more")
    assert await heard(here) is None
    here.close()
    here.send(b"after closing")


async def test_a_cancelled_receive_loses_no_message(pair: Pair) -> None:
    here, there = map(SocketLine, pair)
    for n in range(50):
        waiting = asyncio.ensure_future(there.receive())
        await asyncio.sleep(0)
        here.send(b"%d" % n)
        for _ in range(n % 5):  # so that some are cancelled before it comes, some after
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert (await heard(there) if waiting.cancelled() else waiting.result()) == b"%d" % n
    here.close()
    there.close()


async def test_a_line_is_made_from_an_inherited_descriptor(pair: Pair) -> None:
    ours, theirs = pair
    here, there = SocketLine(ours), SocketLine.inherited(theirs.detach())
    here.send(b"hello")
    assert await heard(there) == b"hello"
    here.close()
    there.close()
