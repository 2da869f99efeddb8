"""Progress monitor of a running agent: evidence for its report, and lines for its output file."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from shoal.core.agents import Evidence, Ran
from shoal.core.events import Event, MessageAdded, RequestSettled, ToolFinished, ToolReturned, ToolStarted
from shoal.core.usage import Usage

Tell: TypeAlias = Callable[[Event], Awaitable[None]]
Progress: TypeAlias = Callable[[str], Awaitable[None]]
_HELD = 0.25
"""Seconds by which the first lines of an agent that somebody waits for are delayed."""
_COMMANDS = 20
_FILES = 200


class Witness:
    """Observes an agent's events and forwards them. Its output file can be read while it grows.

    The file of an agent that somebody waits for is written with a delay: many end before anybody could look.
    """

    __slots__ = (
        "_calls",
        "_commands",
        "_commits",
        "_due",
        "_failed",
        "_files",
        "_kept",
        "_previews",
        "_progress",
        "_tell",
        "_unwritten",
        "_written",
        "before_shell",
        "doing",
        "output",
        "requests",
        "usage",
        "used_shell",
    )

    def __init__(self, output: Path, tell: Tell, *, kept: bool = True) -> None:
        """With `is_kept` the file outlives the session, so it is written however short the run is."""
        self.output = output
        self.usage = Usage()
        self.requests = 0
        self.doing = ""
        self.used_shell = False
        self.before_shell: Callable[[], None] | None = None
        """Callback before the agent's first shell command."""
        self._tell = tell
        self._kept = kept
        self._progress: Progress | None = None
        self._unwritten: list[str] = []
        self._written = False
        self._due: asyncio.Handle | None = None
        self._calls = self._failed = 0
        self._files: dict[str, None] = {}
        self._commits: tuple[str, ...] = ()
        self._commands: deque[Ran] | None = None
        self._previews: dict[str, str] = {}

    @property
    def tool_calls(self) -> int:
        return self._calls

    def tell(self, event: Event) -> Awaitable[None]:
        # Most of the many events are irrelevant here: they get no extra coroutine.
        see = _SEEN.get(type(event))
        if see is not None:
            see(self, event)
            if self._progress is not None and isinstance(event, ToolStarted):
                return self._progressed(self._progress, event)
        return self._tell(event)

    def wait_for(self, progress: Progress) -> None:
        """Report the agent's activity to a caller that waits for it from now on."""
        self._progress = progress

    def let_go(self) -> None:
        """Stop reporting, because nobody waits for the agent any longer; write the file instead."""
        self._progress = None
        self.flush()

    def count(self, event: Event) -> None:
        """Count an event of an agent in another process, which writes the output file itself."""
        if isinstance(event, (ToolFinished, RequestSettled)):
            _SEEN[type(event)](self, event)

    async def _progressed(self, progress: Progress, event: ToolStarted) -> None:
        await progress(self.doing)
        await self._tell(event)

    def _said(self, event: MessageAdded) -> None:
        if event.by == "model" and (text := event.message.text):
            self.write(f"{text}\n")

    def _began(self, event: ToolStarted) -> None:
        self.doing = f"{event.tool} {event.preview}".rstrip()
        self.write(f"· {self.doing}\n")
        if event.tool == "Bash":
            self._begin_command(event.call, event.preview)

    def _returned(self, event: ToolReturned) -> None:
        if event.tool == "Bash":
            self._ran(self._previews.pop(event.call, ""), event.data)

    def _finished(self, event: ToolFinished) -> None:
        self._calls += 1
        self._failed += event.is_error

    def _settled(self, event: RequestSettled) -> None:
        self.usage = self.usage + event.usage
        self.requests += 1

    def changed(self, path: str) -> None:
        if len(self._files) < _FILES:
            self._files[path] = None

    def committed(self, commits: tuple[str, ...]) -> None:
        self._commits = commits

    def evidence(self, acceptance: Ran | None = None) -> Evidence:
        return Evidence(
            tool_calls=self._calls,
            failed_calls=self._failed,
            files=tuple(self._files),
            commits=self._commits,
            commands=tuple(self._commands or ()),
            acceptance=acceptance,
        )

    def write(self, text: str) -> None:
        """Add text to the output file; writes are batched."""
        if not self._unwritten:
            loop = asyncio.get_running_loop()
            held = self._progress is not None and not self._written
            self._due = loop.call_later(_HELD, self.flush) if held else loop.call_soon(self.flush)
        self._unwritten.append(text)

    def flush(self) -> None:
        """Write the pending text. The file is only a view: a failed write must not stop the work."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if not self._unwritten:
            return
        text = "".join(self._unwritten)
        self._unwritten.clear()
        with suppress(OSError):
            _append(self.output, text.encode("utf-8", "replace"))
            self._written = True

    def conclude(self, text: str, *, looked_for: bool) -> str:
        """Write the final text; return the path, or an empty string if no file was needed."""
        self.write(text)
        if looked_for or self._kept or self._written:
            self.flush()
            return str(self.output)
        self._unwritten.clear()
        self.flush()
        return ""

    def _begin_command(self, call: str, preview: str) -> None:
        self._previews[call] = preview
        if self.before_shell is not None:
            first, self.before_shell = self.before_shell, None
            first()

    def _ran(self, command: str, data: object) -> None:
        self.used_shell = True
        if isinstance(data, dict) and "exit_code" in data:
            self._commands = self._commands if self._commands is not None else deque(maxlen=_COMMANDS)
            self._commands.append(Ran(command=command, exit_code=data["exit_code"]))


_SEEN: dict[type[Event], Callable[[Witness, Any], None]] = {
    MessageAdded: Witness._said,
    ToolStarted: Witness._began,
    ToolReturned: Witness._returned,
    ToolFinished: Witness._finished,
    RequestSettled: Witness._settled,
}


def _append(path: Path, data: bytes) -> None:
    # Not kept open: a thousand running agents would need as many open files.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    try:
        fd = os.open(path, flags, 0o600)
    except FileNotFoundError:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(path, flags, 0o600)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)
