"""Spawn policy: defaults for running the agents of a session."""

from __future__ import annotations

from msgspec import Struct


class SpawnPolicy(Struct, frozen=True, kw_only=True):
    """Defaults for running agents."""

    background: bool = True
    """True if agents may run in the background at all."""
    always_background: bool = False
    fork_by_default: bool = False
    """True if a request without a type starts a fork of the caller."""
    model_by_call: bool = True
    """True if a call may name the model of the agent it starts."""
    auto_background: float = 120.0
    """Seconds after which a foreground agent moves to the background; 0 means never."""
    report_tokens: int = 1_000
    approval_threshold: int | None = None
    """Number of agents in one message above which a person is asked first; None means never."""
    default_kind: str = "general-purpose"
    """Agent type for requests without one."""
