"""Questions for a person, from any agent, and the answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from shoal.core.ids import AgentId
from shoal.core.keyword_checks import CheckedStruct, check_keywords
from shoal.core.permissions.permission_changes import PermissionMode, PermissionSuggestion, RuleDestination

RememberScope: TypeAlias = Literal["once", "session", "settings"]
"""How long an answer applies: to one call, to the session, or to later sessions of the project too."""


class PermissionQuestion(Struct, frozen=True, kw_only=True, tag_field="type", tag="permission"):
    """Question: may this agent make this tool call?"""

    id: str
    """Id of the question."""
    agent: AgentId
    """Agent that asks."""
    tool_use_id: str
    """Id of the call."""
    tool: str
    """Name of the tool."""
    input: dict[str, Any]
    """Arguments of the call."""
    reason: str
    """Why a person must decide."""
    rule: str = ""
    """Rule that an answer for the whole session would add; empty if it would allow only this call."""
    suggestions: tuple[PermissionSuggestion, ...] = ()
    """Permission changes that avoid the same question in the future."""

    @check_keywords("question.allow()")
    def allow(
        self,
        *,
        remember: RememberScope = "once",
        input: dict[str, Any] | None = None,  # noqa: A002 - the field
    ) -> AllowAnswer:
        """Return the answer that allows the call, with another `input` if one is given."""
        return AllowAnswer(remember=remember, input=input)

    @check_keywords("question.deny()")
    def deny(self, reason: str, *, ends_turn: bool = False) -> DenyAnswer:
        """Return the answer that refuses the call; the model reads the reason."""
        return DenyAnswer(reason=reason, ends_turn=ends_turn)


class ChoiceOption(Struct, frozen=True, kw_only=True):
    """Option of a question."""

    label: str
    """Text of the option, which is also its answer."""
    description: str = ""
    """What choosing it means."""


class MultipleChoice(Struct, frozen=True, kw_only=True, rename="camel"):
    """Question with options."""

    question: str
    """Text of the question."""
    header: str
    """Short title."""
    options: tuple[ChoiceOption, ...]
    """Options to choose from."""
    multi_select: bool = False
    """True if several options may be chosen."""


class ChoiceQuestion(Struct, frozen=True, kw_only=True, tag_field="type", tag="choice"):
    """Question about which of these options the user wants."""

    id: str
    """Id of the question."""
    agent: AgentId
    """Agent that asks."""
    choices: tuple[MultipleChoice, ...]
    """Questions with their options."""

    def choose(self, *labels: str) -> ChoiceAnswer:
        """Return the answer with one label, or any text, for each question in order."""
        if len(labels) != len(self.choices):
            raise ValueError(
                f"expected {len(self.choices)} answers, one for each question, got {len(labels)}"
            )
        pairs = zip(self.choices, labels, strict=True)
        return ChoiceAnswer(answers={choice.question: label for choice, label in pairs})

    @check_keywords("question.deny()")
    def deny(self, reason: str) -> DenyAnswer:
        """Return the answer that refuses to choose; the model reads the reason."""
        return DenyAnswer(reason=reason)


class PlanApprovalQuestion(Struct, frozen=True, kw_only=True, tag_field="type", tag="plan"):
    """Question: may this agent leave plan mode and carry out this plan?"""

    id: str
    """Id of the question."""
    agent: AgentId
    """Agent that asks."""
    plan: str
    """Text of the plan."""
    path: str
    """File of the plan."""
    digest: str
    """SHA-256 of the plan: an approval is valid for this text only."""
    wishes: tuple[str, ...] = ()
    """Permissions that the plan will need; approving the plan does not grant them."""

    @check_keywords("question.approve()")
    def approve(self, *, mode: PermissionMode | None = None) -> PlanApprovedAnswer:
        """Return the answer that approves this plan."""
        return PlanApprovedAnswer(digest=self.digest, mode=mode)

    @check_keywords("question.deny()")
    def deny(self, reason: str) -> DenyAnswer:
        """Return the answer that rejects the plan; the model reads the reason."""
        return DenyAnswer(reason=reason)


Question: TypeAlias = PermissionQuestion | ChoiceQuestion | PlanApprovalQuestion
"""Question of an agent to a person."""


class AllowAnswer(CheckedStruct, frozen=True, kw_only=True, tag_field="type", tag="allowed"):
    """Answer that allows a tool call."""

    remember: RememberScope = "once"
    """`once`, `session` or `settings`: for how long the answer also allows the same call."""
    input: dict[str, Any] | None = None
    """Input of the call as the user changed it."""
    updates: tuple[PermissionSuggestion, ...] = ()
    """Permission changes made with the answer; if empty, `remember` applies the suggested change."""

    @property
    def destination(self) -> RuleDestination | None:
        """Where the suggested change is stored; None if the answer allows only this call.

        A scope that does not exist stores nothing.
        """
        match self.remember:
            case "session":
                return "session"
            case "settings":
                return "localSettings"
            case _:
                return None


class DenyAnswer(CheckedStruct, frozen=True, kw_only=True, tag_field="type", tag="denied"):
    """Answer that refuses a tool call, a plan or a choice."""

    reason: str
    """Reason, which the model reads."""
    by: Literal["person", "policy"] = "person"
    """Who denied it: a person, or a policy."""
    ends_turn: bool = False
    """True if the agent that asked must stop."""


class ChoiceAnswer(CheckedStruct, frozen=True, kw_only=True, tag_field="type", tag="chosen"):
    """Answer that chooses an option for each question."""

    answers: Mapping[str, str]
    """Answer by question; several choices are joined with a comma."""


class PlanApprovedAnswer(CheckedStruct, frozen=True, kw_only=True, tag_field="type", tag="approved"):
    """Answer that approves a plan."""

    digest: str
    """Digest of the approved plan."""
    mode: PermissionMode | None = None
    """Mode to continue in; None restores the mode from before planning."""
    by: Literal["person", "policy"] = "person"
    """Who approved it: a person, or a policy."""


Answer: TypeAlias = AllowAnswer | DenyAnswer | ChoiceAnswer | PlanApprovedAnswer
"""Answer to a question."""
RUN_ENDED_REASON = "The question was withdrawn because the run that asked it ended."
"""Reason of the policy denial for questions of a process that died."""


def is_run_ended_denial(answer: Answer | None) -> bool:
    """Return True if this is the policy denial for a process that died."""
    return isinstance(answer, DenyAnswer) and answer.by == "policy" and answer.reason == RUN_ENDED_REASON
