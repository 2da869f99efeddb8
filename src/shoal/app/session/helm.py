"""The helm of a run: how a surface steers it, from the process of the run or from any other."""

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
        """What the run answers. Raises a `ShoalError` where it is not live, or refuses."""
        ...

    def answer(self, question: str, answer: Answer) -> bool:
        """Whether the answer stands; False where another came first, or the question was withdrawn."""
        ...


class OwnHelm:
    """Of a session in this process."""

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
    """Of a run in any process, through its door."""

    def __init__(self, run: Run) -> None:
        self.run = run

    async def demand(self, command: Command) -> Any:
        return await demand(self.run, command)

    def answer(self, question: str, answer: Answer) -> bool:
        """Raises a `StoreError` where the run has ended, because nobody would hear the answer."""
        if not self.run.is_live:
            raise nobody_hears(self.run.session, self.run.directory)
        return Questions(self.run.directory / "questions").answer(question, answer)
