"""A whole run read from the files of a home, or written to them, to move it to another store."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec
from msgspec import Struct

from shoal.core.errors import StateFileError
from shoal.core.ids import LEAD_ID, AgentId, SessionId, slugify_project_path
from shoal.core.names import LEAD_NAME, AgentName, TaskId, TeamName
from shoal.stores.files.access.directory_handle import DirectoryHandle
from shoal.stores.files.home.exported_files import EXPORT_LIST, ExportWriter
from shoal.stores.files.home.home_directories import open_or_create_home_subdirectory
from shoal.stores.files.home.home_paths import (
    get_run_directory,
    get_subagent_transcript_path,
    get_subagent_transcripts_directory,
    get_transcript_path,
    read_state_file,
    to_safe_file_name,
    write_file_atomically,
)
from shoal.stores.files.mailboxes.inbox_file import mark_inbox_entries_read
from shoal.stores.files.mailboxes.inbox_overflow import InboxOverflow
from shoal.stores.files.sessions.damaged_files import find_led_teams
from shoal.stores.files.sessions.result_files import SIZES_FILE, record_result_size
from shoal.stores.files.sessions.session_files import find_session_transcript
from shoal.stores.files.sessions.work_files import WorkFiles, get_work_path
from shoal.stores.files.teams.file_roster_store import OWN_MEMBERS_FILE
from shoal.stores.files.teams.team_ownership import CREATOR_FILE
from shoal.stores.stored_run import (
    StoredRun,
    StoredRunBoard,
    StoredRunInbox,
    StoredRunMail,
    StoredRunQuestion,
    StoredRunTeam,
)
from shoal.wire.foreign_json import InvalidFileContent, RejectedFileEntry
from shoal.wire.json_codec import split_json_objects
from shoal.wire.mail_codec import (
    MailInboxFileEntry,
    ParsedMailInboxFile,
    encode_inbox,
    parse_inbox,
    parse_inbox_entry,
)
from shoal.wire.question_codec import parse_question
from shoal.wire.roster_codec import ParsedTeamRosterFile, encode_own_member_list, parse_team_roster
from shoal.wire.task_codec import parse_task
from shoal.wire.work_codec import encode_work_part

_WATERMARK = ".highwatermark"
_MAX_DIGITS = 18
_UNFINISHED = "unfinished-copy.json"
"""File in the directory of a run while the run is written."""


class _UnfinishedCopy(Struct, frozen=True, kw_only=True):
    """Names of the parts of a run that were free when its copy was started."""

    teams: tuple[str, ...]
    boards: tuple[str, ...]
    transcript: str


def read_run_files(home: Path, name: str) -> StoredRun:
    """Read the run of a session. Raises `SessionNotFound`, or `StateFileError` for an invalid file."""
    transcript = find_session_transcript(home, name)
    session = SessionId(transcript.stem)
    subagents = get_subagent_transcripts_directory(transcript)
    transcripts = {LEAD_ID: read_state_file(transcript)}
    for path in sorted(subagents.glob("agent-*")):
        _check_name(path)
    for path in sorted(subagents.glob("agent-*.jsonl")):
        transcripts[AgentId(path.stem.removeprefix("agent-"))] = read_state_file(path)
    metadata = {
        AgentId(path.name.removeprefix("agent-").removesuffix(".meta.json")): read_state_file(path)
        for path in sorted(subagents.glob("agent-*.meta.json"))
    }
    run = get_run_directory(home, session)
    teams = tuple(_read_teams(home, session))
    boards = {
        each: board
        for each in (session, *(team.name for team in teams))
        if (board := _read_board(home / "tasks" / each)) is not None
    }
    return StoredRun(
        session=session,
        cwd=_find_project_directory(transcript, transcripts[LEAD_ID]),
        transcripts=transcripts,
        metadata=metadata,
        journal=_read_file_or_empty(run / "journal.jsonl"),
        results={path.name: read_state_file(path) for path in _list_files(run / "results")},
        questions=tuple(_read_questions(run / "questions")),
        teams=teams,
        boards=boards,
        work=_read_work(run / "agent-work"),
    )


def write_run_files(home: Path, run: StoredRun) -> Path:
    """Write the run; return the transcript of the lead. It is written last: without it there is no run.

    If this process dies, the next call starts again: a file names the parts that may be incomplete. Raises
    `StateFileError` if the session, one of its teams or one of its boards already exists.
    """
    transcript = get_transcript_path(home, run.cwd, run.session)
    directory = get_run_directory(home, run.session)
    if (unfinished := _read_unfinished_copy(directory)) is not None:
        if transcript.exists():
            (directory / _UNFINISHED).unlink()  # only that was missing
            return transcript
        _remove_unfinished_copy(home, run.session, unfinished)
    _check_names_are_free(home, run)
    names = _UnfinishedCopy(
        teams=tuple(team.name for team in run.teams), boards=tuple(run.boards), transcript=str(transcript)
    )
    write_file_atomically(directory / _UNFINISHED, msgspec.json.encode(names), durable=True)
    files = ExportWriter(home)
    _write_run_directory(files, directory, run)
    for name, board in run.boards.items():
        _write_board(files, home / "tasks" / name, board)
    subagents = get_subagent_transcripts_directory(transcript)
    for agent, document in run.metadata.items():
        path = get_subagent_transcript_path(subagents, agent)
        files.write(path.with_suffix(".meta.json"), document)
    for agent, content in run.transcripts.items():
        if agent != LEAD_ID:
            files.write(get_subagent_transcript_path(subagents, agent), content)
    for team in run.teams:
        _write_team(files, home, team)
    files.note(transcript, run.transcripts[LEAD_ID])
    files.write_list(directory)
    write_file_atomically(transcript, run.transcripts[LEAD_ID], durable=True)
    (directory / _UNFINISHED).unlink()
    return transcript


def _read_unfinished_copy(directory: Path) -> _UnfinishedCopy | None:
    path = directory / _UNFINISHED
    try:
        return msgspec.json.decode(read_state_file(path), type=_UnfinishedCopy)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise StateFileError(f"{path} is not valid: {error}.", path=path) from error


def _remove_unfinished_copy(home: Path, session: SessionId, copy: _UnfinishedCopy) -> None:
    """Remove what an earlier process wrote before it died; its names were free then."""
    for name in copy.teams:
        roster = parse_team_roster(_read_file_or_empty(home / "teams" / name / "config.json"), TeamName(name))
        if isinstance(roster, ParsedTeamRosterFile) and roster.team.lead_session_id != session:
            raise StateFileError(f"{home} already has a team {name}.", path=home)
    run, subagents = (
        get_run_directory(home, session),
        get_subagent_transcripts_directory(Path(copy.transcript)),
    )
    for directory in (
        *(home / "tasks" / name for name in copy.boards),
        *(home / parent / name for name in copy.teams for parent in ("teams", "shoal/teams")),
        run / "questions",
        run / "agent-work",
        subagents,
    ):
        if directory.is_dir():
            shutil.rmtree(directory)
    files = (run / "journal.jsonl", run / "results" / SIZES_FILE, run / EXPORT_LIST)
    for path in (*files, *(home / "shoal" / "keys" / name for name in copy.teams)):
        path.unlink(missing_ok=True)


def _check_names_are_free(home: Path, run: StoredRun) -> None:
    if any((home / "projects").glob(f"*/{run.session}.jsonl")):
        raise StateFileError(f"{home} already has a session {run.session}.", path=home)
    for team in run.teams:
        if (home / "teams" / team.name / "config.json").exists():
            raise StateFileError(f"{home} already has a team {team.name}.", path=home)
    for name in run.boards:
        if (home / "tasks" / name).exists():
            raise StateFileError(f"{home} already has a board {name}.", path=home)


def _write_run_directory(files: ExportWriter, directory: Path, run: StoredRun) -> None:
    if run.journal:
        files.write(directory / "journal.jsonl", run.journal)
    for name, content in run.results.items():
        files.write(directory / "results" / to_safe_file_name(name), content)
        record_result_size(directory / "results", to_safe_file_name(name), len(content))
    for question in run.questions:
        _write_question(files, directory / "questions", question)
    for agent, parts in run.work.items():
        for number, document in enumerate(parts, 1):
            files.write(get_work_path(directory / "agent-work", agent, number), document)


def _find_project_directory(transcript: Path, content: bytes) -> str:
    """Return the session's project directory, as named by the transcript lines that match its location."""
    first = ""
    for line in content.splitlines():
        try:
            cwd = msgspec.json.decode(line).get("cwd")
        except (ValueError, AttributeError):
            continue
        if isinstance(cwd, str) and cwd:
            first = first or cwd
            if slugify_project_path(cwd) == transcript.parent.name:
                return cwd
    if not first:
        raise StateFileError(f"{transcript} does not name its project directory.", path=transcript)
    return first


def _read_questions(directory: Path) -> list[StoredRunQuestion]:
    questions = []
    files = [path for path in _list_files(directory) if path.suffix == ".json"]
    for path in sorted(files, key=lambda each: (each.stat().st_mtime_ns, each.name)):
        if path.name.endswith((".answer.json", ".late.json")):
            continue
        content = read_state_file(path)
        try:
            question_id = parse_question(content).id
        except ValueError as error:
            raise StateFileError(f"{path} does not contain a valid question.", path=path) from error
        questions.append(
            StoredRunQuestion(
                id=question_id,
                question=content,
                answer=_read_file_or_empty(path.with_suffix(".answer.json")) or None,
                late_answer=_read_file_or_empty(path.with_suffix(".late.json")) or None,
            )
        )
    return questions


def _write_question(files: ExportWriter, directory: Path, question: StoredRunQuestion) -> None:
    path = directory / f"{to_safe_file_name(question.id)}.json"
    for answer, suffix in ((question.answer, ".answer.json"), (question.late_answer, ".late.json")):
        if answer is not None:
            files.write(path.with_suffix(suffix), answer)
    files.write(path, question.question)


def _read_work(directory: Path) -> dict[str, tuple[bytes, ...]]:
    """Read the parts that count. Raises `StateFileError` for one that is not valid."""
    work = WorkFiles(directory)
    return {agent: tuple(map(encode_work_part, work.read_parts(agent))) for agent in work.list_summaries()}


def _read_board(directory: Path) -> StoredRunBoard | None:
    if not directory.is_dir():
        return None
    tasks = {
        int(path.stem): _read_task_document(path)
        for path in _list_files(directory)
        if path.suffix == ".json" and path.stem.isdecimal()
    }
    return StoredRunBoard(highest=max([_read_count(directory / _WATERMARK), *tasks]), tasks=tasks)


def _read_task_document(path: Path) -> bytes:
    content = read_state_file(path)
    task = parse_task(content, TaskId(path.stem))
    if isinstance(task, InvalidFileContent):
        raise StateFileError(
            f"{path} is not a valid task: {task.reason}. Repair it or remove it, then try again.", path=path
        )
    return content


def _write_board(files: ExportWriter, directory: Path, board: StoredRunBoard) -> None:
    for number, document in board.tasks.items():
        files.write(directory / f"{number}.json", document)
    files.write(directory / _WATERMARK, str(board.highest).encode())
    # The file that other programs lock.
    os.close(os.open(directory / ".lock", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _read_teams(home: Path, session: SessionId) -> list[StoredRunTeam]:
    teams = []
    for name in map(TeamName, find_led_teams(home, session)):
        path, own = home / "teams" / name / "config.json", home / "shoal" / "teams" / name
        content = _read_file_or_empty(path)
        roster = parse_team_roster(content, name)
        if isinstance(roster, InvalidFileContent):
            problem = "is missing" if not content else f"is not valid: {roster.reason}"
            raise StateFileError(
                f"The roster {path} {problem}. Repair it, or remove the directories {path.parent} and {own}, "
                "then try again.",
                path=path,
            )
        if roster.team.lead_session_id != session:
            continue
        spawned = _read_count(own / "spawned")
        with open_or_create_home_subdirectory(home, "shoal", "teams", name, "overflow") as overflow:
            inboxes = {
                AgentName(inbox.stem): _read_inbox(inbox, own, overflow)
                for inbox in _list_files(path.parent / "inboxes")
                if inbox.suffix == ".json"
            }
        teams.append(
            StoredRunTeam(
                name=name,
                roster=content,
                spawned=spawned,
                key=_read_file_or_empty(home / "shoal" / "keys" / name) or None,
                inboxes=inboxes,
            )
        )
    return teams


def _read_inbox(path: Path, own: Path, overflow: DirectoryHandle) -> StoredRunInbox:
    inbox = parse_inbox(read_state_file(path))
    if not isinstance(inbox, ParsedMailInboxFile) or inbox.rejected:
        raise StateFileError(f"{path} contains invalid mail.", path=path)
    archive = _read_file_or_empty(own / "archive" / f"{path.stem}.jsonl")
    archive_lines = [split_json_objects(line) for line in archive.split(b"\n") if line]
    archived = [parse_inbox_entry(each) for objects, _ in archive_lines for each in objects]
    if not all(is_whole for _, is_whole in archive_lines) or any(
        isinstance(entry, RejectedFileEntry) for entry in archived
    ):
        raise StateFileError(
            f"{own / 'archive' / f'{path.stem}.jsonl'} has lines that are not valid mail. Remove them, "
            f"then try again.",
            path=own,
        )
    waiting = [parse_inbox_entry(line) for line in InboxOverflow(overflow, path.stem).read_waiting_lines()]
    mail = [
        StoredRunMail(id=entry.mail.id, document=entry.raw, is_read=entry.mail.read, is_archived=is_archived)
        for entries, is_archived in ((archived, True), ((*inbox.entries, *waiting), False))
        for entry in entries
        if isinstance(entry, MailInboxFileEntry)
    ]
    return StoredRunInbox(is_foreign=(own / "foreign" / path.stem).exists(), mail=tuple(mail))


def _write_team(files: ExportWriter, home: Path, team: StoredRunTeam) -> None:
    """Write a team; its roster last, without which it does not exist."""
    own = home / "shoal" / "teams" / team.name
    for owner, inbox in team.inboxes.items():
        archive = b"".join(each.raw + b"\n" for each in _build_entries(inbox, is_archived=True))
        if archive:
            files.write(own / "archive" / f"{owner}.jsonl", archive)
        if inbox.is_foreign:
            files.write(own / "foreign" / owner, b"")
        content = encode_inbox([each.raw for each in _build_entries(inbox, is_archived=False)])
        files.write(home / "teams" / team.name / "inboxes" / f"{owner}.json", content)
    files.write(own / "spawned", f"{team.spawned:018d}".encode())
    if team.key is not None:
        files.write(home / "shoal" / "keys" / team.name, team.key)
    roster = parse_team_roster(team.roster, TeamName(team.name))
    if isinstance(roster, ParsedTeamRosterFile):
        names = [member.name for member in roster.team.members if member.name != LEAD_NAME]
        files.write(own / OWN_MEMBERS_FILE, encode_own_member_list(names))
        files.write(own / CREATOR_FILE, roster.team.lead_session_id.encode())
    files.write(home / "teams" / team.name / "config.json", team.roster)


def _build_entries(inbox: StoredRunInbox, *, is_archived: bool) -> tuple[MailInboxFileEntry, ...]:
    chosen = [each for each in inbox.mail if each.is_archived == is_archived]
    entries = [
        entry for each in chosen if isinstance(entry := parse_inbox_entry(each.document), MailInboxFileEntry)
    ]
    return mark_inbox_entries_read(entries, {each.id for each in chosen if each.is_read})


def _list_files(directory: Path) -> list[Path]:
    if not directory.is_dir():
        return []
    files = sorted(path for path in directory.iterdir() if path.is_file() and not path.name.startswith("."))
    for path in files:
        _check_name(path)
    return files


def _check_name(path: Path) -> None:
    try:
        path.name.encode()
    except UnicodeEncodeError:
        raise StateFileError(
            f"The name of the file {str(path)!r} is not valid UTF-8. Rename it or remove it, then try again.",
            path=path,
        ) from None


def _read_count(path: Path) -> int:
    """Return the number in a file; 0 if it has none. Raises `StateFileError` if no store can have it."""
    text = _read_file_or_empty(path).strip()
    if not text.isdigit():
        return 0
    if len(text.lstrip(b"0")) > _MAX_DIGITS:
        raise StateFileError(
            f"The number in {path} is too large. Remove the file, then try again.", path=path
        )
    return int(text)


def _read_file_or_empty(path: Path) -> bytes:
    try:
        return read_state_file(path)
    except FileNotFoundError:
        return b""
