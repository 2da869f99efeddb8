"""Outcome of an agent's run as a value: its text, and why it stopped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from shoal.agent.loop import LoopResult
from shoal.core.agents.subagents import AgentEndStatus, AgentResult
from shoal.core.conversation.inbox_items import InboxItem
from shoal.core.conversation.messages import Message, TextBlock
from shoal.core.core_texts import format_end_reason
from shoal.runs.run_texts import format_run_notice
from shoal.wire.notification_text import format_agent_end_notification


class AgentRunOutcome(Struct, frozen=True, kw_only=True):
    status: AgentEndStatus
    text: str
    detail: str = ""
    is_passing: bool = False
    """True if the environment failed (for example, a full disk) and a restart can succeed later."""
    answer: Any = None
    """Structured answer of an agent on another machine, as JSON."""


def outcome_from_loop_result(result: LoopResult, messages: Sequence[Message]) -> AgentRunOutcome:
    match result.reason:
        case "done":
            return AgentRunOutcome(status="completed", text=result.text, detail=result.detail)
        case "max_turns":
            detail = format_end_reason("turn_limit", turns=result.requests)
            return AgentRunOutcome(status="completed", text=find_last_assistant_text(messages), detail=detail)
        case _:
            return AgentRunOutcome(
                status="failed", text=find_last_assistant_text(messages), detail=result.detail
            )


def find_last_assistant_text(messages: Sequence[Message]) -> str:
    """Return the last text of an agent that did not finish; only calls came after it."""
    return next((each.text for each in reversed(messages) if each.role == "assistant" and each.text), "")


def join_outcome_details(*details: str) -> str:
    return "; ".join(filter(None, details))


def describe_unread_messages(messages: int, *, is_remote: bool = False) -> str:
    if not messages:
        return ""
    count_text = "1 message to it is" if messages == 1 else f"{messages} messages to it are"
    return format_run_notice("undelivered_messages" if is_remote else "unread_messages", messages=count_text)


def build_agent_result_notification(completion: AgentResult) -> InboxItem:
    return InboxItem(
        id=completion.id,
        to=completion.report_to,
        content=(TextBlock(text=format_agent_end_notification(completion)),),
        by="runtime",
        mode="task-notification",
        priority="later",
    )
