"""Permission decisions about one tool call."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from shoal.core.permissions import Mode, Suggestion

__all__ = ["Allow", "Ask", "Decision", "Deny", "Mode"]


class Allow(Struct, frozen=True):
    reason: str
    rule: str | None = None
    source: str | None = None
    """Source of the rule; None if the mode or the kind of call decided."""


class Ask(Struct, frozen=True):
    reason: str
    rule: str | None = None
    source: str | None = None
    suggestions: tuple[Suggestion, ...] = ()
    """Permission changes that avoid the same question in future."""


class Deny(Struct, frozen=True):
    reason: str
    """Text for the model: which rule, and what it can do instead."""
    rule: str | None = None
    source: str | None = None


Decision: TypeAlias = Allow | Ask | Deny
