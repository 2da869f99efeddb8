"""Transcripts of a session's agents, and loading an agent from its transcript."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
from msgspec import Struct

import shoal
from shoal.agent.conversation import Conversation
from shoal.core.clock import Clock
from shoal.core.errors import AgentRefused, StoreError
from shoal.core.ids import AgentId, EntryId, Ids
from shoal.core.messages import Message
from shoal.core.permissions import Mode
from shoal.core.ports import Transcript
from shoal.runs.outfit import Newcomer
from shoal.stores.files.places import subagent_path
from shoal.stores.files.sessions import read_session
from shoal.stores.files.subagents import (
    Remembered,
    recall,
    recall_unspoken,
    remember,
    remember_mode,
)
from shoal.stores.files.transcripts import FileTranscript
from shoal.stores.memory import NoTranscript
from shoal.wire.transcript import Lines

_NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
_SAFE_ID = re.compile(rf"[A-Za-z0-9]{{1,64}}|{_NAME}@{_NAME}")
"""Id of an agent or of a teammate."""


class Recalled(Struct, frozen=True, kw_only=True):
    """An agent as loaded from its transcript."""

    facts: Remembered
    transcript: Transcript
    conversation: Conversation
    delivered: frozenset[str] = frozenset()
    """Ids of the items that it received."""
    answered: frozenset[str] = frozenset()
    """Ids of its calls that have their own result."""


class _PutAway(Struct, frozen=True, kw_only=True):
    """An ended agent in memory: there may be thousands, and few are resumed."""

    facts: Remembered
    messages: bytes | list[Message]
    last: EntryId | None


class AgentFiles:
    """`directory` contains the transcripts; None keeps conversations in memory."""

    def __init__(self, directory: Path | None, *, durable: bool, clock: Clock, ids: Ids) -> None:
        self._directory = directory
        self._durable = durable
        self._clock = clock
        self._ids = ids
        self._in_memory: dict[AgentId, _PutAway] = {}

    @property
    def kept(self) -> bool:
        """True if transcripts outlive the session."""
        return self._directory is not None

    def path(self, agent: AgentId) -> str:
        """Return the path of its transcript; empty if none is stored."""
        return "" if self._directory is None else str(subagent_path(self._directory, agent))

    def transcript(self, newcomer: Newcomer, facts: Remembered) -> Transcript:
        if self._directory is None:
            return NoTranscript()
        lines = Lines(
            session=newcomer.parent.identity.session,
            cwd=facts.cwd,
            version=shoal.__version__,
            agent=newcomer.agent,
        )
        path = subagent_path(self._directory, newcomer.agent)
        return FileTranscript(path, lines, durable=self._durable)

    def last_entry(self, agent: AgentId) -> str:
        """Return the last entry id of its transcript file; empty if there is none or it is unreadable."""
        if self._directory is None:
            return ""
        try:
            return read_session(subagent_path(self._directory, agent), agent).last or ""
        except StoreError:
            return ""

    def keep(self, agent: AgentId, facts: Remembered) -> None:
        if self._directory is not None:
            remember(subagent_path(self._directory, agent), facts)

    def put_away(self, agent: AgentId, facts: Remembered, conversation: Conversation) -> None:
        """Keep an ended agent in memory if it is not on disk, so that it can be resumed."""
        if self._directory is None:
            # A fork shares the messages with its parent: a copy would use more memory.
            messages = conversation.messages if facts.fork_of else _packed(conversation.messages)
            self._in_memory[agent] = _PutAway(facts=facts, messages=messages, last=conversation.last)

    def approved(self, agent: AgentId, mode: Mode) -> None:
        """Store the mode of an approved plan, so that a resumed agent need not plan again."""
        if self._directory is not None:
            remember_mode(subagent_path(self._directory, agent), mode)

    def recalled(self, newcomer: Newcomer) -> Recalled:
        """Load an agent. Raises `AgentRefused` if there is none or its transcript is unusable."""
        agent = newcomer.agent
        if self._directory is None:
            if agent not in self._in_memory:
                raise AgentRefused(_stranger(agent))
            return self._unpacked(self._in_memory[agent])
        path = subagent_path(self._directory, agent)
        if newcomer.seat is not None and (unspoken := recall_unspoken(path)) is not None:
            transcript = self.transcript(newcomer, unspoken)
            conversation = Conversation(transcript, self._clock, self._ids.branch())
            return Recalled(facts=unspoken, transcript=transcript, conversation=conversation)
        if not _SAFE_ID.fullmatch(agent) or not path.exists():
            raise AgentRefused(_stranger(agent))
        try:
            facts, loaded = recall(path, agent)
        except StoreError as error:
            raise AgentRefused(str(error)) from error
        if newcomer.seat is None and loaded.last in (None, facts.fork_of or None):
            # It ended before its prompt was written, and nobody else has the prompt.
            raise AgentRefused(_stranger(agent))
        transcript = self.transcript(newcomer, facts)
        if facts.after and loaded.last == facts.after:
            # All entries are from a former agent of that name.
            conversation = Conversation(transcript, self._clock, self._ids.branch())
            return Recalled(facts=facts, transcript=transcript, conversation=conversation)
        conversation = Conversation(
            transcript, self._clock, self._ids.branch(), messages=loaded.messages, last=loaded.last
        )
        conversation.interrupt()
        return Recalled(
            facts=facts,
            transcript=transcript,
            conversation=conversation,
            delivered=loaded.delivered,
            answered=loaded.answered,
        )

    def _unpacked(self, away: _PutAway) -> Recalled:
        said, transcript = away.messages, NoTranscript()
        return Recalled(
            facts=away.facts,
            transcript=transcript,
            conversation=Conversation(
                transcript,
                self._clock,
                self._ids.branch(),
                messages=_SAID.decode(said) if isinstance(said, bytes) else said,
                last=away.last,
            ),
        )


_SAID = msgspec.json.Decoder(list[Message])


def _packed(messages: list[Message]) -> bytes | list[Message]:
    try:
        return msgspec.json.encode(messages)
    except (TypeError, ValueError, RecursionError):
        # A lone surrogate or a too deeply nested tool input: no file could store it either.
        return messages


def _stranger(agent: AgentId) -> str:
    return f"There is no agent {agent!r}, and no transcript of one. ListAgents shows who there is."
