"""Input of a diagnosis: the directory, the run and the subject."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from shoal.app.outside.watching import Run
from shoal.app.quarters.machine import Fact, State
from shoal.core.errors import NoSuchSession
from shoal.core.events import Event
from shoal.stores.files.journal import read_journal


class Case(Struct, frozen=True, kw_only=True):
    cwd: Path
    home: Path
    environ: Mapping[str, str]
    symptom: str
    run: Run | None = None
    about: str = ""
    """Name of an agent, a recipient, a tool or a command."""

    def fact(self, name: str, value: str, *, state: State = "ok", advice: str = "") -> Fact:
        return Fact(area=self.symptom, name=name, state=state, value=value, advice=advice)

    @property
    def of_run(self) -> Run:
        if self.run is None:
            raise NoSuchSession(
                f"There is no session in {self.cwd} to look into. "
                f"Name one: shoal doctor {self.symptom} --session ID",
                path=self.home,
            )
        return self.run

    @property
    def short(self) -> str:
        """Start of the session id, for use on the command line."""
        return self.of_run.session[:8]

    def events(self) -> Iterator[tuple[int, Event]]:
        for recorded in read_journal(self.of_run.journal):
            if isinstance(recorded.event, Event):
                yield recorded.at, recorded.event

    def concerns(self, *names: str) -> bool:
        """Return True if one of the names is the subject, or if there is no subject."""
        return not self.about or self.about in names
