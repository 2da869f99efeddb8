"""Controllers through which a surface controls a run, in its own process or in another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from shoal.app.outside.questions import nobody_hears
from shoal.app.outside.watching import Run, demand
from shoal.app.session.obeying import obey
from shoal.core.questions import Answer
from shoal.stores.files.questions import Questions
from shoal.wire.control import Command

if TYPE_CHECKING:
    from shoal.app.session.session import Session


class Helm(Protocol):
    @property
    def run(self) -> Run: ...

    async def demand(self, command: Command) -> Any:
        """Return the answer of the run. Raises `ShoalError` if it is not live or refuses."""
        ...

    def answer(self, question: str, answer: Answer) -> bool:
        """Answer a question; False if another answer came first or the question was withdrawn."""
        ...


class OwnHelm:
    """Controller of a session in this process."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def run(self) -> Run:
        return Run(session=self._session.id, home=self._session.parts.settings.home)

    async def demand(self, command: Command) -> Any:
        return await obey(self._session, command)

    def answer(self, question: str, answer: Answer) -> bool:
        return self._session.parts.desk.answer(question, answer)


class FarHelm:
    """Controller of a run in any process, through its control socket and files."""

    def __init__(self, run: Run) -> None:
        self.run = run

    async def demand(self, command: Command) -> Any:
        return await demand(self.run, command)

    def answer(self, question: str, answer: Answer) -> bool:
        """Answer a question. Raises `StoreError` if the run has ended and nobody would read it."""
        if not self.run.is_live:
            raise nobody_hears(self.run.session, self.run.directory)
        return Questions(self.run.directory / "questions").answer(question, answer)
