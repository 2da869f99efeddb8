"""Transcripts of a session's agents, and loading an agent from its transcript."""

from __future__ import annotations

from collections.abc import Callable, Container

from msgspec import Struct

import shoal
from shoal.agent.conversation import Conversation
from shoal.core.agents.subagent_metadata import SubagentMetadata
from shoal.core.clock import Clock
from shoal.core.errors import AgentRequestRefused, AgentTranscriptMissing, StateFileError
from shoal.core.ids import LEAD_ID, AgentId, IdGenerator
from shoal.core.permissions.permission_changes import PermissionMode
from shoal.core.ports import Transcript
from shoal.core.store import SessionStore
from shoal.core.text.lazy_patterns import compile_on_first_use
from shoal.runs.prepared_agent import AgentPreparationRequest
from shoal.stores.subagent_records import (
    load_subagent_with_conversation,
    load_unstarted_subagent_metadata,
)

_NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
_SAFE_ID = compile_on_first_use(rf"[A-Za-z0-9]{{1,64}}|{_NAME}@{_NAME}")
"""Id of an agent or of a teammate."""


class RestoredAgentState(Struct, frozen=True, kw_only=True):
    """An agent as loaded from its transcript."""

    facts: SubagentMetadata
    transcript: Transcript
    conversation: Conversation
    delivered: frozenset[str] = frozenset()
    """Ids of the items that it received."""
    answered: Container[str] = frozenset()
    """Ids of its calls that have their own result."""


class AgentTranscriptStore:
    def __init__(
        self,
        store: SessionStore,
        *,
        clock: Clock,
        ids: IdGenerator,
        report: Callable[[str], None],
    ) -> None:
        """`report` is called with a sentence for each damaged transcript."""
        self._store = store
        self._report = report
        self._clock = clock
        self._ids = ids

    @property
    def is_persistent(self) -> bool:
        """True if transcripts are files that people can read."""
        return self._store.get_transcript_path(LEAD_ID) is not None

    def get_transcript_path(self, agent: AgentId) -> str:
        """Return the path of its transcript; empty if it is not a file."""
        return str(self._store.get_transcript_path(agent) or "")

    def open_transcript(self, agent: AgentId, facts: SubagentMetadata) -> Transcript:
        return self._store.open_transcript(agent, cwd=facts.cwd, version=shoal.__version__)

    def read_last_entry_id(self, agent: AgentId) -> str:
        """Return the last entry id of its transcript; empty if there is none or it is unreadable."""
        try:
            return self._store.restore_conversation(agent).last or ""
        except StateFileError:
            return ""

    def save_agent_metadata(self, agent: AgentId, facts: SubagentMetadata) -> None:
        self._store.save_agent_metadata(agent, facts)

    def save_approved_plan_mode(self, agent: AgentId, mode: PermissionMode) -> None:
        """Store the mode of an approved plan, so that a resumed agent does not have to plan again."""
        self._store.save_agent_mode(agent, mode)

    def load_agent(self, new_agent: AgentPreparationRequest) -> RestoredAgentState:
        """Load an agent. Raises `AgentRequestRefused` if there is none or its transcript is unusable."""
        agent = new_agent.agent
        if (
            new_agent.assignment is not None
            and (unstarted := load_unstarted_subagent_metadata(self._store, agent)) is not None
        ):
            transcript = self.open_transcript(agent, unstarted)
            conversation = Conversation(transcript, self._clock, self._ids.derive_generator())
            return RestoredAgentState(facts=unstarted, transcript=transcript, conversation=conversation)
        # The lead's transcript is not one of an agent that somebody could start again.
        if agent == LEAD_ID or not _SAFE_ID.fullmatch(agent):
            raise AgentTranscriptMissing(_format_unknown_agent_error(agent))
        if not self._store.has_transcript(agent):
            is_known = load_unstarted_subagent_metadata(self._store, agent) is not None
            raise AgentTranscriptMissing(
                _format_unstarted_agent_error(agent) if is_known else _format_unknown_agent_error(agent)
            )
        try:
            facts, loaded = load_subagent_with_conversation(self._store, agent)
        except StateFileError as error:
            raise AgentRequestRefused(str(error)) from error
        if new_agent.assignment is None and loaded.last in (None, facts.origin.fork_of or None):
            # It ended before its prompt was written, and nobody else has the prompt.
            raise AgentTranscriptMissing(_format_unstarted_agent_error(agent))
        if report := loaded.describe_damage(self.get_transcript_path(agent) or f"of {agent}"):
            self._report(report)
        transcript = self.open_transcript(agent, facts)
        if facts.origin.after and loaded.last == facts.origin.after:
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


def _format_unstarted_agent_error(agent: AgentId) -> str:
    return (
        f"The agent {agent!r} has no transcript to continue: it ended before it did any work, or its "
        "transcript is lost. Start a new agent instead."
    )


def _format_unknown_agent_error(agent: AgentId) -> str:
    return f"There is no agent {agent!r}, and no transcript for it. Use ListAgents to list the agents."
