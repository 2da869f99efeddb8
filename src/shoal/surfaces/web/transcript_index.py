"""Transcripts indexed by line, so that only the shown lines are read."""

from __future__ import annotations

import asyncio
from array import array
from collections import OrderedDict
from pathlib import Path
from typing import Any

from msgspec import Struct

from shoal.app.run_access.conversation_path import find_agent_transcript_path
from shoal.app.run_access.run_handle import RunHandle
from shoal.core.conversation.transcript_entries import (
    TranscriptCompactionMarker,
    TranscriptMessageEntry,
    TranscriptRewindMarker,
)
from shoal.core.ids import LEAD_ID, AgentId
from shoal.stores.files.home.home_paths import open_state_file
from shoal.surfaces.web.entry_blocks import render_transcript_entry
from shoal.surfaces.web.json_replies import WebApiRequestRefusedError
from shoal.surfaces.web.run_index import WebRunIndex
from shoal.wire.transcript_codec import parse_transcript_line

MOST_KEPT = 256
"""Maximum number of transcripts whose line offsets are kept in memory."""
_CHUNK = 1 << 20


class WebTranscriptPage(Struct, frozen=True, kw_only=True):
    entries: list[dict[str, Any]]
    next: int
    """Line to request next."""
    total: int
    """Number of lines; lines with nothing to show have no entry."""


class TranscriptLineIndex:
    """Offsets of the lines of a transcript."""

    def __init__(self, path: Path, agent: str) -> None:
        self.path = path
        self._agent = agent
        self._starts = array("Q", (0,))

    def __len__(self) -> int:
        return len(self._starts) - 1

    def index_new_lines(self) -> None:
        """Index the lines written since the last call."""
        try:
            with open_state_file(self.path) as file:
                if file.seek(0, 2) < self._starts[-1]:
                    self._starts = array("Q", (0,))
                position = file.seek(self._starts[-1])
                while chunk := file.read(_CHUNK):
                    newline_index = chunk.find(b"\n")
                    while newline_index >= 0:
                        self._starts.append(position + newline_index + 1)
                        newline_index = chunk.find(b"\n", newline_index + 1)
                    position += len(chunk)
        except OSError:
            return  # nothing is written yet

    def read_page(self, after: int, limit: int) -> WebTranscriptPage:
        total = len(self)
        start = max(0, total - limit) if after < 0 else min(after, total)
        end = min(total, start + limit)
        return WebTranscriptPage(entries=self._read_rendered_entries(start, end), next=end, total=total)

    def read_entry(self, number: int) -> dict[str, Any] | None:
        entries = (
            self._read_rendered_entries(number, number + 1, whole=True) if 0 <= number < len(self) else []
        )
        return entries[0] if entries else None

    def _read_rendered_entries(self, start: int, end: int, *, whole: bool = False) -> list[dict[str, Any]]:
        if start >= end:
            return []
        with open_state_file(self.path) as file:
            file.seek(self._starts[start])
            content = file.read(self._starts[end] - self._starts[start])
        rendered_entries = []
        for number, line in enumerate(content.split(b"\n")[: end - start], start):
            try:
                parsed_line = parse_transcript_line(line)
            except ValueError:
                continue
            if (
                isinstance(
                    parsed_line.entry,
                    TranscriptMessageEntry | TranscriptCompactionMarker | TranscriptRewindMarker,
                )
                and parsed_line.agent == self._agent
            ):
                rendered_entries.append(render_transcript_entry(number, parsed_line.entry, whole=whole))
        return rendered_entries


class WebTranscriptReader:
    def __init__(self, runs: WebRunIndex) -> None:
        self._runs = runs
        self._lines: OrderedDict[Path, TranscriptLineIndex] = OrderedDict()
        self._reading = asyncio.Lock()

    async def read_page(self, run: RunHandle, agent: AgentId, after: int, limit: int) -> WebTranscriptPage:
        lines = await self._get_line_index(run, agent)
        async with self._reading:
            return await asyncio.to_thread(lines.read_page, after, limit)

    async def read_entry(self, run: RunHandle, agent: AgentId, number: int) -> dict[str, Any]:
        lines = await self._get_line_index(run, agent)
        async with self._reading:
            entry = await asyncio.to_thread(lines.read_entry, number)
        if entry is None:
            raise WebApiRequestRefusedError(404, f"The transcript has no entry {number}.")
        return entry

    async def count_lines(self, run: RunHandle, agent: AgentId) -> int:
        return len(await self._get_line_index(run, agent))

    async def _get_line_index(self, run: RunHandle, agent: AgentId) -> TranscriptLineIndex:
        facts = await self._runs.get_run_summary(run)
        path = await asyncio.to_thread(find_agent_transcript_path, run, facts.cwd, agent)
        lines = self._lines.setdefault(path, TranscriptLineIndex(path, "" if agent == LEAD_ID else agent))
        self._lines.move_to_end(path)
        if len(self._lines) > MOST_KEPT:
            self._lines.popitem(last=False)
        async with self._reading:
            await asyncio.to_thread(lines.index_new_lines)
        return lines
