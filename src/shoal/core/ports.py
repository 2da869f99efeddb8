"""The plugs between the rooms: what the loop needs of models, stores, workspaces and people."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

from msgspec import Struct

from shoal.core.arrivals import Item
from shoal.core.decisions import Decision
from shoal.core.entries import Entry
from shoal.core.events import Journaled
from shoal.core.identity import Identity
from shoal.core.messages import ToolUse
from shoal.core.questions import Answer, Question
from shoal.core.requests import Hear, Reply, Request
from shoal.core.tools import Tool
from shoal.core.usage import ModelCard


class Model(Protocol):
    @property
    def card(self) -> ModelCard: ...

    async def reply(self, request: Request, hear: Hear) -> Reply:
        """The whole reply; `hear` is told `Sent` before each attempt leaves, then what arrives.

        Raises a `ModelError`. A half-received tool call is never part of a reply.
        """
        ...

    async def aclose(self) -> None: ...


class Transcript(Protocol):
    """One agent's conversation on disk."""

    def append(self, entry: Entry) -> None:
        """On disk, whole, when this returns; raises `StoreError` and leaves what was there intact."""
        ...

    def close(self) -> None: ...


class Journal(Protocol):
    def append(self, event: Journaled) -> None: ...

    def close(self) -> None: ...


class Results(Protocol):
    """Texts too long for a conversation, kept whole and read by reference."""

    def keep(self, name: str, content: bytes) -> Path: ...


class Inlet(Protocol):
    """What arrived for an agent while it worked; looked into at every tool-round boundary."""

    def take(self, *, resting: bool = False) -> Item | None:
        """The next one. It enters the conversation before anything else is awaited.

        An agent that has nothing more to do says `resting`: then only what wakes it is a reason to go on.
        """
        ...

    def entered(self, item: Item) -> None:
        """It is on the transcript."""
        ...

    def put_back(self, item: Item) -> None:
        """It could not be entered, and is the next one again."""
        ...


class Permissions(Protocol):
    def decide(self, call: ToolUse, tool: Tool, agent: Identity) -> Decision: ...

    def remember(self, call: ToolUse, answer: Answer) -> None: ...

    def unreadable(self, tool: str, top: str) -> Callable[[str], bool]:
        """For a search that may go through `top`: whether a file there is not for it. All are real paths."""
        ...

    def turn_over(self) -> None:
        """What was allowed for this turn alone is not any more."""
        ...


class Desk(Protocol):
    async def ask(self, question: Question) -> Answer:
        """The first answer from any surface, or policy's when nobody is there."""
        ...


class Workspace(Protocol):
    """The files an agent works on: where it stands, what it has read, what it changed."""

    @property
    def root(self) -> Path: ...

    @property
    def cwd(self) -> Path: ...

    @property
    def granted(self) -> tuple[Path, ...]:
        """Directories beside the project, with links followed, in which tools may work."""
        ...

    def grant(self, directory: Path) -> None: ...

    def move(self, cwd: Path) -> bool:
        """Change the working directory; False (and no change) outside the project and granted directories."""
        ...

    def contains(self, path: Path) -> bool:
        """Whether the path, with links followed, lies in the project or a granted directory."""
        ...

    def locate(self, path: str) -> Path:
        """An absolute path for what a tool was given, relative to `cwd`; raises `WorkspaceError`."""
        ...

    def read(self, path: Path) -> bytes:
        """The content, remembered as seen, so that a later write can tell whether it is stale."""
        ...

    def open(self, path: Path) -> BinaryIO:
        """A regular file to read parts of, remembered as seen by its size and time."""
        ...

    def current(self, path: Path, *, intended: bytes | None = None) -> bytes:
        """The content, for a change that starts from it; refused as `write` of `intended` would be."""
        ...

    def write(self, path: Path, content: bytes) -> None:
        """Replace or create the file whole, keeping its old content for undo.

        Raises `WorkspaceError` when an existing file was not read or has changed since, with the difference.
        """
        ...

    def begin_turn(self, turn: int) -> None: ...


class Process(Protocol):
    @property
    def pid(self) -> int: ...

    async def wait(self) -> int:
        """The exit status; negative for a signal."""
        ...

    async def stop(self, *, grace: float = 2.0) -> int:
        """TERM to the whole process group, KILL after the grace; returns when it is gone."""
        ...


class Launch(Struct, frozen=True, kw_only=True):
    argv: Sequence[str]
    cwd: Path
    env: Mapping[str, str]
    stdout: int
    stderr: int
    stdin: int | None = None
    """None is /dev/null."""


class Processes(Protocol):
    """Starts processes that cannot outlive the session, whatever becomes of it."""

    async def start(self, launch: Launch) -> Process: ...

    async def aclose(self) -> None: ...
