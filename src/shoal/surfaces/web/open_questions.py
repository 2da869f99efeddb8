"""Open questions of all live runs: as a list, and as a stream of lists."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from msgspec import Struct

from shoal.app.run_access.run_handle import RunHandle
from shoal.core.ids import SessionId
from shoal.core.permissions.questions import Question
from shoal.surfaces.web.run_index import WebRunIndex
from shoal.surfaces.web.run_watcher import RunCopiesWatcher, RunDirectoryWatcher

BATCH_SECONDS = 0.05
"""Seconds for which changes are batched."""


class WebOpenQuestionRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    session: str
    id: str
    agent: str
    name: str
    asked: int
    question: Question
    previous_plan: str | None = None
    """The plan that the same agent presented before."""


async def list_run_open_questions(runs: WebRunIndex, run: RunHandle) -> list[WebOpenQuestionRow]:
    """List the open questions of one run; without a live process nobody would receive an answer."""
    open_questions = await asyncio.to_thread(_read_open_questions, run)
    if not open_questions:
        return []
    facts = await runs.get_run_summary(run)
    agents = facts.agents
    return [
        WebOpenQuestionRow(
            session=run.session,
            id=question.id,
            agent=question.agent,
            name=agents[question.agent].name if question.agent in agents else question.agent,
            asked=asked,
            question=question,
            previous_plan=facts.earlier_plans.get(question.id),
        )
        for question, asked in open_questions
    ]


def _read_open_questions(run: RunHandle) -> list[tuple[Question, int]]:
    store = run.open_questions()
    if not (found := store.list_open_questions()) or not run.is_live:
        return []
    return [(question, asked) for question in found if (asked := store.get_asked_time(question)) is not None]


class WebOpenQuestionWatcher:
    """Watches the runs while there are viewers, once for all of them."""

    def __init__(self, runs: WebRunIndex) -> None:
        self._runs = runs
        self._by_run: dict[str, list[WebOpenQuestionRow]] = {}
        self._changed_runs: set[str] | None = None
        """Runs to read again; None for all."""
        self._watch: RunDirectoryWatcher | RunCopiesWatcher | None = None
        self._viewers = 0
        self._change_event = asyncio.Event()
        self._refresh_lock = asyncio.Lock()

    async def list_questions(self) -> list[WebOpenQuestionRow]:
        """Return the open questions, oldest first."""
        return _merge_and_sort_questions(
            await self._read_questions_of_runs(await asyncio.to_thread(self._list_runs_with_questions))
        )

    @asynccontextmanager
    async def watch_question_lists(self) -> AsyncIterator[AsyncIterator[list[WebOpenQuestionRow]]]:
        """Yield the whole list, now and whenever it changes."""
        if self._watch is None:
            self._changed_runs, self._watch = None, self._start_watch()
        self._viewers += 1
        try:
            yield self._iter_question_lists()
        finally:
            self._viewers -= 1
            if not self._viewers:
                self._watch.close()
                self._watch = None

    async def watch_run_changes(self) -> AsyncIterator[None]:
        """Yield whenever a run started, ended, asked or was answered, while there are viewers."""
        change_event = self._change_event
        while True:
            await change_event.wait()
            await asyncio.sleep(BATCH_SECONDS)
            change_event = self._change_event
            yield

    async def _iter_question_lists(self) -> AsyncIterator[list[WebOpenQuestionRow]]:
        last_rows: list[WebOpenQuestionRow] | None = None
        while True:
            change_event = self._change_event
            await self._refresh_questions_of_changed_runs()
            now = _merge_and_sort_questions(self._by_run)
            if now != last_rows:
                last_rows = now
                yield now
            await change_event.wait()
            await asyncio.sleep(BATCH_SECONDS)

    async def _refresh_questions_of_changed_runs(self) -> None:
        async with self._refresh_lock:
            changed_runs, self._changed_runs = self._changed_runs, set()
            try:
                if changed_runs is None:
                    self._by_run = await self._read_questions_of_runs(
                        await asyncio.to_thread(self._list_runs_with_questions)
                    )
                else:
                    self._by_run |= await self._read_questions_of_runs(changed_runs)
            except BaseException:
                self._mark_changed_runs(changed_runs)  # this page is gone; the next refresh reads them
                raise

    async def _read_questions_of_runs(self, names: Iterable[str]) -> dict[str, list[WebOpenQuestionRow]]:
        return {
            name: await list_run_open_questions(self._runs, self._runs.stored_runs.open_run(SessionId(name)))
            for name in names
        }

    def _start_watch(self) -> RunDirectoryWatcher | RunCopiesWatcher:
        stored_runs = self._runs.stored_runs
        if stored_runs.copies is not None:
            return RunCopiesWatcher(stored_runs.copies, self._handle_run_change)
        return RunDirectoryWatcher(stored_runs.home, self._handle_run_change)

    def _mark_changed_runs(self, changed_runs: set[str] | None) -> None:
        self._changed_runs = (
            None if changed_runs is None or self._changed_runs is None else self._changed_runs | changed_runs
        )

    def _handle_run_change(self, changed_runs: set[str] | None) -> None:
        self._mark_changed_runs(changed_runs)
        change_event, self._change_event = self._change_event, asyncio.Event()
        change_event.set()

    def _list_runs_with_questions(self) -> list[str]:
        """List the runs that ever asked a question."""
        return [each.session for each in self._runs.stored_runs.get_store().list_session_questions()]


def _merge_and_sort_questions(by_run: dict[str, list[WebOpenQuestionRow]]) -> list[WebOpenQuestionRow]:
    rows = [line for lines in by_run.values() for line in lines]
    return sorted(rows, key=lambda line: (line.asked, line.id))
