"""Permission decisions about one tool call."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from shoal.core.permissions.permission_changes import PermissionMode, PermissionSuggestion

__all__ = ["AllowDecision", "AskDecision", "DenyDecision", "PermissionDecision", "PermissionMode"]


class AllowDecision(Struct, frozen=True):
    reason: str
    rule: str | None = None
    source: str | None = None
    """Source of the rule; None if the mode or the kind of call decided."""


class AskDecision(Struct, frozen=True):
    reason: str
    rule: str | None = None
    source: str | None = None
    suggestions: tuple[PermissionSuggestion, ...] = ()
    """Permission changes that avoid the same question in the future."""
    needs_person: bool = False
    """True if only a person may answer, not a hook."""


class DenyDecision(Struct, frozen=True):
    reason: str
    """Text for the model: which rule, and what it can do instead."""
    rule: str | None = None
    source: str | None = None


PermissionDecision: TypeAlias = AllowDecision | AskDecision | DenyDecision
