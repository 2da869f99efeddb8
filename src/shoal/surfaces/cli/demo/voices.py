"""Narration of a demo: the lead's streamed text, and lines that wait until text or a question is complete."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from shoal.app.picture.standing import Standings
from shoal.core.events import (
    AssistantSaid,
    Event,
    Finished,
    Heard,
    Noted,
    RequestFailed,
    ToolFinished,
    ToolReturned,
    ToolStarted,
)
from shoal.core.wording import one_line
from shoal.surfaces.cli.plain.telling import Telling
from shoal.surfaces.terminal.paint import RED
from shoal.surfaces.terminal.screen import Screen


class Voices:
    """Writes the lead's events and other lines; calls of `silent_tools` are shown only by their effects."""

    def __init__(self, screen: Screen, standings: Standings, *, silent: frozenset[str]) -> None:
        self._screen = screen
        self._telling = Telling(screen, standings=standings)
        self._silent = silent
        self._noted: set[str] = set()
        self._speaking = self._spoken = self._asking = False
        """True while the lead's text streams; if it was written last (a blank line follows); while asking."""
        self._held: list[tuple[tuple[str, str], ...]] = []

    def hear_lead(self, event: Event) -> None:
        match event:
            case ToolFinished(tool=tool, is_error=True, preview=preview) if tool in self._silent:
                self.add(("✗ ", RED), (f"{tool}: {one_line(preview)}", RED))
                return
            case ToolStarted(tool=tool) | ToolReturned(tool=tool) | ToolFinished(tool=tool):
                if tool in self._silent:
                    return
                self._spoken = self._spoken and not isinstance(event, ToolStarted)
            case Noted(text=text) if not self._is_news(text):
                return
            case Heard(kind="text"):
                self._speaking = self._spoken = True
            case AssistantSaid() | RequestFailed() | Finished():
                self._speaking = False
            case _:
                pass
        self._telling.hear(event)
        self._write()

    def add(self, *parts: tuple[str, str]) -> None:
        """Add a line, given as parts with their styles."""
        self._held.append(parts)
        self._write()

    def part(self) -> None:
        """Leave a blank line before the next line."""
        self._spoken = True

    @contextmanager
    def question(self) -> Iterator[None]:
        """Hold back all other lines while a question is shown and answered."""
        self._asking = True
        self._screen.fresh_line()
        self._screen.write("\n")
        try:
            yield
        finally:
            self._asking, self._spoken = False, True
            self._write()

    def _is_news(self, text: str) -> bool:
        # Each agent's sandbox reports the same about this machine, with a reason for its own directory.
        subject = text.partition(":")[0]
        known = subject in self._noted
        self._noted.add(subject)
        return not known

    def _write(self) -> None:
        while self._held and not self._speaking and not self._asking:
            parts = self._held.pop(0)
            with self._telling.aside():
                self._screen.write("\n" if self._spoken else "")
                self._spoken = False
                for text, style in (*parts, ("\n", "")):
                    self._screen.write(text, style)
