"""The commands in the background that an earlier process of a session left, read from its journal."""

from __future__ import annotations

from collections.abc import Iterator

from shoal.core.events import Journaled, ShellEnded, ShellStarted
from shoal.core.ids import Ids
from shoal.core.shells import ShellEnd, ShellFacts

PROCESS_ENDED = "the process of the session ended, and the command with it"


class LeftShells:
    def __init__(self) -> None:
        self.last = 0
        """The highest number in a shell's name."""
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
        """Those of whose end the journal does not know."""
        for facts in self._running.values():
            end = ShellEnd(facts=facts, status="killed", detail=PROCESS_ENDED)
            yield ShellEnded(agent=facts.agent, id=ids.short(), end=end)
