"""Index of the runs of a home, newest first."""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from shoal.app.outside.watching import Run
from shoal.core.errors import StoreError
from shoal.core.ids import AgentId, SessionId
from shoal.stores.files.places import checked
from shoal.stores.files.questions import Questions
from shoal.surfaces.web.facts import Known, RunFacts
from shoal.surfaces.web.replies import Refused

MOST_KEPT = 2_000
"""Runs whose facts are kept in memory."""


class RunLine(Struct, frozen=True, kw_only=True):
    session: str
    cwd: str
    prompt: str
    began: int
    last: int
    live: bool
    ended: bool
    agents: int
    usd: float
    tokens: int
    teams: tuple[str, ...]
    questions: int


class Runs:
    def __init__(self, home: Path) -> None:
        self.home = home
        self._facts: OrderedDict[SessionId, RunFacts] = OrderedDict()
        self._reading = asyncio.Lock()

    def find(self, session: str) -> Run:
        """Raises `RequestRefused` if there is no such run."""
        try:
            run = Run(session=SessionId(checked(session, self.home)), home=self.home)
        except StoreError:
            raise Refused(400, f"{session[:80]!r} is not the id of a session.") from None
        if not run.directory.is_dir():
            raise Refused(404, f"There is no run of the session {session}.")
        return run

    async def facts(self, run: Run) -> RunFacts:
        """Return the run's facts, up to date."""
        async with self._reading:
            return await asyncio.to_thread(self._facts_of, run)

    async def agent(self, run: Run, agent: str) -> tuple[AgentId, Known]:
        """Return the agent by id. Raises `RequestRefused` if the run has no such agent."""
        known = (await self.facts(run)).agents.get(AgentId(agent))
        if known is None:
            raise Refused(404, f"The run has no agent {agent[:80]!r}.")
        return AgentId(agent), known

    async def listed(self, limit: int, before: str) -> list[RunLine]:
        """List the runs after `before`: the session of the last row, or a time in milliseconds."""
        async with self._reading:
            return await asyncio.to_thread(self._listed, limit, before)

    def _listed(self, limit: int, before: str) -> list[RunLine]:
        rows = sorted(self._journals(), reverse=True)
        if before.isdecimal():
            rows = [row for row in rows if row[0] < int(before)]
        elif before:
            names = [name for _, name in rows]
            rows = rows[names.index(before) + 1 :] if before in names else []
        return [self._line(Run(session=SessionId(name), home=self.home), at) for at, name in rows[:limit]]

    def _journals(self) -> Iterator[tuple[int, str]]:
        place = self.home / "shoal" / "runs"
        try:
            entries = list(os.scandir(place))
        except FileNotFoundError:
            return  # nothing has run yet
        except OSError as error:
            raise StoreError(
                f"The runs in {place} cannot be listed: {error.strerror}.", path=place
            ) from error
        for entry in entries:
            try:
                written = os.stat(f"{entry.path}/journal.jsonl").st_mtime_ns  # noqa: PTH116 - a thousand of them
            except OSError:
                continue  # it has no journal yet
            yield written // 1_000_000, entry.name

    def _line(self, run: Run, last: int) -> RunLine:
        facts, live = self._facts_of(run), run.is_live
        return RunLine(
            session=run.session,
            cwd=facts.cwd,
            prompt=facts.prompt,
            began=facts.began,
            last=last,
            live=live,
            ended=facts.ended,
            agents=len(facts.agents),
            usd=facts.usd,
            tokens=facts.tokens,
            teams=tuple(facts.teams),
            questions=len(Questions(run.directory / "questions").open()) if live else 0,
        )

    def _facts_of(self, run: Run) -> RunFacts:
        facts = self._facts.setdefault(run.session, RunFacts())
        self._facts.move_to_end(run.session)
        if len(self._facts) > MOST_KEPT:
            self._facts.popitem(last=False)
        facts.read_on(run.journal)
        return facts
