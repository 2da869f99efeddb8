"""Servers that want a login: told in a run, done by a person, kept for later runs."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from mcp_helpers import (
    join_notes,
    list_result_texts,
    map_statuses,
    open_session,
    reserve_port,
    serve_http,
)

from agent_scripts import call_tool, read_events, run_all_turns, script_agents
from shoal.tools.mcp import managed_server

pytestmark = pytest.mark.needs("mcp")


@pytest.mark.slow
async def test_a_login_is_requested_made_in_a_browser_and_stored(tmp_path: Path) -> None:
    home = Path(os.environ["SHOAL_HOME"])
    lead = [call_tool("mcp__lock__inside"), "done"]
    async with serve_http(script="lock_server.py") as url, asyncio.timeout(90):
        server = {"type": "http", "url": url}
        async with open_session(tmp_path, script_agents(lead=lead), {"lock": server}) as session:
            await run_all_turns(session)
            assert map_statuses(session) == {"lock": "needs-auth"}
            assert "shoal mcp login lock" in join_notes(read_events(session))

        login = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "shoal", "mcp", "login", "lock"),
            *("--mcp-config", json.dumps({"mcpServers": {"lock": server}})),
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "BROWSER": "true"},
        )
        assert login.stdout is not None
        assert b"Open this URL" in await login.stdout.readline()
        address = (await login.stdout.readline()).decode().strip()
        # As the user's browser: it follows the way back to the loopback address by itself.
        page = await asyncio.to_thread(lambda: urllib.request.urlopen(address).read().decode())
        assert "You are logged in" in page
        rest = await login.stdout.read()
        assert await login.wait() == 0
        assert b"Logged in to lock, which has 1 tool." in rest

        (kept,) = (home / "shoal" / "keys" / "mcp.auth").iterdir()
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        async with open_session(tmp_path, script_agents(lead=lead), {"lock": server}) as session:
            await run_all_turns(session)
            assert map_statuses(session) == {"lock": "connected"}
            assert list_result_texts(session) == ["let in, renewed 0"]

        lead = [call_tool("Read", file_path=str(kept)), "done"]
        async with open_session(tmp_path, script_agents(lead=lead), {}) as session:
            await run_all_turns(session)
            assert "which no tool may access" in list_result_texts(session)[0]

        login_of_before = json.loads(kept.read_text())
        kept.write_text(json.dumps({**login_of_before, "expires_at": 1}))
        lead = [call_tool("mcp__lock__inside"), "done"]
        async with open_session(tmp_path, script_agents(lead=lead), {"lock": server}) as session:
            await run_all_turns(session)
            assert list_result_texts(session) == ["let in, renewed 1"]
        assert json.loads(kept.read_text())["tokens"] != login_of_before["tokens"]


@pytest.fixture
def callback_port() -> Iterator[int]:
    with reserve_port() as port:
        yield port


async def log_in(tmp_path: Path, server: dict[str, Any]) -> bytes:
    """Log in as a person does, and return what the command printed at the end."""
    login = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "shoal", "mcp", "login", "lock"),
        *("--mcp-config", json.dumps({"mcpServers": {"lock": server}})),
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "BROWSER": "true"},
    )
    assert login.stdout is not None
    await login.stdout.readline()
    address = (await login.stdout.readline()).decode().strip()
    await asyncio.to_thread(lambda: urllib.request.urlopen(address).read())
    rest = await login.stdout.read()
    assert await login.wait() == 0
    return rest


@pytest.mark.slow
@pytest.mark.spec("CMP-086")
async def test_a_client_registered_by_hand_is_used_for_the_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, callback_port: int
) -> None:
    home, port = Path(os.environ["SHOAL_HOME"]), callback_port
    monkeypatch.setenv("REGISTERED_REDIRECT", f"http://localhost:{port}/callback")
    async with serve_http(script="lock_server.py") as url, asyncio.timeout(90):
        client = {"clientId": "registered-by-hand", "callbackPort": port}
        server = {"type": "http", "url": url, "oauth": client}
        assert b"Logged in to lock, which has 1 tool." in await log_in(tmp_path, server)
        (kept,) = (home / "shoal" / "keys" / "mcp.auth").iterdir()
        assert "client" not in json.loads(kept.read_text())  # none was registered
        lead = [call_tool("mcp__lock__inside"), "done"]
        async with open_session(tmp_path, script_agents(lead=lead), {"lock": server}) as session:
            await run_all_turns(session)
            assert list_result_texts(session) == ["let in, renewed 0"]
        kept.write_text(json.dumps({**json.loads(kept.read_text()), "expires_at": 1}))
        lead = [call_tool("mcp__lock__inside"), "done"]
        async with open_session(tmp_path, script_agents(lead=lead), {"lock": server}) as session:
            await run_all_turns(session)
            assert list_result_texts(session) == ["let in, renewed 1"]


async def test_a_rejected_key_is_reported_as_a_missing_login(tmp_path: Path) -> None:
    async with serve_http(script="lock_server.py") as url:
        server = {"url": url, "headers": {"Authorization": "Bearer ${LOCK_KEY:-wrong}"}}
        async with open_session(tmp_path, script_agents(lead=["done"]), {"lock": server}) as session:
            await run_all_turns(session)
            assert map_statuses(session) == {"lock": "needs-auth"}


@pytest.mark.spec("CMP-086")
async def test_the_headers_that_a_helper_prints_are_sent(tmp_path: Path) -> None:
    helper = """echo '{"Authorization": "Bearer issued-by-hand"}'"""
    lead = [call_tool("mcp__lock__inside"), "done"]
    async with serve_http(script="lock_server.py") as url, asyncio.timeout(90):
        headers = {"Authorization": "Bearer out-of-date"}
        server = {"type": "http", "url": url, "headers": headers, "headersHelper": helper}
        async with open_session(tmp_path, script_agents(lead=lead), {"lock": server}) as session:
            await run_all_turns(session)
            assert map_statuses(session) == {"lock": "connected"}
            assert list_result_texts(session) == ["let in, renewed 0"]


async def test_a_helper_that_does_not_end_is_stopped_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(managed_server, "_HELPER_TIMEOUT", 0.5)
    started = tmp_path / "started"
    helper = f"echo $$ $CLAUDE_CODE_MCP_SERVER_URL > {started}; exec sleep 600"
    server = {"type": "http", "url": "http://127.0.0.1:9/mcp", "headersHelper": helper}
    async with open_session(tmp_path, script_agents(lead=["done"]), {"lock": server}) as session:
        await run_all_turns(session)
        (status,) = session.runtime.servers.list_statuses()
        process, url = started.read_text().split()
        assert not Path(f"/proc/{process}").exists()
    assert (status.status, status.detail) == ("failed", "its headersHelper took more than 0.5 s")
    assert url == "http://127.0.0.1:9/mcp"


@pytest.mark.parametrize("printed", ["Bearer x", '["Bearer x"]', '{"Authorization": 1}'])
async def test_a_helper_that_prints_no_headers_keeps_its_server_from_connecting(
    tmp_path: Path, printed: str
) -> None:
    server = {"type": "http", "url": "http://127.0.0.1:9/mcp", "headersHelper": f"echo '{printed}'"}
    async with open_session(tmp_path, script_agents(lead=["done"]), {"lock": server}) as session:
        await run_all_turns(session)
        (status,) = session.runtime.servers.list_statuses()
    assert status.status == "failed"
    assert "headersHelper" in status.detail


class MemoryTokenStore:
    def __init__(self, content: bytes = b"") -> None:
        self.content = content

    def read(self) -> bytes:
        return self.content

    def write(self, content: bytes) -> None:
        self.content = content


async def test_a_login_is_stored_with_and_without_an_end_and_a_damaged_one_is_none() -> None:
    from mcp.shared.auth import OAuthToken

    from shoal.tools.mcp.oauth import McpOAuthTokenStorage

    store = MemoryTokenStore()
    storage = McpOAuthTokenStorage(store)
    assert await storage.get_tokens() is None
    # A server without metadata, and tokens that never end.
    await storage.set_tokens(OAuthToken(access_token="a"))
    stored = json.loads(store.content)
    assert (stored["tokens"]["access_token"], stored["expires_at"], stored["metadata"]) == ("a", None, None)
    before = time.time()
    await storage.set_tokens(OAuthToken(access_token="b", expires_in=60))
    assert before + 60 <= json.loads(store.content)["expires_at"] <= time.time() + 60
    tokens = await storage.get_tokens()
    assert tokens is not None
    assert tokens.access_token == "b"
    for damaged in (b"", b"{", b"[1]"):
        store.content = damaged
        assert storage.read_stored_fields() == {}


async def test_the_address_of_a_login_takes_one_code_and_refuses_other_requests(
    caplog: pytest.LogCaptureFixture,
) -> None:
    from shoal.tools.mcp.oauth import MAX_REQUEST_BYTES, McpOAuthCallbackServer

    async with asyncio.timeout(20), McpOAuthCallbackServer() as server:
        host = urlsplit(server.url)

        async def send(request: str) -> str:
            reader, writer = await asyncio.open_connection(host.hostname, host.port)
            writer.write(request.encode())
            answer = (await reader.read()).decode()
            writer.close()
            return answer

        assert "404 Not Found" in await send("GET /other?code=x HTTP/1.1\r\n\r\n")
        denied = await send("GET /callback?error=%3Cdenied%3E HTTP/1.1\r\n\r\n")
        assert "400 Bad Request" in denied
        assert "The login was refused: &lt;denied&gt;." in denied
        for broken in ("\r\n\r\n", f"GET /{'x' * MAX_REQUEST_BYTES}\r\n\r\n"):
            assert await send(broken) == ""
        for code in ("first", "second"):
            page = await send(f"GET /callback?code={code}&state=s&iss=i HTTP/1.1\r\n\r\n")
            assert page.startswith("HTTP/1.1 200 OK\r\n")
            assert page.endswith("<p>You are logged in. You can close this window.</p>")
        result = await server.wait_for_code()
    assert (result.code, result.state, result.iss) == ("first", "s", "i")
    assert caplog.records == []
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(host.hostname, host.port)


async def test_without_a_person_a_login_is_refused() -> None:
    from shoal.tools.mcp.client_context import McpLoginRequired
    from shoal.tools.mcp.oauth import create_mcp_oauth_provider

    store = MemoryTokenStore(json.dumps({"expires_at": 5.0}).encode())
    provider = create_mcp_oauth_provider("http://127.0.0.1:9/mcp", store, client_id="mine")
    context = provider.context
    assert context.token_expiry_time == 5.0
    assert (await context.storage.get_client_info()).client_id == "mine"
    with pytest.raises(McpLoginRequired):
        await context.redirect_handler("http://127.0.0.1:9/")
    with pytest.raises(McpLoginRequired):
        await context.callback_handler()
