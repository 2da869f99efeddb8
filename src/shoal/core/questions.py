"""Questions for a person, from any agent, and the answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from shoal.core.ids import AgentId


class MayRun(Struct, frozen=True, kw_only=True, tag_field="type", tag="permission"):
    """May this agent make this tool call?"""

    id: str
    agent: AgentId
    tool_use_id: str
    tool: str
    input: dict[str, Any]
    reason: str
    rule: str = ""
    """What an answer for the whole session would allow; empty where it would allow this call alone."""


class Option(Struct, frozen=True, kw_only=True):
    label: str
    description: str = ""


class Choice(Struct, frozen=True, kw_only=True, rename="camel"):
    question: str
    header: str
    options: tuple[Option, ...]
    multi_select: bool = False


class Choose(Struct, frozen=True, kw_only=True, tag_field="type", tag="choice"):
    """Which of these does the person want?"""

    id: str
    agent: AgentId
    choices: tuple[Choice, ...]


Question: TypeAlias = MayRun | Choose
Remember: TypeAlias = Literal["once", "session", "settings"]


class Allowed(Struct, frozen=True, kw_only=True, tag_field="type", tag="allowed"):
    remember: Remember = "once"
    input: dict[str, Any] | None = None
    """The call's input as the person changed it."""


class Denied(Struct, frozen=True, kw_only=True, tag_field="type", tag="denied"):
    reason: str
    by: Literal["person", "policy"] = "person"


class Chosen(Struct, frozen=True, kw_only=True, tag_field="type", tag="chosen"):
    answers: Mapping[str, str]
    """By question; several choices are joined with a comma."""


Answer: TypeAlias = Allowed | Denied | Chosen
