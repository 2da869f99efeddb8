"""Transcripts of sub-agents, each with the metadata needed to resume the agent."""

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
    """Metadata of a sub-agent. Its prompt and tools are stored verbatim, so that prompt caches match."""

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
    """Tools of its own definition and those of its ancestors, whose patterns restrict it."""
    denied: tuple[str, ...] = ()
    """Tools that those definitions deny."""
    memory: str = ""
    """Memory directory of the agent, which it may write."""
    memory_tools: tuple[str, ...] = ()
    """Tools that it has only for that directory."""
    fork_of: str = ""
    """Entry of the parent's transcript after which this fork starts."""
    after: str = ""
    """Last entry in the transcript file at creation: it belongs to an earlier agent with the same id."""


def meta_path(transcript: Path) -> Path:
    return transcript.with_suffix(".meta.json")


def remember(transcript: Path, facts: Remembered) -> None:
    """Store the metadata before the transcript starts: after a crash, partial data has no agent."""
    create_new(meta_path(transcript), msgspec.json.encode(facts))


def remember_mode(transcript: Path, mode: str) -> None:
    """Store a permanent permission mode, so that a resumed agent keeps it. Raises `StoreError`."""
    path = meta_path(transcript)
    try:
        _facts(path)
        # The raw file content: unknown fields of other programs stay.
        raw = msgspec.json.decode(path.read_bytes())
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} cannot be read: {error}.", path=path) from error
    write_whole(path, msgspec.json.encode({**raw, "mode": mode}))


def recall(transcript: Path, agent: AgentId) -> tuple[Remembered, Loaded]:
    """Load metadata and conversation.

    Raises `SessionNotFound` if the transcript is gone, `StoreError` if it cannot be read.
    """
    try:
        facts = _facts(meta_path(transcript))
    except FileNotFoundError:
        facts = None
    except ValueError as error:
        # The file holds its restrictions: as a general-purpose agent it could do more.
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
    # Agent of another program, or lost metadata: it can continue as a general-purpose agent.
    return facts or Remembered(agent_type="general-purpose", description=""), loaded


def recall_unspoken(transcript: Path) -> Remembered | None:
    """Return the metadata of an agent that was created but has no transcript yet."""
    if transcript.exists():
        return None
    try:
        return _facts(meta_path(transcript))
    except (OSError, ValueError):
        return None


def _facts(path: Path) -> Remembered:
    """Read the metadata file; raise OSError or ValueError."""
    content = path.read_bytes()
    try:
        return msgspec.json.decode(content, type=Remembered)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _inherited(transcript: Path, facts: Remembered) -> tuple[Read, ...]:
    """Return the parent's lines up to the fork; without them the fork cannot continue."""
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
