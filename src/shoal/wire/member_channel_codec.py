"""Codec for messages between a lead and a member in a separate process.

Mail goes through inboxes and events go to the journal, wherever a member runs. The channel carries the rest:
the member's state, its requests to the budget and the question broker, and immediate commands of the lead.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from shoal.core.agents import AgentEndStatus, ResolvedAgentSettings, RetainedWorktreeWork
from shoal.core.events import AgentStarted
from shoal.core.ids import AgentId
from shoal.core.limits import BudgetLimits, BudgetRefusal
from shoal.core.permissions import (
    AddDirectoriesSuggestion,
    AddPermissionRulesSuggestion,
    SetPermissionModeSuggestion,
)
from shoal.core.questions import (
    AllowAnswer,
    ChoiceAnswer,
    ChoiceQuestion,
    DenyAnswer,
    PermissionQuestion,
    PlanApprovalAnswer,
    PlanApprovalQuestion,
)
from shoal.core.teams import MemberState
from shoal.core.usage import ModelCard, Usage
from shoal.wire.foreign_json import decode_to_schema
from shoal.wire.json_codec import encode_json


class _MemberChannelMessage(Struct, frozen=True, kw_only=True, tag_field="type"): ...


# From the member


class MemberReady(_MemberChannelMessage, frozen=True, tag="Ready"):
    started: AgentStarted
    resolved: ResolvedAgentSettings
    prompt: str = ""
    """Its first message."""


class MemberStartRefused(_MemberChannelMessage, frozen=True, tag="Refused"):
    """The member cannot start as requested; the process ends."""

    why: str


class MemberStateReported(_MemberChannelMessage, frozen=True, tag="Stands"):
    state: MemberState
    claiming: bool = False
    claims: bool = True


class MemberPong(_MemberChannelMessage, frozen=True, tag="Pong"):
    number: int
    busy: bool


class MailRequestWithdrawn(_MemberChannelMessage, frozen=True, tag="Withdrawn"):
    """The member no longer waits for the answer to a mail request."""

    request: str


class MemberShutdownAgreed(_MemberChannelMessage, frozen=True, tag="Agreed"):
    """The member agrees to a shutdown request."""

    request: str


class MemberLeft(_MemberChannelMessage, frozen=True, tag="Left"):
    """Last message of the member."""

    status: AgentEndStatus
    text: str
    detail: str
    work: RetainedWorktreeWork | None = None


class MemberEventForwarded(_MemberChannelMessage, frozen=True, tag="Told"):
    """An event that the member has written to the journal, as the journal line."""

    line: msgspec.Raw


class MemberQuestionAsked(_MemberChannelMessage, frozen=True, tag="Asks"):
    """A question for a person that is not sent by mail."""

    question: PermissionQuestion | ChoiceQuestion | PlanApprovalQuestion


class MemberQuestionWithdrawn(_MemberChannelMessage, frozen=True, tag="Unasks"):
    question: str


class AgentBudgetOpened(_MemberChannelMessage, frozen=True, tag="Opens"):
    """The member opened a budget with limits for one of its agents."""

    agent: AgentId
    kind: str
    limits: BudgetLimits


class BudgetReservationRequested(_MemberChannelMessage, frozen=True, tag="Holds"):
    """Asks to reserve budget before a model request; answered by `BudgetGrantDecided`."""

    number: int
    agent: AgentId
    card: ModelCard
    prompt_tokens: int
    max_tokens: int | None


class BudgetReservationSettled(_MemberChannelMessage, frozen=True, tag="Settles"):
    """Reports the usage of a request, an attempt that may be billed (`billed`), or just its end."""

    number: int
    usage: Usage | None = None
    billed: bool = False


class AgentSlotRequested(_MemberChannelMessage, frozen=True, tag="Enters"):
    """Asks to start an agent; answered by `BudgetGrantDecided`."""

    number: int
    kind: str
    depth: int
    again: bool


class AgentSlotReleased(_MemberChannelMessage, frozen=True, tag="Leaves"):
    number: int
    begun: bool


class MemberWorkSlotRequested(_MemberChannelMessage, frozen=True, tag="Works"):
    """Asks to start working; answered by `BudgetGrantDecided` when the member may."""

    number: int


class MemberWorkSlotReleased(_MemberChannelMessage, frozen=True, tag="Rests"):
    """The member stopped working, or stopped waiting to work."""


# From the lead


class BudgetGrantDecided(_MemberChannelMessage, frozen=True, tag="Granted"):
    number: int
    refusal: BudgetRefusal | None = None


class MemberQuestionAnswered(_MemberChannelMessage, frozen=True, tag="Answers"):
    question: str
    answer: AllowAnswer | DenyAnswer | ChoiceAnswer | PlanApprovalAnswer


class MemberPing(_MemberChannelMessage, frozen=True, tag="Ping"):
    number: int


class SessionPermissionChanged(_MemberChannelMessage, frozen=True, tag="Permits"):
    """A person's answer for the whole session; the process that received it sends it to all others."""

    update: AddPermissionRulesSuggestion | AddDirectoriesSuggestion | SetPermissionModeSuggestion


class MemberInterruptRequested(_MemberChannelMessage, frozen=True, tag="Cut"):
    """Ends the current work of the member, not the member."""


class MemberStopRequested(_MemberChannelMessage, frozen=True, tag="Leave"):
    """Ends the member; with `stays` it is resumed with the session."""

    why: str
    stays: bool = False


MessageFromMember: TypeAlias = (
    MemberReady
    | MemberStartRefused
    | MemberStateReported
    | MemberPong
    | MailRequestWithdrawn
    | MemberShutdownAgreed
    | MemberLeft
    | MemberEventForwarded
    | MemberQuestionAsked
    | MemberQuestionWithdrawn
    | AgentBudgetOpened
    | BudgetReservationRequested
    | BudgetReservationSettled
    | AgentSlotRequested
    | AgentSlotReleased
    | SessionPermissionChanged
    | MemberWorkSlotRequested
    | MemberWorkSlotReleased
)
MessageFromLead: TypeAlias = (
    BudgetGrantDecided
    | MemberQuestionAnswered
    | MemberPing
    | SessionPermissionChanged
    | MemberInterruptRequested
    | MemberStopRequested
)

_decode_from_member: Any = msgspec.json.Decoder(MessageFromMember).decode
_decode_from_lead: Any = msgspec.json.Decoder(MessageFromLead).decode


def encode_member_channel_message(message: MessageFromMember | MessageFromLead) -> bytes:
    return encode_json(message)


def parse_message_from_member(message: bytes) -> MessageFromMember:
    """Parse a message of a member; raise ValueError if it is invalid."""
    parsed: MessageFromMember = decode_to_schema(message, _decode_from_member, MessageFromMember)
    return parsed


def parse_message_from_lead(message: bytes) -> MessageFromLead:
    """Parse a message of the lead; raise ValueError if it is invalid."""
    parsed: MessageFromLead = decode_to_schema(message, _decode_from_lead, MessageFromLead)
    return parsed
