"""A bench for tools: a real workspace in a temporary directory and real processes."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

from shoal.core.clock import SystemClock
from shoal.core.identity import Identity
from shoal.core.ids import Ids, SessionId
from shoal.core.ports import Launch
from shoal.core.tools import Outcome, Site, Tool
from shoal.workspaces.checkpoints import Checkpoints
from shoal.workspaces.local import LocalWorkspace


class OneProcess:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.pid = process.pid

    async def wait(self) -> int:
        return await self.process.wait()

    async def stop(self, *, grace: float = 2.0) -> int:
        if self.process.returncode is None:
            os.killpg(self.pid, signal.SIGKILL)
        return await self.process.wait()


class PlainProcesses:
    """Starts processes of the system, each in its own group, and records them."""

    def __init__(self) -> None:
        self.started: list[OneProcess] = []
        self.begun = asyncio.Event()

    async def start(self, launch: Launch) -> OneProcess:
        process = await asyncio.create_subprocess_exec(
            *launch.argv,
            cwd=launch.cwd,
            env=dict(launch.env),
            stdin=asyncio.subprocess.DEVNULL if launch.stdin is None else launch.stdin,
            stdout=launch.stdout,
            stderr=launch.stderr,
            start_new_session=True,
        )
        self.started.append(OneProcess(process))
        self.begun.set()
        return self.started[-1]

    async def aclose(self) -> None:
        for process in self.started:
            await process.stop()


async def _unheard(_: str) -> None:
    return


class Bench:
    """A project directory, and tools called on it."""

    def __init__(self, top: Path) -> None:
        self.root = top / "project"
        self.root.mkdir()
        self.checkpoints = Checkpoints(top / "kept")
        self.workspace = LocalWorkspace(self.root, checkpoints=self.checkpoints)
        self.ids = Ids(1)
        self.processes = PlainProcesses()
        self.env = {"PATH": os.environ["PATH"]}

    @property
    def site(self) -> Site:
        absent: Any = None
        return Site(
            call_id="call-1",
            agent=Identity(session=SessionId("s")),
            workspace=self.workspace,
            processes=self.processes,
            desk=absent,
            results=absent,
            clock=SystemClock(),
            ids=self.ids,
            progress=_unheard,
            env=self.env,
        )

    def put(self, name: str, content: str | bytes = "") -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    async def call(self, tool: Tool, **arguments: Any) -> Outcome:
        return await tool.run(arguments, self.site)

    async def text(self, tool: Tool, **arguments: Any) -> str:
        """Return the text of a call that succeeds."""
        outcome = await self.call(tool, **arguments)
        assert not outcome.is_error, outcome.content
        assert isinstance(outcome.content, str)
        assert outcome.content.encode()
        return outcome.content

    async def failure(self, tool: Tool, **arguments: Any) -> str:
        """Return the text of a call that fails."""
        outcome = await self.call(tool, **arguments)
        assert outcome.is_error, outcome.content
        assert isinstance(outcome.content, str)
        assert outcome.content.encode()
        return outcome.content
