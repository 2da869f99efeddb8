"""Shell tools: run a command, read background output, stop background commands."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
from typing import Annotated

from msgspec import Meta, Struct

from shoal.core.conversation.tools import Tool, ToolContext, ToolOutput, create_tool_error_output
from shoal.core.core_texts import format_end_reason
from shoal.core.errors import ProcessError, ShoalError
from shoal.core.ports import ChildProcessHandle
from shoal.core.text.filenames import escape_filename
from shoal.tools.builtin_tool import builtin_tool
from shoal.tools.command_launcher import follow_command_directory
from shoal.tools.command_output import CommandOutputCollector, CommandOutputPipe
from shoal.tools.python_subprocess import PythonSubprocessTimeoutError, run_python_subprocess
from shoal.tools.shell_supervisor import BackgroundShellProcess, BackgroundShellSupervisor
from shoal.tools.tool_texts import format_tool_text, load_tool_description

DEFAULT_TIMEOUT = 120_000
MAX_TIMEOUT = 600_000
_GRACE = 0.5
_EXIT_TIMEOUT = 2.0
"""Seconds to wait for processes that a sandboxed command left running; they exit within a millisecond."""
_SANDBOX_ERRORS = ("Read-only file system", "EROFS")
_GIT_CONFIG_ERROR = re.compile(
    r"could not (?:write|lock) config file .*config.*: (?:Device or resource busy|Read-only file system"
    r"|Operation not permitted|Permission denied)"
)
_PROGRESS_INTERVAL = 0.2
_TIMEOUT = 5.0
_SCRIPT = r"""
import re, sys
try:
    pattern = re.compile(sys.argv[1])
except (re.error, OverflowError, RecursionError) as error:
    sys.exit(f"`filter` is not a regular expression: {error}.")
for line in sys.stdin:
    if pattern.search(line.rstrip("\n")):
        sys.stdout.write(line)
"""


class InvalidRegexError(ShoalError):
    """The regular expression is invalid or too slow; the text is for the model."""


async def filter_lines_by_regex(text: str, pattern: str, context: ToolContext) -> str:
    """Return the lines that match. Runs in a subprocess, because a pattern can take forever."""
    try:
        status, output = await run_python_subprocess(
            ("-c", _SCRIPT, pattern), text, context, seconds=_TIMEOUT
        )
    except PythonSubprocessTimeoutError:
        raise InvalidRegexError(
            format_tool_text("BashOutput", "slow_filter", seconds=f"{_TIMEOUT:g}")
        ) from None
    except ProcessError as error:
        raise InvalidRegexError(format_tool_text("BashOutput", "not_filtered", error=error)) from error
    if status != 0:
        raise InvalidRegexError(output.strip())
    return output


class BashToolLimits(Struct, frozen=True, kw_only=True):
    """Timeouts of shell commands in milliseconds."""

    default_timeout: int = DEFAULT_TIMEOUT
    max_timeout: int = MAX_TIMEOUT
    allows_background: bool = True


def build_shell_tools(
    shells: BackgroundShellSupervisor, limits: BashToolLimits | None = None
) -> tuple[Tool, ...]:
    limits = limits or BashToolLimits()
    bash = _build_bash_tool(shells, limits)
    if not limits.allows_background:
        return (bash,)
    return (bash, _build_bash_output_tool(shells), _build_kill_shell_tool(shells))


def _build_bash_tool(shells: BackgroundShellSupervisor, limits: BashToolLimits) -> Tool:
    default_timeout, max_timeout = limits.default_timeout, max(limits.default_timeout, limits.max_timeout)

    async def bash_tool(
        command: str,
        context: ToolContext,
        description: str = "",
        timeout: int = default_timeout,
        run_in_background: bool = False,  # noqa: FBT001, FBT002 - passed by keyword only
    ) -> ToolOutput:
        if not command.strip():
            return create_tool_error_output(format_tool_text("Bash", "empty"))
        if "\0" in command:
            return create_tool_error_output(format_tool_text("Bash", "nul_byte"))
        directory_note = _leave_deleted_directory(context)
        try:
            if run_in_background:
                if not limits.allows_background:
                    return create_tool_error_output(format_tool_text("Bash", "no_background"))
                return _format_background_shell_start(await shells.run_in_background(command, context))
            return await _ForegroundCommandRun(shells, context, directory_note, limits).run(
                command, timeout / 1000
            )
        except ProcessError as error:
            return create_tool_error_output(format_tool_text("Bash", "broken_off", error=error))

    # The schema has the configured limit, which an annotation in the source cannot name.
    bash_tool.__annotations__["timeout"] = Annotated[int, Meta(ge=1, le=max_timeout)]
    if limits.allows_background:
        return builtin_tool(name="Bash", deadline=None)(bash_tool)
    description = load_tool_description("Bash", without="run_in_background")
    tool = builtin_tool(name="Bash", description=description, deadline=None)(bash_tool)
    tool.restrict_inputs(tool.get_inputs_without("run_in_background"))
    return tool


class _ForegroundCommandRun:
    """One command in the foreground."""

    def __init__(
        self, shells: BackgroundShellSupervisor, context: ToolContext, note: str, limits: BashToolLimits
    ) -> None:
        self._left_running_text = "left_running" if limits.allows_background else "left_running_unseen"
        self._launcher = shells.launcher
        self._context = context
        self._output = CommandOutputCollector(
            lambda: context.results.save_result(f"{context.call_id}.txt", b"")
        )
        self._notes = [note] if note else []

    async def run(self, command: str, seconds: float) -> ToolOutput:
        directory_file = self._launcher.allocate_last_directory_file()
        pipe = CommandOutputPipe(self._output.add_bytes)
        try:
            try:
                process = await self._launcher.start_command(
                    command, self._context, pipe.writer, directory_file=directory_file
                )
            finally:
                pipe.close_writer()
            status = await self._wait_with_progress(process, seconds)
            self._notes += process.findings
            if self._launcher.has_process_cleanup(self._context):
                await pipe.wait_closed(_EXIT_TIMEOUT)
            is_still_open = pipe.read_rest_and_close()
            if status is None:
                self._notes.append(format_tool_text("Bash", "timed_out", seconds=f"{seconds:g}"))
            else:
                self._notes.append(follow_command_directory(directory_file, self._context))
                if is_still_open:
                    self._notes.append(format_tool_text("Bash", self._left_running_text))
            return self._build_tool_output(status)
        finally:
            pipe.read_rest_and_close()
            self._output.close()
            directory_file.unlink(missing_ok=True)

    async def _wait_with_progress(self, process: ChildProcessHandle, seconds: float) -> int | None:
        """Return the exit status, or None if the command timed out."""
        try:
            async with asyncio.TaskGroup() as tasks:
                progress_task = tasks.create_task(self._report_progress())
                result = await self._wait_until_timeout(process, seconds)
                progress_task.cancel()
        except BaseException:
            # Usually a cancellation. A second one turns this stop into a KILL.
            with contextlib.suppress(ProcessError):
                await process.stop(grace=_GRACE)
            raise
        if isinstance(result, ProcessError):
            raise result
        return result

    async def _wait_until_timeout(
        self, process: ChildProcessHandle, seconds: float
    ) -> int | ProcessError | None:
        """Return a `ProcessError` instead of raising it: a task group would wrap it in an exception group."""
        try:
            async with self._context.clock.deadline(seconds):
                return await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessError):
                await process.stop(grace=_GRACE)
            return None
        except ProcessError as error:
            return error

    async def _report_progress(self) -> None:
        while True:
            await self._output.has_new_data.wait()
            self._output.has_new_data.clear()
            await self._context.report_progress(self._output.get_last_line())
            await self._context.clock.sleep(_PROGRESS_INTERVAL)

    def _build_tool_output(self, status: int | None) -> ToolOutput:
        self._output.add_bytes(b"", final=True)
        if status:
            self._notes.append(_describe_exit_status(status))
        text = self._output.text.strip("\n") or "(no output)"
        if self._launcher.is_sandboxed(self._context):
            # Git continues without the entry, and may even say that it was set.
            if _GIT_CONFIG_ERROR.search(text):
                self._notes.append(format_tool_text("Bash", "git_config_hint"))
            elif status and any(mark in text for mark in _SANDBOX_ERRORS):
                self._notes.append(format_tool_text("Bash", "sandbox_hint"))
        notes = [f"[{note}]" for note in self._notes if note]
        return ToolOutput(
            content="\n".join([text, *notes]),
            is_error=status != 0,
            data={
                "exit_code": status,
                "timed_out": status is None,
                "cwd": escape_filename(self._context.workspace.cwd),
                "output_file": None if self._output.file is None else str(self._output.file),
                "notes": notes,
            },
        )


def _build_bash_output_tool(shells: BackgroundShellSupervisor) -> Tool:
    @builtin_tool(name="BashOutput", reads_only=True, deadline=10)
    async def bash_output(
        bash_id: str,
        context: ToolContext,
        filter: str | None = None,  # noqa: A002 - the name models know
    ) -> ToolOutput:
        shell = shells.find_shell(bash_id)
        if shell is None:
            return create_tool_error_output(_describe_unknown_shell_id(bash_id, shells))
        if filter is None:
            new_output = shell.read_new_output()
        else:
            new_output = await shell.filter_new_output(
                lambda text: filter_lines_by_regex(text, filter, context)
            )
        shells.mark_shell_end_seen(shell, context)
        return ToolOutput(
            content=f"{new_output.strip(chr(10)) or '(nothing new)'}\n[{_describe_shell_state(shell)}]",
            data={"status": shell.status, "exit_code": shell.exit_code},
        )

    return bash_output


def _build_kill_shell_tool(shells: BackgroundShellSupervisor) -> Tool:
    @builtin_tool(name="KillShell", deadline=10)
    async def kill_shell(shell_id: str, context: ToolContext) -> ToolOutput:
        shell = shells.find_shell(shell_id)
        if shell is None:
            return create_tool_error_output(_describe_unknown_shell_id(shell_id, shells))
        if shell.status != "running":
            return create_tool_error_output(
                format_tool_text("KillShell", "not_running", state=_describe_shell_state(shell))
            )
        await shell.stop(format_end_reason("stopped_by", name=context.agent.name), by=context.agent.agent)
        return ToolOutput(content=_describe_shell_state(shell))

    return kill_shell


def _leave_deleted_directory(context: ToolContext) -> str:
    """Move to the project root if the working directory was deleted; return a note about it."""
    deleted = context.workspace.cwd
    if deleted.is_dir():
        return ""
    context.workspace.change_directory(context.workspace.root)
    cwd = escape_filename(context.workspace.cwd)
    return format_tool_text("Bash", "deleted_directory", deleted=escape_filename(deleted), cwd=cwd)


def _format_background_shell_start(shell: BackgroundShellProcess) -> ToolOutput:
    location = (
        escape_filename(shell.output_file)
        if shell.output_file
        else f"nowhere ({shell.output.describe_output_location()})"
    )
    return ToolOutput(
        content=format_tool_text("Bash", "in_background", id=shell.id, location=location),
        data={"shell_id": shell.id, "output_file": str(shell.output_file) if shell.output_file else None},
    )


def _describe_shell_state(shell: BackgroundShellProcess) -> str:
    if shell.status == "running":
        return format_tool_text("BashOutput", "running", id=shell.id)
    if shell.status == "lost":
        return format_tool_text("BashOutput", "lost", id=shell.id, error=shell.error_text)
    if shell.status == "stopped":
        return format_tool_text("BashOutput", "stopped", id=shell.id, error=shell.error_text).rstrip()
    return format_tool_text(
        "BashOutput", "ended", id=shell.id, status=_describe_exit_status(shell.exit_code or 0)
    )


def _describe_exit_status(status: int) -> str:
    if status >= 0:
        return f"Exit code {status}."
    try:
        return f"Killed by signal {signal.Signals(-status).name}."
    except ValueError:
        return f"Killed by signal {-status}."


def _describe_unknown_shell_id(shell_id: str, shells: BackgroundShellSupervisor) -> str:
    listing = ", ".join(f"{shell.id} ({shell.status})" for shell in shells.list_shells())
    if not listing:
        return format_tool_text("BashOutput", "no_shells", id=repr(shell_id))
    return format_tool_text("BashOutput", "unknown_shell", id=repr(shell_id), listing=listing)
