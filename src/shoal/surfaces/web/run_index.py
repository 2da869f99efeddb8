"""Index of the runs of a store, newest first."""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Iterator

from msgspec import Struct

from shoal.app.run_access.run_facts import JournaledAgentSummary, JournaledRunSummary
from shoal.app.run_access.run_handle import RunHandle
from shoal.app.run_access.stored_runs import StoredRuns
from shoal.core.errors import StateFileError
from shoal.core.ids import AgentId, SessionId
from shoal.stores.files.home.home_paths import check_safe_file_name
from shoal.surfaces.web.json_replies import WebApiRequestRefusedError

MOST_KEPT = 2_000
"""Maximum number of runs whose facts are kept in memory."""


class WebRunListRow(Struct, frozen=True, kw_only=True):
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


class WebRunIndex:
    def __init__(self, stored_runs: StoredRuns) -> None:
        self.stored_runs = stored_runs
        self._facts: OrderedDict[SessionId, JournaledRunSummary] = OrderedDict()
        self._reading = asyncio.Lock()

    def find_run(self, session: str) -> RunHandle:
        """Raises `WebApiRequestRefusedError` if there is no such run."""
        try:
            run = self.stored_runs.open_run(SessionId(check_safe_file_name(session, self.stored_runs.home)))
        except StateFileError:
            raise WebApiRequestRefusedError(400, f"{session[:80]!r} is not a session id.") from None
        if not run.journal_path.parent.is_dir():
            raise WebApiRequestRefusedError(404, f"There is no run for the session {session}.")
        return run

    async def get_run_summary(self, run: RunHandle) -> JournaledRunSummary:
        """Return the run's facts, up to date."""
        async with self._reading:
            return await asyncio.to_thread(self._load_run_facts, run)

    async def get_agent_summary(self, run: RunHandle, agent: str) -> tuple[AgentId, JournaledAgentSummary]:
        """Return the agent by id. Raises `WebApiRequestRefusedError` if the run has no such agent."""
        agent_facts = (await self.get_run_summary(run)).agents.get(AgentId(agent))
        if agent_facts is None:
            raise WebApiRequestRefusedError(404, f"The run has no agent {agent[:80]!r}.")
        return AgentId(agent), agent_facts

    async def list_runs(self, limit: int, before: str) -> list[WebRunListRow]:
        """List the runs after `before`: the session of the last row, or a time in milliseconds."""
        async with self._reading:
            return await asyncio.to_thread(self._list_runs_blocking, limit, before)

    def _list_runs_blocking(self, limit: int, before: str) -> list[WebRunListRow]:
        rows = sorted(self._iter_journals(), reverse=True)
        if before.isdecimal():
            rows = [row for row in rows if row[0] < int(before)]
        elif before:
            names = [name for _, name in rows]
            rows = rows[names.index(before) + 1 :] if before in names else []
        return [
            self._build_run_list_row(self.stored_runs.open_run(SessionId(name)), at)
            for at, name in rows[:limit]
        ]

    def _iter_journals(self) -> Iterator[tuple[int, str]]:
        runs_directory = self.stored_runs.journals_home / "shoal" / "runs"
        try:
            entries = list(os.scandir(runs_directory))
        except FileNotFoundError:
            return  # nothing has run yet
        except OSError as error:
            raise StateFileError(
                f"Cannot list the runs in {runs_directory}: {error.strerror}.", path=runs_directory
            ) from error
        for entry in entries:
            try:
                modified_at = os.stat(f"{entry.path}/journal.jsonl").st_mtime_ns  # noqa: PTH116 - a thousand of them
            except OSError:
                continue  # it has no journal yet
            yield modified_at // 1_000_000, entry.name

    def _build_run_list_row(self, run: RunHandle, last: int) -> WebRunListRow:
        facts, is_live = self._load_run_facts(run), run.is_live
        return WebRunListRow(
            session=run.session,
            cwd=facts.cwd,
            prompt=facts.prompt,
            began=facts.began,
            last=last,
            live=is_live,
            ended=facts.ended,
            agents=len(facts.agents),
            usd=facts.usd,
            tokens=facts.tokens,
            teams=tuple(facts.teams),
            questions=len(run.open_questions().list_open_questions()) if is_live else 0,
        )

    def _load_run_facts(self, run: RunHandle) -> JournaledRunSummary:
        facts = self._facts.setdefault(run.session, JournaledRunSummary())
        self._facts.move_to_end(run.session)
        if len(self._facts) > MOST_KEPT:
            self._facts.popitem(last=False)
        facts.read_new_journal_events(run.journal_path)
        return facts
