"""The teammate's end of the channel to its lead."""

from __future__ import annotations

from collections.abc import Callable

from shoal.core.clock import Clock
from shoal.core.teams.member_backends import MemberChannel
from shoal.team.channel.question_channel import RemoteQuestionBroker
from shoal.team.channel.remote_budget import BudgetLimitSet, RemoteBudget
from shoal.wire.member_channel_codec import (
    BudgetGrantDecidedMessage,
    MemberQuestionAnsweredMessage,
    MessageFromLead,
    MessageFromMember,
    encode_member_channel_message,
    parse_message_from_lead,
)


class ChannelToLead:
    def __init__(self, channel: MemberChannel, limit_set: BudgetLimitSet, clock: Clock) -> None:
        self._channel = channel
        self.question_broker = RemoteQuestionBroker(self.send_message)
        self.budget = RemoteBudget(limit_set, clock, self.send_message)

    def send_message(self, message: MessageFromMember) -> None:
        self._channel.send(encode_member_channel_message(message))

    async def dispatch_received_messages(self, handle_message: Callable[[MessageFromLead], None]) -> None:
        """Receive until the lead is gone; `handle_message` gets everything that is not an answer."""
        while (message := await self._channel.receive()) is not None:
            match parse_message_from_lead(message):
                case BudgetGrantDecidedMessage() as grant:
                    self.budget.resolve_grant(grant)
                case MemberQuestionAnsweredMessage() as answer:
                    self.question_broker.resolve_pending_question(answer)
                case other:
                    handle_message(other)
