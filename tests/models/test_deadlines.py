"""Nothing hangs: every way a provider can be silent has its deadline."""

from __future__ import annotations

import asyncio
import socket
import tracemalloc
from typing import Any

import pytest
from model_helpers import (
    DeltaRecorder,
    create_anthropic_model,
    create_openai_model,
    make_events,
    make_request,
    make_response,
    serve_responses,
)

from shoal.core.conversation.model_requests import (
    ModelAttemptStartedDelta,
    StreamDelta,
    TextDelta,
    ignore_stream_delta,
)
from shoal.core.errors import BadReply, ConnectionLost, StreamStalled
from shoal.models.model_endpoint import ProviderHttpTimeouts
from shoal.testing import FakeClock, MockReply, messages_server
from shoal.testing.mock_replies import (
    DelayedReplyFault,
    PingAfterEachEventFault,
    SlowStreamFault,
    StalledStreamFault,
    TextBlock,
)

SHORT = ProviderHttpTimeouts(connect=5, first_byte=30, gap=20, total=100)
GREETING = TextBlock(text="A greeting of some length.")


@pytest.mark.spec("USR-07")
async def test_a_silent_stream_ends_at_the_gap_deadline() -> None:
    clock = FakeClock()
    async with messages_server(
        [MockReply(content=(GREETING,), faults=(StalledStreamFault(after=3),))]
    ) as server:
        model, recorder = create_anthropic_model(server.url, clock=clock, deadlines=SHORT), DeltaRecorder()
        reply = asyncio.ensure_future(model.generate_reply(make_request("Hi."), recorder))
        await recorder.wait_for_deltas(TextDelta)
        await clock.advance(19)
        assert not reply.done()
        await clock.advance(1.5)
        with pytest.raises(StreamStalled, match="nothing for 20 s"):
            await asyncio.wait_for(reply, 30)
        await server.wait_for_disconnect()


@pytest.mark.spec("USR-07")
async def test_a_provider_that_never_answers_ends_at_the_first_byte_deadline() -> None:
    clock = FakeClock()
    async with messages_server([[GREETING, DelayedReplyFault(seconds=3600)]]) as server:
        model = create_anthropic_model(server.url, clock=clock, deadlines=SHORT)
        reply = asyncio.ensure_future(model.generate_reply(make_request("Hi."), ignore_stream_delta))
        await server.wait_for_requests(1)
        await clock.advance(29)
        assert not reply.done()
        await clock.advance(2)
        with pytest.raises(StreamStalled, match="nothing for 30 s"):
            await asyncio.wait_for(reply, 30)


@pytest.mark.spec("USR-07")
async def test_pings_reset_the_gap_deadline_but_not_the_total_deadline() -> None:
    clock = FakeClock()
    drip = SlowStreamFault(seconds=5, size=40)
    async with messages_server([[GREETING, PingAfterEachEventFault(), drip]], clock=clock) as server:
        model = create_anthropic_model(server.url, clock=clock, deadlines=SHORT)
        began = clock.monotonic()
        reply = asyncio.ensure_future(model.generate_reply(make_request("Hi."), ignore_stream_delta))
        await server.wait_for_requests(1)
        while not reply.done():
            await clock.wait_for_sleepers(3)  # the whole, the silence, and the server between two drops
            await clock.advance(5)
        with pytest.raises(StreamStalled, match="not complete a response within 100 s"):
            await reply
        assert 95 <= clock.monotonic() - began <= 106


START = b'data: {"type": "message_start", "message": {}}\n\n'
CHUNK = b'data: {"id": "c", "created": %d, "choices": [{"index": 0, "delta": {%s}}]}\n\n'


@pytest.mark.spec("LIM-07")
@pytest.mark.parametrize(
    ("create_model", "start", "ping"),
    [
        (create_anthropic_model, START, b'event: ping\ndata: {"type": "ping"}\n\n: keep-alive %d\n\n'),
        (create_anthropic_model, START, b'data: {"type": "heartbeat", "number": %d}\n\n'),
        (create_openai_model, b"", CHUNK.replace(b"%s", b'"content": ""')),
        (create_openai_model, b"", CHUNK.replace(b"%s", b'"tool_calls": [{"index": 0, "function": {}}]')),
    ],
    ids=["pings", "unknown events", "empty text", "empty call"],
)
async def test_a_stream_of_pings_alone_ends_and_is_reported(
    create_model: Any, start: bytes, ping: bytes
) -> None:
    clock, ended, closed = FakeClock(), asyncio.Event(), asyncio.Event()

    async def send_pings(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
        writer.write(head + start)
        number = 0
        while not ended.is_set():
            number += 1
            writer.write(ping % number)
            await clock.sleep(5)
        writer.close()
        closed.set()

    server = await asyncio.start_server(send_pings, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        limits = ProviderHttpTimeouts(connect=5, first_byte=30, gap=20, total=10_000)
        model = create_model(url, clock=clock, deadlines=limits)
        reply = asyncio.ensure_future(model.generate_reply(make_request("Hi."), ignore_stream_delta))
        while not reply.done() and clock.monotonic() < 1_000:
            await clock.wait_for_sleepers(3)
            await clock.advance(5)
        with pytest.raises(StreamStalled, match="nothing but keep-alive messages for 100 s"):
            await asyncio.wait_for(reply, 30)
        assert 100 <= clock.monotonic() <= 120
        ended.set()
        await clock.advance(5)
        await closed.wait()
        await model.aclose()


async def test_a_slow_delta_listener_does_not_count_as_a_silent_provider() -> None:
    clock = FakeClock()
    heard = asyncio.Event()

    async def hear(delta: StreamDelta) -> None:
        if isinstance(delta, TextDelta):
            heard.set()
            await clock.sleep(60)

    async with messages_server([GREETING]) as server:
        model = create_anthropic_model(server.url, clock=clock, deadlines=SHORT)
        reply = asyncio.ensure_future(model.generate_reply(make_request("Hi."), hear))
        await asyncio.wait_for(heard.wait(), 30)
        await clock.advance(61)
        assert (await asyncio.wait_for(reply, 30)).message.text == GREETING.text
        await model.aclose()


async def test_a_finished_reply_is_returned_while_the_server_keeps_the_stream_open() -> None:
    chunks = make_events({"choices": [{"delta": {"content": "Hi."}, "finish_reason": "stop"}]}, "[DONE]")
    endless = b"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\n\r\n" + chunks
    async with serve_responses(endless, b"never sent", close_connection=False) as url:
        reply = await asyncio.wait_for(
            create_openai_model(url).generate_reply(make_request("Hi."), ignore_stream_delta), 30
        )
    assert reply.message.text == "Hi."


async def test_an_unreachable_server_is_a_lost_connection() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with pytest.raises(ConnectionLost, match=r"cannot be reached: Connection refused\.$"):
        await create_anthropic_model(f"http://127.0.0.1:{port}").generate_reply(
            make_request("Hi."), ignore_stream_delta
        )


@pytest.mark.spec("USR-07")
async def test_a_connection_that_is_not_accepted_ends_at_its_deadline() -> None:
    # A listener whose queue is full leaves further connections hanging, as a dead router does.
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        try:
            for one in waiting:
                one.setblocking(False)
                one.connect_ex(address)
            model = create_anthropic_model(
                f"http://127.0.0.1:{address[1]}", deadlines=ProviderHttpTimeouts(connect=0.2, first_byte=30)
            )
            with pytest.raises(ConnectionLost, match=r"within 0\.2 s"):
                await asyncio.wait_for(model.generate_reply(make_request("Hi."), ignore_stream_delta), 30)
        finally:
            for one in waiting:
                one.close()


async def test_a_cancelled_request_leaves_no_connection() -> None:
    async with messages_server(
        [MockReply(content=(GREETING,), faults=(StalledStreamFault(after=3),))]
    ) as server:
        model, recorder = create_anthropic_model(server.url), DeltaRecorder()
        reply = asyncio.ensure_future(model.generate_reply(make_request("Hi."), recorder))
        await recorder.wait_for_deltas(TextDelta)
        reply.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reply
        await server.wait_for_disconnect()


async def test_ten_megabytes_of_text_use_proportional_memory() -> None:
    piece = "words " * 200
    count = 10_000_000 // len(piece)
    delta = b'data: {"choices":[{"delta":{"content":"%s"}}]}\n\n' % piece.encode()
    end = make_events(
        {"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": {"completion_tokens": 1}}, "[DONE]"
    )
    async with serve_responses(make_response(delta * count + end, "Content-Type: text/event-stream")) as url:
        tracemalloc.start()
        reply = await create_openai_model(url).generate_reply(make_request("Talk."), ignore_stream_delta)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert len(reply.message.text) == count * len(piece)
    assert peak < 60_000_000


async def test_an_endless_line_is_refused() -> None:
    text = b"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\n\r\n" + b"data: " + b"x" * (33 << 20)
    async with serve_responses(text) as url:
        with pytest.raises(BadReply, match="more than 32 MB"):
            await create_openai_model(url).generate_reply(make_request("Talk."), ignore_stream_delta)


async def test_an_endless_answer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.models.reply_stream._REPLY_LIMIT", 1 << 20)
    stream = make_events({"choices": [{"delta": {"content": "x" * 1_000}}]}) * 2_000
    async with serve_responses(make_response(stream, "Content-Type: text/event-stream")) as url:
        with pytest.raises(BadReply, match="more than"):
            await create_openai_model(url).generate_reply(make_request("Talk."), ignore_stream_delta)


async def test_a_listener_is_notified_before_a_request_is_sent() -> None:
    async with messages_server(["Hi."]) as server:
        seen: list[int] = []

        async def hear(delta: StreamDelta) -> None:
            if isinstance(delta, ModelAttemptStartedDelta):
                seen.append(server.request_count)

        model = create_anthropic_model(server.url)
        await model.generate_reply(make_request("Hi."), hear)
        await model.aclose()
    assert seen == [0]
