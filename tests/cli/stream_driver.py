"""Driver of a run over stream-json: send prompts and control requests, read every message."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from shoal_process import MODEL, TIMEOUT, ShoalProgram

STREAMS = ("--output-format", "stream-json", "--input-format", "stream-json", "--verbose")


def make_prompt(text: str) -> dict[str, Any]:
    return {"type": "user", "message": {"role": "user", "content": text}, "parent_tool_use_id": None}


def make_control_request(number: str, subtype: str, **more: Any) -> dict[str, Any]:
    return {"type": "control_request", "request_id": number, "request": {"subtype": subtype, **more}}


class StreamDriver:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.received_lines: list[dict[str, Any]] = []

    async def send_lines(self, *lines: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        for line in lines:
            self.process.stdin.write(json.dumps(line).encode() + b"\n")
        await self.process.stdin.drain()

    async def read_line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line: dict[str, Any] = json.loads(await self.process.stdout.readline())
        self.received_lines.append(line)
        return line

    async def wait_for_line(self, kind: str, **like: Any) -> dict[str, Any]:
        """Read until a line of this type with these values, and return it."""
        async with asyncio.timeout(TIMEOUT):
            while True:
                line = await self.read_line()
                if line["type"] == kind and all(line.get(key) == value for key, value in like.items()):
                    return line

    async def wait_for_response(self) -> dict[str, Any]:
        return (await self.wait_for_line("control_response"))["response"]


@asynccontextmanager
async def start_driver(shoal: ShoalProgram, *flags: str) -> AsyncIterator[StreamDriver]:
    async with shoal.start_process(*STREAMS, "--model", MODEL, *flags) as process:
        yield StreamDriver(process)
