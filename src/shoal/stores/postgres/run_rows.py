"""A whole run read from the database, or inserted into it, to move it to another store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from shoal.core.errors import SessionNotFound, StateFileError
from shoal.core.ids import LEAD_ID, AgentId, SessionId
from shoal.core.names import AgentName, TaskId, TeamName
from shoal.core.teams.tasks import find_open_blockers
from shoal.stores.postgres.database_text import to_database_key, to_database_text
from shoal.stores.postgres.postgres_store import complete_last_line, insert_transcript
from shoal.stores.postgres.postgres_work import insert_work_part, parse_work_row
from shoal.stores.postgres.roster_rows import read_roster_document
from shoal.stores.postgres.task_rows import TASK_COLUMNS, insert_task, parse_task_row
from shoal.stores.stored_run import (
    StoredRun,
    StoredRunBoard,
    StoredRunInbox,
    StoredRunMail,
    StoredRunQuestion,
    StoredRunTeam,
)
from shoal.wire.question_codec import parse_question
from shoal.wire.roster_codec import ParsedTeamRosterFile, parse_team_roster
from shoal.wire.task_codec import ParsedTaskFile, parse_task
from shoal.wire.transcript_codec import TranscriptTitleEntry, parse_transcript_line
from shoal.wire.work_codec import encode_work_part, parse_work_part


async def read_run_rows(raw: Any, session: SessionId) -> StoredRun:
    """Read the run of a session from one snapshot of the database."""
    found = await raw.fetchrow("SELECT cwd FROM shoal.sessions WHERE id = $1", session)
    if found is None:
        raise SessionNotFound(f"There is no session {session} in the store.", path=Path())
    transcripts: dict[AgentId, list[bytes]] = {}
    for agent, line in await raw.fetch(
        "SELECT agent, line FROM shoal.transcript_lines WHERE session = $1 ORDER BY agent, number", session
    ):
        transcripts.setdefault(AgentId(agent), []).append(line)
    metadata = await raw.fetch("SELECT agent, document FROM shoal.agent_metadata WHERE session = $1", session)
    journal = await raw.fetch(
        "SELECT line FROM shoal.journal_lines WHERE session = $1 ORDER BY position", session
    )
    results = await raw.fetch("SELECT name, content FROM shoal.results WHERE session = $1", session)
    questions = await raw.fetch(
        "SELECT id, question, answer, late_answer FROM shoal.questions WHERE session = $1 ORDER BY number",
        session,
    )
    work: dict[str, list[bytes]] = {}
    for agent, state, bundle in await raw.fetch(
        "SELECT agent, state, bundle FROM shoal.work_parts WHERE session = $1 ORDER BY agent, number", session
    ):
        part = parse_work_row(session, agent, state, bundle)
        work.setdefault(part.agent, []).append(encode_work_part(part))
    teams = tuple([team async for team in _read_teams(raw, session)])
    names = (session, *(team.name for team in teams))
    boards = {name: board for name in names if (board := await _read_board(raw, name)) is not None}
    return StoredRun(
        session=session,
        cwd=found[0],
        transcripts={agent: b"".join(lines) for agent, lines in transcripts.items()},
        metadata={AgentId(row[0]): row[1] for row in metadata},
        journal=b"".join(row[0] for row in journal),
        results={row[0]: row[1] for row in results},
        questions=tuple(
            StoredRunQuestion(
                id=_read_question_id(row[1], row[0]), question=row[1], answer=row[2], late_answer=row[3]
            )
            for row in questions
        ),
        teams=teams,
        boards=boards,
        work={agent: tuple(parts) for agent, parts in work.items()},
    )


def _read_question_id(document: bytes, key: str) -> str:
    """Return the id of a question, which its key may have been shortened from."""
    try:
        return parse_question(document).id
    except ValueError:
        return key


async def _read_teams(raw: Any, session: SessionId) -> Any:
    for name, document, spawned in await raw.fetch(
        "SELECT name, document, spawned FROM shoal.teams ORDER BY name"
    ):
        roster = parse_team_roster(document, TeamName(name))
        if not isinstance(roster, ParsedTeamRosterFile) or roster.team.lead_session_id != session:
            continue
        mail: dict[str, list[StoredRunMail]] = {}
        for owner, *row in await raw.fetch(
            "SELECT owner, id, document, is_read, is_archived FROM shoal.mail WHERE team = $1 "
            "ORDER BY number",
            name,
        ):
            mail.setdefault(owner, []).append(
                StoredRunMail(id=row[0], document=row[1], is_read=row[2], is_archived=row[3])
            )
        inboxes = await raw.fetch("SELECT owner, is_foreign FROM shoal.inboxes WHERE team = $1", name)
        yield StoredRunTeam(
            name=TeamName(name),
            roster=await read_roster_document(raw, TeamName(name), document),
            spawned=spawned,
            key=await raw.fetchval("SELECT key FROM shoal.team_keys WHERE team = $1", name),
            inboxes={
                AgentName(owner): StoredRunInbox(is_foreign=is_foreign, mail=tuple(mail.get(owner, ())))
                for owner, is_foreign in inboxes
            },
        )


async def _read_board(raw: Any, name: str) -> StoredRunBoard | None:
    highest = await raw.fetchval("SELECT highest FROM shoal.boards WHERE name = $1", name)
    if highest is None:
        return None
    rows = await raw.fetch(
        f"SELECT {TASK_COLUMNS} FROM shoal.tasks WHERE board = $1 AND status <> 'deleted' ORDER BY number",
        name,
    )
    parsed = [parse_task_row(row) for row in rows]
    return StoredRunBoard(
        highest=highest, tasks={int(row.task.id): row.encode_document(row.task) for row in parsed}
    )


async def insert_run_rows(raw: Any, run: StoredRun) -> None:
    """Insert the run, in the transaction of the caller; do nothing if the store has the same run.

    Raises `StateFileError` if the session or one of its teams is already in the store.
    """
    journal = complete_last_line(run.journal)
    transcripts = {agent: complete_last_line(content) for agent, content in run.transcripts.items()}
    if await raw.fetchval("SELECT true FROM shoal.sessions WHERE id = $1", run.session):
        # An earlier import may have died before it could report its end.
        if await read_run_rows(raw, run.session) == replace(run, journal=journal, transcripts=transcripts):
            return
        raise StateFileError(f"The store already has a different session {run.session}.", path=Path())
    for table, column, names in (
        ("teams", "name", [team.name for team in run.teams]),
        ("boards", "name", list(run.boards)),
    ):
        taken = await raw.fetchval(f"SELECT {column} FROM shoal.{table} WHERE {column} = ANY($1)", names)
        if taken is not None:
            raise StateFileError(f"The store already has {taken} in its table {table}.", path=Path())
    await raw.execute(
        "INSERT INTO shoal.sessions (id, cwd, title, journal_size) VALUES ($1, $2, $3, $4)",
        run.session,
        to_database_text(run.cwd),
        to_database_text(_find_title(run.transcripts[LEAD_ID])),
        len(journal),
    )
    for agent, content in run.transcripts.items():
        await insert_transcript(raw, run.session, agent, content)
    await raw.executemany(
        "INSERT INTO shoal.agent_metadata VALUES ($1, $2, $3)",
        [(run.session, agent, document) for agent, document in run.metadata.items()],
    )
    await _insert_journal(raw, run.session, journal)
    await raw.executemany(
        "INSERT INTO shoal.results VALUES ($1, $2, $3, $4)",
        [(run.session, name, number, content) for number, (name, content) in enumerate(run.results.items())],
    )
    await raw.executemany(
        "INSERT INTO shoal.questions (session, id, question, answer, late_answer) "
        "VALUES ($1, $2, $3, $4, $5)",
        [
            (run.session, to_database_key(each.id), each.question, each.answer, each.late_answer)
            for each in run.questions
        ],
    )
    for parts in run.work.values():
        for number, document in enumerate(parts, 1):
            await insert_work_part(raw, run.session, number, parse_work_part(document))
    for name, board in run.boards.items():
        await _insert_board(raw, name, board)
    for team in run.teams:
        await _insert_team(raw, team)


async def _insert_journal(raw: Any, session: SessionId, journal: bytes) -> None:
    position = 0
    rows = []
    for number, line in enumerate(journal.split(b"\n")[:-1]):
        rows.append((session, position, number, line + b"\n"))
        position += len(line) + 1
    await raw.executemany("INSERT INTO shoal.journal_lines VALUES ($1, $2, $3, $4)", rows)


async def _insert_board(raw: Any, name: str, board: StoredRunBoard) -> None:
    await raw.execute("INSERT INTO shoal.boards VALUES ($1, $2)", name, board.highest)
    files: dict[TaskId, ParsedTaskFile] = {}
    for number, document in board.tasks.items():
        file = parse_task(document, TaskId(str(number)))
        if isinstance(file, ParsedTaskFile):
            files[file.task.id] = file
    tasks = {task: file.task for task, file in files.items()}
    for file in files.values():
        await insert_task(raw, name, file.task, file.content)
    dependents_by_id: dict[TaskId, list[int]] = {}
    for task in tasks.values():
        for blocker in task.blocked_by:
            dependents_by_id.setdefault(blocker, []).append(int(task.id))
    for file in files.values():
        dependents = dependents_by_id.get(file.task.id, [])
        open_blockers = len(find_open_blockers(file.task, tasks))
        if dependents or open_blockers:
            await raw.execute(
                "UPDATE shoal.tasks SET dependents = $3::bigint[], open_blockers = $4 "
                "WHERE board = $1 AND number = $2",
                name,
                int(file.task.id),
                dependents,
                open_blockers,
            )
    # The processes that held these tasks do not hold them here.
    leases = {task.claim_attempt.partition("-")[0] for task in tasks.values() if task.claim_attempt}
    await raw.executemany(
        "INSERT INTO shoal.board_leases VALUES ($1, $2, 0, true) ON CONFLICT DO NOTHING",
        [(lease, name) for lease in leases],
    )


async def _insert_team(raw: Any, team: StoredRunTeam) -> None:
    await raw.execute("INSERT INTO shoal.teams VALUES ($1, $2, $3)", team.name, team.roster, team.spawned)
    if team.key is not None:
        await raw.execute(
            "INSERT INTO shoal.team_keys VALUES ($1, $2) ON CONFLICT (team) DO UPDATE SET key = excluded.key",
            team.name,
            team.key,
        )
    for owner, inbox in team.inboxes.items():
        await raw.execute("INSERT INTO shoal.inboxes VALUES ($1, $2, $3)", team.name, owner, inbox.is_foreign)
        await raw.executemany(
            "INSERT INTO shoal.mail (team, owner, id, document, is_read, is_archived) "
            "VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING",
            [
                (team.name, owner, to_database_text(each.id), each.document, each.is_read, each.is_archived)
                for each in inbox.mail
            ],
        )


def _find_title(transcript: bytes) -> str:
    """Return the last title that a person gave the session; empty if there is none."""
    for line in reversed(transcript.splitlines()):
        if b'"custom-title"' in line:
            try:
                entry = parse_transcript_line(line).entry
            except (ValueError, msgspec.DecodeError):
                continue
            if isinstance(entry, TranscriptTitleEntry) and entry.is_custom:
                return entry.text
    return ""
