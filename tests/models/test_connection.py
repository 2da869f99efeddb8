"""Connections: kept and dropped, over TLS, through a proxy, with a slow reader."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import ssl
import subprocess
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from model_helpers import (
    DeltaRecorder,
    create_anthropic_model,
    create_openai_model,
    make_events,
    make_request,
    make_response,
    read_whole_request,
    serve_connections,
)

from shoal.core.conversation.model_requests import (
    ModelAttemptStartedDelta,
    StreamDelta,
    TextDelta,
    ignore_stream_delta,
)
from shoal.core.errors import BadRequest, ConnectionLost
from shoal.models.catalogue import get_model_card
from shoal.models.http_connection import ProviderHttpConnection
from shoal.models.providers import ProviderAccess, create_model, list_provider_models
from shoal.testing import FakeClock, MockServer, messages_server
from shoal.testing.messages_format import MockMessagesApiFormat
from shoal.testing.mock_replies import ConnectionResetFault, StaleConnectionFault
from shoal.testing.servers import run_mock_server

HELLO = make_response(
    make_events({"choices": [{"delta": {"content": "Hi."}, "finish_reason": "stop"}]}, "[DONE]"),
    "Content-Type: text/event-stream",
)


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed: no certificate can be made")
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    make = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(["openssl", *make.split(), *names], check=True, capture_output=True)
    return key, cert


@contextlib.asynccontextmanager
async def serve_tls(key: Path, cert: Path) -> AsyncGenerator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_whole_request(reader)
        writer.write(HELLO)
        await writer.drain()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    async with serve_connections(serve, ssl=context) as port:
        yield port


@contextlib.asynccontextmanager
async def serve_proxy(seen: list[bytes], *, refuse: bool = False) -> AsyncGenerator[str]:
    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        seen.append(head)
        if refuse:
            writer.write(make_response(b"no", status=407))
            return
        host, _, port = head.split()[1].decode().rpartition(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))

    async with serve_connections(serve) as port:
        yield f"http://ann:s%20e@127.0.0.1:{port}"


async def test_a_request_is_sent_over_tls(
    certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[1]))
    async with serve_tls(*certificate) as port:
        reply = await create_openai_model(f"https://localhost:{port}").generate_reply(
            make_request("Hi."), ignore_stream_delta
        )
    assert reply.message.text == "Hi."


async def test_an_untrusted_certificate_is_a_permanent_error(certificate: tuple[Path, Path]) -> None:
    async with serve_tls(*certificate) as port:
        with pytest.raises(BadRequest, match="SSL_CERT_FILE"):
            await create_openai_model(f"https://localhost:{port}").generate_reply(
                make_request("Hi."), ignore_stream_delta
            )


async def test_a_proxy_tunnel_is_requested_with_the_proxy_credentials(
    certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[1]))
    seen: list[bytes] = []
    async with serve_tls(*certificate) as port, serve_proxy(seen) as address:
        model = create_openai_model(f"https://localhost:{port}", proxy=address)
        reply = await model.generate_reply(make_request("Hi."), ignore_stream_delta)
    assert reply.message.text == "Hi."
    assert seen[0].startswith(f"CONNECT localhost:{port} HTTP/1.1\r\n".encode())
    assert b"Proxy-Authorization: Basic YW5uOnMgZQ==" in seen[0]


async def test_a_proxy_that_refuses_is_named_in_the_error() -> None:
    async with serve_proxy([], refuse=True) as address:
        with pytest.raises(ConnectionLost, match=r"proxy 127\.0\.0\.1 responded with 407"):
            await create_openai_model("http://localhost:9", proxy=address).generate_reply(
                make_request("Hi."), ignore_stream_delta
            )


async def test_a_connection_closed_by_the_server_is_not_reused() -> None:
    async with messages_server(["One."]) as server:
        model = create_anthropic_model(server.url)
        await model.generate_reply(make_request("Hi."), ignore_stream_delta)
        port = int(server.url.rpartition(":")[2])
    async with run_mock_server(MockServer(MockMessagesApiFormat(), ["Two."]), port=port):
        assert (await model.generate_reply(make_request("Hi."), ignore_stream_delta)).message.text == "Two."
        await model.aclose()


async def test_a_dead_kept_alive_connection_causes_no_failure() -> None:
    async with messages_server([["One.", StaleConnectionFault()], "Two."]) as server:
        model, recorder = create_anthropic_model(server.url), DeltaRecorder()
        await model.generate_reply(make_request("Hi."), recorder)
        assert (await model.generate_reply(make_request("Hi."), recorder)).message.text == "Two."
        await model.aclose()
    assert len(recorder.list_deltas(ModelAttemptStartedDelta)) == 2


async def test_a_new_connection_that_dies_is_a_failure() -> None:
    async with messages_server([ConnectionResetFault(), "Never asked."]) as server:
        with pytest.raises(ConnectionLost):
            await create_anthropic_model(server.url).generate_reply(make_request("Hi."), ignore_stream_delta)
        assert server.request_count == 1


async def test_a_connection_idle_for_too_long_is_not_reused() -> None:
    clock = FakeClock()
    async with messages_server(["One.", "Two.", "Three."]) as server:
        model = create_anthropic_model(server.url, clock=clock)
        await model.generate_reply(make_request("Hi."), ignore_stream_delta)
        await model.generate_reply(make_request("Hi."), ignore_stream_delta)
        await clock.advance(61)
        await model.generate_reply(make_request("Hi."), ignore_stream_delta)
        await model.aclose()
        assert [request.connection for request in server.requests] == [1, 1, 2]


async def test_concurrent_requests_use_separate_connections_that_are_reused() -> None:
    async with messages_server(["Hi."] * 60) as server:
        model = create_anthropic_model(server.url)
        await asyncio.gather(
            *(model.generate_reply(make_request("Hi."), ignore_stream_delta) for _ in range(50))
        )
        for _ in range(10):
            await model.generate_reply(make_request("Hi."), ignore_stream_delta)
        await model.aclose()
        assert len({request.connection for request in server.requests[50:]}) == 1
        await server.wait_for_disconnect()


async def test_a_slow_reader_applies_back_pressure_to_the_server() -> None:
    piece = make_events({"choices": [{"delta": {"content": "x" * 10_000}}]})
    end = make_events({"choices": [{"delta": {}, "finish_reason": "stop"}]}, "[DONE]")
    heard = asyncio.Event()
    go_on = asyncio.Event()

    async def hear(delta: StreamDelta) -> None:
        if isinstance(delta, TextDelta):
            heard.set()
            await go_on.wait()

    sent = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await read_whole_request(reader)
        writer.write(b"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\n\r\n")
        for _ in range(3_000):
            writer.write(piece)
            sent += len(piece)
            await writer.drain()
        writer.write(end)
        await writer.drain()

    async with serve_connections(serve) as port, asyncio.TaskGroup() as group:
        task = group.create_task(
            create_openai_model(f"http://127.0.0.1:{port}").generate_reply(make_request("Hi."), hear)
        )
        await asyncio.wait_for(heard.wait(), 30)
        before = -1
        while sent != before:  # until the server can write no more
            before = sent
            await asyncio.sleep(0.05)
        assert sent < 20_000_000
        go_on.set()
        reply = await asyncio.wait_for(task, 30)
    assert len(reply.message.text) == 30_000_000


async def test_the_end_of_a_stream_wakes_a_waiting_reader() -> None:
    connection = ProviderHttpConnection()
    reading = asyncio.ensure_future(connection.read_bytes())
    await asyncio.sleep(0)
    connection.connection_lost(None)
    assert await reading == b""
    assert not connection.is_reusable


async def test_models_are_listed_at_the_full_base_url_without_credentials_in_the_path() -> None:
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(make_response(b'{"data": [{"id": "m"}]}', "Content-Type: application/json"))
        await writer.drain()

    async with serve_connections(serve) as port:
        access = ProviderAccess(base_url=f"http://me:secret@127.0.0.1:{port}/v1?api-version=2")
        assert await list_provider_models("openai", access, timeout=60) == ["m"]
    assert heard[0].startswith(
        f"GET /v1/models?api-version=2 HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n".encode()
    )
    assert b"secret" not in heard[0]


@pytest.mark.parametrize("proxy", ["socks5://me:secret@127.0.0.1:1", "https://127.0.0.1:1", "http://"])
def test_a_proxy_that_cannot_be_used_is_refused_at_once(proxy: str) -> None:
    with pytest.raises(BadRequest, match="start with http://") as refused:
        create_model("openai", get_model_card("openai", "m"), ProviderAccess(proxy=proxy), clock=FakeClock())
    assert "secret" not in str(refused.value)
