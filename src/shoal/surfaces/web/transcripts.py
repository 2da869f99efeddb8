"""Transcripts indexed by line, so that only the shown lines are read."""

from __future__ import annotations

import asyncio
from array import array
from collections import OrderedDict
from pathlib import Path
from typing import Any

from msgspec import Struct

from shoal.app.outside.conversations import conversation_path
from shoal.app.outside.watching import Run
from shoal.core.entries import Compacted, Rewound, Said
from shoal.core.ids import LEAD, AgentId
from shoal.surfaces.web.blocks import entry_shown
from shoal.surfaces.web.replies import Refused
from shoal.surfaces.web.runs import Runs
from shoal.wire.transcript import read_line

MOST_KEPT = 256
"""Transcripts whose line offsets are kept in memory."""
_CHUNK = 1 << 20


class Page(Struct, frozen=True, kw_only=True):
    entries: list[dict[str, Any]]
    next: int
    """Line to request next."""
    total: int
    """Number of lines; a line with nothing to show has no entry."""


class Lines:
    """Offsets of the lines of a transcript."""

    def __init__(self, path: Path, agent: str) -> None:
        self.path = path
        self._agent = agent
        self._starts = array("Q", (0,))

    def __len__(self) -> int:
        return len(self._starts) - 1

    def look(self) -> None:
        """Index the lines written since the last call."""
        try:
            with self.path.open("rb") as file:
                if file.seek(0, 2) < self._starts[-1]:
                    self._starts = array("Q", (0,))
                place = file.seek(self._starts[-1])
                while chunk := file.read(_CHUNK):
                    found = chunk.find(b"\n")
                    while found >= 0:
                        self._starts.append(place + found + 1)
                        found = chunk.find(b"\n", found + 1)
                    place += len(chunk)
        except OSError:
            return  # nothing is written yet

    def page(self, after: int, limit: int) -> Page:
        total = len(self)
        start = max(0, total - limit) if after < 0 else min(after, total)
        end = min(total, start + limit)
        return Page(entries=self._read(start, end), next=end, total=total)

    def whole(self, number: int) -> dict[str, Any] | None:
        found = self._read(number, number + 1, whole=True) if 0 <= number < len(self) else []
        return found[0] if found else None

    def _read(self, start: int, end: int, *, whole: bool = False) -> list[dict[str, Any]]:
        if start >= end:
            return []
        with self.path.open("rb") as file:
            file.seek(self._starts[start])
            content = file.read(self._starts[end] - self._starts[start])
        shown = []
        for number, line in enumerate(content.split(b"\n")[: end - start], start):
            try:
                read = read_line(line)
            except ValueError:
                continue
            if isinstance(read.entry, Said | Compacted | Rewound) and read.agent == self._agent:
                shown.append(entry_shown(number, read.entry, whole=whole))
        return shown


class Transcripts:
    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._lines: OrderedDict[Path, Lines] = OrderedDict()
        self._reading = asyncio.Lock()

    async def page(self, run: Run, agent: AgentId, after: int, limit: int) -> Page:
        lines = await self._of(run, agent)
        async with self._reading:
            return await asyncio.to_thread(lines.page, after, limit)

    async def whole(self, run: Run, agent: AgentId, number: int) -> dict[str, Any]:
        lines = await self._of(run, agent)
        async with self._reading:
            entry = await asyncio.to_thread(lines.whole, number)
        if entry is None:
            raise Refused(404, f"The transcript has no entry {number}.")
        return entry

    async def total(self, run: Run, agent: AgentId) -> int:
        return len(await self._of(run, agent))

    async def _of(self, run: Run, agent: AgentId) -> Lines:
        facts = await self._runs.facts(run)
        path = await asyncio.to_thread(conversation_path, run, facts.cwd, agent)
        lines = self._lines.setdefault(path, Lines(path, "" if agent == LEAD else agent))
        self._lines.move_to_end(path)
        if len(self._lines) > MOST_KEPT:
            self._lines.popitem(last=False)
        async with self._reading:
            await asyncio.to_thread(lines.look)
        return lines
