"""The real program as a separate process, in its own project and home."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from shoal.testing.servers import MockServer

TIMEOUT = 60.0
MODEL = "anthropic:claude-haiku-5-5"


class CliResult(Struct, frozen=True, kw_only=True):
    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def result(self) -> dict[str, Any]:
        """The object of `--output-format json`, or the last one of stream-json."""
        return [line for line in self.lines if line["type"] == "result"][-1]

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


class ShoalProgram:
    """Starts `shoal` in a project like a person does."""

    def __init__(self, project: Path) -> None:
        self.project = project
        self.env: dict[str, str] = {}

    def use_server(self, server: MockServer) -> None:
        self.env |= {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "sk-for-tests"}

    @asynccontextmanager
    async def start_process(
        self,
        *arguments: str | bytes,
        prefix: tuple[str, ...] = (),
        stdout: int = asyncio.subprocess.PIPE,
        **env: str,
    ) -> AsyncIterator[asyncio.subprocess.Process]:
        process = await asyncio.create_subprocess_exec(
            *prefix,
            sys.executable,
            "-m",
            "shoal",
            *arguments,
            cwd=self.project,
            env=os.environ | self.env | env,
            stdin=asyncio.subprocess.PIPE,
            stdout=stdout,
            stderr=asyncio.subprocess.PIPE,
            limit=1 << 24,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def __call__(
        self, *arguments: str | bytes, stdin: bytes = b"", prefix: tuple[str, ...] = (), **env: str
    ) -> CliResult:
        async with self.start_process(*arguments, prefix=prefix, **env) as process:
            return await wait_for_result(process, stdin)


async def wait_for_result(process: asyncio.subprocess.Process, stdin: bytes = b"") -> CliResult:
    async with asyncio.timeout(TIMEOUT):
        out, err = await process.communicate(stdin)
    assert process.returncode is not None
    assert b"Traceback" not in err, err.decode()
    return CliResult(code=process.returncode, out=out, err=err.decode(errors="replace"))
