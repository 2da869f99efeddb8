"""Activity and usage of an agent in a few words."""

from __future__ import annotations

from shoal.app.run_view.agent_status import AgentStatusRecord
from shoal.core.text.text_format import (
    format_count_with_noun,
    format_duration,
    format_token_count,
    to_one_line,
)
from shoal.surfaces.terminal.question_text import describe_question


def describe_agent_activity(status: AgentStatusRecord) -> str:
    if status.question is not None:
        return f"asks: {to_one_line(describe_question(status.question))}"
    return status.activity or status.state


def format_agent_usage(status: AgentStatusRecord, now: float) -> str:
    duration = format_duration(max(now - status.since, 0.0))
    calls = format_count_with_noun(status.tool_calls, "call")
    return f"{calls} · {format_token_count(status.tokens)} tokens · {duration}"
