"""A project, a home with secrets, and commands run in them under a real guardian and a real sandbox."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from msgspec.structs import replace

from shoal.backends.guarded_processes import GuardedProcess, GuardedProcessLauncher
from shoal.backends.sandbox.sandbox_driver import SandboxDriver
from shoal.core.permissions.sandbox import SandboxPolicy
from shoal.core.ports import ProcessLaunchSpec

TIMEOUT = 60.0


class SandboxHarness:
    def __init__(self, top: Path, processes: GuardedProcessLauncher, driver: SandboxDriver | None) -> None:
        self.top = top
        self.project = top / "project"
        self.home = top / "home"
        self.processes = processes
        self.driver = driver
        (self.home / ".ssh").mkdir(parents=True)
        (self.home / ".ssh/id").write_text("secret key\n")
        (self.home / ".netrc").write_text("secret password\n")
        (self.home / "notes.txt").write_text("plain notes\n")
        self.project.mkdir()
        self.policy = SandboxPolicy(
            writable=(self.project,), hidden=(self.home / ".ssh", self.home / ".netrc", self.home / "absent")
        )

    def change_policy(self, **fields: object) -> None:
        self.policy = replace(self.policy, **fields)

    def build_launch(self, command: str, output: int = 1) -> ProcessLaunchSpec:
        plain = ProcessLaunchSpec(
            argv=("/bin/bash", "-c", command),
            cwd=self.project,
            env={"PATH": os.environ["PATH"], "HOME": str(self.home)},
            stdout=output,
            stderr=output,
        )
        return plain if self.driver is None else self.driver.wrap_launch(plain, self.policy)

    async def start_command(self, command: str) -> tuple[GuardedProcess, asyncio.StreamReader]:
        read, write = os.pipe()
        try:
            process = await self.processes.start_process(self.build_launch(command, write))
        finally:
            os.close(write)
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read, "rb")
        )
        return process, reader

    async def run_command(self, command: str) -> tuple[int, str]:
        async with asyncio.timeout(TIMEOUT):
            process, reader = await self.start_command(command)
            status = await process.wait()
            return status, (await reader.read()).decode()
