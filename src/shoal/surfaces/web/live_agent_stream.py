"""Live stream of one agent: its text as it is streamed, and the growth of its transcript."""

from __future__ import annotations

from msgspec import Struct

from shoal.app.run_access.run_handle import RunHandle
from shoal.core.clock import Clock
from shoal.core.errors import ShoalError
from shoal.core.events import Event, PartialReplyDiscarded, TextStreamed, ToolProgressed, UnknownJournalEvent
from shoal.core.ids import AgentId
from shoal.runs.control_client import RunControlClient
from shoal.surfaces.web.event_stream import EventSource, encode_server_sent_event
from shoal.surfaces.web.run_follower_pool import SharedRunFollower
from shoal.surfaces.web.transcript_index import WebTranscriptReader
from shoal.wire.control_codec import EventSubscriptionGap, SubscribeToEventsControlCommand

RETRY_SECONDS = 1.0
"""Seconds before reconnecting to the run."""


class LiveAgentDeltaPayload(Struct, frozen=True, kw_only=True):
    kind: str
    """`text`, `thinking`, `tool_input`, `progress`, or `discarded`: the text so far is invalid."""
    text: str


class TranscriptGrownPayload(Struct, frozen=True, kw_only=True):
    total: int


def live_delta_from_event(
    event: Event | EventSubscriptionGap | UnknownJournalEvent, agent: AgentId
) -> LiveAgentDeltaPayload | None:
    match event:
        case TextStreamed(agent=speaking_agent, kind=kind, text=text) if speaking_agent == agent:
            return LiveAgentDeltaPayload(kind=kind, text=text)
        case ToolProgressed(agent=speaking_agent, text=text) if speaking_agent == agent:
            return LiveAgentDeltaPayload(kind="progress", text=text)
        case PartialReplyDiscarded(agent=speaking_agent, reason=reason) if speaking_agent == agent:
            return LiveAgentDeltaPayload(kind="discarded", text=reason)
        case _:
            return None


class WebLiveAgentStream:
    """Streams one agent to one page."""

    def __init__(
        self,
        run: RunHandle,
        agent: AgentId,
        view: SharedRunFollower,
        transcripts: WebTranscriptReader,
        clock: Clock,
    ):
        self._run = run
        self._agent = agent
        self._follower = view.follower
        self._transcripts = transcripts
        self._clock = clock

    @property
    def sources(self) -> tuple[EventSource, ...]:
        return self._stream_live_deltas(), self._stream_transcript_growth()

    async def _stream_transcript_growth(self) -> EventSource:
        """Yield the transcript's length when it changed: it is written before the journal reports it."""
        total = -1
        async for delta in self._follower.iter_view_deltas(self._follower.view.offset):
            if total >= 0 and all(row.id != self._agent for row in delta.agents):
                continue
            now = await self._transcripts.count_lines(self._run, self._agent)
            if now != total:
                total = now
                yield encode_server_sent_event(TranscriptGrownPayload(total=total), kind="entry")

    async def _stream_live_deltas(self) -> EventSource:
        while True:
            await self._wait_until_run_live()
            try:
                async with await RunControlClient.open(self._run.directory / "control.sock") as client:
                    await client.send_command(SubscribeToEventsControlCommand())
                    async for event in client.read_events():
                        if (delta := live_delta_from_event(event, self._agent)) is not None:
                            yield encode_server_sent_event(delta)
            except (ShoalError, OSError):
                pass  # it is starting or ending
            # Its process ended, or this reader was too slow for it.
            await self._clock.sleep(RETRY_SECONDS)

    async def _wait_until_run_live(self) -> None:
        async for delta in self._follower.iter_view_deltas(self._follower.view.offset):
            if delta.live:
                return
