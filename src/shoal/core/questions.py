"""Questions for a person, from any agent, and the answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from shoal.core.ids import AgentId
from shoal.core.permissions import Mode, Suggestion


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
    suggestions: tuple[Suggestion, ...] = ()
    """What the person can change so that the same is not asked again."""


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


class ApprovePlan(Struct, frozen=True, kw_only=True, tag_field="type", tag="plan"):
    """May this agent leave plan mode and carry out this plan?"""

    id: str
    agent: AgentId
    plan: str
    path: str
    digest: str
    """SHA-256 of the plan: an approval counts for this text alone."""
    wishes: tuple[str, ...] = ()
    """What carrying it out will need permission for; approving the plan does not give it."""


Question: TypeAlias = MayRun | Choose | ApprovePlan
Remember: TypeAlias = Literal["once", "session", "settings"]


class Allowed(Struct, frozen=True, kw_only=True, tag_field="type", tag="allowed"):
    remember: Remember = "once"
    input: dict[str, Any] | None = None
    """The call's input as the person changed it."""
    updates: tuple[Suggestion, ...] = ()
    """What the person changed with the answer; where none is named, `remember` takes what was suggested."""


class Denied(Struct, frozen=True, kw_only=True, tag_field="type", tag="denied"):
    reason: str
    by: Literal["person", "policy"] = "person"
    ends_turn: bool = False
    """Whether the agent that asked is to stop there."""


class Chosen(Struct, frozen=True, kw_only=True, tag_field="type", tag="chosen"):
    answers: Mapping[str, str]
    """By question; several choices are joined with a comma."""


class Approved(Struct, frozen=True, kw_only=True, tag_field="type", tag="approved"):
    digest: str
    """Of the plan that was approved."""
    mode: Mode | None = None
    """The mode to work in; None is the one from before planning."""
    by: Literal["person", "policy"] = "person"


Answer: TypeAlias = Allowed | Denied | Chosen | Approved
