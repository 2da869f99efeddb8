"""Files of an agent on another machine, which are stored before anybody can rely on them."""

from __future__ import annotations

from msgspec.structs import replace

from shoal.agent.agent_runner import AgentRunner
from shoal.agent.agent_texts import format_notice
from shoal.agent.hook_points import emit_note
from shoal.agent.repetition_guard import is_reading_command
from shoal.core.conversation.messages import TextBlock, ToolUseBlock, user_message
from shoal.core.conversation.tools import Tool, ToolOutput, create_tool_error_output

_TOOLS_WITHOUT_FILES = frozenset(
    (
        *("SendMessage", "TaskCreate", "TaskUpdate", "TaskStop", "TodoWrite", "AskUserQuestion"),
        *("EnterPlanMode", "ExitPlanMode", "CronCreate", "CronDelete"),
    )
)
"""Tools that change something, but no files."""
_MAX_SEND_BACKS = 3
"""Number of times that an agent with unstored files is sent back when it ends its turn."""


def note_possible_change(agent: AgentRunner, call: ToolUseBlock, tool: Tool) -> None:
    """Note that a call may have changed files, even if it failed or was interrupted."""
    if agent.environment.checkpoints is not None and _may_change_files(call, tool):
        agent.environment.checkpoints.note_change()


def _may_change_files(call: ToolUseBlock, tool: Tool) -> bool:
    if tool.schema.name == "Bash":
        return not is_reading_command(str(call.input.get("command", "")))
    return not tool.is_read_only and tool.schema.name not in _TOOLS_WITHOUT_FILES


async def store_files_of_call(
    agent: AgentRunner, call: ToolUseBlock, tool: Tool, output: ToolOutput
) -> ToolOutput:
    """Store what a call has changed before its result is; if that fails, say so in the result.

    A process that dies in between leaves a call without a result, so the agent checks what it did.
    """
    checkpoints = agent.environment.checkpoints
    if checkpoints is None or not _may_change_files(call, tool):
        return output
    if not (problem := await checkpoints.store_changes()):
        return output
    notice = format_notice("files_not_stored", problem=problem)
    if isinstance(output.content, str):
        return replace(output, content=f"{output.content}\n\n{notice}")
    return replace(output, content=(*output.content, TextBlock(text=notice)))


async def refuse_before_files_are_stored(agent: AgentRunner, call: ToolUseBlock) -> ToolOutput | None:
    """Refuse a call that others rely on while files of the agent are not stored."""
    checkpoints = agent.environment.checkpoints
    if checkpoints is None or not _is_relied_on(call):
        return None
    problem = await checkpoints.store_changes()
    return (
        create_tool_error_output(format_notice("call_before_files", tool=call.name, problem=problem))
        if problem
        else None
    )


def _is_relied_on(call: ToolUseBlock) -> bool:
    return call.name == "SendMessage" or (
        call.name == "TaskUpdate" and call.input.get("status") == "completed"
    )


async def send_back_unstored_work(agent: AgentRunner, return_count: int) -> bool:
    """Send an agent back to work whose turn would end with unstored files; later, halt it."""
    checkpoints = agent.environment.checkpoints
    if checkpoints is None or not (problem := await checkpoints.store_changes()):
        return False
    notice = format_notice("end_before_files", problem=problem)
    if return_count >= _MAX_SEND_BACKS:
        agent.state.halt_reason = notice
        agent.state.has_unstored_files = True
        await emit_note(agent, f"Some files of this agent are not stored. {problem}")
        return False
    await agent.receive_message(user_message(notice), by="runtime")
    return True
