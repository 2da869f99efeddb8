"""Ports of the agent loop: models, stores, workspaces, processes and people."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, ClassVar, Protocol, TypeVar

from msgspec import Struct

from shoal.core.agents.identity import AgentIdentity
from shoal.core.budgets.usage import ModelCard
from shoal.core.conversation.inbox_items import InboxItem
from shoal.core.conversation.messages import ToolUseBlock
from shoal.core.conversation.model_requests import DeltaListener, ModelReply, ModelRequest
from shoal.core.conversation.transcript_entries import TranscriptEntry
from shoal.core.events import JournaledEvent, JournalRecord
from shoal.core.permissions.permission_decisions import PermissionDecision, PermissionMode
from shoal.core.permissions.questions import Answer, Question
from shoal.core.user_environment import UserEnvironment

if TYPE_CHECKING:
    from shoal.core.conversation.tools import Tool


class Model(Protocol):
    """A model that answers requests."""

    @property
    def card(self) -> ModelCard:
        """Name, limits and prices of the model."""

    async def generate_reply(self, request: ModelRequest, on_delta: DeltaListener) -> ModelReply:
        """Return the complete reply. `on_delta` gets a `ModelAttemptStartedDelta` before each attempt.

        Raises a `ModelError`. A partially received tool call is never part of a reply.
        """
        ...

    async def aclose(self) -> None:
        """Close connections. No request follows."""


class Transcript(Protocol):
    """Stored conversation of one agent."""

    def append(self, entry: TranscriptEntry) -> None:
        """Append an entry; it is stored when this returns. On `StateFileError` the rest is left intact."""
        ...

    def set_title(self, title: str) -> None:
        """Name the session from the next entry on."""
        ...

    def close(self) -> None: ...


class JournalState(Protocol):
    """State that is computed by applying the records of a journal in their order."""

    snapshot_name: ClassVar[str]
    """Name of its snapshots, which some journals store."""
    snapshot_modules: ClassVar[tuple[str, ...]]
    """Modules that define its classes; a snapshot is valid only for the same code."""

    def apply_record(self, record: JournalRecord) -> None: ...


_State = TypeVar("_State", bound=JournalState)


class Journal(Protocol):
    """Events of a run, appended by each of its processes."""

    def append(self, event: JournaledEvent) -> None: ...

    def append_all(self, events: Sequence[JournaledEvent]) -> None:
        """Append events in their order. After an error, any number of them may be stored."""
        ...

    def read_records(self, offset: int = 0) -> Iterator[JournalRecord]:
        """Yield the stored events from an offset on."""
        ...

    def replay(
        self,
        kind: type[_State],
        settle: Callable[[_State], None] | None = None,
        *,
        report_problem: Callable[[str], None] = lambda _: None,
    ) -> _State:
        """Return the state after all stored events.

        `settle` may remove from the state what no later event needs, before a snapshot of it is stored.
        `report_problem` is called for each unreadable line after the last snapshot.
        """
        ...

    def get_position(self) -> int:
        """Return the offset at which this process's latest event ends."""
        ...

    def add_growth_listener(self, listener: Callable[[int], None]) -> None:
        """Call the listener with the size after many events of this process.

        A journal without snapshots, which have to be renewed as it grows, never calls it.
        """
        ...

    def close(self) -> None: ...


class ResultStore(Protocol):
    """Store of texts too long for a conversation, which are read by reference."""

    def save_result(self, name: str, content: bytes) -> Path:
        """Store the content and return its file for tools to read; a taken name gets a number."""
        ...


class AgentInbox(Protocol):
    """Items that arrived for an agent while it worked; checked at every tool-round boundary."""

    def take_next(self, *, only_waking: bool = False) -> InboxItem | None:
        """Take the next item. It enters the conversation before anything else is awaited.

        An agent with nothing more to do passes `only_waking`: items that do not wake an agent do not keep it
        running.
        """
        ...

    def mark_delivered(self, item: InboxItem) -> None:
        """Confirm that the item is on the transcript."""
        ...

    def put_back(self, item: InboxItem) -> None:
        """Return an item that could not be delivered; it is the next one again."""
        ...


class PermissionPolicy(Protocol):
    @property
    def mode(self) -> PermissionMode: ...

    def decide_tool_call(
        self, call: ToolUseBlock, tool: Tool, agent: AgentIdentity
    ) -> PermissionDecision: ...

    def remember_permission_answer(self, call: ToolUseBlock, answer: Answer) -> None: ...

    def build_unreadable_file_filter(self, tool: str, top: str) -> Callable[[str], bool]:
        """Return a filter for a search below `top`: True for files it may not read. All are real paths."""
        ...

    def drop_turn_permissions(self) -> None:
        """Drop what was allowed for this turn only."""
        ...


class QuestionBroker(Protocol):
    async def ask_person_or_deny(self, question: Question) -> Answer:
        """Return the first answer from any surface, or the policy's answer if nobody is there."""
        ...


class Workspace(Protocol):
    """Files of an agent: its working directory, what it has read, what it changed."""

    @property
    def root(self) -> Path: ...

    @property
    def cwd(self) -> Path: ...

    @property
    def user(self) -> UserEnvironment:
        """User whose home `~` means."""
        ...

    @property
    def granted_directories(self) -> tuple[Path, ...]:
        """Additional directories, with links resolved, in which tools may work."""
        ...

    def grant_directory(self, directory: Path) -> None: ...

    def change_directory(self, cwd: Path) -> bool:
        """Change the working directory; return False outside the project and the granted directories."""
        ...

    def contains_path(self, path: Path) -> bool:
        """Return True if the path, with links resolved, is in the project or a granted directory."""
        ...

    def resolve_path(self, path: str) -> Path:
        """Return the absolute path of a tool argument relative to `cwd`; raises `WorkspaceError`."""
        ...

    def read_file(self, path: Path) -> bytes:
        """Return the content and record it as seen, so that a later write can detect staleness."""
        ...

    def open_file(self, path: Path) -> BinaryIO:
        """Open a regular file to read parts of it; record it as seen by size and time."""
        ...

    def read_file_for_change(self, path: Path, *, intended: bytes | None = None) -> bytes:
        """Return the content as the basis of a change; refused like `write_file` of `intended`."""
        ...

    def write_file(self, path: Path, content: bytes) -> None:
        """Replace or create the whole file and save its old content for undo.

        Raises `WorkspaceError` with the diff if an existing file was not read or has changed since.
        """
        ...

    def set_checkpoint_turn(self, turn: int) -> None: ...


class WorkCheckpoints(Protocol):
    """Stores the files of agents whose machine may be lost."""

    def note_change(self) -> None:
        """Note that files may have changed since the last checkpoint."""
        ...

    async def store_changes(self) -> str:
        """Return an empty string when all changes so far are stored; otherwise why they are not.

        If there are none, it returns at once. The wait has a limit.
        """
        ...


class ChildProcessHandle(Protocol):
    @property
    def pid(self) -> int: ...

    async def wait(self) -> int:
        """Return the exit status; negative for a signal."""
        ...

    async def stop(self, *, grace: float = 2.0) -> int:
        """Send TERM to the whole process group, KILL after the grace; return when it is gone."""
        ...


class ProcessLaunchSpec(Struct, frozen=True, kw_only=True):
    argv: Sequence[str]
    cwd: Path
    env: Mapping[str, str]
    stdout: int
    stderr: int
    stdin: int | None = None
    """File descriptor; None is /dev/null."""


class ProcessLauncher(Protocol):
    """Starts processes that cannot outlive the session, even if it crashes."""

    async def start_process(self, launch: ProcessLaunchSpec) -> ChildProcessHandle: ...

    async def aclose(self) -> None: ...
