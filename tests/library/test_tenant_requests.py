"""Requests of sessions with their own environment: proxies, certificates and collectors of the process are
not used."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import shoal
from shoal.testing import make_tool_call

POISON = "poison-of-the-process"


class RecordingServer(ThreadingHTTPServer):
    """Answers every request, also those to a proxy, and keeps its first line and its headers."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[tuple[str, dict[str, str]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def list_targets(self) -> set[str]:
        return {line.split()[1].partition("?")[0] for line, _ in self.requests}


class _Handler(BaseHTTPRequestHandler):
    server: RecordingServer

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.requests.append((self.requestline, dict(self.headers.items())))
        body = json.dumps({"results": [{"title": "Tides", "url": "https://t.test", "content": "x"}]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_CONNECT = do_DELETE = do_GET  # noqa: N815 - names of the base class

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@contextmanager
def serve() -> Iterator[RecordingServer]:
    server = RecordingServer()
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def build_environ(tmp_path: Path, **more: str) -> dict[str, str]:
    return {"HOME": str(tmp_path), "PATH": os.environ["PATH"], **more}


@pytest.mark.spec("API-09")
@pytest.mark.needs("mcp", "opentelemetry.exporter.otlp.proto.http")
async def test_requests_of_a_tenant_use_no_proxy_and_no_collector_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve() as process, serve() as proxy, serve() as collector:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "OTEL_EXPORTER_OTLP_ENDPOINT"):
            monkeypatch.setenv(name, process.url)
        for signal in ("", "TRACES_", "METRICS_"):
            monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{signal}HEADERS", f"authorization={POISON}")
            monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{signal}CERTIFICATE", f"/{POISON}")
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", f"a={POISON}")
        environ = build_environ(
            tmp_path,
            HTTP_PROXY=proxy.url,
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
            OTEL_EXPORTER_OTLP_HEADERS="x-tenant=ana,authorization=own%20key",
        )
        search = make_tool_call("WebSearch", query="tides")
        async with shoal.open(
            cwd=tmp_path,
            environ=environ,
            model=shoal.ScriptedModel([search, "done"]),
            settings={"shoal": {"web_search": "http://search.test/find"}},
            allowed_tools=["WebSearch"],
            mcp_config=[{"mcpServers": {"far": {"type": "http", "url": "http://mcp.test/mcp"}}}],
        ) as session:
            await session.wait_for_mcp_servers()
            assert (await session.run("go")).text == "done"
        assert process.requests == []
        assert proxy.list_targets() >= {"http://search.test/find", "http://mcp.test/mcp"}
        assert collector.list_targets() == {"/v1/traces", "/v1/metrics"}
        for _, headers in collector.requests:
            found = {name.lower(): value for name, value in headers.items()}
            assert (found["x-tenant"], found["authorization"]) == ("ana", "own key")
            assert POISON not in str(headers)


@pytest.mark.spec("API-09")
@pytest.mark.needs("opentelemetry.exporter.otlp.proto.http")
async def test_telemetry_of_a_tenant_without_a_collector_does_not_reach_that_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".claude").mkdir()
    settings = {"shoal": {"telemetry": {"enabled": True}}}
    (tmp_path / ".claude" / "settings.json").write_text(json.dumps(settings))
    with serve() as process, serve() as proxy:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", process.url)
        # The default address of a collector is on this machine, where no proxy is used.
        environ = build_environ(tmp_path, OTEL_EXPORTER_OTLP_TIMEOUT="1")
        async with shoal.open(cwd=tmp_path, environ=environ, model=shoal.ScriptedModel(["done"])) as session:
            await session.run("go")
        assert process.requests == proxy.requests == []


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed: no certificate can be made")
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    make = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(["openssl", *make.split(), *names], check=True, capture_output=True)
    return key, cert


@pytest.mark.spec("API-09")
@pytest.mark.parametrize("trusts", ["process", "tenant"])
async def test_a_tenant_trusts_the_certificates_that_its_own_environment_names(
    tmp_path: Path, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, trusts: str
) -> None:
    connections: list[str] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append("accepted")
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 401 no\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate[1], certificate[0])
    key_log = tmp_path / "keys"
    server = await asyncio.start_server(refuse, "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        own = {"SSL_CERT_FILE": str(certificate[1])} if trusts == "tenant" else {}
        if trusts == "process":
            monkeypatch.setenv("SSL_CERT_FILE", str(certificate[1]))
        monkeypatch.setenv("SSLKEYLOGFILE", str(key_log))
        environ = build_environ(
            tmp_path, ANTHROPIC_API_KEY="k", ANTHROPIC_BASE_URL=f"https://localhost:{port}", **own
        )
        async with shoal.open(cwd=tmp_path, environ=environ, model="anthropic:claude-haiku-4-5") as session:
            result = await session.run("go").wait()
    assert not result.ok
    is_verified = "certificate that cannot be verified" not in result.detail
    assert is_verified == (trusts == "tenant"), result.detail
    assert connections == (["accepted"] if trusts == "tenant" else [])
    assert not key_log.exists()
