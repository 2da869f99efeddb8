"""Metadata with which a sub-agent is resumed, besides its transcript."""

from __future__ import annotations

from msgspec import Struct


class SubagentOrigin(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Agent and call that started a sub-agent."""

    parent: str = ""
    call: str = ""
    depth: int = 1
    fork_of: str = ""
    """Entry of the parent's transcript after which this fork starts."""
    after: str = ""
    """Last entry in the transcript file at creation: it belongs to an earlier agent with the same id."""


class SubagentRestrictions(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Restrictions that a resumed sub-agent keeps."""

    narrowed: tuple[tuple[str, ...], ...] = ()
    """Tools of its own definition and those of its ancestors, whose patterns restrict it."""
    denied: tuple[str, ...] = ()
    """Tools that those definitions deny."""
    memory: str = ""
    """Memory directory of the agent, which it may write."""
    memory_tools: tuple[str, ...] = ()
    """Tools that it has only for that directory."""


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
    color: str | None = None
    background: bool = False
    thinking_tokens: int | None = None
    origin: SubagentOrigin = SubagentOrigin()
    restrictions: SubagentRestrictions = SubagentRestrictions()
