"""Shells of a session: its command launcher and its background commands."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Literal, TypeAlias

from shoal.core.clock import Clock
from shoal.core.errors import ProcessError
from shoal.core.groups import leave
from shoal.core.ids import AgentId
from shoal.core.ports import Process, Processes
from shoal.core.sandbox import Sandbox
from shoal.core.shells import ShellEnd, ShellFacts, ShellNews, ShellOutcome, Unheard
from shoal.core.tools import Site
from shoal.tools.commands import Commands
from shoal.tools.environment import command_environment
from shoal.tools.output import LIMIT, Output, Pipe
from shoal.tools.snapshot import Capture, user_shell

Status: TypeAlias = Literal["running", "exited", "stopped", "lost"]
GRACE = 1.0
STUCK_AFTER = 60.0
SESSION_ENDED = "the session ended"
_TAIL_LINES = 20
_TAIL_CHARACTERS = 2_000
_ASKS = re.compile(
    r"[\[(](?:y(?:es)?\s*/\s*no?)\b|\bpress (?:any key|enter|return)\b|\bpass(?:word|phrase)\b[^.]*:\s*$"
    r"|\b(?:are you sure|do you want|would you like|overwrite|continue)\b.*\?\s*$",
    re.IGNORECASE,
)
_PROMPTS = re.compile(r"[?:>$#%]\s*$")


def seems_to_ask(output: Output) -> bool:
    """Return True if the last line is a question, or a prompt without a line end."""
    return bool(_ASKS.search(output.last_line()) or _PROMPTS.search(output.open_line()))


class Shell:
    """One command in the background."""

    def __init__(self, facts: ShellFacts, process: Process, *, output: Output, pipe: Pipe) -> None:
        self.facts = facts
        self.id = facts.shell
        self.command = facts.command
        self.agent = facts.agent
        self.status: Status = "running"
        self.exit_code: int | None = None
        self.trouble = ""
        self._stopped_by: AgentId | None = None
        self._why = ""
        self.ended = asyncio.Event()
        self.output = output
        self._pipe = pipe
        self._process = process
        self._seen = 0

    @property
    def file(self) -> Path | None:
        """File that holds its whole output."""
        return self.output.file

    async def watch(self) -> None:
        """Wait until the command has ended."""
        try:
            self.exit_code = await self._process.wait()
            self.status = "stopped" if self.status == "stopped" else "exited"
        except ProcessError as error:
            self.status, self.trouble = "lost", str(error)
        finally:
            self._pipe.finish()
            self.output.close()
            self.ended.set()

    async def stop(self, why: str, *, by: AgentId | None = None) -> None:
        """Stop the command and everything it started; it is gone when this returns."""
        if self.status != "running":
            return
        self.status, self._why, self._stopped_by = "stopped", why, by
        try:
            await self._process.stop(grace=GRACE)
        except ProcessError as error:
            self.trouble = str(error)
        else:
            await self.ended.wait()

    def end(self) -> ShellEnd:
        """Return how the command ended; call it after the end."""
        outcomes: dict[Status, ShellOutcome] = {"stopped": "killed", "lost": "killed"}
        return ShellEnd(
            facts=self.facts,
            status=outcomes.get(self.status, "failed" if self.exit_code else "completed"),
            exit_code=self.exit_code,
            detail=self.trouble or self._why,
            tail=self.tail(),
            quiet=self._stopped_by == self.agent,
        )

    def tail(self) -> str:
        """Return the end of the output."""
        lines = self.output.text[-_TAIL_CHARACTERS:].rstrip().rsplit("\n", _TAIL_LINES)
        return "\n".join(lines[-_TAIL_LINES:])

    def fresh(self) -> str:
        """Return the output since the last read, with the middle cut out if it is long."""
        if self.file is None:
            return self._not_to_be_had(self.output.where())
        try:
            return self._since_last_look(self.file)
        except OSError as error:
            return self._not_to_be_had(error)

    async def sifted(self, sift: Callable[[str], Awaitable[str]]) -> str:
        """Return what `select_lines` keeps of the output since the last read.

        If it raises, nothing counts as read.
        """
        if self.file is None:
            return self._not_to_be_had(self.output.where())
        try:
            written = await asyncio.to_thread(_read_from, self.file, self._seen)
        except OSError as error:
            return self._not_to_be_had(error)
        end = self._seen + len(written)
        found = await sift(written.decode(errors="replace"))
        self._seen = max(self._seen, end)
        if len(found) <= LIMIT:
            return found
        mark = f"[… {len(found) - LIMIT:,} characters are cut out here; {self.output.where()} …]"
        return f"{found[: LIMIT // 2]}\n\n{mark}\n\n{found[-LIMIT // 2 :]}"

    def _not_to_be_had(self, why: object) -> str:
        return f"(Its output is not to be had: {why}.)"

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


def _read_from(path: Path, start: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.read()


def _unheard(_: object) -> None:
    pass


class Shells:
    """Owns the shells of a session; leaving the context stops every shell.

    `observer` receives events of background commands, `note` receives notes for the user. A command
    whose last line asks for input and that is silent for `stuck_after` seconds is reported as stuck. Files
    that an earlier process with the same `mark` left on disk are removed.
    """

    def __init__(
        self,
        *,
        processes: Processes,
        clock: Clock,
        home: Path,
        env: Mapping[str, str],
        mark: str,
        stuck_after: float = STUCK_AFTER,
        note: Callable[[str], None] = _unheard,
    ) -> None:
        self.news: ShellNews = Unheard()
        self._stuck_after = stuck_after
        self._clock = clock
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
            mark=mark,
        )
        self.commands = Commands(capture, self._tasks, note)

    async def __aenter__(self) -> Shells:
        await self._tasks.__aenter__()
        self.commands.clear()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.stop_all()
        finally:
            self.commands.close()
            # A shell that cannot be stopped must not block the end of the session.
            for task in self._watching:
                task.cancel()
            await leave(self._tasks, kind, error, trace)

    def confine(self, sandbox: Sandbox) -> None:
        """Run commands in this sandbox from now on."""
        self.commands.sandbox = sandbox

    def number_from(self, number: int) -> None:
        """Skip numbers that an earlier process of this session has used."""
        self._numbers = count(number)

    def prepare(self) -> None:
        """Capture the user's shell in the background now, so that the first command need not wait."""
        self.commands.prepare()

    def list(self) -> tuple[Shell, ...]:
        return tuple(self._shells.values())

    def find(self, identity: str) -> Shell | None:
        return self._shells.get(identity)

    def seen(self, shell: Shell, site: Site) -> None:
        """Record that a tool call has shown the state of an ended shell."""
        if shell.status != "running":
            self.news.seen(shell.facts, site.agent.agent, site.call_id)

    async def stop_all(self, why: str = SESSION_ENDED) -> tuple[Shell, ...]:
        """Stop all running shells and return them."""
        return await self._stop(tuple(self._shells.values()), why, by=None)

    async def stop_those_of(self, agent: AgentId) -> tuple[Shell, ...]:
        """Stop the shells of an agent that has ended, without notifying it."""
        its = tuple(shell for shell in self._shells.values() if shell.agent == agent)
        return await self._stop(its, "the agent ended", by=agent)

    async def _stop(self, shells: tuple[Shell, ...], why: str, *, by: AgentId | None) -> tuple[Shell, ...]:
        running = tuple(shell for shell in shells if shell.status == "running")
        if not running:
            return ()
        async with asyncio.TaskGroup() as stopping:
            for shell in running:
                stopping.create_task(shell.stop(why, by=by))
        return running

    async def run_in_background(self, command: str, site: Site) -> Shell:
        """Start a command in the background. Raises `ProcessError`."""
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
        facts = ShellFacts(
            shell=identity,
            agent=site.agent.agent,
            call=site.call_id,
            command=command,
            output="" if output.file is None else str(output.file),
        )
        self._shells[identity] = shell = Shell(facts, process, output=output, pipe=pipe)
        self.news.started(facts)
        watching = self._tasks.create_task(self._watch(shell))
        self._watching.add(watching)
        watching.add_done_callback(self._watching.discard)
        return shell

    async def _watch(self, shell: Shell) -> None:
        async with asyncio.TaskGroup() as tasks:
            listening = tasks.create_task(self._tell_stuck(shell))
            await shell.watch()
            # No await between the end and its notification, so that observers see the end only after it.
            self.news.ended(shell.end())
            listening.cancel()

    async def _tell_stuck(self, shell: Shell) -> None:
        """Report the shell as stuck once, then return."""
        output = shell.output
        while True:
            output.grown.clear()
            if not seems_to_ask(output):
                await output.grown.wait()
                continue
            try:
                async with self._clock.deadline(self._stuck_after):
                    await output.grown.wait()
            except TimeoutError:
                self.news.stuck(shell.facts, shell.tail())
                return
