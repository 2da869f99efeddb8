"""Events of an agent as stream-json lines."""

from __future__ import annotations

import uuid

from shoal.app.run_view.agent_status import AgentStatusRecord
from shoal.core.events import AgentEnded, AgentStarted, ToolStarted
from shoal.wire import stream_task_codec
from shoal.wire.stream_output_codec import OutputStreamLine


def build_task_stream_line(
    event: AgentStarted | AgentEnded | ToolStarted, agent: AgentStatusRecord, session: str
) -> OutputStreamLine:
    call, identity = agent.starting_call or None, str(uuid.uuid4())
    match event:
        case AgentStarted():
            return stream_task_codec.AgentTaskStartedStreamLine(
                task_id=event.agent,
                description=event.description,
                tool_use_id=call,
                subagent_type=event.kind,
                is_background=event.background,
                session_id=session,
                uuid=identity,
            )
        case AgentEnded(completion=completion):
            return stream_task_codec.build_agent_task_ended_line(
                completion, call=call, session=session, uuid=identity
            )
        case ToolStarted(tool=tool):
            return stream_task_codec.AgentTaskProgressStreamLine(
                task_id=event.agent,
                description=agent.activity,
                tool_use_id=call,
                last_tool_name=tool,
                usage=stream_task_codec.AgentTaskUsage(
                    total_tokens=agent.tokens,
                    tool_uses=agent.tool_calls,
                    duration_ms=round((agent.last_event_at - agent.since) * 1000),
                ),
                session_id=session,
                uuid=identity,
            )
