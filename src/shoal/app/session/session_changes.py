"""Changes to a running session beyond its model and mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from shoal.agent.tool_calls import run_tool_for_host
from shoal.app.config import undo_history
from shoal.app.runtime.runtime import resolve_thinking_tokens
from shoal.core.conversation.messages import ToolUseBlock
from shoal.core.conversation.tools import ToolOutput
from shoal.core.conversation.transcript_entries import TranscriptMessageEntry
from shoal.core.core_texts import format_end_reason
from shoal.core.errors import NoModelConfigured
from shoal.core.extensions.mcp_servers import format_mcp_tool_name
from shoal.runs.agent_registry import LEAD_NAMES

if TYPE_CHECKING:
    from shoal.app.options import Options
    from shoal.app.session.session import Session
    from shoal.core.teams.tasks import Task
    from shoal.core.teams.team_operations import TeammateStatusSnapshot
    from shoal.workspaces.checkpoints import FileUndoReport


async def interrupt_agent(session: Session, name: str) -> bool:
    """Interrupt an agent's work; return False if it did nothing. Raises `AgentRequestRefused`.

    A teammate becomes idle. A one-job agent ends and continues when it gets a message.
    """
    if name in LEAD_NAMES:
        return await session.interrupt()
    was_working = session.teams.interrupt_member(name)
    if was_working is None:
        await session.supervisor.stop_running_agent(name, format_end_reason("interrupted_by_user"))
        return True
    return was_working


def list_down_members(session: Session) -> tuple[TeammateStatusSnapshot, ...]:
    """Return the teammates that are down, or that were down when the team ended."""
    return () if session.led_teams is None else session.led_teams.list_down_members()


async def list_unfinished_tasks(session: Session) -> tuple[Task, ...]:
    """Return the tasks of the session's team that are not completed."""
    return () if session.led_teams is None else await session.led_teams.list_unfinished_tasks()


def set_thinking_tokens(session: Session, tokens: int | None) -> None:
    """Set the lead's thinking budget from the next request on; None means that of the session's start."""
    if tokens is None:
        tokens = resolve_thinking_tokens(session.runtime.options, session.runtime.settings)
    session.agent.set_thinking_tokens(tokens)


async def undo_turn(session: Session, turn: int | None, *, conversation: bool = False) -> FileUndoReport:
    """Restore files to before a turn, optionally the conversation. Raises `NothingToUndoError`."""
    report = undo_history.restore_before_turn(
        session.parts.undo_history, session.agent, turn, conversation=conversation
    )
    await session.publish_event(undo_history.build_turn_undone_event(report, conversation=conversation))
    return report


async def rewind_files_to_before_message(session: Session, message_id: str) -> FileUndoReport:
    """Restore files to before the turn that a message started. Raises `NothingToUndoError`."""
    if session.parts.undo_history is None:
        raise undo_history.NothingToUndoError(
            "This session stores nothing on disk, so Shoal cannot restore files."
        )
    return await undo_turn(session, _find_turn_of_message(session.parts.undo_history, message_id))


def _find_turn_of_message(history: undo_history.SessionUndoHistory, message_id: str) -> int:
    turns = {each.after: each.turn for each in history.list_undoable_turns()}
    # Before its first turn a session has no transcript.
    for line in undo_history.read_transcript_lines(history.store) if turns else ():
        entry = line.entry
        if isinstance(entry, TranscriptMessageEntry) and entry.id == message_id and entry.parent in turns:
            return turns[entry.parent]
    raise undo_history.NothingToUndoError(f"No turn in this session started with the message {message_id!r}.")


def read_entry_ids(session: Session) -> set[str]:
    """Return the ids in the transcript of a resumed session, whose program may send one of them again."""
    history = session.parts.undo_history
    if history is None or session.config.history.last is None:
        return set()
    entries = (line.entry for line in undo_history.read_transcript_lines(history.store))
    return {entry.id for entry in entries if isinstance(entry, TranscriptMessageEntry)}


async def resume_script_workflow(session: Session, workflow: str, rerun_from: int | None) -> Any:
    """Continue a workflow that the lead's model wrote and return its value. Raises `WorkflowError`."""
    return await session.workflows.scripts.resume_in_foreground(workflow, rerun_from)


async def stop_workflows(session: Session, reason: str) -> tuple[str, ...]:
    """Stop the running workflows and return their ids."""
    return await session.workflows.stop_all(reason)


async def call_mcp_tool(session: Session, call: ToolUseBlock) -> ToolOutput | None:
    """Call a tool of an MCP server for the program itself, without permission; None if it does not exist."""
    await session.runtime.servers.wait_until_settled()
    tool = session.parts.tools.get(call.name)
    return None if tool is None else await run_tool_for_host(session.agent, call, tool)


async def check_mcp_tool(session: Session, name: str) -> str | None:
    """Wait for the MCP servers; return why there is no tool of this name, or None if there is one."""
    servers = session.runtime.servers
    await servers.wait_until_settled()
    if name in session.parts.tools:
        return None
    for status in servers.list_statuses():
        if f"{name}__".startswith(format_mcp_tool_name(status.name, "")):
            detail = f" ({status.detail})" if status.detail else ""
            tools = ", ".join(status.tools) or "none"
            state = f"has these tools: {tools}" if status.status == "connected" else f"is {status.status}"
            return f"the MCP server {status.name} {state}{detail}"
    names = ", ".join(status.name for status in servers.list_statuses()) or "none"
    return f"no MCP server with that name is configured. Servers: {names}"


async def run_start_hooks_only(options: Options) -> tuple[str, ...]:
    """Open a session, run the hooks of its start and close it; return notes for the user.

    It needs no model: a machine is often set up before it has a key.
    """
    from shoal.app.session.session import Session

    try:
        async with Session(options) as session:
            return await _wait_for_start_hooks(session)
    except NoModelConfigured:
        from shoal.models.scripted_model import ScriptedModel

        async with Session(replace(options, model=ScriptedModel([]))) as session:
            return await _wait_for_start_hooks(session)


async def _wait_for_start_hooks(session: Session) -> tuple[str, ...]:
    await session.parts.lifecycle_hooks.wait_for_start_hooks()
    return tuple(session.notes)


async def save_session_notes(session: Session) -> bool:
    """Let the model update the session's notes; False if there was nothing to note, or notes are off."""
    memory = session.memory
    return memory is not None and await memory.write_notes_with_model(session.agent)
