"""Questions of a workflow at the terminal that runs it. An answer from elsewhere counts too."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, TextIO

from shoal.core.ids import LEAD_ID
from shoal.core.permissions.questions import Answer, DenyAnswer, Question
from shoal.core.task_groups import open_task_group, race_coroutines
from shoal.surfaces.cli.plain.question_dialog import TerminalQuestionDialog
from shoal.surfaces.terminal.screen import open_terminal_screen
from shoal.surfaces.terminal.text_styles import DIM

if TYPE_CHECKING:
    from shoal.app.session.session import Session

_READ_SIZE = 65_536


def can_ask_at_terminal() -> bool:
    """Return True if a person can read a question and type an answer."""
    return sys.stdin.isatty() and sys.stderr.isatty()


class TerminalQuestionPrompt:
    """Asks one question at a time. The first answer counts, also one from `shoal ask` or the web view."""

    def __init__(self) -> None:
        self._screen = open_terminal_screen(sys.stderr)
        self._lines = TypedLines(sys.stdin)
        self._one_at_a_time = asyncio.Lock()

    async def ask(self, session: Session, question: Question) -> Answer | None:
        """Return the typed answer; None if the question was answered elsewhere."""
        async with self._one_at_a_time:
            if all(each.id != question.id for each in session.questions.list_open_questions()):
                return None
            answer: Answer | None = None

            async def read_answer() -> None:
                nonlocal answer
                answer = await self._read_answer(question, session)

            async with open_task_group() as tasks:
                await race_coroutines(tasks, read_answer(), _wait_for_answer(session, question))
            if answer is None:
                self._screen.end_line()
                self._screen.write("  The question was answered elsewhere.\n", DIM)
            return answer

    async def _read_answer(self, question: Question, session: Session) -> Answer:
        asker = "" if question.agent == LEAD_ID else _describe_agent(session, question.agent)
        dialog = TerminalQuestionDialog(question, asker)
        self._lines.discard_typed()
        while True:
            dialog.show(self._screen)
            self._screen.write(f"{dialog.prompt_label} ")
            line = await self._lines.read_line()
            if line is None:
                session.questions.mark_unattended()
                return DenyAnswer(reason="The user closed the input.", by="policy")
            if (answer := dialog.parse_answer_line(line)) is not None:
                return answer


class TypedLines:
    """Lines of a terminal, read without blocking."""

    def __init__(self, stream: TextIO) -> None:
        self._fd = stream.fileno()
        self._is_closed = False

    def discard_typed(self) -> None:
        """Discard what was typed before a question was shown: it was no answer."""
        import termios

        termios.tcflush(self._fd, termios.TCIFLUSH)

    async def read_line(self) -> str | None:
        """Return the next line; None at the end of the input."""
        if self._is_closed:
            return None
        loop = asyncio.get_running_loop()
        received: asyncio.Future[bytes] = loop.create_future()

        def read_available() -> None:
            if not received.done():
                received.set_result(os.read(self._fd, _READ_SIZE))

        loop.add_reader(self._fd, read_available)
        try:
            data = await received
        finally:
            loop.remove_reader(self._fd)
        self._is_closed = not data
        return data.decode(errors="replace") if data else None


async def _wait_for_answer(session: Session, question: Question) -> None:
    await session.questions.wait_for_answer(question.id)


def _describe_agent(session: Session, agent: str) -> str:
    found = next((each for each in session.list_subagents() if each.agent == agent), None)
    return agent if found is None else found.name or found.kind
