"""A live screen in the process of a test, and what its terminal shows."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import struct
import termios
from types import TracebackType

from cli_live.pty_terminal import EmulatedScreen
from shoal.surfaces.terminal.screen import LiveTerminalScreen


class ScreenStream(io.StringIO):
    """A stream to a terminal of a size, whose output is interpreted at once."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.emulated = EmulatedScreen(columns)
        self.raw = ""
        self._leader, self._follower = pty.openpty()
        self.resize(columns)

    def resize(self, columns: int) -> None:
        self.emulated.columns = columns or 80
        fcntl.ioctl(self._follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def write(self, text: str) -> int:
        self.raw += text
        self.emulated.feed_output(text.replace("\n", "\r\n"))
        return len(text)

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._follower

    def close(self) -> None:
        if not self.closed:
            os.close(self._leader)
            os.close(self._follower)
        super().close()


class ShownScreen:
    """A live screen with the rows that a person sees."""

    def __init__(self, columns: int) -> None:
        self.stream = ScreenStream(columns)
        self.screen = LiveTerminalScreen(self.stream)

    def __enter__(self) -> ShownScreen:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stream.close()

    @property
    def lines(self) -> list[str]:
        return self.stream.emulated.lines

    @property
    def cursor(self) -> tuple[int, int]:
        return self.stream.emulated.row, self.stream.emulated.column
