"""Servers that want a login: told in a run, done by a person, kept for later runs."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
        server = {"type": "http", "url": url, "headersHelper": helper}
        async with open_session(tmp_path, script_agents(lead=lead), {"lock": server}) as session:
            await run_all_turns(session)
            assert map_statuses(session) == {"lock": "connected"}
            assert list_result_texts(session) == ["let in, renewed 0"]


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
