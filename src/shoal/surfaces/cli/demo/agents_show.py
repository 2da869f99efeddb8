"""Screen output of the agents demo: the lead's text, each agent's tool calls, and the working agents."""

from __future__ import annotations

import asyncio
from pathlib import Path

from msgspec import Struct

from shoal.app.picture.standing import Standing, Standings
from shoal.app.session.session import Session
from shoal.core.agents import Completion
from shoal.core.events import (
    AgentEnded,
    AgentStarted,
    Event,
    Finished,
    ToolFinished,
    ToolReturned,
    ToolStarted,
)
from shoal.core.ids import LEAD
from shoal.core.messages import result_text
from shoal.core.wording import one_line
from shoal.surfaces.cli.demo.voices import Voices
from shoal.surfaces.cli.headless.progress import LiveRows
from shoal.surfaces.cli.plain.agent_rows import agent_rows
from shoal.surfaces.terminal.activity import Activity
from shoal.surfaces.terminal.event_words import agent_words
from shoal.surfaces.terminal.feed import Feed, to_the_end
from shoal.surfaces.terminal.outcomes import outcome
from shoal.surfaces.terminal.paint import DIM, cut, painted, style_of, width
from shoal.surfaces.terminal.screen import Screen

_NAMES = 6
"""Columns of the longest name, so that the calls of agents line up."""


class _Call(Struct):
    preview: str
    words: str = ""
    style: str = ""


class Show:
    """Presents what the lead and its agents do, during turns and between them."""

    def __init__(self, screen: Screen, session: Session) -> None:
        self._screen = screen
        self._session = session
        self._clock = session.agent.clock
        self._since = self._clock.monotonic()
        self._feed = Feed(session)
        self._standings = Standings()
        # The agent's own line reports its start.
        self._voices = Voices(screen, self._standings, silent=frozenset({"Agent"}))
        self._activity = Activity(self._clock)
        self._calls: dict[str, _Call] = {}
        self.worktrees: set[Path] = set()
        """Directories that contain the agents' worktrees."""
        self.completions: list[Completion] = []

    @property
    def seconds(self) -> float:
        return self._clock.monotonic() - self._since

    async def run(self, task: str) -> Finished:
        rows = LiveRows(self._screen, self._rows)
        try:
            async with asyncio.TaskGroup() as group:
                telling = group.create_task(self._tell())
                finished = await to_the_end(self._session, task)
                telling.cancel()
            self._catch_up()
        finally:
            rows.close()
            self._feed.close()
        return finished

    async def _tell(self) -> None:
        while True:
            self._catch_up()
            await self._feed.news()

    def _catch_up(self) -> None:
        for event in self._feed.taken():
            it = self._standings.hear(event, self._clock.monotonic())
            self._activity.hear(event)
            if event.agent == LEAD:
                self._voices.hear_lead(event)
            else:
                self._hear_agent(event, it)

    def _hear_agent(self, event: Event, it: Standing) -> None:
        match event:
            case AgentStarted(cwd=cwd):
                self.worktrees.add(Path(cwd).parent)
            case AgentEnded(completion=completion):
                self.completions.append(completion)
            case ToolStarted(call=call, tool=tool, preview=preview):
                self._calls[call] = _Call(f"{tool} {one_line(preview)}")
            case ToolReturned(call=call, tool=tool, result=result, data=data) if call in self._calls:
                told = self._calls[call]
                told.words, told.style = outcome(tool, result_text(result), data, is_error=result.is_error)
            case ToolFinished(call=call) if call in self._calls:
                self._did(it, self._calls.pop(call))
            case _:
                pass
        if (words := agent_words(event, it)) is not None:
            self._voices.add(("● ", style_of(it.color)), (words, ""))

    def _did(self, it: Standing, call: _Call) -> None:
        who, style = f"{it.who:<{_NAMES}} ", style_of(it.color)
        room = max(self._screen.columns - 2 - width(who) - 2 - width(call.words), 12)
        preview = (cut(call.preview, room), DIM)
        self._voices.add(("● ", style), (who, style), preview, (f"  {call.words}", call.style))

    def _rows(self, columns: int) -> list[str]:
        colours = self._screen.colours
        lead = [painted(self._activity.line(columns), DIM, colours=colours)] if self._session.busy else []
        agents = agent_rows(self._standings.at_work(), self._clock.monotonic(), columns, colours=colours)
        return ["", *lead, *agents]
