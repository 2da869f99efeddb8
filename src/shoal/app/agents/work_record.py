"""Work of agents on other machines in the store, so that it outlives the machine of the lead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec.structs import replace

from shoal.app.model_notices import format_session_notice
from shoal.core.errors import StateFileError, WorktreeError
from shoal.core.store import MAX_WORK_PART, WorkPart, WorkStore, WorkSummary
from shoal.workspaces.checkout import GitCheckout
from shoal.workspaces.git_runner import GitRunner
from shoal.workspaces.member_branches import build_work_ref
from shoal.workspaces.stored_work import bundle_work, list_work_refs, restore_work

_MAX_PARTS = 32
_MIN_LATER_SIZE = 4 * 1024 * 1024
"""Bytes of later parts below which they are not replaced, however small the first one is."""


class WorkRecord:
    """The work of one session. Only its lead stores and restores it."""

    def __init__(self, git: GitRunner, store: WorkStore, session: str, report: Callable[[str], None]) -> None:
        self._git = git
        self._store = store
        self._session = session
        self._report = report
        self._lock = asyncio.Lock()
        self._summaries: dict[str, WorkSummary] | None = None
        self._compared: set[str] = set()
        """Agents whose refs are at least as new as the store: this process has compared or stored them."""

    async def store_work(self, checkout: GitCheckout, agent: str) -> None:
        """Store what is new in the refs of an agent."""
        ref = build_work_ref(self._session, agent)
        async with self._lock:
            summaries = await self._load_summaries()
            summary = summaries.get(agent)
            earlier = None if summary is None or is_replacement_due(summary) else summary.last
            part = await bundle_work(self._git, checkout, ref, agent, earlier)
            if part is not None:
                _refuse_large_part(part)
                await asyncio.to_thread(self._store.append_part, part)
                summaries[agent] = _add_part(summary, part)
            self._compared.add(agent)

    async def restore_all(self, checkout: GitCheckout) -> None:
        """Recreate the refs of all agents; report those that cannot be restored."""
        for agent in tuple(await self._load_summaries()):
            try:
                await self.restore_work(checkout, agent)
            except (StateFileError, WorktreeError) as error:
                self._report(str(error))

    async def restore_work(self, checkout: GitCheckout, agent: str) -> None:
        """Recreate the refs of an agent if they are missing or old. Raises `WorktreeError`."""
        ref = build_work_ref(self._session, agent)
        async with self._lock:
            summary = (await self._load_summaries()).get(agent)
            if summary is None or agent in self._compared:
                return
            if await list_work_refs(self._git, checkout.git_directories, ref) != summary.last.refs:
                parts = await asyncio.to_thread(self._store.read_parts, agent)
                kept = await restore_work(self._git, checkout, ref, parts)
                replaced = f" It replaced other work, which is now {', '.join(kept)}." if kept else ""
                self._report(f"The work of {agent} was restored from the store as {ref}.{replaced}")
            self._compared.add(agent)

    async def _load_summaries(self) -> dict[str, WorkSummary]:
        if self._summaries is None:
            self._summaries = await asyncio.to_thread(self._store.list_summaries)
        return self._summaries


def is_replacement_due(summary: WorkSummary) -> bool:
    """Return True if one new first part should replace the parts: there are many, or they are large.

    Parts that may not fit into one stay.
    """
    if summary.first_size + summary.later_size > MAX_WORK_PART // 2:
        return False
    limit = max(2 * summary.first_size, _MIN_LATER_SIZE)
    return summary.parts >= _MAX_PARTS or summary.later_size > limit


def _refuse_large_part(part: WorkPart) -> None:
    if (size := len(part.bundle)) > MAX_WORK_PART:
        raise WorktreeError(
            format_session_notice(
                "work_too_large", agent=part.agent, size=size >> 20, limit=MAX_WORK_PART >> 20
            )
        )


def _add_part(summary: WorkSummary | None, part: WorkPart) -> WorkSummary:
    last, size = replace(part, bundle=b""), len(part.bundle)
    if part.is_first or summary is None:
        return WorkSummary(last=last, parts=1, first_size=size, later_size=0)
    return replace(summary, last=last, parts=summary.parts + 1, later_size=summary.later_size + size)
