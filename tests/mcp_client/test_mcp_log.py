"""A server keeps working whatever it writes to its standard error."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from process_search import find_processes_in
from shoal.backends.guarded_processes import GuardedProcessLauncher
from shoal.core.clock import SystemClock
from shoal.core.extensions.mcp_servers import McpStdioConfig

if TYPE_CHECKING:
    from shoal.tools.mcp.stdio_transport import McpStdioTransport

pytestmark = pytest.mark.needs("mcp")

SERVER = """
import os, sys
sys.stderr.write("a word\\n")
sys.stderr.close()
os.close(2)
sys.stdin.readline()
print('{"jsonrpc": "2.0", "id": 1, "result": {}}', flush=True)
sys.stdin.read()
"""


def create_transport(
    program: McpStdioConfig, processes: GuardedProcessLauncher, log: Path
) -> McpStdioTransport:
    from shoal.tools.mcp.client_context import McpClientContext
    from shoal.tools.mcp.stdio_transport import McpStdioTransport

    def no_tokens(name: str, url: str) -> None:
        raise AssertionError

    host = McpClientContext(
        processes=processes,
        clock=SystemClock(),
        root=log.parent,
        env={},
        logs=log.parent,
        deadline=10,
        note=lambda _: None,
        tokens=no_tokens,  # type: ignore[arg-type]
    )
    return McpStdioTransport(program, host, log=log, on_ended=lambda _: None, note=lambda _: None)


async def test_a_server_runs_although_its_log_cannot_be_written(tmp_path: Path) -> None:
    from mcp.shared.message import SessionMessage
    from mcp_types import JSONRPCRequest, JSONRPCResponse

    log = tmp_path / "logs" / "x.log"
    log.parent.mkdir()
    log.write_text("full")
    processes = GuardedProcessLauncher(SystemClock())
    transport = create_transport(McpStdioConfig(command=sys.executable, args=("-c", SERVER)), processes, log)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        async with asyncio.timeout(20), transport as (incoming, outgoing):
            resource.setrlimit(resource.RLIMIT_FSIZE, (len("full"), hard))
            await asyncio.wait(transport._tasks[-1:])
            await outgoing.send(SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=1, method="ping")))
            answer = await incoming.receive()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        await processes.aclose()
    assert isinstance(answer.message, JSONRPCResponse)
    assert log.read_text() == "full"


async def test_a_cancelled_start_leaves_no_pipe_and_no_process(tmp_path: Path) -> None:
    def open_files() -> int:
        return len(list(os.scandir("/proc/self/fd")))

    processes = GuardedProcessLauncher(SystemClock())
    program = McpStdioConfig(command="cat")
    async with create_transport(program, processes, tmp_path / "log"):
        pass
    before, given_up = open_files(), 0
    while True:
        transport = create_transport(program, processes, tmp_path / "log")
        entered = asyncio.create_task(transport.__aenter__())
        for step in range(given_up):
            # What comes from other processes comes in its own time.
            await asyncio.sleep(0 if step < 8 else 0.0005)
        entered.cancel()
        with suppress(asyncio.CancelledError):
            await entered
            await transport.__aexit__(None, None, None)
            break
        given_up += 1
        async with asyncio.timeout(30):
            while open_files() > before or find_processes_in(tmp_path):
                await asyncio.sleep(0.01)
    assert given_up > 2
    await processes.aclose()
