"""Codec for messages between a lead and a member in a separate process.

Mail goes through inboxes and events go to the journal, wherever a member runs. The channel carries the rest:
the member's state, its requests to the budget and the question broker, and immediate commands of the lead.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from shoal.core.agents.subagents import AgentEndStatus, ResolvedAgentSettings, RetainedWorktreeWork
from shoal.core.budgets.limits import BudgetLimits, BudgetRefusal
from shoal.core.budgets.usage import ModelCard, Usage
from shoal.core.conversation.inbox_items import InboxItem
from shoal.core.events import AgentStarted
from shoal.core.ids import AgentId
from shoal.core.permissions.permission_changes import (
    AddDirectoriesPermissionSuggestion,
    AddPermissionRulesSuggestion,
    SetPermissionModeSuggestion,
)
from shoal.core.permissions.questions import (
    AllowAnswer,
    ChoiceAnswer,
    ChoiceQuestion,
    DenyAnswer,
    PermissionQuestion,
    PlanApprovalQuestion,
    PlanApprovedAnswer,
)
from shoal.core.teams.team_operations import MemberState
from shoal.wire.foreign_json import decode_to_schema
from shoal.wire.json_codec import encode_json


class _MemberChannelMessage(Struct, frozen=True, kw_only=True, tag_field="type"): ...


# From the member


class MemberReadyMessage(_MemberChannelMessage, frozen=True, tag="Ready"):
    started: AgentStarted
    resolved: ResolvedAgentSettings
    prompt: str = ""
    """Its first message."""


class MemberStartRefusedMessage(_MemberChannelMessage, frozen=True, tag="Refused"):
    """The member cannot start as requested; the process ends."""

    why: str
    is_transcript_missing: bool = False
    """True if no later attempt can resume it, because its conversation is not stored."""


class MemberStateReportedMessage(_MemberChannelMessage, frozen=True, tag="Stands"):
    state: MemberState
    claiming: bool = False
    claims: bool = True


class MemberPongMessage(_MemberChannelMessage, frozen=True, tag="Pong"):
    number: int
    busy: bool


class MailRequestWithdrawnMessage(_MemberChannelMessage, frozen=True, tag="Withdrawn"):
    """The member no longer waits for the answer to a mail request."""

    request: str


class MemberShutdownAgreedMessage(_MemberChannelMessage, frozen=True, tag="Agreed"):
    """The member agrees to a shutdown request."""

    request: str


class MemberLeftMessage(_MemberChannelMessage, frozen=True, tag="Left"):
    """Last message of the member."""

    status: AgentEndStatus
    text: str
    detail: str
    work: RetainedWorktreeWork | None = None
    passing: bool = False
    """True if its environment failed (for example, a full disk)."""
    answer: Any = None
    """Structured answer of an agent for one job, if one was required."""


class MemberEventForwardedMessage(_MemberChannelMessage, frozen=True, tag="Told"):
    """An event that the member has written to the journal, as the journal line."""

    line: msgspec.Raw


class MemberQuestionAskedMessage(_MemberChannelMessage, frozen=True, tag="Asks"):
    """A question for a person that is not sent by mail."""

    question: PermissionQuestion | ChoiceQuestion | PlanApprovalQuestion


class MemberQuestionWithdrawnMessage(_MemberChannelMessage, frozen=True, tag="Unasks"):
    question: str


class AgentBudgetOpenedMessage(_MemberChannelMessage, frozen=True, tag="Opens"):
    """The member opened a budget with limits for one of its agents."""

    agent: AgentId
    kind: str
    limits: BudgetLimits


class BudgetReservationRequestedMessage(_MemberChannelMessage, frozen=True, tag="Holds"):
    """Asks to reserve budget before a model request; answered by `BudgetGrantDecidedMessage`."""

    number: int
    agent: AgentId
    card: ModelCard
    prompt_tokens: int
    max_tokens: int | None


class BudgetReservationSettledMessage(_MemberChannelMessage, frozen=True, tag="Settles"):
    """Reports the usage of a request, an attempt that may be billed (`billed`), or just its end.

    With `billed`, a usage is an estimate.
    """

    number: int
    usage: Usage | None = None
    billed: bool = False


class AgentSlotRequestedMessage(_MemberChannelMessage, frozen=True, tag="Enters"):
    """Asks to start an agent; answered by `BudgetGrantDecidedMessage`."""

    number: int
    kind: str
    depth: int
    again: bool


class AgentSlotReleasedMessage(_MemberChannelMessage, frozen=True, tag="Leaves"):
    number: int
    begun: bool


class MemberWorkSlotRequestedMessage(_MemberChannelMessage, frozen=True, tag="Works"):
    """Asks to start working; answered by `BudgetGrantDecidedMessage` when the member may."""

    number: int


class MemberWorkSlotReleasedMessage(_MemberChannelMessage, frozen=True, tag="Rests"):
    """The member stopped working, or stopped waiting to work."""


class AgentItemDeliveredMessage(_MemberChannelMessage, frozen=True, tag="Delivered"):
    """An item from the lead is in the transcript of the agent on this machine."""

    item: str


class ItemForLeadSentMessage(_MemberChannelMessage, frozen=True, tag="Writes"):
    """A message of an agent on this machine to the lead; the journal already has it."""

    item: InboxItem


# From the lead


class BudgetGrantDecidedMessage(_MemberChannelMessage, frozen=True, tag="Granted"):
    number: int
    refusal: BudgetRefusal | None = None
    """Reason why nothing is granted. With a slot for work, the limit that leaves nothing for a request."""
    usd: float = 0.0
    """Dollars that the lead reserved."""
    tokens: int = 0


class MemberQuestionAnsweredMessage(_MemberChannelMessage, frozen=True, tag="Answers"):
    question: str
    answer: AllowAnswer | DenyAnswer | ChoiceAnswer | PlanApprovedAnswer


class MemberPingMessage(_MemberChannelMessage, frozen=True, tag="Ping"):
    number: int


class SessionPermissionChangedMessage(_MemberChannelMessage, frozen=True, tag="Permits"):
    """A person's answer for the whole session; the process that received it sends it to all others."""

    update: AddPermissionRulesSuggestion | AddDirectoriesPermissionSuggestion | SetPermissionModeSuggestion


class MemberInterruptRequestedMessage(_MemberChannelMessage, frozen=True, tag="Cut"):
    """Ends the current work of the member, not the member."""


class MemberStopRequestedMessage(_MemberChannelMessage, frozen=True, tag="Leave"):
    """Ends the member; with `stays` it is resumed with the session."""

    why: str
    stays: bool = False


class AgentItemSentMessage(_MemberChannelMessage, frozen=True, tag="Sends"):
    """An item for the one agent of the process; answered by `AgentItemDeliveredMessage`."""

    item: InboxItem


MessageFromMember: TypeAlias = (
    MemberReadyMessage
    | MemberStartRefusedMessage
    | MemberStateReportedMessage
    | MemberPongMessage
    | MailRequestWithdrawnMessage
    | MemberShutdownAgreedMessage
    | MemberLeftMessage
    | MemberEventForwardedMessage
    | MemberQuestionAskedMessage
    | MemberQuestionWithdrawnMessage
    | AgentBudgetOpenedMessage
    | BudgetReservationRequestedMessage
    | BudgetReservationSettledMessage
    | AgentSlotRequestedMessage
    | AgentSlotReleasedMessage
    | SessionPermissionChangedMessage
    | MemberWorkSlotRequestedMessage
    | MemberWorkSlotReleasedMessage
    | AgentItemDeliveredMessage
    | ItemForLeadSentMessage
)
MessageFromLead: TypeAlias = (
    BudgetGrantDecidedMessage
    | MemberQuestionAnsweredMessage
    | MemberPingMessage
    | SessionPermissionChangedMessage
    | MemberInterruptRequestedMessage
    | MemberStopRequestedMessage
    | AgentItemSentMessage
)


def encode_member_channel_message(message: MessageFromMember | MessageFromLead) -> bytes:
    return encode_json(message)


def parse_message_from_member(message: bytes) -> MessageFromMember:
    """Parse a message of a member; raise ValueError if it is invalid."""
    parsed: MessageFromMember = decode_to_schema(message, MessageFromMember)
    return parsed


def parse_message_from_lead(message: bytes) -> MessageFromLead:
    """Parse a message of the lead; raise ValueError if it is invalid."""
    parsed: MessageFromLead = decode_to_schema(message, MessageFromLead)
    return parsed
