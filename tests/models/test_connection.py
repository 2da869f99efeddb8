"""Connections: kept and dropped, over TLS, through a proxy, with a slow reader."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import ssl
import subprocess
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest
from model_kit import Ear, anthropic_at, asking, events, http, listening, openai_at, whole_request

from shoal.core.errors import BadRequest, ConnectionLost
from shoal.core.requests import Delta, Sent, TextDelta, unheard
from shoal.models.catalogue import card_of
from shoal.models.connection import Connection, tls_context
from shoal.models.providers import Access, find_offered, make_model
from shoal.testing import FakeClock, MockServer, messages_server
from shoal.testing.messages_form import MessagesForm
from shoal.testing.replies import Reset, Stale
from shoal.testing.servers import serving

HELLO = http(
    events({"choices": [{"delta": {"content": "Hi."}, "finish_reason": "stop"}]}, "[DONE]"),
    "Content-Type: text/event-stream",
)


@pytest.fixture
def certificate(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed: no certificate can be made")
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    make = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(["openssl", *make.split(), *names], check=True, capture_output=True)
    tls_context.cache_clear()
    yield key, cert
    tls_context.cache_clear()


@contextlib.asynccontextmanager
async def secure_server(key: Path, cert: Path) -> AsyncGenerator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await whole_request(reader)
        writer.write(HELLO)
        await writer.drain()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    async with listening(serve, ssl=context) as port:
        yield port


@contextlib.asynccontextmanager
async def proxy(seen: list[bytes], *, refuse: bool = False) -> AsyncGenerator[str]:
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
            writer.write(http(b"no", status=407))
            return
        host, _, port = head.split()[1].decode().rpartition(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))

    async with listening(serve) as port:
        yield f"http://ann:s%20e@127.0.0.1:{port}"


async def test_a_provider_is_asked_over_tls(
    certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[1]))
    async with secure_server(*certificate) as port:
        reply = await openai_at(f"https://localhost:{port}").reply(asking("Hi."), unheard)
    assert reply.message.text == "Hi."


async def test_a_certificate_nobody_vouches_for_is_refused_for_good(certificate: tuple[Path, Path]) -> None:
    async with secure_server(*certificate) as port:
        with pytest.raises(BadRequest, match="SSL_CERT_FILE"):
            await openai_at(f"https://localhost:{port}").reply(asking("Hi."), unheard)


async def test_a_proxy_is_asked_for_a_tunnel_with_its_login(
    certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[1]))
    seen: list[bytes] = []
    async with secure_server(*certificate) as port, proxy(seen) as address:
        model = openai_at(f"https://localhost:{port}", proxy=address)
        reply = await model.reply(asking("Hi."), unheard)
    assert reply.message.text == "Hi."
    assert seen[0].startswith(f"CONNECT localhost:{port} HTTP/1.1\r\n".encode())
    assert b"Proxy-Authorization: Basic YW5uOnMgZQ==" in seen[0]


async def test_a_proxy_that_refuses_is_named() -> None:
    async with proxy([], refuse=True) as address:
        with pytest.raises(ConnectionLost, match=r"proxy 127\.0\.0\.1 answered 407"):
            await openai_at("http://localhost:9", proxy=address).reply(asking("Hi."), unheard)


async def test_a_connection_the_server_closed_is_not_used_again() -> None:
    async with messages_server(["One."]) as server:
        model = anthropic_at(server.url)
        await model.reply(asking("Hi."), unheard)
        port = int(server.url.rpartition(":")[2])
    async with serving(MockServer(MessagesForm(), ["Two."]), port=port):
        assert (await model.reply(asking("Hi."), unheard)).message.text == "Two."
        await model.aclose()


async def test_a_kept_connection_that_died_unnoticed_costs_no_failure() -> None:
    async with messages_server([["One.", Stale()], "Two."]) as server:
        model, ear = anthropic_at(server.url), Ear()
        await model.reply(asking("Hi."), ear)
        assert (await model.reply(asking("Hi."), ear)).message.text == "Two."
        await model.aclose()
    assert len(ear.of(Sent)) == 2


async def test_a_new_connection_that_dies_is_a_failure() -> None:
    async with messages_server([Reset(), "Never asked."]) as server:
        with pytest.raises(ConnectionLost):
            await anthropic_at(server.url).reply(asking("Hi."), unheard)
        assert server.count == 1


async def test_a_connection_long_unused_is_not_used_again() -> None:
    clock = FakeClock()
    async with messages_server(["One.", "Two.", "Three."]) as server:
        model = anthropic_at(server.url, clock=clock)
        await model.reply(asking("Hi."), unheard)
        await model.reply(asking("Hi."), unheard)
        await clock.advance(61)
        await model.reply(asking("Hi."), unheard)
        await model.aclose()
        assert [request.connection for request in server.requests] == [1, 1, 2]


async def test_many_at_once_have_a_connection_each_and_then_share() -> None:
    async with messages_server(["Hi."] * 60) as server:
        model = anthropic_at(server.url)
        await asyncio.gather(*(model.reply(asking("Hi."), unheard) for _ in range(50)))
        for _ in range(10):
            await model.reply(asking("Hi."), unheard)
        await model.aclose()
        assert len({request.connection for request in server.requests[50:]}) == 1
        await server.left()


async def test_a_slow_reader_holds_the_other_side_back() -> None:
    piece = events({"choices": [{"delta": {"content": "x" * 10_000}}]})
    end = events({"choices": [{"delta": {}, "finish_reason": "stop"}]}, "[DONE]")
    heard = asyncio.Event()
    go_on = asyncio.Event()

    async def hear(delta: Delta) -> None:
        if isinstance(delta, TextDelta):
            heard.set()
            await go_on.wait()

    sent = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await whole_request(reader)
        writer.write(b"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\n\r\n")
        for _ in range(3_000):
            writer.write(piece)
            sent += len(piece)
            await writer.drain()
        writer.write(end)
        await writer.drain()

    async with listening(serve) as port, asyncio.TaskGroup() as group:
        task = group.create_task(openai_at(f"http://127.0.0.1:{port}").reply(asking("Hi."), hear))
        await asyncio.wait_for(heard.wait(), 30)
        before = -1
        while sent != before:  # until the server can write no more
            before = sent
            await asyncio.sleep(0.05)
        assert sent < 20_000_000
        go_on.set()
        reply = await asyncio.wait_for(task, 30)
    assert len(reply.message.text) == 30_000_000


async def test_a_reader_is_woken_by_the_end() -> None:
    connection = Connection()
    reading = asyncio.ensure_future(connection.read())
    await asyncio.sleep(0)
    connection.connection_lost(None)
    assert await reading == b""
    assert not connection.reusable


async def test_models_are_asked_for_at_the_whole_address_and_without_its_login() -> None:
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(http(b'{"data": [{"id": "m"}]}', "Content-Type: application/json"))
        await writer.drain()

    async with listening(serve) as port:
        access = Access(base_url=f"http://me:secret@127.0.0.1:{port}/v1?api-version=2")
        assert await find_offered("openai", access, within=5) == ["m"]
    assert heard[0].startswith(
        f"GET /v1/models?api-version=2 HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n".encode()
    )
    assert b"secret" not in heard[0]


@pytest.mark.parametrize("proxy", ["socks5://me:secret@127.0.0.1:1", "https://127.0.0.1:1", "http://"])
def test_a_proxy_that_cannot_be_used_is_refused_at_once(proxy: str) -> None:
    with pytest.raises(BadRequest, match="begins with http://") as refused:
        make_model("openai", card_of("openai", "m"), Access(proxy=proxy), clock=FakeClock())
    assert "secret" not in str(refused.value)
