"""Rows of the table of tasks: the document of a task with the columns that override it."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from shoal.core.errors import StateFileError
from shoal.core.names import AgentName, TaskId
from shoal.core.teams.tasks import ATTEMPT_KEY, Task
from shoal.wire.task_codec import ParsedTaskFile, encode_new_task, parse_task

TASK_COLUMNS = "number, document, status, owner, attempt, dependents, open_blockers, version"


class TaskRow(Struct, frozen=True, kw_only=True):
    number: int
    task: Task
    file: ParsedTaskFile
    dependents: tuple[int, ...]
    open_blockers: int
    version: int

    def encode_document(self, task: Task) -> bytes:
        """Return the document of the changed task; unknown fields of other programs stay."""
        return self.file.content if task == self.file.task else self.file.encode_task(task)


def parse_task_row(row: Any) -> TaskRow:
    number, document, status, owner, attempt, dependents, open_blockers, version = row
    file = parse_task(bytes(document), TaskId(str(number)))
    if not isinstance(file, ParsedTaskFile):
        raise StateFileError(f"Task {number} in the database is not valid.", path=Path())
    metadata = file.task.metadata
    if metadata.get(ATTEMPT_KEY) != attempt:
        metadata = {key: value for key, value in metadata.items() if key != ATTEMPT_KEY}
        if attempt is not None:
            metadata[ATTEMPT_KEY] = attempt
    task = replace(
        file.task,
        status=status,
        owner=None if owner is None else AgentName(owner),
        metadata=metadata,
    )
    return TaskRow(
        number=number,
        task=task,
        file=file,
        dependents=tuple(dependents),
        open_blockers=open_blockers,
        version=version,
    )


def get_task_rank(task: Task) -> float:
    return task.sort_key[0]


async def insert_task(raw: Any, board: str, task: Task, document: bytes | None = None) -> None:
    """Insert a task without dependencies of others on it."""
    await raw.execute(
        "INSERT INTO shoal.tasks (board, number, document, status, owner, attempt, rank, blocked_by) "
        "VALUES ($1, $2, $3, $4, $5, $6, $7, $8::bigint[])",
        board,
        int(task.id),
        encode_new_task(task) if document is None else document,
        task.status,
        task.owner,
        task.claim_attempt,
        get_task_rank(task),
        [int(each) for each in task.blocked_by],
    )


async def write_task(
    raw: Any, board: str, row: TaskRow, task: Task, *, dependents: Collection[int] | None = None
) -> None:
    """Replace a task, whose row is locked."""
    await raw.execute(
        "UPDATE shoal.tasks SET document = $3, status = $4, owner = $5, attempt = $6, rank = $7, "
        "blocked_by = $8::bigint[], dependents = $9::bigint[], version = version + 1, "
        "changed_in = pg_current_xact_id() "
        "WHERE board = $1 AND number = $2",
        board,
        int(task.id),
        row.encode_document(task),
        task.status,
        task.owner,
        task.claim_attempt,
        get_task_rank(task),
        [int(each) for each in task.blocked_by],
        list(row.dependents if dependents is None else dependents),
    )


async def count_open_blockers(raw: Any, board: str, numbers: Collection[int]) -> None:
    """Count the open blockers of tasks. The caller holds the lock of the board."""
    await raw.execute(
        "UPDATE shoal.tasks AS task SET version = version + 1, changed_in = pg_current_xact_id(), "
        "open_blockers = (SELECT count(*) FROM shoal.tasks AS blocker WHERE blocker.board = $1 "
        "AND blocker.number = ANY(task.blocked_by) AND blocker.status NOT IN ('completed', 'deleted')) "
        "WHERE board = $1 AND number = ANY($2::bigint[])",
        board,
        list(numbers),
    )


RELEASED = "status = 'pending', owner = NULL, attempt = NULL, version = version + 1, "
RELEASED += "changed_in = pg_current_xact_id()"
_CLAIMED = "status = 'in_progress', version = version + 1, changed_in = pg_current_xact_id()"
_FENCE = "WITH fence AS (SELECT 1 FROM shoal.holders WHERE epoch = $1 FOR KEY SHARE)"
_RETURNING = ", ".join(f"task.{column}" for column in TASK_COLUMNS.split(", "))
# The owner that claims its task again keeps the part of the attempt after the lease.
CLAIM_TASK = f"""
    {_FENCE}
    UPDATE shoal.tasks AS task SET {_CLAIMED}, owner = $4, attempt = $5::text || '-' || CASE
        WHEN owner = $4 AND status = 'in_progress' AND substr(attempt, strpos(attempt, '-') + 1) <> ''
             AND strpos(attempt, '-') > 0
        THEN substr(attempt, strpos(attempt, '-') + 1) ELSE $6::text END
    FROM fence
    WHERE board = $2 AND number = $3 AND (owner IS NULL OR owner = $4)
          AND status IN ('pending', 'in_progress') AND open_blockers = 0
    RETURNING {_RETURNING}
"""
CLAIM_NEXT = f"""
    {_FENCE},
    next AS (SELECT number FROM shoal.tasks WHERE board = $2 AND status = 'pending' AND owner IS NULL
             AND open_blockers = 0 ORDER BY rank, number LIMIT 1 FOR UPDATE SKIP LOCKED)
    UPDATE shoal.tasks AS task SET {_CLAIMED}, owner = $3, attempt = $4 FROM fence, next
    WHERE task.board = $2 AND task.number = next.number
    RETURNING {_RETURNING}
"""
# The first claimant gets the first free task, and so on. `found` shows whether there are more of them.
CLAIM_SEVERAL = f"""
    {_FENCE},
    locked AS (SELECT number, rank FROM shoal.tasks WHERE board = $2 AND status = 'pending' AND owner IS NULL
               AND open_blockers = 0 ORDER BY rank, number LIMIT $5 FOR UPDATE SKIP LOCKED),
    free AS (SELECT number, row_number() OVER (ORDER BY rank, number) AS place FROM locked),
    claimant AS (SELECT * FROM unnest($3::text[], $4::text[]) WITH ORDINALITY
                 AS each (owner, attempt, place)),
    found AS (SELECT count(*) AS count FROM (SELECT FROM shoal.tasks WHERE board = $2 AND status = 'pending'
              AND owner IS NULL AND open_blockers = 0 LIMIT $5 + 1) AS pending)
    UPDATE shoal.tasks AS task SET {_CLAIMED}, owner = claimant.owner, attempt = claimant.attempt
    FROM fence, found, free JOIN claimant USING (place)
    WHERE task.board = $2 AND task.number = free.number
    RETURNING {_RETURNING}, found.count AS found
"""
CHANGE_SEVERAL = f"""
    {_FENCE},
    change AS (SELECT * FROM unnest($3::bigint[], $4::bigint[], $5::bytea[], $6::text[], $7::text[],
               $8::text[], $9::float8[])
               AS each (number, version, document, status, owner, attempt, rank)),
    changed AS (UPDATE shoal.tasks AS task SET document = change.document, status = change.status,
                owner = change.owner, attempt = change.attempt, rank = change.rank,
                version = task.version + 1, changed_in = pg_current_xact_id()
                FROM fence, change WHERE task.board = $2 AND task.number = change.number
                AND task.version = change.version RETURNING task.number)
    SELECT (SELECT count(*) FROM fence), ARRAY(SELECT number FROM changed)
"""
FIND_CLAIMABLE = """
    SELECT number, version FROM shoal.tasks WHERE board = $1 AND status = 'pending' AND owner IS NULL
    AND open_blockers = 0 ORDER BY rank, number LIMIT $2
"""
