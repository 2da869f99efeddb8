"""What the rules say about one tool call."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

Mode: TypeAlias = Literal[
    "default", "acceptEdits", "plan", "dontAsk", "bypassPermissions", "delegate", "bubble"
]


class Allow(Struct, frozen=True):
    reason: str


class Ask(Struct, frozen=True):
    reason: str
    rule: str = ""
    """What an answer for the whole session would allow; empty where it would allow this call alone."""


class Deny(Struct, frozen=True):
    reason: str
    """For the model: which rule, and what it can do instead."""


Decision: TypeAlias = Allow | Ask | Deny
