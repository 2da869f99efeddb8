"""Questions for a person that a teammate's process sends over its channel: both ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from shoal.core.questions import Answer, Question
from shoal.team.footing import Footing
from shoal.wire import outpost as words


class QuestionWindow:
    """The lead's end: passes questions of the process to the lead's question broker."""

    def __init__(self, on: Footing, send: Callable[[words.Down], None]) -> None:
        self._on = on
        self._send = send
        self._asking: dict[str, asyncio.Task[None]] = {}

    def serve(self, said: words.Asks | words.Unasks, tasks: asyncio.TaskGroup) -> None:
        if isinstance(said, words.Unasks):
            self._withdraw(said.question)
        else:
            self._asking[said.question.id] = tasks.create_task(self._asked(said.question))

    def _withdraw(self, question: str) -> None:
        if (asking := self._asking.pop(question, None)) is not None:
            asking.cancel()

    def close(self) -> None:
        for question in list(self._asking):
            self._withdraw(question)

    async def _asked(self, question: Question) -> None:
        answer = await self._on.ask(question)
        self._asking.pop(question.id, None)
        self._send(words.Answers(question=question.id, answer=answer))


class LineDesk:
    """The teammate's end: sends questions to the lead and waits for the answers."""

    def __init__(self, send: Callable[[words.Up], None]) -> None:
        self._send = send
        self._open: dict[str, asyncio.Future[Answer]] = {}

    async def ask(self, question: Question) -> Answer:
        answer = self._open[question.id] = asyncio.get_running_loop().create_future()
        self._send(words.Asks(question=question))
        try:
            got: Answer = await answer
        except asyncio.CancelledError:
            self._send(words.Unasks(question=question.id))
            raise
        finally:
            del self._open[question.id]
        return got

    def answered(self, said: words.Answers) -> None:
        waiting = self._open.get(said.question)
        if waiting is not None and not waiting.done():
            waiting.set_result(said.answer)
