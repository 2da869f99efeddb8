"""Recovers from the journal the background commands of an earlier process."""

from __future__ import annotations

from collections.abc import Iterator

from shoal.core.background_shells import BackgroundShell, BackgroundShellResult
from shoal.core.events import BackgroundShellEnded, BackgroundShellStarted, JournaledEvent
from shoal.core.ids import IdGenerator

PROCESS_ENDED = "the process of the session ended, and the command with it"


class BackgroundShellRecovery:
    def __init__(self) -> None:
        self.last_number = 0
        """Highest number in a shell name."""
        self.end_events: dict[str, BackgroundShellEnded] = {}
        self._running: dict[str, BackgroundShell] = {}

    def apply_event(self, event: JournaledEvent) -> None:
        match event:
            case BackgroundShellStarted(facts=facts):
                self._running[facts.shell] = facts
                number = facts.shell.rpartition("_")[2]
                self.last_number = max(self.last_number, int(number) if number.isdecimal() else 0)
            case BackgroundShellEnded(id=item_id, end=end):
                self._running.pop(end.facts.shell, None)
                self.end_events[item_id] = event
            case _:
                pass

    def build_missing_shell_end_events(self, ids: IdGenerator) -> Iterator[BackgroundShellEnded]:
        """Yield end events for commands without an end in the journal."""
        for facts in self._running.values():
            end = BackgroundShellResult(facts=facts, status="killed", detail=PROCESS_ENDED)
            yield BackgroundShellEnded(agent=facts.agent, id=ids.new_short_id(), end=end)
