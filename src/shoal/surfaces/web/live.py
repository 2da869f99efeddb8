"""Live stream of one agent: its text as it is streamed, and the growth of its transcript."""

from __future__ import annotations

from msgspec import Struct

from shoal.app.outside.watching import Run
from shoal.core.clock import Clock
from shoal.core.errors import ShoalError
from shoal.core.events import Discarded, Event, Heard, ToolProgress
from shoal.core.ids import AgentId
from shoal.runs.client import ControlClient
from shoal.surfaces.web.follows import Shared
from shoal.surfaces.web.streams import Source, event
from shoal.surfaces.web.transcripts import Transcripts
from shoal.wire.control import Gap, Subscribe
from shoal.wire.journal import Unknown

AGAIN = 1.0
"""Seconds before reconnecting to the run."""


class Delta(Struct, frozen=True, kw_only=True):
    kind: str
    """`text`, `thinking`, `tool_input`, `progress`, or `discarded`: the text so far is invalid."""
    text: str


class Grown(Struct, frozen=True, kw_only=True):
    total: int


def delta_of(told: Event | Gap | Unknown, agent: AgentId) -> Delta | None:
    match told:
        case Heard(agent=speaker, kind=kind, text=text) if speaker == agent:
            return Delta(kind=kind, text=text)
        case ToolProgress(agent=speaker, text=text) if speaker == agent:
            return Delta(kind="progress", text=text)
        case Discarded(agent=speaker, reason=reason) if speaker == agent:
            return Delta(kind="discarded", text=reason)
        case _:
            return None


class LiveAgent:
    """Streams one agent to one page."""

    def __init__(self, run: Run, agent: AgentId, shared: Shared, transcripts: Transcripts, clock: Clock):
        self._run = run
        self._agent = agent
        self._followed = shared.followed
        self._transcripts = transcripts
        self._clock = clock

    @property
    def sources(self) -> tuple[Source, ...]:
        return self._words(), self._growth()

    async def _growth(self) -> Source:
        """Yield the transcript's length when it changed: it is written before the journal reports it."""
        total = -1
        async for frame in self._followed.frames(self._followed.picture.offset):
            if total >= 0 and all(row.id != self._agent for row in frame.agents):
                continue
            now = await self._transcripts.total(self._run, self._agent)
            if now != total:
                total = now
                yield event(Grown(total=total), kind="entry")

    async def _words(self) -> Source:
        while True:
            await self._come_alive()
            try:
                async with await ControlClient.open(self._run.directory / "control.sock") as client:
                    await client.request(Subscribe())
                    async for told in client.events():
                        if (delta := delta_of(told, self._agent)) is not None:
                            yield event(delta)
            except (ShoalError, OSError):
                pass  # it is starting or ending
            # Its process ended, or this reader was too slow for it.
            await self._clock.sleep(AGAIN)

    async def _come_alive(self) -> None:
        async for frame in self._followed.frames(self._followed.picture.offset):
            if frame.live:
                return
