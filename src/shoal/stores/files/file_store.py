"""Store on plain files in a home directory, shared with any number of processes and with other programs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.core.clock import Clock
from shoal.core.errors import SessionNotFound, StateFileError
from shoal.core.ids import LEAD_ID, IdGenerator, SessionId
from shoal.core.keyword_checks import check_keywords
from shoal.core.names import TeamName
from shoal.core.store import SessionListEntry, SessionQuestions, SessionStore, Store
from shoal.core.text.encodable_text import find_encoding_problem
from shoal.stores.files.home.home_paths import (
    get_project_state_directory,
    get_run_directory,
    get_transcript_path,
)

if TYPE_CHECKING:
    from shoal.stores.files.board.file_task_board import FileTaskBoard
    from shoal.stores.files.mailboxes.file_mailbox_store import FileMailboxStore
    from shoal.stores.files.sessions.file_session_store import FileSessionStore
    from shoal.stores.files.sessions.question_files import QuestionFiles
    from shoal.stores.files.teams.file_roster_store import FileRosterStore


class FileStore:
    """Sessions and teams in files. Each part is imported when it is first opened."""

    @check_keywords("shoal.FileStore()")
    def __init__(self, home: Path | str, *, durable: bool = False, read_only: bool = False) -> None:
        """With `read_only`, teams are only read: nothing is created, repaired, released or renamed."""
        given: Any = home
        if not isinstance(given, str | Path):
            raise TypeError(f"shoal.FileStore(): home: expected a path, got {given!r:.80}.")
        text = str(home)
        if problem := find_encoding_problem(text, is_system_text=True) if text.strip() else "is empty.":
            raise ValueError(f"shoal.FileStore(): home {problem}")
        self.home = Path(home)
        self._durable = durable
        """True to flush every change of this store to the disk before work continues, so that a power failure
        loses none of them."""
        self._read_only = read_only

    @property
    def url(self) -> str:
        """URL of the store, as `store=` and settings take it."""
        return f"file:{self.home.absolute()}"

    def create_session(self, session: SessionId, *, cwd: str) -> FileSessionStore:
        transcript = get_transcript_path(self.home, cwd, session)
        if any((self.home / "projects").glob(f"*/{session}.jsonl")):
            raise StateFileError(
                f"The session {session} already exists. Resume it: shoal --resume {session}", path=transcript
            )
        return self._open_session(transcript)

    def find_session(self, name: str) -> FileSessionStore:
        from shoal.stores.files.sessions.session_files import find_session_transcript

        return self._open_session(find_session_transcript(self.home, name))

    def find_latest_session(self, cwd: str) -> FileSessionStore:
        from shoal.stores.files.sessions.session_files import find_latest_session

        latest = find_latest_session(self.home, cwd)
        if latest is None:
            raise SessionNotFound(
                f"There is no session to continue in {cwd}.", path=get_project_state_directory(self.home, cwd)
            )
        return self._open_session(get_transcript_path(self.home, cwd, latest))

    def list_sessions(self, cwd: str | None, *, limit: int | None = None) -> tuple[SessionListEntry, ...]:
        from shoal.stores.files.sessions.session_files import list_sessions

        return list_sessions(self.home, cwd, limit=limit)

    def is_session_live(self, session: SessionId) -> bool:
        from shoal.stores.files.locks.pid_locks import is_session_running

        return is_session_running(self.home, session)

    def open_questions(self, session: SessionId) -> QuestionFiles:
        from shoal.stores.files.sessions.question_files import QuestionFiles

        return QuestionFiles(get_run_directory(self.home, session) / "questions", durable=self._durable)

    def list_session_questions(self) -> tuple[SessionQuestions, ...]:
        from shoal.stores.files.sessions.question_files import QuestionFiles

        return tuple(
            SessionQuestions(
                session=(session := SessionId(directory.parent.name)),
                is_live=self.is_session_live(session),
                directory=directory.parent,
                questions=QuestionFiles(directory, durable=self._durable),
            )
            for directory in sorted((self.home / "shoal" / "runs").glob("*/questions"))
        )

    def fork_session(self, source: SessionStore, session: SessionId, *, cwd: str) -> FileSessionStore:
        from shoal.stores.files.sessions.session_files import fork_session

        path = source.get_transcript_path(LEAD_ID)
        assert path is not None, "a session in this store is a file"
        forked = fork_session(path, session, home=self.home, cwd=cwd, durable=self._durable)
        return self._open_session(forked)

    def _open_session(self, transcript: Path) -> FileSessionStore:
        from shoal.stores.files.sessions.file_session_store import FileSessionStore

        return FileSessionStore(self.home, SessionId(transcript.stem), transcript, durable=self._durable)

    def open_rosters(self, *, clock: Clock, report: Callable[[str], None]) -> FileRosterStore:
        from shoal.stores.files.teams.file_roster_store import FileRosterStore

        return FileRosterStore(
            self.home,
            clock=clock,
            report_problem=report,
            durable=self._durable,
            read_only=self._read_only,
        )

    def open_board(
        self, name: str, *, clock: Clock, ids: IdGenerator, report: Callable[[str], None]
    ) -> FileTaskBoard:
        from shoal.stores.files.board.file_task_board import FileTaskBoard

        return FileTaskBoard(
            self.home,
            name,
            clock=clock,
            ids=ids,
            report_problem=report,
            durable=self._durable,
            read_only=self._read_only,
        )

    def open_mailboxes(
        self, team: TeamName, *, clock: Clock, ids: IdGenerator, report: Callable[[str], None]
    ) -> FileMailboxStore:
        from shoal.stores.files.mailboxes.file_mailbox_store import FileMailboxStore

        return FileMailboxStore(
            self.home,
            team,
            clock=clock,
            ids=ids,
            report_problem=report,
            durable=self._durable,
            read_only=self._read_only,
        )

    def load_signing_key(self, team: TeamName, *, report: Callable[[str], None] = lambda _: None) -> bytes:
        from shoal.stores.files.teams.team_keys import load_or_create_team_mail_key

        return load_or_create_team_mail_key(self.home, team, report_problem=report)


_CONFORMS: Callable[[Path], Store] = FileStore
"""For the type checker: a missing member of the port is an error here."""
