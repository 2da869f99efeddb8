"""The lead's words as they come, and lines about others, which wait until a word or a question is out."""

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
    """`silent` are the lead's tools whose calls are told by what comes of them."""

    def __init__(self, screen: Screen, standings: Standings, *, silent: frozenset[str]) -> None:
        self._screen = screen
        self._telling = Telling(screen, standings=standings)
        self._silent = silent
        self._noted: set[str] = set()
        self._speaking = self._spoken = self._asking = False
        """Whether the lead is in the middle of its words, or spoke last: then a line is left free."""
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
        """A line, in parts with their styles."""
        self._held.append(parts)
        self._write()

    def part(self) -> None:
        """Leave a line free before the next one."""
        self._spoken = True

    @contextmanager
    def question(self) -> Iterator[None]:
        """Nothing else is written while a question is put and answered."""
        self._asking = True
        self._screen.fresh_line()
        self._screen.write("\n")
        try:
            yield
        finally:
            self._asking, self._spoken = False, True
            self._write()

    def _is_news(self, text: str) -> bool:
        # Each agent's own sandbox says the same of this machine, for reasons of its own place.
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
