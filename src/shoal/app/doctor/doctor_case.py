"""Input of a diagnosis: the directory, the run and the subject."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from shoal.app.isolation.machine_checks import DiagnosticState, DoctorDiagnostic
from shoal.app.run_access.event_index import read_events_of_kinds
from shoal.app.run_access.run_handle import RunHandle
from shoal.core.errors import SessionNotFound
from shoal.core.events import Event


class DoctorContext(Struct, frozen=True, kw_only=True):
    cwd: Path
    home: Path
    environ: Mapping[str, str]
    symptom: str
    run: RunHandle | None = None
    about: str = ""
    """Name of an agent, a recipient, a tool or a command."""

    def make_diagnostic(
        self, name: str, value: str, *, state: DiagnosticState = "ok", advice: str = ""
    ) -> DoctorDiagnostic:
        return DoctorDiagnostic(area=self.symptom, name=name, state=state, value=value, advice=advice)

    @property
    def required_run(self) -> RunHandle:
        if self.run is None:
            raise SessionNotFound(
                f"There is no session in {self.cwd} to examine. Specify a session: shoal doctor "
                f"{self.symptom} --session ID",
                path=self.home,
            )
        return self.run

    @property
    def short_session_id(self) -> str:
        """Start of the session id, for use on the command line."""
        return self.required_run.session[:8]

    def iter_run_events(self, *kinds: type[Event]) -> Iterator[tuple[int, Event]]:
        return read_events_of_kinds(self.required_run, *kinds)

    def is_about_subject(self, *names: str) -> bool:
        """Return True if one of the names is the subject, or if there is no subject."""
        return not self.about or self.about in names
