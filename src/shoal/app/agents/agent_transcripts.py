"""Transcripts of a session's agents, and loading an agent from its transcript."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
from msgspec import Struct

import shoal
from shoal.agent.conversation import Conversation
from shoal.core.clock import Clock
from shoal.core.conversation.messages import Message
from shoal.core.errors import AgentRequestRefused, StateFileError
from shoal.core.ids import AgentId, EntryId, IdGenerator
from shoal.core.permissions.permission_changes import PermissionMode
from shoal.core.ports import Transcript
from shoal.runs.prepared_agent import AgentPreparationRequest
from shoal.stores.files.home.home_paths import get_subagent_transcript_path
from shoal.stores.files.sessions.file_transcript import FileTranscript
from shoal.stores.files.sessions.session_files import read_session_transcript
from shoal.stores.files.sessions.subagent_files import (
    SubagentMetadata,
    load_subagent_with_conversation,
    load_unstarted_subagent_metadata,
    store_subagent_metadata,
    store_subagent_permission_mode,
)
from shoal.stores.memory_stores import NullTranscript
from shoal.wire.transcript_codec import TranscriptEncoder

_NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
_SAFE_ID = re.compile(rf"[A-Za-z0-9]{{1,64}}|{_NAME}@{_NAME}")
"""Id of an agent or of a teammate."""


class RestoredAgentState(Struct, frozen=True, kw_only=True):
    """An agent as loaded from its transcript."""

    facts: SubagentMetadata
    transcript: Transcript
    conversation: Conversation
    delivered: frozenset[str] = frozenset()
    """Ids of the items that it received."""
    answered: frozenset[str] = frozenset()
    """Ids of its calls that have their own result."""


class _EndedAgentInMemory(Struct, frozen=True, kw_only=True):
    """An ended agent in memory: there may be thousands, and few are resumed."""

    facts: SubagentMetadata
    messages: bytes | list[Message]
    last: EntryId | None


class AgentTranscriptStore:
    """`directory` contains the transcripts; None keeps conversations in memory."""

    def __init__(self, directory: Path | None, *, durable: bool, clock: Clock, ids: IdGenerator) -> None:
        self._directory = directory
        self._durable = durable
        self._clock = clock
        self._ids = ids
        self._in_memory: dict[AgentId, _EndedAgentInMemory] = {}

    @property
    def is_persistent(self) -> bool:
        """True if transcripts outlive the session."""
        return self._directory is not None

    def get_transcript_path(self, agent: AgentId) -> str:
        """Return the path of its transcript; empty if none is stored."""
        return "" if self._directory is None else str(get_subagent_transcript_path(self._directory, agent))

    def open_transcript(self, new_agent: AgentPreparationRequest, facts: SubagentMetadata) -> Transcript:
        if self._directory is None:
            return NullTranscript()
        encoder = TranscriptEncoder(
            session=new_agent.parent.identity.session,
            cwd=facts.cwd,
            version=shoal.__version__,
            agent=new_agent.agent,
        )
        path = get_subagent_transcript_path(self._directory, new_agent.agent)
        return FileTranscript(path, encoder, durable=self._durable)

    def read_last_entry_id(self, agent: AgentId) -> str:
        """Return the last entry id of its transcript file; empty if there is none or it is unreadable."""
        if self._directory is None:
            return ""
        try:
            return (
                read_session_transcript(get_subagent_transcript_path(self._directory, agent), agent).last
                or ""
            )
        except StateFileError:
            return ""

    def save_agent_metadata(self, agent: AgentId, facts: SubagentMetadata) -> None:
        if self._directory is not None:
            store_subagent_metadata(get_subagent_transcript_path(self._directory, agent), facts)

    def archive_agent(self, agent: AgentId, facts: SubagentMetadata, conversation: Conversation) -> None:
        """Keep an ended agent in memory if it is not on disk, so that it can be resumed."""
        if self._directory is None:
            # A fork shares the messages with its parent: a copy would use more memory.
            messages = (
                conversation.messages
                if facts.fork_of
                else _encode_messages_if_possible(conversation.messages)
            )
            self._in_memory[agent] = _EndedAgentInMemory(
                facts=facts, messages=messages, last=conversation.last_entry
            )

    def save_approved_plan_mode(self, agent: AgentId, mode: PermissionMode) -> None:
        """Store the mode of an approved plan, so that a resumed agent need not plan again."""
        if self._directory is not None:
            store_subagent_permission_mode(get_subagent_transcript_path(self._directory, agent), mode)

    def load_agent(self, new_agent: AgentPreparationRequest) -> RestoredAgentState:
        """Load an agent. Raises `AgentRequestRefused` if there is none or its transcript is unusable."""
        agent = new_agent.agent
        if self._directory is None:
            if agent not in self._in_memory:
                raise AgentRequestRefused(_format_unknown_agent_error(agent))
            return self._restore_agent_from_memory(self._in_memory[agent])
        path = get_subagent_transcript_path(self._directory, agent)
        if (
            new_agent.assignment is not None
            and (unstarted := load_unstarted_subagent_metadata(path)) is not None
        ):
            transcript = self.open_transcript(new_agent, unstarted)
            conversation = Conversation(transcript, self._clock, self._ids.derive_generator())
            return RestoredAgentState(facts=unstarted, transcript=transcript, conversation=conversation)
        if not _SAFE_ID.fullmatch(agent) or not path.exists():
            raise AgentRequestRefused(_format_unknown_agent_error(agent))
        try:
            facts, loaded = load_subagent_with_conversation(path, agent)
        except StateFileError as error:
            raise AgentRequestRefused(str(error)) from error
        if new_agent.assignment is None and loaded.last in (None, facts.fork_of or None):
            # It ended before its prompt was written, and nobody else has the prompt.
            raise AgentRequestRefused(_format_unknown_agent_error(agent))
        transcript = self.open_transcript(new_agent, facts)
        if facts.after and loaded.last == facts.after:
            # All entries are from a former agent of that name.
            conversation = Conversation(transcript, self._clock, self._ids.derive_generator())
            return RestoredAgentState(facts=facts, transcript=transcript, conversation=conversation)
        conversation = Conversation(
            transcript, self._clock, self._ids.derive_generator(), messages=loaded.messages, last=loaded.last
        )
        conversation.add_interrupted_call_results()
        return RestoredAgentState(
            facts=facts,
            transcript=transcript,
            conversation=conversation,
            delivered=loaded.delivered,
            answered=loaded.answered,
        )

    def _restore_agent_from_memory(self, archived: _EndedAgentInMemory) -> RestoredAgentState:
        messages, transcript = archived.messages, NullTranscript()
        return RestoredAgentState(
            facts=archived.facts,
            transcript=transcript,
            conversation=Conversation(
                transcript,
                self._clock,
                self._ids.derive_generator(),
                messages=_MESSAGES_DECODER.decode(messages) if isinstance(messages, bytes) else messages,
                last=archived.last,
            ),
        )


_MESSAGES_DECODER = msgspec.json.Decoder(list[Message])


def _encode_messages_if_possible(messages: list[Message]) -> bytes | list[Message]:
    try:
        return msgspec.json.encode(messages)
    except (TypeError, ValueError, RecursionError):
        # A lone surrogate or a too deeply nested tool input: no file could store it either.
        return messages


def _format_unknown_agent_error(agent: AgentId) -> str:
    return f"There is no agent {agent!r} and no transcript of it. Use ListAgents to list the agents."
