"""What a server writes to its standard error costs nobody the server."""

from __future__ import annotations

import asyncio
import resource
import sys
from pathlib import Path

import pytest

from shoal.backends.processes import GuardedProcesses
from shoal.core.clock import SystemClock
from shoal.core.mcp import Program

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


async def test_a_server_goes_on_where_its_log_cannot_be_written(tmp_path: Path) -> None:
    from mcp.shared.message import SessionMessage
    from mcp_types import JSONRPCRequest, JSONRPCResponse

    from shoal.tools.mcp.host import Host
    from shoal.tools.mcp.stdio import ProgramTransport

    def no_tokens(name: str, url: str) -> None:
        raise AssertionError

    log = tmp_path / "logs" / "x.log"
    log.parent.mkdir()
    log.write_text("full")
    processes = GuardedProcesses(SystemClock())
    host = Host(
        processes=processes,
        clock=SystemClock(),
        root=tmp_path,
        env={},
        logs=log.parent,
        deadline=10,
        note=lambda _: None,
        tokens=no_tokens,  # type: ignore[arg-type]
    )
    program = Program(command=sys.executable, args=("-c", SERVER))
    transport = ProgramTransport(program, host, log=log, ended=lambda _: None, note=lambda _: None)
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
