"""MCP servers as people configure them, and a session that uses them."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import shoal
from program_forks import fork_program
from shoal.core.conversation.messages import ToolResultBlock, extract_tool_result_text
from shoal.core.events import NoteAdded

HERE = Path(__file__).parent
WAIT_SETTINGS = {"mcp_wait": 60}
"""The machine may be slow; the wait ends when the servers are connected."""

# These import the protocol's library, which takes seconds; a fork has it already.
fork_program(str(HERE / "harbour_server.py"))
fork_program(str(HERE / "lock_server.py"))


def make_harbour_config(*words: str, **env: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(HERE / "harbour_server.py"), *words], "env": env}


def make_rogue_config(behaviour: str, argument: str = "") -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(HERE / "rogue_server.py"), behaviour, argument]}


def make_guide_config(**options: Any) -> dict[str, Any]:
    return {
        "command": sys.executable,
        "args": ["-I", "-S", str(HERE / "guide_server.py"), json.dumps(options)],
    }


def open_session(tmp_path: Path, model: Any, servers: dict[str, Any], /, **options: Any) -> shoal.Session:
    own = {**WAIT_SETTINGS, **options.pop("own", {})}
    given = {
        "skip_permissions": True,
        "mcp_config": [{"mcpServers": servers}],
        "settings": json.dumps({"shoal": own}),
        **options,
    }
    return shoal.open(cwd=tmp_path, model=model, **given)


def list_result_texts(session: shoal.Session) -> list[str]:
    """List the result texts of the lead's calls, in order."""
    return [extract_tool_result_text(result) for result in list_tool_results(session)]


def list_tool_results(session: shoal.Session) -> list[ToolResultBlock]:
    messages = session.agent.conversation.messages
    return [block for message in messages for block in message.content if isinstance(block, ToolResultBlock)]


def join_notes(events: list[Any]) -> str:
    return "\n".join(event.text for event in events if isinstance(event, NoteAdded))


def map_statuses(session: shoal.Session) -> dict[str, str]:
    return {each.name: each.status for each in session.runtime.servers.list_statuses()}


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


async def wait_for_exit(pid: int, timeout: float = 5.0) -> None:
    """Poll a process that is not our child until it has ended."""
    async with asyncio.timeout(timeout):
        while is_alive(pid):
            await asyncio.sleep(0.02)


@contextmanager
def reserve_port() -> Iterator[int]:
    """Yield a port that the system gives to nobody else in this block; a server may still bind it."""
    with socket.socket() as here:
        here.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        here.bind(("127.0.0.1", 0))
        yield int(here.getsockname()[1])


@asynccontextmanager
async def serve_http(*words: str, script: str = "harbour_server.py") -> AsyncIterator[str]:
    """Run an HTTP server in a separate process and yield its address."""
    with reserve_port() as port:
        async with _serve_http_at(port, *words, script=script) as url:
            yield url


@asynccontextmanager
async def _serve_http_at(port: int, *words: str, script: str) -> AsyncIterator[str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(HERE / script),
        *words,
        "http",
        str(port),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=dict(os.environ),
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(60):
            while b"Uvicorn running" not in (line := await process.stderr.readline()):
                assert line, "the server ended"
        drained = asyncio.ensure_future(process.stderr.read())
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await drained
