"""Controllers through which a surface controls a run, in its own process or in another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from shoal.app.run_access.pending_questions import create_run_ended_error
from shoal.app.run_access.run_handle import RunHandle, send_control_command
from shoal.app.run_access.stored_runs import open_session_run
from shoal.app.session.control_handler import handle_control_command
from shoal.core.permissions.questions import Answer
from shoal.wire.control_codec import RunControlCommand

if TYPE_CHECKING:
    from shoal.app.session.session import Session


class RunController(Protocol):
    @property
    def run(self) -> RunHandle: ...

    async def send_command(self, command: RunControlCommand) -> Any:
        """Return the answer of the run. Raises `ShoalError` if it is not live or refuses."""
        ...

    def answer_question(self, question: str, answer: Answer) -> bool:
        """Answer a question; False if another answer came first or the question was withdrawn."""
        ...


class LocalRunController:
    """Controller of a session in this process."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.run = open_session_run(session.config.store, session.id, session.config.settings.home)

    async def send_command(self, command: RunControlCommand) -> Any:
        return await handle_control_command(self._session, command)

    def answer_question(self, question: str, answer: Answer) -> bool:
        return self._session.runtime.question_broker.submit_answer(question, answer)


class RemoteRunController:
    """Controller of a run in any process, through its control socket and files."""

    def __init__(self, run: RunHandle) -> None:
        self.run = run

    async def send_command(self, command: RunControlCommand) -> Any:
        return await send_control_command(self.run, command)

    def answer_question(self, question: str, answer: Answer) -> bool:
        """Answer a question. Raises `StateFileError` if the run has ended and nobody would read it."""
        if not self.run.is_live:
            raise create_run_ended_error(self.run.session, self.run.directory)
        is_first = self.run.open_questions().answer(question, answer)
        self.run.refresh()
        return is_first
