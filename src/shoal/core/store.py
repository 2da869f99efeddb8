"""Store: the port family of all state that teams and sessions share or resume from.

Every acknowledged call survives as long as the store: that of a directory survives its processes, that of a
process ends with it. Schedules and spending are events of a journal, without a port.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from shoal.core.agents.subagent_metadata import SubagentMetadata
from shoal.core.clock import Clock
from shoal.core.conversation.restored_conversation import RestoredConversation
from shoal.core.ids import AgentId, IdGenerator, SessionId
from shoal.core.names import TeamName
from shoal.core.permissions.questions import AllowAnswer, Answer, PermissionQuestion, Question
from shoal.core.ports import Journal, ResultStore, Transcript
from shoal.core.teams.team_storage import ChangeWatch, MailboxStore, RosterStore, StoredTaskBoard
from shoal.core.text.redaction import SecretRedactor


class QuestionStore(Protocol):
    """Questions of a session for a person, with their answers: the first answer wins."""

    def store_question(self, question: Question) -> None:
        """Store a question; an earlier answer under its id is dropped."""
        ...

    def answer(self, question_id: str, answer: Answer) -> bool:
        """Store the answer and return True; return False if another came first.

        Raises `StateFileError` if there is no such question or the answer does not fit it.
        """
        ...

    def settle_answer(self, question: Question, answer: Answer) -> Answer:
        """Store the answer and return the final one: this one, unless another came first."""
        ...

    def store_late_permission(self, question_id: str, answer: Answer) -> None:
        """Allow a call whose asking process died; the first answer wins. Raises `StateFileError`."""
        ...

    def read_late_permission(self, question: PermissionQuestion) -> AllowAnswer | None:
        """Return the permission that came after the asking process died, or that it did not receive."""
        ...

    def get(self, question_id: str) -> Question | None: ...

    def read_answer(self, question: Question) -> Answer | None: ...

    def list_open_questions(self) -> tuple[Question, ...]:
        """Return the questions without an answer, oldest first."""
        ...

    def find_questions(self, start: str) -> tuple[Question, ...]:
        """Return the questions whose id starts with this text, answered ones too."""
        ...

    def get_asked_time(self, question: Question) -> int | None:
        """Return when the question was stored, in milliseconds of Unix time; None if that is unknown."""
        ...

    def is_question_orphaned(self, question: PermissionQuestion) -> bool:
        """Return True if the process that asked died before anybody answered."""
        ...

    def watch_answers(self, on_change: Callable[[], None]) -> ChangeWatch:
        """Call `on_change` in the running loop when an answer may have come."""
        ...


MAX_WORK_PART = 900 * 1024 * 1024
"""Bytes of a bundle. A database refuses values of 1 GiB, by ending the connection."""


class WorkPart(Struct, frozen=True, kw_only=True):
    """Commits of an agent on another machine that its earlier parts lack."""

    agent: str
    """Name of the agent in the refs."""
    refs: dict[str, str]
    """Commits after this part, by what follows the ref of the agent: nothing, `.branches/NAME` or
    `.stashes/ID`."""
    needed: tuple[str, ...]
    """Commits that no part contains, because every clone of the project should have them."""
    is_first: bool
    """True if it needs no earlier part, so that it replaces them."""
    bundle: bytes
    """Git bundle."""


class WorkSummary(Struct, frozen=True, kw_only=True):
    """Stored work of an agent, without its bundles."""

    last: WorkPart
    """Last part, with an empty bundle."""
    parts: int
    first_size: int
    """Bytes of the first bundle."""
    later_size: int
    """Bytes of all others."""


class WorkStore(Protocol):
    """Work of a session's agents on other machines, which outlives the repository of the lead."""

    def append_part(self, part: WorkPart) -> None:
        """Store a part; a first one replaces all parts of its agent. A repetition changes nothing."""
        ...

    def read_parts(self, agent: str) -> tuple[WorkPart, ...]:
        """Return the parts of an agent in their order."""
        ...

    def list_summaries(self) -> dict[str, WorkSummary]:
        """Return what is stored, by agent."""
        ...


class SessionStore(Protocol):
    """State of one session: its conversations, its journal, its results, questions and work."""

    @property
    def session(self) -> SessionId: ...

    @property
    def directory(self) -> Path:
        """Directory on this machine for working files of the run: outputs, logs, checkpoints, results."""
        ...

    def report_damaged_files(self, *, now: int | None) -> tuple[str, ...]:
        """Return a sentence for each damaged file. Links and directories in the place of files are set
        aside under a name with the time `now`, unless it is None: views change nothing."""
        ...

    def acquire_lock(self) -> None:
        """Become the only writer until `release_lock` or the end of the process.

        Raises `StateFileError` if another has the session open.
        """
        ...

    def release_lock(self, *, unused: bool = False) -> None:
        """Release the lock; an `unused` session, which never started, leaves nothing behind."""
        ...

    def open_transcript(self, agent: AgentId, *, cwd: str, version: str, title: str = "") -> Transcript:
        """Open the transcript of the lead or of another agent; it exists from its first entry on.

        Each line names the directory and the version of the program. A `title` names the session from the
        next entry on.
        """
        ...

    def has_transcript(self, agent: AgentId) -> bool: ...

    def read_transcript(self, agent: AgentId) -> bytes:
        """Return the lines of a transcript. Raises `SessionNotFound` if there is none."""
        ...

    def restore_conversation(self, agent: AgentId) -> RestoredConversation:
        """Restore the conversation from its transcript. Raises `SessionNotFound` or `StateFileError`.

        The cost may not grow with what compactions have summarized.
        """
        ...

    def get_transcript_path(self, agent: AgentId) -> Path | None:
        """Return the path at which people and hooks find the transcript; None if it is not a file."""
        ...

    def save_agent_metadata(self, agent: AgentId, metadata: SubagentMetadata) -> None:
        """Store or replace the data with which an agent is resumed, in addition to its transcript.

        It is stored before the transcript starts: after a crash, partial data has no agent.
        """
        ...

    def save_agent_mode(self, agent: AgentId, mode: str) -> None:
        """Replace the permission mode in the stored metadata. Raises `SessionNotFound` if there is none."""
        ...

    def read_agent_metadata(self, agent: AgentId) -> SubagentMetadata | None:
        """Return the metadata; None if there is none. Raises `StateFileError` if it is not valid."""
        ...

    def open_journal(self, clock: Clock, *, secrets: SecretRedactor) -> Journal: ...

    def open_results(self) -> ResultStore: ...

    def open_questions(self) -> QuestionStore: ...

    def open_work(self) -> WorkStore: ...


class SessionQuestions(Struct, frozen=True, kw_only=True):
    """Questions of one session, for a process that answers them."""

    session: SessionId
    is_live: bool
    """True if a process works on the session, so that somebody receives an answer."""
    directory: Path
    """Directory of the run, for error messages."""
    questions: QuestionStore


class SessionListEntry(Struct, frozen=True, kw_only=True):
    """A session in a list."""

    session: SessionId
    path: Path | None
    """Path of the transcript; None if it is not a file."""
    prompt: str
    at: int
    """Time of its last use, in milliseconds of Unix time."""
    size: int


class Store(Protocol):
    """State of teams and sessions. A store can be opened any number of times."""

    @property
    def url(self) -> str | None:
        """Address at which other processes can open the same store; None if they cannot."""
        ...

    def create_session(self, session: SessionId, *, cwd: str) -> SessionStore:
        """Create a session in a project directory. Raises `StateFileError` if there is one with this id."""
        ...

    def find_session(self, name: str) -> SessionStore:
        """Return the session with this id, unique start of an id, or title; the latest with that title.

        Raises `SessionNotFound`.
        """
        ...

    def find_latest_session(self, cwd: str) -> SessionStore:
        """Return the most recently used session of a directory. Raises `SessionNotFound` if there is none."""
        ...

    def list_sessions(self, cwd: str | None, *, limit: int | None = None) -> tuple[SessionListEntry, ...]:
        """Return the sessions of one directory, or of all if None; the most recently used first."""
        ...

    def is_session_live(self, session: SessionId) -> bool:
        """Return True if a process works on the session: it has the lock."""
        ...

    def open_questions(self, session: SessionId) -> QuestionStore:
        """Open the questions of a session, which may not have a conversation yet."""
        ...

    def list_session_questions(self) -> tuple[SessionQuestions, ...]:
        """Return the questions of each session that has open ones, or that is live and asked any."""
        ...

    def fork_session(self, source: SessionStore, session: SessionId, *, cwd: str) -> SessionStore:
        """Copy the lead's conversation to a new session; the source stays unchanged."""
        ...

    def open_rosters(self, *, clock: Clock, report: Callable[[str], None]) -> RosterStore: ...

    def open_board(
        self, name: str, *, clock: Clock, ids: IdGenerator, report: Callable[[str], None]
    ) -> StoredTaskBoard:
        """Open the board of a team, or of the session with that id."""
        ...

    def open_mailboxes(
        self, team: TeamName, *, clock: Clock, ids: IdGenerator, report: Callable[[str], None]
    ) -> MailboxStore: ...

    def load_signing_key(self, team: TeamName, *, report: Callable[[str], None] = lambda _: None) -> bytes:
        """Return the key that signs the team's mail; the first call creates it, `delete_team` removes it."""
        ...
