"""Servers that want a login: told in a run, done by a person, kept for later runs."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
import urllib.request
from pathlib import Path

import pytest
from mcp_kit import answers, notes, opened, served, statuses

from cast import all_turns, cast, recorded, use

pytestmark = pytest.mark.needs("mcp")


async def test_a_login_is_asked_for_made_in_a_browser_and_kept(tmp_path: Path) -> None:
    home = Path(os.environ["SHOAL_HOME"])
    lead = [use("mcp__lock__inside"), "done"]
    async with served(script="lock_server.py") as url, asyncio.timeout(90):
        server = {"type": "http", "url": url}
        async with opened(tmp_path, cast(lead=lead), {"lock": server}) as session:
            await all_turns(session)
            assert statuses(session) == {"lock": "needs-auth"}
            assert "shoal mcp login lock" in notes(recorded(session))

        login = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "shoal", "mcp", "login", "lock"),
            *("--mcp-config", json.dumps({"mcpServers": {"lock": server}})),
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "BROWSER": "true"},
        )
        assert login.stdout is not None
        assert b"Open this address" in await login.stdout.readline()
        address = (await login.stdout.readline()).decode().strip()
        # As the person's browser: it follows the way back to the loopback address by itself.
        page = await asyncio.to_thread(lambda: urllib.request.urlopen(address).read().decode())
        assert "You are logged in" in page
        rest = await login.stdout.read()
        assert await login.wait() == 0
        assert b"Logged in to lock, which has 1 tools" in rest

        (kept,) = (home / "shoal" / "keys" / "mcp.auth").iterdir()
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        async with opened(tmp_path, cast(lead=lead), {"lock": server}) as session:
            await all_turns(session)
            assert statuses(session) == {"lock": "connected"}
            assert answers(session) == ["let in, renewed 0"]

        lead = [use("Read", file_path=str(kept)), "done"]
        async with opened(tmp_path, cast(lead=lead), {}) as session:
            await all_turns(session)
            assert "which no tool may reach" in answers(session)[0]

        login_of_before = json.loads(kept.read_text())
        kept.write_text(json.dumps({**login_of_before, "expires_at": 1}))
        lead = [use("mcp__lock__inside"), "done"]
        async with opened(tmp_path, cast(lead=lead), {"lock": server}) as session:
            await all_turns(session)
            assert answers(session) == ["let in, renewed 1"]
        assert json.loads(kept.read_text())["tokens"] != login_of_before["tokens"]


async def test_a_key_that_is_not_accepted_is_told_as_a_missing_login(tmp_path: Path) -> None:
    async with served(script="lock_server.py") as url:
        server = {"url": url, "headers": {"Authorization": "Bearer ${LOCK_KEY:-wrong}"}}
        async with opened(tmp_path, cast(lead=["done"]), {"lock": server}) as session:
            await all_turns(session)
            assert statuses(session) == {"lock": "needs-auth"}
