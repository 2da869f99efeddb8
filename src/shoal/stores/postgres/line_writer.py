"""Appends lines to transcripts and journals: lines that wait at the same time are stored by one commit."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import asyncpg

from shoal.core.errors import StateFileError
from shoal.stores.postgres.database_text import to_database_text

if TYPE_CHECKING:
    from shoal.stores.postgres.database_worker import DatabaseWorker

MAX_LINES = 1_000
"""Maximum number of lines in one commit."""
_MAX_BYTES = 4 << 20
_FENCE = "WITH fence AS (SELECT 1 FROM shoal.holders WHERE epoch = $1 FOR KEY SHARE)"
_SET_TITLE = f"{_FENCE} UPDATE shoal.sessions SET title = $3 FROM fence WHERE id = $2"
_APPEND_ENTRY = f"""
    {_FENCE}
    INSERT INTO shoal.transcript_lines (session, agent, number, line)
    SELECT $2, $3, $4, $5 FROM fence ON CONFLICT (session, agent, number) DO NOTHING RETURNING true
"""
# The row of the session is locked until the commit: a reader that has seen an offset misses none before it.
_APPEND_EVENT = f"""
    {_FENCE},
    place AS (UPDATE shoal.sessions SET journal_size = journal_size + length($3::bytea) FROM fence
              WHERE id = $2 RETURNING journal_size - length($3::bytea) AS position)
    INSERT INTO shoal.journal_lines (session, position, write_id, line)
    SELECT $2, position, $4, $3::bytea FROM place RETURNING position
"""
_APPEND_LINES = f"""
    {_FENCE},
    place AS (UPDATE shoal.sessions SET journal_size = journal_size + $3 FROM fence
              WHERE id = $2 RETURNING journal_size - $3 AS start),
    events AS (INSERT INTO shoal.journal_lines (session, position, write_id, line)
               SELECT $2, start + position, write_id, line FROM place,
               unnest($4::bigint[], $5::bigint[], $6::bytea[]) AS event (position, write_id, line)),
    entries AS (INSERT INTO shoal.transcript_lines (session, agent, number, line)
                SELECT $2, agent, number, line FROM place,
                unnest($7::text[], $8::bigint[], $9::bytea[]) AS entry (agent, number, line))
    SELECT start FROM place
"""
_APPEND_ENTRIES = f"""
    {_FENCE},
    entries AS (INSERT INTO shoal.transcript_lines (session, agent, number, line)
                SELECT $2, agent, number, line FROM fence,
                unnest($3::text[], $4::bigint[], $5::bytea[]) AS entry (agent, number, line))
    SELECT 0::bigint FROM fence
"""


class TranscriptEnd:
    """Place of the next line of a transcript, and the title that is stored with it."""

    def __init__(self, session: str, agent: str, title: str) -> None:
        self.session = session
        self.agent = to_database_text(agent)
        self._title = title
        self.next_number: int | None = None

    def set_title(self, title: str) -> None:
        """Set the title, which the next line stores."""
        self._title, self.next_number = title, None

    def move_beyond(self, number: int) -> None:
        """Continue after a line that was stored."""
        self.next_number = number + 1

    def forget_place(self) -> None:
        """Look the place up again before the next line."""
        self.next_number = None

    async def find(self, raw: Any, epoch: int) -> None:
        """Look the place up, and store the title if the process with this epoch has its lease."""
        if self._title:
            await raw.execute(
                _SET_TITLE,
                epoch,
                self.session,
                to_database_text(self._title),
            )
        self.next_number = await raw.fetchval(
            "SELECT coalesce(max(number) + 1, 0) FROM shoal.transcript_lines "
            "WHERE session = $1 AND agent = $2",
            self.session,
            self.agent,
        )


class EntryLine(NamedTuple):
    """Line of a transcript. The lock of the session ensures that it has only one writer."""

    session: str
    line: bytes
    end: TranscriptEnd

    async def append_alone(self, worker: DatabaseWorker) -> int:
        end = self.end

        async def append(raw: Any) -> bool:
            if end.next_number is None:
                await end.find(raw, worker.epoch)
            arguments = (self.session, end.agent, end.next_number)
            if await raw.fetchval(_APPEND_ENTRY, worker.epoch, *arguments, self.line):
                return True
            stored = await raw.fetchval(
                "SELECT line FROM shoal.transcript_lines WHERE session = $1 AND agent = $2 AND number = $3",
                *arguments,
            )
            if stored == self.line:
                return True  # the first try was committed when its connection was lost
            end.forget_place()
            return stored is not None and await append(raw)

        if not await worker.execute(append):
            raise worker.lose_lease()
        number = end.next_number
        assert number is not None
        end.move_beyond(number)
        return number


class EventLine(NamedTuple):
    """Line of a journal. `write_id` identifies it if it is uncertain whether it was stored."""

    session: str
    line: bytes
    write_id: int
    directory: Path

    async def append_alone(self, worker: DatabaseWorker) -> int:
        async def append(raw: Any) -> int | None:
            try:
                position: int | None = await raw.fetchval(
                    _APPEND_EVENT, worker.epoch, self.session, self.line, self.write_id
                )
            except asyncpg.UniqueViolationError:
                # The first try was committed when its connection was lost.
                position = await raw.fetchval(
                    "SELECT position FROM shoal.journal_lines WHERE session = $1 AND write_id = $2",
                    self.session,
                    self.write_id,
                )
            if position is None and await raw.fetchval(
                "SELECT EXISTS (SELECT FROM shoal.holders WHERE epoch = $1)", worker.epoch
            ):
                raise StateFileError(
                    f"The session {self.session} was deleted from the store.", path=self.directory
                )
            return position

        position = await worker.execute(append)
        if position is None:
            raise worker.lose_lease()
        return position


NewLine: TypeAlias = EntryLine | EventLine


class LineCall:
    """Lines that were appended by one call. `on_done` is called once all of them are stored or failed."""

    def __init__(self, lines: Sequence[NewLine], on_done: Callable[[LineCall], None]) -> None:
        self.lines = lines
        self.place = 0
        """Number of the last line if it is an entry, or its position if it is an event."""
        self.error: BaseException | None = None
        self._open = len(lines)
        self._on_done = on_done

    def settle_line(self, place: int, error: BaseException | None = None) -> None:
        self.place, self.error = place, self.error or error
        self._open -= 1
        if not self._open:
            self._on_done(self)


class _WaitingLine(NamedTuple):
    line: NewLine
    call: LineCall


class LineWriter:
    """Stores lines in the order of the calls. All methods run in the event loop of the client's thread."""

    def __init__(self, worker: DatabaseWorker) -> None:
        self._worker = worker
        self._waiting: deque[_WaitingLine] = deque()
        self._is_writing = False

    def append(self, call: LineCall) -> None:
        """Store lines in their order, soon."""
        self._waiting.extend(_WaitingLine(line, call) for line in call.lines)
        if not self._is_writing:
            self._is_writing = True
            self._worker.start_task(self._write_waiting())

    async def _write_waiting(self) -> None:
        batch: list[_WaitingLine] = []
        try:
            while self._waiting:
                batch = self._take_batch()
                if len(batch) == 1 or not await self._write_together(batch):
                    while batch:
                        await self._write_alone(batch[0])
                        del batch[0]
                batch = []
        finally:
            self._is_writing = False
            for waiting in (*batch, *self._waiting):  # the worker is closing
                waiting.call.settle_line(0, asyncio.CancelledError())
            self._waiting.clear()

    def _take_batch(self) -> list[_WaitingLine]:
        """Take the next lines of one session."""
        batch: list[_WaitingLine] = []
        size = 0
        while self._waiting and len(batch) < MAX_LINES and size < _MAX_BYTES:
            if batch and self._waiting[0].line.session != batch[0].line.session:
                break
            batch.append(self._waiting.popleft())
            size += len(batch[-1].line.line)
        return batch

    async def _write_alone(self, waiting: _WaitingLine) -> None:
        try:
            place = await waiting.line.append_alone(self._worker)
        except Exception as error:  # noqa: BLE001 - raised by the caller
            waiting.call.settle_line(0, error)
        else:
            waiting.call.settle_line(place)

    async def _write_together(self, batch: list[_WaitingLine]) -> bool:
        """Store lines with one statement; return False if each has to be stored alone."""
        lines = _LineBatch(self._worker.epoch, [waiting.line for waiting in batch])
        try:
            start = await self._worker.execute(lines.append)
        except Exception as error:  # noqa: BLE001 - raised by the callers
            for waiting in batch:
                waiting.call.settle_line(0, error)
            return True
        if start is None:
            return False  # alone, each finds out why
        positions = iter(lines.offsets)
        for waiting in batch:
            waiting.call.settle_line(0 if isinstance(waiting.line, EntryLine) else start + next(positions))
        return True


class _LineBatch:
    """Lines of one session."""

    def __init__(self, epoch: int, lines: list[NewLine]) -> None:
        self._epoch = epoch
        self._session = lines[0].session
        self._entries = [line for line in lines if isinstance(line, EntryLine)]
        self._events = [line for line in lines if isinstance(line, EventLine)]
        self.offsets = list(accumulate((len(event.line) for event in self._events), initial=0))
        """Offset of each event from the first, and the size of all."""

    async def append(self, raw: Any) -> int | None:
        """Store them with one statement; return the position of the first event, or None on a conflict."""
        for entry in self._entries:
            if entry.end.next_number is None:
                await entry.end.find(raw, self._epoch)
        numbers = _number_entries(self._entries)
        try:
            start = await self._insert(raw, numbers)
        except asyncpg.UniqueViolationError:
            # The first try was committed when its connection was lost, or another process wrote entries.
            return None
        if start is not None:
            for entry, number in zip(self._entries, numbers, strict=True):
                entry.end.move_beyond(number)
        return start

    async def _insert(self, raw: Any, numbers: list[int]) -> int | None:
        arguments: tuple[object, ...] = (
            [entry.end.agent for entry in self._entries],
            numbers,
            [entry.line for entry in self._entries],
        )
        statement = _APPEND_ENTRIES
        if self._events:
            statement = _APPEND_LINES
            ids, lines = [event.write_id for event in self._events], [event.line for event in self._events]
            arguments = (self.offsets[-1], self.offsets[:-1], ids, lines, *arguments)
        start: int | None = await raw.fetchval(statement, self._epoch, self._session, *arguments)
        return start


def _number_entries(entries: list[EntryLine]) -> list[int]:
    """Return the number of each entry after the ends of their transcripts."""
    next_numbers: dict[TranscriptEnd, int] = {}
    numbers: list[int] = []
    for entry in entries:
        assert entry.end.next_number is not None
        number = next_numbers.get(entry.end, entry.end.next_number)
        numbers.append(number)
        next_numbers[entry.end] = number + 1
    return numbers
