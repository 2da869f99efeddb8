"""Shells of a session: its command launcher and its background commands."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Literal, TypeAlias

from shoal.core.agents.background_shells import (
    BackgroundShell,
    BackgroundShellObserver,
    BackgroundShellResult,
    NullBackgroundShellObserver,
    ShellOutcome,
)
from shoal.core.clock import Clock
from shoal.core.conversation.tools import ToolContext
from shoal.core.core_texts import format_end_reason
from shoal.core.errors import ProcessError
from shoal.core.ids import AgentId
from shoal.core.ports import ChildProcessHandle, ProcessLauncher
from shoal.core.task_groups import exit_task_group_without_wrapping
from shoal.core.text.lazy_patterns import compile_on_first_use
from shoal.tools.command_environment import build_command_environment
from shoal.tools.command_launcher import ShellCommandLauncher, ShellEnvironment
from shoal.tools.command_output import OUTPUT_LIMIT, CommandOutputCollector, CommandOutputPipe
from shoal.tools.shell_snapshot import ShellSnapshotter, find_user_shell
from shoal.tools.tool_texts import format_tool_text

ShellStatus: TypeAlias = Literal["running", "exited", "stopped", "lost"]
STOP_GRACE = 1.0
STUCK_AFTER = 60.0
_TAIL_LINES = 20
_TAIL_CHARACTERS = 2_000
_QUESTION_LINE = compile_on_first_use(
    r"[\[(](?:y(?:es)?\s*/\s*no?)\b|\bpress (?:any key|enter|return)\b|\bpass(?:word|phrase)\b[^.]*:\s*$"
    r"|\b(?:are you sure|do you want|would you like|overwrite|continue)\b.*\?\s*$",
    re.IGNORECASE,
)
_PROMPT_LINE = compile_on_first_use(r"[?:>$#%]\s*$")


def is_shell_awaiting_input(output: CommandOutputCollector) -> bool:
    """Return True if the last line is a question, or a prompt without a line end."""
    return bool(
        _QUESTION_LINE.search(output.get_last_line()) or _PROMPT_LINE.search(output.get_unfinished_line())
    )


class BackgroundShellProcess:
    """One command in the background."""

    def __init__(
        self,
        facts: BackgroundShell,
        process: ChildProcessHandle,
        *,
        output: CommandOutputCollector,
        pipe: CommandOutputPipe,
    ) -> None:
        self.facts = facts
        self.id = facts.shell
        self.command = facts.command
        self.agent = facts.agent
        self.status: ShellStatus = "running"
        self.exit_code: int | None = None
        self.error_text = ""
        self._stopped_by: AgentId | None = None
        self._stop_reason = ""
        self.ended = asyncio.Event()
        self.output = output
        self._pipe = pipe
        self._process = process
        self._read_offset = 0

    @property
    def output_file(self) -> Path | None:
        """File that holds its whole output."""
        return self.output.file

    async def wait_for_exit(self) -> None:
        """Wait until the command has ended."""
        try:
            self.exit_code = await self._process.wait()
            self.status = "stopped" if self.status == "stopped" else "exited"
        except ProcessError as error:
            self.status, self.error_text = "lost", str(error)
        finally:
            self._pipe.read_rest_and_close()
            self.output.close()
            self.ended.set()

    async def stop(self, why: str, *, by: AgentId | None = None) -> None:
        """Stop the command and everything it started; it is gone when this returns."""
        if self.status != "running":
            return
        self.status, self._stop_reason, self._stopped_by = "stopped", why, by
        try:
            await self._process.stop(grace=STOP_GRACE)
        except ProcessError as error:
            self.error_text = str(error)
        else:
            await self.ended.wait()

    def build_result(self) -> BackgroundShellResult:
        """Return how the command ended; call it after the end."""
        outcomes: dict[ShellStatus, ShellOutcome] = {"stopped": "killed", "lost": "killed"}
        return BackgroundShellResult(
            facts=self.facts,
            status=outcomes.get(self.status, "failed" if self.exit_code else "completed"),
            exit_code=self.exit_code,
            detail=self.error_text or self._stop_reason,
            tail=self.get_output_tail(),
            quiet=self._stopped_by == self.agent,
        )

    def get_output_tail(self) -> str:
        """Return the end of the output."""
        lines = self.output.text[-_TAIL_CHARACTERS:].rstrip().rsplit("\n", _TAIL_LINES)
        return "\n".join(lines[-_TAIL_LINES:])

    def read_new_output(self) -> str:
        """Return the output since the last read, with the middle cut out if it is long."""
        if self.output_file is None:
            return self._format_unavailable_output(self.output.describe_output_location())
        try:
            return self._read_new_output(self.output_file)
        except OSError as error:
            return self._format_unavailable_output(error)

    async def filter_new_output(self, select_lines: Callable[[str], Awaitable[str]]) -> str:
        """Return what `select_lines` keeps of the output since the last read.

        If it raises, nothing counts as read.
        """
        if self.output_file is None:
            return self._format_unavailable_output(self.output.describe_output_location())
        try:
            content = await asyncio.to_thread(_read_file_from, self.output_file, self._read_offset)
        except OSError as error:
            return self._format_unavailable_output(error)
        end = self._read_offset + len(content)
        selected = await select_lines(content.decode(errors="replace"))
        self._read_offset = max(self._read_offset, end)
        if len(selected) <= OUTPUT_LIMIT:
            return selected
        omitted = len(selected) - OUTPUT_LIMIT
        omission = self.output.format_omission(f"{omitted:,} characters")
        return f"{selected[: OUTPUT_LIMIT // 2]}\n\n{omission}\n\n{selected[-OUTPUT_LIMIT // 2 :]}"

    def _format_unavailable_output(self, reason: object) -> str:
        return format_tool_text("Bash", "unavailable", reason=reason)

    def _read_new_output(self, path: Path) -> str:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            start, self._read_offset = self._read_offset, size
            file.seek(start)
            if size - start <= OUTPUT_LIMIT:
                return file.read(size - start).decode(errors="replace")
            head = file.read(OUTPUT_LIMIT // 2).decode(errors="ignore")
            file.seek(size - OUTPUT_LIMIT // 2)
            tail = file.read(OUTPUT_LIMIT // 2).decode(errors="ignore")
        omitted = size - start - OUTPUT_LIMIT
        omission = self.output.format_omission(f"{omitted:,} bytes")
        return f"{head}\n\n{omission}\n\n{tail}"


def _read_file_from(path: Path, start: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.read()


def _ignore_shell_note(_: object) -> None:
    pass


class BackgroundShellSupervisor:
    """Owns the shells of a session; leaving the context stops every shell.

    `observer` receives events of background commands, `note` receives notes for the user. A command
    whose last line asks for input and that is silent for `stuck_after` seconds is reported as stuck. Files
    that an earlier process with the same mark left on disk are removed.
    """

    def __init__(
        self,
        *,
        processes: ProcessLauncher,
        clock: Clock,
        environment: ShellEnvironment,
        stuck_after: float = STUCK_AFTER,
        note: Callable[[str], None] = _ignore_shell_note,
        observer: BackgroundShellObserver | None = None,
    ) -> None:
        self._observer = observer or NullBackgroundShellObserver()
        self._stuck_after = stuck_after
        self._clock = clock
        self._shells: dict[str, BackgroundShellProcess] = {}
        self._numbers = count(1)
        self._tasks = asyncio.TaskGroup()
        self._watch_tasks: set[asyncio.Task[None]] = set()
        snapshotter = ShellSnapshotter(
            shell=find_user_shell(environment.variables),
            directory=environment.home / "shell-snapshots",
            env=build_command_environment(environment.variables),
            processes=processes,
            clock=clock,
            mark=environment.mark,
        )
        self.launcher = ShellCommandLauncher(snapshotter, self._tasks, note, environment)

    async def __aenter__(self) -> BackgroundShellSupervisor:
        await self._tasks.__aenter__()
        self.launcher.remove_leftover_files()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.stop_all()
        finally:
            self.launcher.close()
            # A shell that cannot be stopped must not block the end of the session.
            for task in self._watch_tasks:
                task.cancel()
            await exit_task_group_without_wrapping(self._tasks, kind, error, trace)

    def start_numbering_at(self, number: int) -> None:
        """Skip numbers that an earlier process of this session has used."""
        self._numbers = count(number)

    def prepare_snapshot(self) -> None:
        """Capture the user's shell in the background now, so that the first command need not wait."""
        self.launcher.prepare_shell_snapshot()

    def list_shells(self) -> tuple[BackgroundShellProcess, ...]:
        return tuple(self._shells.values())

    def find_shell(self, identity: str) -> BackgroundShellProcess | None:
        return self._shells.get(identity)

    def mark_shell_end_seen(self, shell: BackgroundShellProcess, context: ToolContext) -> None:
        """Record that a tool call has shown the state of an ended shell."""
        if shell.status != "running":
            self._observer.on_end_shown_to_agent(shell.facts, context.agent.agent, context.call_id)

    async def stop_all(self, why: str = "") -> tuple[BackgroundShellProcess, ...]:
        """Stop all running shells and return them; without a reason, the session ended."""
        reason = why or format_end_reason("session_ended")
        return await self._stop_shells(tuple(self._shells.values()), reason, by=None)

    async def stop_agent_shells(self, agent: AgentId) -> tuple[BackgroundShellProcess, ...]:
        """Stop the shells of an agent that has ended, without notifying it."""
        agent_shells = tuple(shell for shell in self._shells.values() if shell.agent == agent)
        return await self._stop_shells(agent_shells, format_end_reason("agent_ended"), by=agent)

    async def _stop_shells(
        self, shells: tuple[BackgroundShellProcess, ...], reason: str, *, by: AgentId | None
    ) -> tuple[BackgroundShellProcess, ...]:
        running = tuple(shell for shell in shells if shell.status == "running")
        if not running:
            return ()
        async with asyncio.TaskGroup() as group:
            for shell in running:
                group.create_task(shell.stop(reason, by=by))
        return running

    async def run_in_background(self, command: str, context: ToolContext) -> BackgroundShellProcess:
        """Start a command in the background. Raises `ProcessError`."""
        shell_id = f"bash_{next(self._numbers)}"
        output = CommandOutputCollector(lambda: context.results.save_result(f"{context.call_id}.txt", b""))
        output.start_file_output()
        pipe = CommandOutputPipe(output.add_bytes)
        try:
            process = await self.launcher.start_command(command, context, pipe.writer, directory_file=None)
        except BaseException:
            pipe.close_writer()
            pipe.read_rest_and_close()
            output.close()
            raise
        pipe.close_writer()
        facts = BackgroundShell(
            shell=shell_id,
            agent=context.agent.agent,
            call=context.call_id,
            command=command,
            output="" if output.file is None else str(output.file),
        )
        self._shells[shell_id] = shell = BackgroundShellProcess(facts, process, output=output, pipe=pipe)
        self._observer.on_started(facts)
        watch_task = self._tasks.create_task(self._watch_shell(shell))
        self._watch_tasks.add(watch_task)
        watch_task.add_done_callback(self._watch_tasks.discard)
        return shell

    async def _watch_shell(self, shell: BackgroundShellProcess) -> None:
        async with asyncio.TaskGroup() as tasks:
            stuck_check = tasks.create_task(self._report_when_stuck(shell))
            await shell.wait_for_exit()
            # No await between the end and its notification, so that observers see the end only after it.
            self._observer.on_ended(shell.build_result())
            stuck_check.cancel()

    async def _report_when_stuck(self, shell: BackgroundShellProcess) -> None:
        """Report the shell as stuck once, then return."""
        output = shell.output
        while True:
            output.has_new_data.clear()
            if not is_shell_awaiting_input(output):
                await output.has_new_data.wait()
                continue
            try:
                async with self._clock.deadline(self._stuck_after):
                    await output.has_new_data.wait()
            except TimeoutError:
                self._observer.on_waiting_for_input(shell.facts, shell.get_output_tail())
                return
