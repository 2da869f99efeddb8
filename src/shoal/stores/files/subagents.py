"""The transcripts of agents that a session started, each with what is needed to let its agent go on."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from shoal.core.errors import NoSuchSession, StoreError
from shoal.core.ids import LEAD, AgentId, EntryId
from shoal.stores.files.places import create_new, subagent_path, write_whole
from shoal.stores.files.sessions import Loaded, lines_up_to, read_session
from shoal.wire.transcript import Read


class Remembered(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An agent as it was made. Its prompt and tools are kept word for word: a cache still knows them."""

    agent_type: str
    description: str = ""
    name: str = ""
    model: str = ""
    mode: str = ""
    system: str = ""
    tools: tuple[str, ...] = ()
    cwd: str = ""
    isolation: str | None = None
    worktree: str = ""
    parent: str = ""
    call: str = ""
    depth: int = 1
    color: str | None = None
    background: bool = False
    thinking_tokens: int | None = None
    narrowed: tuple[tuple[str, ...], ...] = ()
    """The tools of definitions, its own and of those above it, whose patterns narrow it."""
    denied: tuple[str, ...] = ()
    """What those definitions deny it."""
    memory: str = ""
    """The directory of what it remembers, which it may write."""
    memory_tools: tuple[str, ...] = ()
    """Those of its tools that it has for that directory alone."""
    fork_of: str = ""
    """The entry of its parent's transcript after which its own begins."""
    after: str = ""
    """The last entry in its transcript's file when it was made: of another agent that had its id before."""


def meta_path(transcript: Path) -> Path:
    return transcript.with_suffix(".meta.json")


def remember(transcript: Path, facts: Remembered) -> None:
    """Before the transcript begins: what a crash leaves half written belongs to an agent that never was."""
    create_new(meta_path(transcript), msgspec.json.encode(facts))


def remember_mode(transcript: Path, mode: str) -> None:
    """A permission mode that it was given for good: one that resumes has it too. Raises `StoreError`."""
    path = meta_path(transcript)
    try:
        _facts(path)
        # As it stands in the file: fields that only another program knows stay.
        raw = msgspec.json.decode(path.read_bytes())
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} cannot be read: {error}.", path=path) from error
    write_whole(path, msgspec.json.encode({**raw, "mode": mode}))


def recall(transcript: Path, agent: AgentId) -> tuple[Remembered, Loaded]:
    """Raises `NoSuchSession` where its transcript is gone, `StoreError` where it cannot be read."""
    try:
        facts = _facts(meta_path(transcript))
    except FileNotFoundError:
        facts = None
    except ValueError as error:
        # What it was held to stands there: as an agent for any purpose it might do more.
        raise StoreError(
            f"{meta_path(transcript)} cannot be understood: {error}.", path=transcript
        ) from error
    except OSError as error:
        raise StoreError(
            f"{meta_path(transcript)} cannot be read: {error.strerror}.", path=transcript
        ) from error
    inherited = _inherited(transcript, facts) if facts is not None and facts.fork_of else ()
    try:
        loaded = read_session(transcript, agent, inherited=inherited)
    except NoSuchSession:
        raise NoSuchSession(
            f"The transcript of agent {agent} is gone: {transcript}.", path=transcript
        ) from None
    # Another program's, or one whose facts were lost: it can go on as an agent for any purpose.
    return facts or Remembered(agent_type="general-purpose", description=""), loaded


def recall_unspoken(transcript: Path) -> Remembered | None:
    """One that was made and has not said or heard anything yet, so that it has no transcript."""
    if transcript.exists():
        return None
    try:
        return _facts(meta_path(transcript))
    except (OSError, ValueError):
        return None


def _facts(path: Path) -> Remembered:
    """Raises OSError or ValueError."""
    content = path.read_bytes()
    try:
        return msgspec.json.decode(content, type=Remembered)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _inherited(transcript: Path, facts: Remembered) -> tuple[Read, ...]:
    """What a fork's parent had said when it forked; without it the fork cannot go on."""
    directory, parent = transcript.parent, AgentId(facts.parent)
    if parent == LEAD:
        path, agent = directory.parent.with_suffix(".jsonl"), ""
    else:
        path, agent = subagent_path(directory, parent), parent
    try:
        lines = lines_up_to(path, EntryId(facts.fork_of), agent)
    except NoSuchSession:
        lines = ()
    if not lines:
        raise NoSuchSession(
            f"It is a fork, and what it knows from its parent is gone: {path} has no entry {facts.fork_of}.",
            path=path,
        )
    return lines
