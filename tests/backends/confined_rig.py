"""A project, a home with secrets, and commands run in them under a real guardian and a real sandbox."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from msgspec.structs import replace

from shoal.backends.processes import GuardedProcess, GuardedProcesses
from shoal.backends.sandbox.kind import Kind
from shoal.core.ports import Launch
from shoal.core.sandbox import Confines

PATIENCE = 10.0


class Rig:
    def __init__(self, top: Path, processes: GuardedProcesses, kind: Kind | None) -> None:
        self.top = top
        self.project = top / "project"
        self.home = top / "home"
        self.processes = processes
        self.kind = kind
        (self.home / ".ssh").mkdir(parents=True)
        (self.home / ".ssh/id").write_text("secret key\n")
        (self.home / ".netrc").write_text("secret password\n")
        (self.home / "notes.txt").write_text("plain notes\n")
        self.project.mkdir()
        self.confines = Confines(
            writable=(self.project,), hidden=(self.home / ".ssh", self.home / ".netrc", self.home / "absent")
        )

    def set(self, **fields: object) -> None:
        self.confines = replace(self.confines, **fields)

    def launch(self, command: str, output: int = 1) -> Launch:
        plain = Launch(
            argv=("/bin/bash", "-c", command),
            cwd=self.project,
            env={"PATH": os.environ["PATH"], "HOME": str(self.home)},
            stdout=output,
            stderr=output,
        )
        return plain if self.kind is None else self.kind.wrap(plain, self.confines)

    async def start(self, command: str) -> tuple[GuardedProcess, asyncio.StreamReader]:
        read, write = os.pipe()
        try:
            process = await self.processes.start(self.launch(command, write))
        finally:
            os.close(write)
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read, "rb")
        )
        return process, reader

    async def run(self, command: str) -> tuple[int, str]:
        async with asyncio.timeout(PATIENCE):
            process, reader = await self.start(command)
            status = await process.wait()
            return status, (await reader.read()).decode()
