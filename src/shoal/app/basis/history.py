"""History from which a session starts: none, an earlier session, or a fork of one."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from shoal.app.options import Options
from shoal.core.errors import NoSuchSession, SettingsError, StoreError
from shoal.core.ids import EntryId, Ids, SessionId, is_uuid
from shoal.core.messages import Message
from shoal.stores.files.locks import SessionLock
from shoal.stores.files.places import project_directory, run_directory, transcript_path
from shoal.stores.files.sessions import find_session, fork_session, latest_session, read_session


class History(Struct, frozen=True, kw_only=True):
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


def open_history(options: Options, home: Path, cwd: str, ids: Ids) -> History:
    """Lock the session against other writers and read its messages."""
    if (lead := options.membership) is not None and lead.link is not None:
        # The lead holds the lock; this process only runs one of its teammates.
        return History(
            session=SessionId(lead.session),
            transcript=Path(lead.transcript),
            directory=Path(lead.run),
            lock=None,
        )
    earlier = _earlier(options, home, cwd)
    if earlier is None:
        return _new(options, home, cwd, ids)
    if options.fork:
        session = _given_id(options) or ids.session()
        earlier = fork_session(earlier, session, home=home, cwd=cwd)
    session = SessionId(earlier.stem)
    lock = SessionLock(home, session)
    try:
        loaded = read_session(earlier)
    except StoreError:
        lock.release()
        raise
    return History(
        session=session,
        transcript=earlier,
        directory=run_directory(home, session),
        lock=lock,
        messages=loaded.messages,
        last=loaded.last,
        interrupted=loaded.interrupted,
        turns=loaded.turns,
        delivered=loaded.delivered,
        answered=loaded.answered,
        notes=loaded.notes,
    )


def _earlier(options: Options, home: Path, cwd: str) -> Path | None:
    if options.resume is not None:
        return find_session(home, options.resume)
    if not options.continue_last:
        return None
    latest = latest_session(home, cwd)
    if latest is None:
        raise NoSuchSession(f"There is no session to continue in {cwd}.", path=project_directory(home, cwd))
    return transcript_path(home, cwd, latest)


def _new(options: Options, home: Path, cwd: str, ids: Ids) -> History:
    session = _given_id(options) or ids.session()
    transcript = transcript_path(home, cwd, session)
    if options.persist and any((home / "projects").glob(f"*/{session}.jsonl")):
        raise StoreError(
            f"There is already a session {session}. Go on with it by --resume {session}.", path=transcript
        )
    return History(
        session=session,
        transcript=transcript,
        directory=run_directory(home, session),
        lock=SessionLock(home, session) if options.persist else None,
    )


def _given_id(options: Options) -> SessionId | None:
    if options.session_id is None:
        return None
    if not is_uuid(options.session_id):
        raise SettingsError(f"{options.session_id!r} is not a session id: it must be a UUID.")
    return SessionId(options.session_id)
