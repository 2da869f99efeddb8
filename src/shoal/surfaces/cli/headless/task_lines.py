"""Events of an agent as stream-json lines."""

from __future__ import annotations

import uuid

from shoal.app.picture.standing import Standing
from shoal.core.events import AgentEnded, AgentStarted, ToolStarted
from shoal.wire import stream_tasks
from shoal.wire.stream_json import Line


def task_line(event: AgentStarted | AgentEnded | ToolStarted, agent: Standing, session: str) -> Line:
    call, identity = agent.call or None, str(uuid.uuid4())
    match event:
        case AgentStarted():
            return stream_tasks.TaskStarted(
                task_id=event.agent,
                description=event.description,
                tool_use_id=call,
                subagent_type=event.kind,
                is_background=event.background,
                session_id=session,
                uuid=identity,
            )
        case AgentEnded(completion=completion):
            return stream_tasks.task_notification(completion, call=call, session=session, uuid=identity)
        case ToolStarted(tool=tool):
            return stream_tasks.TaskProgress(
                task_id=event.agent,
                description=agent.doing,
                tool_use_id=call,
                last_tool_name=tool,
                usage=stream_tasks.TaskUsage(
                    total_tokens=agent.tokens,
                    tool_uses=agent.tool_calls,
                    duration_ms=round((agent.heard - agent.since) * 1000),
                ),
                session_id=session,
                uuid=identity,
            )
