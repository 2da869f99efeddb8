"""Progress monitor of a running agent: evidence for its report, and lines for its output file."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from shoal.core.agents.subagents import AgentWorkEvidence, ShellCommandResult
from shoal.core.budgets.usage import Usage
from shoal.core.events import (
    Event,
    MessageAdded,
    ModelRequestSettled,
    ToolFinished,
    ToolOutputReturned,
    ToolStarted,
)

EmitEvent: TypeAlias = Callable[[Event], Awaitable[None]]
ReportProgress: TypeAlias = Callable[[str], Awaitable[None]]
_FIRST_WRITE_DELAY = 0.25
"""Seconds by which the first lines of a foreground agent are delayed."""
_MAX_COMMANDS = 20
_MAX_FILES = 200


class ProgressMonitor:
    """Observes an agent's events and forwards them. Its output file can be read while it grows.

    The file of an agent that somebody waits for is written with a delay: many end before anybody could look.
    """

    __slots__ = (
        "_calls",
        "_commands",
        "_commits",
        "_due",
        "_emit",
        "_failed",
        "_files",
        "_first_shell_listeners",
        "_is_kept",
        "_previews",
        "_progress",
        "_unwritten",
        "_written",
        "activity",
        "output",
        "requests",
        "usage",
        "used_shell",
    )

    def __init__(self, output: str, emit: EmitEvent, *, is_kept: bool = True) -> None:
        """With `is_kept` the file outlives the session, so it is written however short the run is."""
        self.output = output
        self.usage = Usage()
        self.requests = 0
        self.activity = ""
        self.used_shell = False
        self._first_shell_listeners: tuple[Callable[[], None], ...] = ()
        self._emit = emit
        self._is_kept = is_kept
        self._progress: ReportProgress | None = None
        self._unwritten: list[str] = []
        self._written = False
        self._due: asyncio.Handle | None = None
        self._calls = self._failed = 0
        self._files: dict[str, None] = {}
        self._commits: tuple[str, ...] = ()
        self._commands: deque[ShellCommandResult] | None = None
        self._previews: dict[str, str] = {}

    @property
    def tool_call_count(self) -> int:
        return self._calls

    def record_and_forward_event(self, event: Event) -> Awaitable[None]:
        # Most of the many events are irrelevant here: they get no extra coroutine.
        handler = _EVENT_HANDLERS.get(type(event))
        if handler is not None:
            handler(self, event)
            if self._progress is not None and type(event) is ToolStarted:
                return self._report_and_forward_event(self._progress, event)
        return self._emit(event)

    def attach_progress_callback(self, progress: ReportProgress) -> None:
        """Report the agent's activity to a caller that waits for it from now on."""
        self._progress = progress

    def detach_progress_callback(self) -> None:
        """Stop reporting, because nobody waits for the agent any longer; write the file instead."""
        self._progress = None
        self.flush_output()

    def subscribe_to_first_shell_command(self, listener: Callable[[], None]) -> None:
        """Call the listener once, before the agent's next shell command."""
        self._first_shell_listeners = (*self._first_shell_listeners, listener)

    def count_remote_event(self, event: Event) -> None:
        """Count an event of an agent in another process, which writes the output file itself."""
        if isinstance(event, (ToolFinished, ModelRequestSettled)):
            _EVENT_HANDLERS[type(event)](self, event)

    async def _report_and_forward_event(self, progress: ReportProgress, event: ToolStarted) -> None:
        await progress(self.activity)
        await self._emit(event)

    def _record_reply_text(self, event: MessageAdded) -> None:
        if event.by == "model" and (text := event.message.text):
            self.write_output(f"{text}\n")

    def _record_tool_start(self, event: ToolStarted) -> None:
        self.activity = f"{event.tool} {event.preview}".rstrip()
        self.write_output(f"· {self.activity}\n")
        if event.tool == "Bash":
            self._remember_started_shell_command(event.call, event.preview)

    def _record_shell_tool_return(self, event: ToolOutputReturned) -> None:
        if event.tool == "Bash":
            self._record_shell_command(self._previews.pop(event.call, ""), event.data)

    def _count_tool_call(self, event: ToolFinished) -> None:
        self._calls += 1
        self._failed += event.is_error

    def _count_model_request(self, event: ModelRequestSettled) -> None:
        self.usage = self.usage + event.usage
        self.requests += 1

    def add_changed_file(self, path: str) -> None:
        if len(self._files) < _MAX_FILES:
            self._files[path] = None

    def set_commits(self, commits: tuple[str, ...]) -> None:
        self._commits = commits

    def collect_evidence(self, acceptance: ShellCommandResult | None = None) -> AgentWorkEvidence:
        return AgentWorkEvidence(
            tool_calls=self._calls,
            failed_calls=self._failed,
            files=tuple(self._files),
            commits=self._commits,
            commands=tuple(self._commands or ()),
            acceptance=acceptance,
        )

    def write_output(self, text: str) -> None:
        """Add text to the output file; writes are batched."""
        if not self._unwritten:
            loop = asyncio.get_running_loop()
            is_delayed = self._progress is not None and not self._written
            self._due = (
                loop.call_later(_FIRST_WRITE_DELAY, self.flush_output)
                if is_delayed
                else loop.call_soon(self.flush_output)
            )
        self._unwritten.append(text)

    def flush_output(self) -> None:
        """Write the pending text. The file is only a view: a failed write must not stop the work."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if not self._unwritten:
            return
        text = "".join(self._unwritten)
        self._unwritten.clear()
        with suppress(OSError):
            _append_to_file(self.output, text.encode("utf-8", "replace"))
            self._written = True

    def finish_output(self, text: str, *, is_needed: bool) -> str:
        """Write the final text; return the path, or an empty string if no file was needed."""
        self.write_output(text)
        if is_needed or self._is_kept or self._written:
            self.flush_output()
            return self.output
        self._unwritten.clear()
        self.flush_output()
        return ""

    def _remember_started_shell_command(self, call: str, preview: str) -> None:
        self._previews[call] = preview
        listeners, self._first_shell_listeners = self._first_shell_listeners, ()
        for listener in listeners:
            listener()

    def _record_shell_command(self, command: str, data: object) -> None:
        self.used_shell = True
        if isinstance(data, dict) and "exit_code" in data:
            self._commands = self._commands if self._commands is not None else deque(maxlen=_MAX_COMMANDS)
            self._commands.append(ShellCommandResult(command=command, exit_code=data["exit_code"]))


_EVENT_HANDLERS: dict[type[Event], Callable[[ProgressMonitor, Any], None]] = {
    MessageAdded: ProgressMonitor._record_reply_text,
    ToolStarted: ProgressMonitor._record_tool_start,
    ToolOutputReturned: ProgressMonitor._record_shell_tool_return,
    ToolFinished: ProgressMonitor._count_tool_call,
    ModelRequestSettled: ProgressMonitor._count_model_request,
}


def _append_to_file(path: str, data: bytes) -> None:
    # Not kept open: a thousand running agents would need as many open files.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(path, flags, 0o600)
    except FileNotFoundError:
        Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(path, flags, 0o600)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)
