"""Open questions of all live runs: as a list, and as a stream of lists."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from msgspec import Struct

from shoal.app.outside.watching import Run
from shoal.core.ids import SessionId
from shoal.core.questions import Question
from shoal.stores.files.questions import Questions
from shoal.surfaces.web.run_watch import RunWatch
from shoal.surfaces.web.runs import Runs

GATHERED = 0.05
"""Seconds for which changes are batched."""


class QuestionLine(Struct, frozen=True, kw_only=True, omit_defaults=True):
    session: str
    id: str
    agent: str
    name: str
    asked: int
    question: Question
    previous_plan: str | None = None
    """The plan that the same agent presented before."""


async def open_in(runs: Runs, run: Run) -> list[QuestionLine]:
    """List the open questions of one run; without a live process nobody would receive an answer."""
    store = Questions(run.directory / "questions")
    if not (asked := store.open()) or not run.is_live:
        return []
    facts = await runs.facts(run)
    known = facts.agents
    return [
        QuestionLine(
            session=run.session,
            id=question.id,
            agent=question.agent,
            name=known[question.agent].name if question.agent in known else question.agent,
            asked=store.asked_at(question),
            question=question,
            previous_plan=facts.earlier_plans.get(question.id),
        )
        for question in asked
    ]


class OpenQuestions:
    """Watches the runs while there are viewers, once for all of them."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._by_run: dict[str, list[QuestionLine]] = {}
        self._touched: set[str] | None = None
        """Runs to read again; None for all."""
        self._watch: RunWatch | None = None
        self._onlookers = 0
        self._changed = asyncio.Event()
        self._looking = asyncio.Lock()

    async def listed(self) -> list[QuestionLine]:
        """Return the open questions, oldest first."""
        return _in_order(await self._found(await asyncio.to_thread(self._names)))

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[AsyncIterator[list[QuestionLine]]]:
        """Yield the whole list, now and whenever it changes."""
        if self._watch is None:
            self._touched, self._watch = None, RunWatch(self._runs.home, self._heard)
        self._onlookers += 1
        try:
            yield self._lists()
        finally:
            self._onlookers -= 1
            if not self._onlookers:
                self._watch.close()
                self._watch = None

    async def stirs(self) -> AsyncIterator[None]:
        """Yield whenever a run started, ended, asked or was answered, while there are viewers."""
        changed = self._changed
        while True:
            await changed.wait()
            await asyncio.sleep(GATHERED)
            changed = self._changed
            yield

    async def _lists(self) -> AsyncIterator[list[QuestionLine]]:
        told: list[QuestionLine] | None = None
        while True:
            changed = self._changed
            await self._look()
            now = _in_order(self._by_run)
            if now != told:
                told = now
                yield now
            await changed.wait()
            await asyncio.sleep(GATHERED)

    async def _look(self) -> None:
        async with self._looking:
            touched, self._touched = self._touched, set()
            try:
                if touched is None:
                    self._by_run = await self._found(await asyncio.to_thread(self._names))
                else:
                    self._by_run |= await self._found(touched)
            except BaseException:
                self._touch(touched)  # this page is gone; the next refresh reads them
                raise

    async def _found(self, names: Iterable[str]) -> dict[str, list[QuestionLine]]:
        home = self._runs.home
        return {name: await open_in(self._runs, Run(session=SessionId(name), home=home)) for name in names}

    def _touch(self, touched: set[str] | None) -> None:
        self._touched = None if touched is None or self._touched is None else self._touched | touched

    def _heard(self, touched: set[str] | None) -> None:
        self._touch(touched)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _names(self) -> list[str]:
        """List the runs that ever asked a question."""
        return [path.parent.name for path in (self._runs.home / "shoal" / "runs").glob("*/questions")]


def _in_order(by_run: dict[str, list[QuestionLine]]) -> list[QuestionLine]:
    found = [line for lines in by_run.values() for line in lines]
    return sorted(found, key=lambda line: (line.asked, line.id))
