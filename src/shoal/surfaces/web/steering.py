"""Routes that control a run: send a message, interrupt, stop, answer a question."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from shoal.app.outside.watching import Run
from shoal.app.session.helm import FarHelm
from shoal.core.ids import LEAD
from shoal.core.permissions import Mode
from shoal.core.questions import Answer, Approved, Denied
from shoal.stores.files.questions import Questions
from shoal.surfaces.web.replies import Refused, body_of, json_reply, raw_body, word_in
from shoal.surfaces.web.showing import Showing
from shoal.wire.control import (
    Background,
    Command,
    Interrupt,
    Send,
    SetPermissionMode,
    ShutDown,
    Stop,
    StopTask,
)
from shoal.wire.questions import fits, read_answer


class Words(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    to: str
    text: str


class Whom(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    agent: str


class NewMode(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    mode: Mode


class Steering:
    """Requests that are forwarded to a live run."""

    def __init__(self, showing: Showing) -> None:
        self._runs = showing.runs

    def _run(self, request: Request) -> Run:
        return self._runs.find(word_in(request, "session"))

    async def send(self, request: Request) -> Response:
        run, words = self._run(request), await body_of(request, Words)
        if not words.text.strip():
            raise Refused(400, "There is nothing to say.")
        return await _obeyed(run, Send(to=words.to, text=words.text))

    async def interrupt(self, request: Request) -> Response:
        run, agent = await self._whom(request)
        return await _obeyed(run, Interrupt(task_id="" if agent == LEAD else agent))

    async def stop(self, request: Request) -> Response:
        """Ask a teammate to shut down; end any other agent; stopping the lead ends the run."""
        run, agent = await self._whom(request)
        _, known = await self._runs.agent(run, agent)
        if agent == LEAD:
            return await _obeyed(run, Stop())
        return await _obeyed(run, ShutDown(name=known.name) if known.team else StopTask(task_id=agent))

    async def kill(self, request: Request) -> Response:
        run, agent = await self._whom(request)
        if agent == LEAD:
            raise Refused(400, "The lead is not killed: stop it, and the run ends.")
        return await _obeyed(run, StopTask(task_id=agent))

    async def background(self, request: Request) -> Response:
        run, agent = await self._whom(request)
        return await _obeyed(run, Background(task_id=agent))

    async def mode(self, request: Request) -> Response:
        run = self._run(request)
        return await _obeyed(run, SetPermissionMode(mode=(await body_of(request, NewMode)).mode))

    async def answer(self, request: Request) -> Response:
        run, ident = self._run(request), word_in(request, "question")
        answer = _by_person(await raw_body(request))
        question = Questions(run.directory / "questions").get(ident)
        if question is None:
            raise Refused(404, "There is no such question: it was withdrawn.")
        if not fits(answer, question):
            raise Refused(400, "This is no answer to that question.")
        if not run.is_live:
            raise Refused(409, "The run that asked this has ended, so nobody would hear the answer.")
        return json_reply({"stands": FarHelm(run).answer(ident, answer)})

    async def _whom(self, request: Request) -> tuple[Run, str]:
        run, whom = self._run(request), await body_of(request, Whom)
        agent, _ = await self._runs.agent(run, whom.agent)
        return run, agent


def _by_person(raw: bytes) -> Answer:
    """Decode the answer and mark it as given by a person, whatever the page says."""
    try:
        answer = read_answer(raw)
    except (ValueError, msgspec.DecodeError) as error:
        raise Refused(400, f"The answer cannot be understood: {error}.") from error
    return replace(answer, by="person") if isinstance(answer, Denied | Approved) else answer


async def _obeyed(run: Run, command: Command) -> Response:
    told: Any = await FarHelm(run).demand(command)
    return json_reply({"ok": True, **(told if isinstance(told, dict) else {})})
