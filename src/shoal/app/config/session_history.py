"""History from which a session starts: none, an earlier session, or a fork of one."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from shoal.app.options import Options
from shoal.core.conversation.messages import Message
from shoal.core.errors import SessionNotFound, SettingsError, StateFileError
from shoal.core.ids import EntryId, IdGenerator, SessionId, is_uuid
from shoal.stores.files.home.home_paths import (
    get_project_state_directory,
    get_run_directory,
    get_transcript_path,
)
from shoal.stores.files.locks.pid_locks import SessionLock
from shoal.stores.files.sessions.session_files import (
    find_latest_session,
    find_session_transcript,
    fork_session,
    read_session_transcript,
)


class SessionHistory(Struct, frozen=True, kw_only=True):
    session: SessionId
    transcript: Path
    directory: Path
    """Directory of the run."""
    lock: SessionLock | None
    """None if nothing is persisted."""
    messages: tuple[Message, ...] = ()
    last: EntryId | None = None
    interrupted: Message | None = None
    turns: int = 0
    delivered: frozenset[str] = frozenset()
    """Ids of all items that the lead received while it worked."""
    answered: frozenset[str] = frozenset()
    """Ids of its calls that have their own result."""
    notes: tuple[str, ...] = ()


def open_session_history(options: Options, home: Path, cwd: str, ids: IdGenerator) -> SessionHistory:
    """Lock the session against other writers and read its messages."""
    if (membership := options.membership) is not None and membership.channel is not None:
        # The lead holds the lock; this process only runs one of its teammates.
        return SessionHistory(
            session=SessionId(membership.session),
            transcript=Path(membership.transcript),
            directory=Path(membership.run_directory),
            lock=None,
        )
    transcript = _find_transcript_to_resume(options, home, cwd)
    if transcript is None:
        return _create_new_session_history(options, home, cwd, ids)
    if options.fork:
        session = _parse_session_id_option(options) or ids.new_session_id()
        transcript = fork_session(transcript, session, home=home, cwd=cwd)
    session = SessionId(transcript.stem)
    lock = SessionLock(home, session)
    try:
        loaded = read_session_transcript(transcript)
    except StateFileError:
        lock.release()
        raise
    return SessionHistory(
        session=session,
        transcript=transcript,
        directory=get_run_directory(home, session),
        lock=lock,
        messages=loaded.messages,
        last=loaded.last,
        interrupted=loaded.interrupted,
        turns=loaded.turns,
        delivered=loaded.delivered,
        answered=loaded.answered,
        notes=loaded.notes,
    )


def _find_transcript_to_resume(options: Options, home: Path, cwd: str) -> Path | None:
    if options.resume is not None:
        return find_session_transcript(home, options.resume)
    if not options.continue_last:
        return None
    latest = find_latest_session(home, cwd)
    if latest is None:
        raise SessionNotFound(
            f"There is no session to continue in {cwd}.", path=get_project_state_directory(home, cwd)
        )
    return get_transcript_path(home, cwd, latest)


def _create_new_session_history(options: Options, home: Path, cwd: str, ids: IdGenerator) -> SessionHistory:
    session = _parse_session_id_option(options) or ids.new_session_id()
    transcript = get_transcript_path(home, cwd, session)
    if options.persist and any((home / "projects").glob(f"*/{session}.jsonl")):
        raise StateFileError(
            f"The session {session} already exists. Resume it: shoal --resume {session}", path=transcript
        )
    return SessionHistory(
        session=session,
        transcript=transcript,
        directory=get_run_directory(home, session),
        lock=SessionLock(home, session) if options.persist else None,
    )


def _parse_session_id_option(options: Options) -> SessionId | None:
    if options.session_id is None:
        return None
    if not is_uuid(options.session_id):
        raise SettingsError(f"{options.session_id!r} is not a session id. Pass a UUID.")
    return SessionId(options.session_id)
