"""The shells of a session: its commands, and those that go on in the background."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Literal, TypeAlias

from shoal.core.clock import Clock
from shoal.core.errors import ProcessError
from shoal.core.ids import AgentId, Ids
from shoal.core.ports import Process, Processes
from shoal.core.sandbox import Sandbox
from shoal.core.tools import Site
from shoal.tools.commands import Commands
from shoal.tools.environment import command_environment
from shoal.tools.output import LIMIT, Output, Pipe
from shoal.tools.snapshot import Capture, user_shell

Status: TypeAlias = Literal["running", "exited", "stopped", "lost"]
GRACE = 1.0


class Shell:
    """One command in the background."""

    def __init__(
        self, identity: str, command: str, agent: AgentId, process: Process, *, output: Output, pipe: Pipe
    ) -> None:
        self.id = identity
        self.command = command
        self.agent = agent
        self.status: Status = "running"
        self.exit_code: int | None = None
        self.trouble = ""
        self.ended = asyncio.Event()
        self.output = output
        self._pipe = pipe
        self._process = process
        self._seen = 0

    @property
    def file(self) -> Path | None:
        """Where all of its output is."""
        return self.output.file

    async def watch(self) -> None:
        """Until its end."""
        try:
            self.exit_code = await self._process.wait()
            self.status = "stopped" if self.status == "stopped" else "exited"
        except ProcessError as error:
            self.status, self.trouble = "lost", str(error)
        finally:
            self._pipe.finish()
            self.output.close()
            self.ended.set()

    async def stop(self) -> None:
        """End it and all it started; it is gone when this returns."""
        if self.status != "running":
            return
        self.status = "stopped"
        try:
            await self._process.stop(grace=GRACE)
        except ProcessError as error:
            self.trouble = str(error)
        else:
            await self.ended.wait()

    def fresh(self) -> str:
        """What it wrote since the last look; the middle is cut out where that is long."""
        if self.file is None:
            return f"(Its output is not to be had: {self.output.where()}.)"
        try:
            return self._since_last_look(self.file)
        except OSError as error:
            return f"(Its output is not to be had: {error}.)"

    def _since_last_look(self, path: Path) -> str:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            start, self._seen = self._seen, size
            file.seek(start)
            if size - start <= LIMIT:
                return file.read(size - start).decode(errors="replace")
            head = file.read(LIMIT // 2).decode(errors="ignore")
            file.seek(size - LIMIT // 2)
            tail = file.read(LIMIT // 2).decode(errors="ignore")
        mark = f"[… {size - start - LIMIT:,} bytes are cut out here; {self.output.where()} …]"
        return f"{head}\n\n{mark}\n\n{tail}"


def _unheard(_: object) -> None:
    pass


class Shells:
    """Entered for the length of a session; leaving ends every shell.

    `ended` is told of each background shell that ends, `note` what a person should know.
    """

    def __init__(
        self,
        *,
        processes: Processes,
        clock: Clock,
        ids: Ids,
        home: Path,
        env: Mapping[str, str],
        ended: Callable[[Shell], None] = _unheard,
        note: Callable[[str], None] = _unheard,
    ) -> None:
        self._ended = ended
        self._shells: dict[str, Shell] = {}
        self._numbers = count(1)
        self._tasks = asyncio.TaskGroup()
        self._watching: set[asyncio.Task[None]] = set()
        capture = Capture(
            shell=user_shell(env),
            directory=home / "shell-snapshots",
            env=command_environment(env),
            processes=processes,
            clock=clock,
            ids=ids,
        )
        self.commands = Commands(capture, self._tasks, note)

    async def __aenter__(self) -> Shells:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.stop_all()
        finally:
            self.commands.close()
            # One that cannot be ended must not hold up the end of the session.
            for task in self._watching:
                task.cancel()
            # The group must know of a cancellation; any other error passes through as it is, not in a group.
            if isinstance(error, asyncio.CancelledError):
                await self._tasks.__aexit__(kind, error, trace)
            else:
                await self._tasks.__aexit__(None, None, None)

    def confine(self, sandbox: Sandbox) -> None:
        """From now on commands run in this sandbox."""
        self.commands.sandbox = sandbox

    def prepare(self) -> None:
        """Capture the person's shell now, in the background, so that the first command need not wait."""
        self.commands.prepare()

    def list(self) -> tuple[Shell, ...]:
        return tuple(self._shells.values())

    def find(self, identity: str) -> Shell | None:
        return self._shells.get(identity)

    async def stop_all(self) -> tuple[Shell, ...]:
        """The shells that were still running, now ended."""
        return await self._stop(tuple(self._shells.values()))

    async def stop_those_of(self, agent: AgentId) -> tuple[Shell, ...]:
        return await self._stop(tuple(shell for shell in self._shells.values() if shell.agent == agent))

    async def _stop(self, shells: tuple[Shell, ...]) -> tuple[Shell, ...]:
        running = tuple(shell for shell in shells if shell.status == "running")
        if not running:
            return ()
        async with asyncio.TaskGroup() as stopping:
            for shell in running:
                stopping.create_task(shell.stop())
        return running

    async def run_in_background(self, command: str, site: Site) -> Shell:
        """Raises `ProcessError`."""
        identity = f"bash_{next(self._numbers)}"
        output = Output(lambda: site.results.keep(f"{site.call_id}.txt", b""))
        output.open_file()
        pipe = Pipe(output.add)
        try:
            process = await self.commands.start(command, site, pipe.writer, directory_file=None)
        except BaseException:
            pipe.handed_over()
            pipe.finish()
            output.close()
            raise
        pipe.handed_over()
        shell = Shell(identity, command, site.agent.agent, process, output=output, pipe=pipe)
        self._shells[identity] = shell
        watching = self._tasks.create_task(self._watch(shell))
        self._watching.add(watching)
        watching.add_done_callback(self._watching.discard)
        return shell

    async def _watch(self, shell: Shell) -> None:
        await shell.watch()
        self._ended(shell)
