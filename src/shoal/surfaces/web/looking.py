"""Routes that read: runs, their frames, replays, transcripts, mail and questions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import Request
from starlette.responses import Response

from shoal.app.outside.following import Followed
from shoal.app.outside.watching import Run
from shoal.app.picture.mail_words import mail_words
from shoal.core.errors import ShoalError
from shoal.core.ids import AgentId
from shoal.core.names import agent_name, team_name
from shoal.surfaces.web.live import LiveAgent
from shoal.surfaces.web.replay import steps
from shoal.surfaces.web.replies import Refused, json_reply, number_in, word_in
from shoal.surfaces.web.showing import Showing
from shoal.surfaces.web.streams import EventStream, Programme, Source, event
from shoal.wire.content import dump

MOST_RUNS = 500
MOST_STEPS = 2_000
MOST_ENTRIES = 1_000


class Looking:
    def __init__(self, showing: Showing) -> None:
        self._showing = showing
        self._runs = showing.runs

    def _run(self, request: Request) -> Run:
        return self._runs.find(word_in(request, "session"))

    async def _agent(self, request: Request) -> tuple[Run, AgentId]:
        run = self._run(request)
        agent, _ = await self._runs.agent(run, word_in(request, "agent"))
        return run, agent

    async def runs(self, request: Request) -> Response:
        limit = number_in(request, "limit", 100, least=1, most=MOST_RUNS)
        return json_reply(await self._runs.listed(limit, request.query_params.get("before", "")))

    async def frames(self, request: Request) -> Response:
        since, run = _since(request), self._run(request)
        return EventStream(self._frames(run, since))

    @asynccontextmanager
    async def _frames(self, run: Run, since: int) -> AsyncIterator[Programme]:
        async with self._showing.follows.of(run) as shared:
            yield Programme((_frames(shared.followed, since),), (shared.broken, self._showing.stopping))

    async def replay(self, request: Request) -> Response:
        run, most = self._run(request), number_in(request, "frames", 400, least=1, most=MOST_STEPS)

        def told() -> bytes:
            return b'{"frames":[%b]}' % b",".join(map(dump, steps(run, most)))

        content = await asyncio.to_thread(told)
        return Response(content, 200, {"Cache-Control": "no-store"}, "application/json")

    async def transcript(self, request: Request) -> Response:
        run, agent = await self._agent(request)
        after = number_in(request, "after", 0, least=-1, most=1 << 40)
        limit = number_in(request, "limit", 200, least=1, most=MOST_ENTRIES)
        return json_reply(await self._showing.transcripts.page(run, agent, after, limit))

    async def entry(self, request: Request) -> Response:
        run, agent = await self._agent(request)
        return json_reply(await self._showing.transcripts.whole(run, agent, word_in(request, "n")))

    async def live(self, request: Request) -> Response:
        run, agent = await self._agent(request)
        return EventStream(self._live(run, agent))

    @asynccontextmanager
    async def _live(self, run: Run, agent: AgentId) -> AsyncIterator[Programme]:
        showing = self._showing
        async with showing.follows.of(run) as shared:
            telling = LiveAgent(run, agent, shared, showing.transcripts, showing.clock)
            yield Programme(telling.sources, (shared.broken, showing.stopping))

    async def letter(self, request: Request) -> Response:
        """Return the whole mail message from its recipient's inbox, and as text for a person."""
        run, facts = self._run(request), await self._runs.facts(self._run(request))
        team, to = team_name(word_in(request, "team")), agent_name(word_in(request, "to"))
        if team not in facts.teams:
            raise Refused(404, f"The run {run.session} has no team {team}.")
        try:
            kept = await self._showing.record.mailboxes(team).history(to)
        except ShoalError:
            kept = ()
        found = next((mail for mail in kept if mail.id == word_in(request, "letter")), None)
        if found is None:
            raise Refused(404, "The letter is no longer kept.")
        return json_reply({"id": found.id, "text": found.text, "words": mail_words(found)})

    async def questions(self, _: Request) -> Response:
        return json_reply(await self._showing.questions.listed())

    async def question_stream(self, _: Request) -> Response:
        return EventStream(self._question_lists())

    @asynccontextmanager
    async def _question_lists(self) -> AsyncIterator[Programme]:
        """Also signal that the list of runs changed: a page has few connections."""
        questions = self._showing.questions
        async with questions.watched() as lists:
            told = (event(each) async for each in lists)
            stirs = (event({}, kind="runs") async for _ in questions.stirs())
            yield Programme((told, stirs), (self._showing.stopping,))


def _since(request: Request) -> int:
    """Return the offset at which the page lost its connection."""
    given = request.headers.get("last-event-id") or request.query_params.get("since") or "0"
    if not given.isdecimal() or len(given) > 19:
        raise Refused(400, "since must be a whole number.")
    return int(given)


async def _frames(followed: Followed, since: int) -> Source:
    # One less: a lost run counts as an event, which another server does not number.
    start = max(0, since - 1) if since <= followed.picture.offset + 1 else 0
    async for frame in followed.frames(start):
        yield event(frame, ident=frame.offset)
