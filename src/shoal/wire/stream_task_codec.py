"""Stream-json lines for the start, progress and end of agents that a run starts."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from shoal.core.agents.subagents import AgentResult
from shoal.wire.notification_text import summarize_agent_result
from shoal.wire.stream_output_codec import OutputStreamLine


class AgentTaskUsage(Struct, frozen=True, kw_only=True):
    total_tokens: int = 0
    tool_uses: int = 0
    duration_ms: int = 0


class AgentTaskStartedStreamLine(OutputStreamLine, frozen=True, kw_only=True, tag_field="type", tag="system"):
    """An agent started; `tool_use_id` is the call that requested it."""

    subtype: Literal["task_started"] = "task_started"
    task_id: str
    description: str
    tool_use_id: str | None
    task_type: Literal["local_agent"] = "local_agent"
    subagent_type: str
    is_background: bool
    session_id: str
    uuid: str


class AgentTaskProgressStreamLine(
    OutputStreamLine, frozen=True, kw_only=True, tag_field="type", tag="system"
):
    """An agent started a tool call."""

    subtype: Literal["task_progress"] = "task_progress"
    task_id: str
    description: str
    """Current activity of the agent."""
    tool_use_id: str | None
    last_tool_name: str
    usage: AgentTaskUsage
    session_id: str
    uuid: str


class AgentTaskEndedStreamLine(OutputStreamLine, frozen=True, kw_only=True, tag_field="type", tag="system"):
    """An agent ended."""

    subtype: Literal["task_notification"] = "task_notification"
    task_id: str
    tool_use_id: str | None
    status: Literal["completed", "failed", "stopped"]
    output_file: str
    summary: str
    usage: AgentTaskUsage
    session_id: str
    uuid: str


def build_agent_task_ended_line(
    result: AgentResult, *, call: str | None, session: str, uuid: str
) -> AgentTaskEndedStreamLine:
    return AgentTaskEndedStreamLine(
        task_id=result.agent,
        tool_use_id=call,
        status="stopped" if result.status == "killed" else result.status,
        output_file=result.output,
        summary=summarize_agent_result(result),
        usage=AgentTaskUsage(
            total_tokens=result.usage.total_tokens,
            tool_uses=result.evidence.tool_calls,
            duration_ms=result.duration_ms,
        ),
        session_id=session,
        uuid=uuid,
    )
