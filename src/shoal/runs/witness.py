"""What the runtime sees of an agent at work: evidence for its report, and lines for its output file."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from shoal.core.agents import Evidence, Ran
from shoal.core.events import Event, MessageAdded, RequestSettled, ToolFinished, ToolReturned, ToolStarted
from shoal.core.usage import Usage

Tell: TypeAlias = Callable[[Event], Awaitable[None]]
_COMMANDS = 20
_FILES = 200


class Witness:
    """Stands between an agent and those who hear of it. Its output file can be read while it grows."""

    __slots__ = (
        "_calls",
        "_commands",
        "_commits",
        "_failed",
        "_fd",
        "_files",
        "_previews",
        "_tell",
        "before_shell",
        "doing",
        "output",
        "progress",
        "requests",
        "usage",
        "used_shell",
    )

    def __init__(self, output: Path, tell: Tell) -> None:
        self.output = output
        self.usage = Usage()
        self.requests = 0
        self.doing = ""
        self.progress: Callable[[str], Awaitable[None]] | None = None
        """Told what it is doing while somebody waits for it."""
        self.used_shell = False
        self.before_shell: Callable[[], None] | None = None
        """Called before the agent's first shell command."""
        self._tell = tell
        self._fd: int | None = None
        self._calls = self._failed = 0
        self._files: dict[str, None] = {}
        self._commits: tuple[str, ...] = ()
        self._commands: deque[Ran] | None = None
        self._previews: dict[str, str] = {}

    @property
    def tool_calls(self) -> int:
        return self._calls

    async def tell(self, event: Event) -> None:
        match event:
            case MessageAdded(by="model", message=message):
                if message.text:
                    self.write(f"{message.text}\n")
            case ToolStarted(tool=tool, preview=preview, call=call):
                self.doing = f"{tool} {preview}".rstrip()
                self.write(f"· {self.doing}\n")
                if tool == "Bash":
                    self._begin_command(call, preview)
                if self.progress is not None:
                    await self.progress(self.doing)
            case ToolReturned(tool="Bash", call=call, data=data):
                self._ran(self._previews.pop(call, ""), data)
            case ToolFinished(is_error=is_error):
                self._calls += 1
                self._failed += is_error
            case RequestSettled(usage=usage):
                self.usage = self.usage + usage
                self.requests += 1
            case _:
                pass
        await self._tell(event)

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
        """Add to the output file. It is a view: one that cannot be written must not stop the work."""
        with suppress(OSError):
            if self._fd is None:
                self._fd = _opened(self.output)
            os.write(self._fd, text.encode("utf-8", "replace"))

    def close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            with suppress(OSError):
                os.close(fd)

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


def _opened(path: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(path, flags, 0o600)
