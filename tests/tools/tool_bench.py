"""A bench for tools: a real workspace in a temporary directory and real processes."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

from shoal.core.agents.identity import AgentIdentity
from shoal.core.clock import SystemClock
from shoal.core.conversation.tools import Tool, ToolContext, ToolOutput
from shoal.core.ids import IdGenerator, SessionId
from shoal.core.ports import ProcessLaunchSpec
from shoal.workspaces.checkpoints import CheckpointStore
from shoal.workspaces.local_workspace import LocalWorkspace


class StartedProcess:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.pid = process.pid

    async def wait(self) -> int:
        return await self.process.wait()

    async def stop(self, *, grace: float = 2.0) -> int:
        if self.process.returncode is None:
            os.killpg(self.pid, signal.SIGKILL)
        return await self.process.wait()


class PlainProcessLauncher:
    """Starts processes of the system, each in its own group, and records them."""

    def __init__(self) -> None:
        self.started: list[StartedProcess] = []
        self.has_started = asyncio.Event()

    async def start_process(self, launch: ProcessLaunchSpec) -> StartedProcess:
        process = await asyncio.create_subprocess_exec(
            *launch.argv,
            cwd=launch.cwd,
            env=dict(launch.env),
            stdin=asyncio.subprocess.DEVNULL if launch.stdin is None else launch.stdin,
            stdout=launch.stdout,
            stderr=launch.stderr,
            start_new_session=True,
        )
        self.started.append(StartedProcess(process))
        self.has_started.set()
        return self.started[-1]

    async def aclose(self) -> None:
        for process in self.started:
            await process.stop()


async def _ignore_progress(_: str) -> None:
    return


class ToolBench:
    """A project directory, and tools called on it."""

    def __init__(self, top: Path) -> None:
        self.root = top / "project"
        self.root.mkdir()
        self.checkpoints = CheckpointStore(top / "kept")
        self.workspace = LocalWorkspace(self.root, checkpoints=self.checkpoints)
        self.ids = IdGenerator(1)
        self.processes = PlainProcessLauncher()
        self.env = {"PATH": os.environ["PATH"]}

    @property
    def context(self) -> ToolContext:
        absent: Any = None
        return ToolContext(
            call_id="call-1",
            agent=AgentIdentity(session=SessionId("s")),
            workspace=self.workspace,
            processes=self.processes,
            question_broker=absent,
            results=absent,
            clock=SystemClock(),
            ids=self.ids,
            report_progress=_ignore_progress,
            env=self.env,
        )

    def write_file(self, name: str, content: str | bytes = "") -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    async def call_tool(self, tool: Tool, **arguments: Any) -> ToolOutput:
        return await tool.run(arguments, self.context)

    async def call_for_text(self, tool: Tool, **arguments: Any) -> str:
        """Return the text of a call that succeeds."""
        outcome = await self.call_tool(tool, **arguments)
        assert not outcome.is_error, outcome.content
        assert isinstance(outcome.content, str)
        assert outcome.content.encode()
        return outcome.content

    async def call_for_failure(self, tool: Tool, **arguments: Any) -> str:
        """Return the text of a call that fails."""
        outcome = await self.call_tool(tool, **arguments)
        assert outcome.is_error, outcome.content
        assert isinstance(outcome.content, str)
        assert outcome.content.encode()
        return outcome.content
