"""Sub-agents loaded from a store: their metadata and their conversation."""

from __future__ import annotations

from shoal.core.agents.subagent_metadata import SubagentMetadata
from shoal.core.conversation.restored_conversation import RestoredConversation
from shoal.core.errors import SessionNotFound, StateFileError
from shoal.core.ids import LEAD_ID, AgentId, EntryId
from shoal.core.store import SessionStore
from shoal.stores.restored_conversation import parse_lines_up_to_entry, restore_transcript
from shoal.wire.transcript_codec import ParsedTranscriptLine


def load_subagent_with_conversation(
    store: SessionStore, agent: AgentId
) -> tuple[SubagentMetadata, RestoredConversation]:
    """Load metadata and conversation.

    Raises `SessionNotFound` if the transcript is gone, `StateFileError` if it cannot be read.
    """
    # Agent of another program, or lost metadata: it can continue as a general-purpose agent.
    metadata = store.read_agent_metadata(agent) or SubagentMetadata(agent_type="general-purpose")
    inherited = _read_lines_inherited_by_fork(store, metadata) if metadata.origin.fork_of else ()
    try:
        if not metadata.origin.fork_of:
            return metadata, store.restore_conversation(agent)
        lines = store.read_transcript(agent)
    except SessionNotFound as error:
        raise SessionNotFound(
            f"The transcript of agent {agent} is gone: {error.path}.", path=error.path
        ) from None
    return metadata, restore_transcript(lines, agent, inherited=inherited)


def load_unstarted_subagent_metadata(store: SessionStore, agent: AgentId) -> SubagentMetadata | None:
    """Return the metadata of an agent that was created but has no transcript yet."""
    if store.has_transcript(agent):
        return None
    try:
        return store.read_agent_metadata(agent)
    except StateFileError:
        return None


def has_unstarted_description(store: SessionStore, agent: AgentId) -> bool:
    """Return True if the agent's metadata is newer than its transcript, which a former agent wrote."""
    try:
        metadata = store.read_agent_metadata(agent)
        last_entry = store.restore_conversation(agent).last or ""
    except SessionNotFound:
        return True
    except StateFileError:
        return False
    return metadata is not None and metadata.origin.after == last_entry


def _read_lines_inherited_by_fork(
    store: SessionStore, metadata: SubagentMetadata
) -> tuple[ParsedTranscriptLine, ...]:
    """Return the parent's lines up to the fork; without them the fork cannot continue."""
    parent = AgentId(metadata.origin.parent)
    try:
        content = store.read_transcript(parent)
    except SessionNotFound:
        content = b""
    lines = parse_lines_up_to_entry(
        content, EntryId(metadata.origin.fork_of), "" if parent == LEAD_ID else parent
    )
    if not lines:
        path = store.get_transcript_path(parent) or store.directory
        raise SessionNotFound(
            f"The parent's conversation, from which this fork was created, is gone: {path} has no entry "
            f"{metadata.origin.fork_of}.",
            path=path,
        )
    return lines
