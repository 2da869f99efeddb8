"""What the rules say about one tool call."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from shoal.core.permissions import Mode, Suggestion

__all__ = ["Allow", "Ask", "Decision", "Deny", "Mode"]


class Allow(Struct, frozen=True):
    reason: str
    rule: str | None = None
    source: str | None = None
    """Where the rule stands; None where the mode or the kind of call decided."""


class Ask(Struct, frozen=True):
    reason: str
    rule: str | None = None
    source: str | None = None
    suggestions: tuple[Suggestion, ...] = ()
    """What a person can change so that the same is not asked again."""


class Deny(Struct, frozen=True):
    reason: str
    """For the model: which rule, and what it can do instead."""
    rule: str | None = None
    source: str | None = None


Decision: TypeAlias = Allow | Ask | Deny
