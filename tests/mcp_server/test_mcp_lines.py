"""`shoal mcp serve` as a client without the SDK sees it: one line for each message."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.needs("mcp")

INITIALIZE = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "lines", "version": "1"},
}


class LineClient:
    """A client that writes lines as they are and reads answers by their ids."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def send_line(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + b"\n")
        await self._process.stdin.drain()

    async def read_answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        async with asyncio.timeout(40):
            line = await self._process.stdout.readline()
        assert line, "the server has ended"
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def request(self, id_: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
        message = {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}
        await self.send_line(json.dumps(message).encode())
        answer = await self.read_answer()
        assert answer["id"] == id_
        return answer

    async def call_tool(self, id_: int, name: str, /, **arguments: Any) -> Any:
        result = (await self.request(id_, "tools/call", {"name": name, "arguments": arguments}))["result"]
        return result["content"][0]["text"] if result.get("isError") else result["structuredContent"]


@asynccontextmanager
async def start_line_client(cwd: Path) -> AsyncIterator[LineClient]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "shoal", "mcp", "serve"),
        cwd=cwd,
        env=dict(os.environ),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 22,
    )
    try:
        client = LineClient(process)
        await client.request(0, "initialize", INITIALIZE)
        await client.send_line(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        yield client
        assert process.returncode is None
    finally:
        assert process.stdin is not None
        process.stdin.close()
        async with asyncio.timeout(30):
            await process.wait()


@pytest.mark.spec("LIM-11")
async def test_each_line_that_cannot_be_read_gets_an_error(tmp_path: Path) -> None:
    deep = (
        b'{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"a":' + b"[" * 5_000 + b"]" * 5_000 + b"}}"
    )
    lines: list[tuple[bytes, int | str | None, int]] = [
        (b"nonsense", None, -32700),
        (b'{"jsonrpc":"2.0","id":1,', None, -32700),
        (deep, None, -32700),
        (b"[1]", None, -32600),
        (b"3", None, -32600),
        (b'{"id":5}', 5, -32600),
        (b'{"jsonrpc":"1.0","id":"six","method":"tools/list"}', "six", -32600),
        (b'{"jsonrpc":"2.0","id":7,"method":"tools/list","params":[1]}', 7, -32600),
        (b'{"jsonrpc":"2.0","id":8,"method":4,"params":{"a":"\\ud800"}}', 8, -32600),
    ]
    async with start_line_client(tmp_path) as client:
        await client.send_line(b"")
        # An answer to a request that nobody sent is dropped.
        await client.send_line(b'{"jsonrpc":"2.0","id":[1],"result":3}')
        for line, id_, code in lines:
            await client.send_line(line)
            answer = await client.read_answer()
            assert (answer["id"], answer["error"]["code"]) == (id_, code), line[:80]
            assert answer["error"]["message"].startswith("The server cannot read this line: ")
        assert (await client.call_tool(9, "team_list")) == {"teams": []}


@pytest.mark.spec("LIM-11")
async def test_half_a_surrogate_pair_is_replaced_in_both_directions(tmp_path: Path) -> None:
    call = (
        b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":'
        b'{"name":"task_create","arguments":{"subject":"Mend \\ud800 the roof"}}}'
    )
    async with start_line_client(tmp_path) as client:
        await client.call_tool(1, "team_create", name="roof")
        for number, mark in enumerate((b"", b"\xef\xbb\xbf"), start=1):
            await client.send_line(mark + call)
            task = (await client.read_answer())["result"]["structuredContent"]
            assert (task["id"], task["subject"]) == (str(number), "Mend \ufffd the roof")
        # Other programs write such texts into our files.
        home = Path(os.environ["SHOAL_HOME"])
        entry = b'[{"from":"ann","text":"half \\ud800","timestamp":"","read":false}]'
        (home / "teams" / "roof" / "inboxes" / "team-lead.json").write_bytes(entry)
        (home / "tasks" / "roof" / "3.json").write_bytes(
            b'{"id":"3","subject":"half \\ud800","description":"","status":"pending","blocks":[],'
            b'"blockedBy":[],"metadata":{"\\udfff":["\\ud800"]}}'
        )
        (message,) = (await client.call_tool(3, "message_take"))["messages"]
        assert message["text"] == "half \ufffd"
        shown = await client.call_tool(4, "task_get", task="3")
        assert (shown["subject"], shown["metadata"]) == ("half \ufffd", {"\ufffd": ["\ufffd"]})
        refused = await client.call_tool(5, "message_send", to="\ud800", text="x")
        assert "There is no recipient" in refused
        assert (await client.call_tool(6, "team_show"))["name"] == "roof"
