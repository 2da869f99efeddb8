"""Recovers from the journal the background commands of an earlier process."""

from __future__ import annotations

from collections.abc import Iterator

from shoal.core.events import Journaled, ShellEnded, ShellStarted
from shoal.core.ids import Ids
from shoal.core.shells import ShellEnd, ShellFacts

PROCESS_ENDED = "the process of the session ended, and the command with it"


class LeftShells:
    def __init__(self) -> None:
        self.last = 0
        """Highest number in a shell name."""
        self.ended: dict[str, ShellEnded] = {}
        self._running: dict[str, ShellFacts] = {}

    def take(self, event: Journaled) -> None:
        match event:
            case ShellStarted(facts=facts):
                self._running[facts.shell] = facts
                number = facts.shell.rpartition("_")[2]
                self.last = max(self.last, int(number) if number.isdecimal() else 0)
            case ShellEnded(id=identity, end=end):
                self._running.pop(end.facts.shell, None)
                self.ended[identity] = event
            case _:
                pass

    def cut_off(self, ids: Ids) -> Iterator[ShellEnded]:
        """Yield end events for commands without an end in the journal."""
        for facts in self._running.values():
            end = ShellEnd(facts=facts, status="killed", detail=PROCESS_ENDED)
            yield ShellEnded(agent=facts.agent, id=ids.short(), end=end)
