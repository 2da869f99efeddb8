"""The transcripts of agents that a session started, each with what is needed to let its agent go on."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from shoal.core.errors import NoSuchSession, StoreError
from shoal.core.ids import AgentId
from shoal.stores.files.places import create_new
from shoal.stores.files.sessions import Loaded, read_session


class Remembered(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An agent as it was made. Its prompt and tools are kept word for word: a cache still knows them."""

    agent_type: str
    description: str
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
    fork_of: str = ""
    """The entry of its parent's transcript after which its own begins."""


def meta_path(transcript: Path) -> Path:
    return transcript.with_suffix(".meta.json")


def remember(transcript: Path, facts: Remembered) -> None:
    """Before the transcript begins: what a crash leaves half written belongs to an agent that never was."""
    create_new(meta_path(transcript), msgspec.json.encode(facts))


def recall(transcript: Path, agent: AgentId) -> tuple[Remembered, Loaded]:
    """Raises `NoSuchSession` where its transcript is gone, `StoreError` where it cannot be read."""
    try:
        facts = msgspec.json.decode(meta_path(transcript).read_bytes(), type=Remembered)
    except (FileNotFoundError, msgspec.DecodeError):
        facts = None
    except OSError as error:
        raise StoreError(
            f"{meta_path(transcript)} cannot be read: {error.strerror}.", path=transcript
        ) from error
    try:
        loaded = read_session(transcript, agent)
    except NoSuchSession:
        raise NoSuchSession(
            f"The transcript of agent {agent} is gone: {transcript}.", path=transcript
        ) from None
    # Another program's, or one whose facts were lost: it can go on as an agent for any purpose.
    return facts or Remembered(agent_type="general-purpose", description=""), loaded
