"""Routes that read: runs, their frames, replays, transcripts, mail and questions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import Request
from starlette.responses import Response

from shoal.app.run_access.run_follower import RunFollower
from shoal.app.run_access.run_handle import RunHandle
from shoal.app.run_view.mail_text import format_mail
from shoal.core.errors import ShoalError
from shoal.core.ids import AgentId
from shoal.core.names import map_to_inbox_name, parse_team_name
from shoal.surfaces.web.event_stream import (
    EventSource,
    ServerSentEventResponse,
    ServerSentEventSources,
    encode_server_sent_event,
)
from shoal.surfaces.web.json_replies import (
    WebApiRequestRefusedError,
    build_json_reply,
    get_bounded_query_number,
    get_path_param,
)
from shoal.surfaces.web.live_agent_stream import WebLiveAgentStream
from shoal.surfaces.web.run_replay import iter_replay_frames
from shoal.surfaces.web.web_context import WebContext
from shoal.wire.json_codec import encode_json

MOST_RUNS = 500
MOST_STEPS = 2_000
MOST_ENTRIES = 1_000


class RunReadWebRoutes:
    def __init__(self, context: WebContext) -> None:
        self._context = context
        self._runs = context.runs

    def _find_run(self, request: Request) -> RunHandle:
        return self._runs.find_run(get_path_param(request, "session"))

    async def _find_run_and_agent(self, request: Request) -> tuple[RunHandle, AgentId]:
        run = self._find_run(request)
        agent, _ = await self._runs.get_agent_summary(run, get_path_param(request, "agent"))
        return run, agent

    async def list_runs(self, request: Request) -> Response:
        limit = get_bounded_query_number(request, "limit", 100, least=1, most=MOST_RUNS)
        return build_json_reply(await self._runs.list_runs(limit, request.query_params.get("before", "")))

    async def stream_view_deltas(self, request: Request) -> Response:
        since, run = _parse_since_offset(request), self._find_run(request)
        return ServerSentEventResponse(self._open_view_delta_sources(run, since))

    @asynccontextmanager
    async def _open_view_delta_sources(
        self, run: RunHandle, since: int
    ) -> AsyncIterator[ServerSentEventSources]:
        async with self._context.run_views.acquire_follower(run) as shared_view:
            yield ServerSentEventSources(
                (_stream_view_deltas(shared_view.follower, since),),
                (shared_view.broken, self._context.stopping),
            )

    async def get_replay(self, request: Request) -> Response:
        run, max_frames = (
            self._find_run(request),
            get_bounded_query_number(request, "frames", 400, least=1, most=MOST_STEPS),
        )

        def encode_replay() -> bytes:
            return b'{"frames":[%b]}' % b",".join(map(encode_json, iter_replay_frames(run, max_frames)))

        content = await asyncio.to_thread(encode_replay)
        return Response(content, 200, {"Cache-Control": "no-store"}, "application/json")

    async def get_transcript(self, request: Request) -> Response:
        run, agent = await self._find_run_and_agent(request)
        after = get_bounded_query_number(request, "after", 0, least=-1, most=1 << 40)
        limit = get_bounded_query_number(request, "limit", 200, least=1, most=MOST_ENTRIES)
        return build_json_reply(await self._context.transcripts.read_page(run, agent, after, limit))

    async def get_transcript_entry(self, request: Request) -> Response:
        run, agent = await self._find_run_and_agent(request)
        return build_json_reply(
            await self._context.transcripts.read_entry(run, agent, get_path_param(request, "n"))
        )

    async def stream_live_agent(self, request: Request) -> Response:
        run, agent = await self._find_run_and_agent(request)
        return ServerSentEventResponse(self._open_live_agent_sources(run, agent))

    @asynccontextmanager
    async def _open_live_agent_sources(
        self, run: RunHandle, agent: AgentId
    ) -> AsyncIterator[ServerSentEventSources]:
        context = self._context
        async with context.run_views.acquire_follower(run) as shared_view:
            live_stream = WebLiveAgentStream(run, agent, shared_view, context.transcripts, context.clock)
            yield ServerSentEventSources(live_stream.sources, (shared_view.broken, context.stopping))

    async def get_mail_message(self, request: Request) -> Response:
        """Return the whole mail message from its recipient's inbox, and as text for a person."""
        run, facts = self._find_run(request), await self._runs.get_run_summary(self._find_run(request))
        team, recipient = (
            parse_team_name(get_path_param(request, "team")),
            map_to_inbox_name(get_path_param(request, "to")),
        )
        if team not in facts.teams:
            raise WebApiRequestRefusedError(404, f"The run {run.session} has no team {team}.")
        try:
            stored_mail = await self._context.team_store.open_mailboxes(team).read_history(recipient)
        except ShoalError:
            stored_mail = ()
        message = next((mail for mail in stored_mail if mail.id == get_path_param(request, "letter")), None)
        if message is None:
            raise WebApiRequestRefusedError(404, "The message is no longer stored.")
        return build_json_reply({"id": message.id, "text": message.text, "words": format_mail(message)})

    async def list_questions(self, _: Request) -> Response:
        return build_json_reply(await self._context.questions.list_questions())

    async def stream_questions(self, _: Request) -> Response:
        return ServerSentEventResponse(self._open_question_list_sources())

    @asynccontextmanager
    async def _open_question_list_sources(self) -> AsyncIterator[ServerSentEventSources]:
        """Also signal that the list of runs changed: a page has few connections."""
        questions = self._context.questions
        async with questions.watch_question_lists() as lists:
            question_events = (encode_server_sent_event(each) async for each in lists)
            run_events = (
                encode_server_sent_event({}, kind="runs") async for _ in questions.watch_run_changes()
            )
            yield ServerSentEventSources((question_events, run_events), (self._context.stopping,))


def _parse_since_offset(request: Request) -> int:
    """Return the offset at which the page lost its connection."""
    raw_value = request.headers.get("last-event-id") or request.query_params.get("since") or "0"
    if not raw_value.isdecimal() or len(raw_value) > 19:
        raise WebApiRequestRefusedError(400, "since must be an integer.")
    return int(raw_value)


async def _stream_view_deltas(follower: RunFollower, since: int) -> EventSource:
    # One less: a lost run counts as an event, which another server does not number.
    start = max(0, since - 1) if since <= follower.view.offset + 1 else 0
    async for delta in follower.iter_view_deltas(start):
        yield encode_server_sent_event(delta, event_id=delta.offset)
