"""Transcripts of sub-agents, each with the metadata needed to resume the agent."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from shoal.core.errors import SessionNotFound, StateFileError
from shoal.core.ids import LEAD_ID, AgentId, EntryId
from shoal.stores.files.home.home_paths import (
    create_or_replace_private_file,
    get_subagent_transcript_path,
    read_state_file,
    write_file_atomically,
)
from shoal.stores.files.sessions.session_files import (
    LoadedTranscript,
    read_session_transcript,
    read_transcript_up_to_entry,
)
from shoal.wire.transcript_codec import ParsedTranscriptLine


class SubagentMetadata(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
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


def get_subagent_metadata_path(transcript: Path) -> Path:
    return transcript.with_suffix(".meta.json")


def store_subagent_metadata(transcript: Path, metadata: SubagentMetadata) -> None:
    """Store the metadata before the transcript starts: after a crash, partial data has no agent."""
    create_or_replace_private_file(get_subagent_metadata_path(transcript), msgspec.json.encode(metadata))


def store_subagent_permission_mode(transcript: Path, mode: str) -> None:
    """Store a permanent permission mode, so that a resumed agent keeps it. Raises `StateFileError`."""
    path = get_subagent_metadata_path(transcript)
    try:
        _read_subagent_metadata(path)
        # The raw file content: unknown fields of other programs stay.
        raw = msgspec.json.decode(read_state_file(path))
    except (OSError, ValueError) as error:
        raise StateFileError(f"Cannot read {path}: {error}.", path=path) from error
    write_file_atomically(path, msgspec.json.encode({**raw, "mode": mode}))


def load_subagent_with_conversation(
    transcript: Path, agent: AgentId
) -> tuple[SubagentMetadata, LoadedTranscript]:
    """Load metadata and conversation.

    Raises `SessionNotFound` if the transcript is gone, `StateFileError` if it cannot be read.
    """
    try:
        metadata = _read_subagent_metadata(get_subagent_metadata_path(transcript))
    except FileNotFoundError:
        metadata = None
    except ValueError as error:
        # The file holds its restrictions: as a general-purpose agent it could do more.
        raise StateFileError(
            f"{get_subagent_metadata_path(transcript)} is not valid: {error}.", path=transcript
        ) from error
    except OSError as error:
        raise StateFileError(
            f"Cannot read {get_subagent_metadata_path(transcript)}: {error.strerror}.", path=transcript
        ) from error
    inherited = (
        _read_lines_inherited_by_fork(transcript, metadata)
        if metadata is not None and metadata.fork_of
        else ()
    )
    try:
        loaded = read_session_transcript(transcript, agent, inherited=inherited)
    except SessionNotFound:
        raise SessionNotFound(
            f"The transcript of agent {agent} is gone: {transcript}.", path=transcript
        ) from None
    # Agent of another program, or lost metadata: it can continue as a general-purpose agent.
    return metadata or SubagentMetadata(agent_type="general-purpose", description=""), loaded


def load_unstarted_subagent_metadata(transcript: Path) -> SubagentMetadata | None:
    """Return the metadata of an agent that was created but has no transcript yet."""
    if transcript.exists():
        return None
    try:
        return _read_subagent_metadata(get_subagent_metadata_path(transcript))
    except (OSError, ValueError):
        return None


def _read_subagent_metadata(path: Path) -> SubagentMetadata:
    """Read the metadata file; raise OSError or ValueError."""
    content = read_state_file(path)
    try:
        return msgspec.json.decode(content, type=SubagentMetadata)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _read_lines_inherited_by_fork(
    transcript: Path, metadata: SubagentMetadata
) -> tuple[ParsedTranscriptLine, ...]:
    """Return the parent's lines up to the fork; without them the fork cannot continue."""
    directory, parent = transcript.parent, AgentId(metadata.parent)
    if parent == LEAD_ID:
        path, agent = directory.parent.with_suffix(".jsonl"), ""
    else:
        path, agent = get_subagent_transcript_path(directory, parent), parent
    try:
        lines = read_transcript_up_to_entry(path, EntryId(metadata.fork_of), agent)
    except SessionNotFound:
        lines = ()
    if not lines:
        raise SessionNotFound(
            f"The parent's conversation, from which this fork started, is gone: {path} has no entry "
            f"{metadata.fork_of}.",
            path=path,
        )
    return lines
