"""What people and programs say to an agent while it works."""

from __future__ import annotations

from collections import deque

from shoal.core.messages import ContentBlock, Text


class Steering:
    """Filled by surfaces, emptied by the loop at each tool-round boundary."""

    def __init__(self) -> None:
        self._waiting: deque[ContentBlock] = deque()

    def push(self, text: str) -> None:
        self._waiting.append(Text(text=text))

    def take(self) -> tuple[ContentBlock, ...]:
        if not self._waiting:
            return ()
        taken = tuple(self._waiting)
        self._waiting.clear()
        return taken
