"""The `/tasks`, `/team`, `/permissions`, `/doctor`, `/resume` and `/export` commands."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.core.conversation.messages import (
    ImageBlock,
    Message,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    extract_tool_result_text,
)
from shoal.core.errors import ShoalError
from shoal.core.text.text_format import format_dollars, format_token_count, strip_terminal_codes, to_one_line
from shoal.surfaces.terminal.listings import (
    format_diagnostic_lines,
    format_permission_report_lines,
    format_session_lines,
)
from shoal.surfaces.terminal.status_text import describe_agent_activity
from shoal.surfaces.terminal.text_styles import BOLD, DIM, GREEN, RED, YELLOW, get_agent_style

if TYPE_CHECKING:
    from shoal.core.teams.tasks import Task
    from shoal.surfaces.terminal.terminal_controller import TerminalController

_MARKS = {"completed": ("✓", GREEN), "in_progress": ("▸", YELLOW), "pending": ("○", DIM)}


async def show_tasks(controller: TerminalController, _: str) -> None:
    """Show the team's board, or the session's if there is no team."""
    session = controller.session
    tasks = list(await session.open_board(session.led_team_name or session.id).list_tasks())
    if not tasks:
        controller.notices.write_note(
            "There are no tasks on the board. Agents add tasks, and so can you: shoal task add"
        )
        return
    open_ids = {str(task.id) for task in tasks if task.status != "completed"}
    with controller.notices.open_notice_block() as write:
        for task in tasks:
            mark, style = _MARKS.get(task.status, ("?", ""))
            write(f"  {mark} ", style)
            write(f"#{task.id} {to_one_line(task.subject)}")
            write(f"{_describe_task_owner_and_blockers(task, open_ids)}\n", DIM)


def _describe_task_owner_and_blockers(task: Task, open_ids: set[str]) -> str:
    blockers = [f"#{each}" for each in task.blocked_by if each in open_ids]
    notes = (to_one_line(task.owner or ""), f"waits for {', '.join(blockers)}" if blockers else "")
    return "".join(f"  {word}" for word in notes if word)


async def show_team(controller: TerminalController, _: str) -> None:
    """Show the members of the team and their activity."""
    name = controller.session.led_team_name
    members = [
        each
        for each in controller.statuses.iter_agents_in_tree_order()
        if each.start_event is not None and each.start_event.team
    ]
    if not name and not members:
        controller.notices.write_note(
            "There is no team. Ask the lead for one, or start one: shoal team start NAME"
        )
        return
    with controller.notices.open_notice_block() as write:
        write(
            f"  team {name or members[0].start_event.team if members and members[0].start_event else name}\n",
            BOLD,
        )
        for status in members:
            write("  ● ", get_agent_style(status.color))
            write(f"{status.display_name}  ")
            activity = (
                f"{status.state}: {describe_agent_activity(status)}" if status.is_live else status.state_label
            )
            cost = format_dollars(status.usd if status.priced else None)
            write(f"{to_one_line(activity)} · {format_token_count(status.tokens)} tokens · {cost}\n", DIM)


async def show_permissions(controller: TerminalController, mode: str) -> None:
    """Show the rules; with the name of a mode, switch to it."""
    from shoal.app.reports.permission_report import build_session_permission_report
    from shoal.core.permissions.permission_changes import PERMISSION_MODES, resolve_permission_mode

    if mode:
        resolved = resolve_permission_mode(mode)
        if resolved is None:
            controller.notices.write_note(
                f"Unknown mode {mode}. Modes: {', '.join(PERMISSION_MODES)}.", YELLOW
            )
            return
        controller.session.set_mode(resolved)
        controller.notices.write_note(f"The mode is {resolved}.")
        return
    with controller.notices.open_notice_block() as write:
        for line in format_permission_report_lines(
            build_session_permission_report(controller.session), colours=False
        ):
            write(f"  {line}\n")


async def run_doctor(controller: TerminalController, _: str) -> None:
    from shoal.app.doctor.health_checks import run_health_checks

    cwd = controller.session.cwd
    diagnostics = await asyncio.to_thread(run_health_checks, os.environ, cwd)
    with controller.notices.open_notice_block() as write:
        for line in format_diagnostic_lines(diagnostics, colours=False):
            write(f"  {line}\n", RED if line.strip().startswith("BAD") else "")


async def resume_session(controller: TerminalController, name: str) -> None:
    """End this session and resume another; without a name, list the sessions."""
    current_session, store = controller.session.id, controller.session.open_resumable_store()
    if not name:
        sessions = store.list_sessions(str(controller.session.cwd), limit=11)
        others = [each for each in sessions if each.session != current_session][:10]
        with controller.notices.open_notice_block() as write:
            for line in format_session_lines(others):
                write(f"  {line}\n")
            usage_hint = "/resume ID resumes one; its first characters are enough."
            write(f"  {usage_hint if others else 'There is no other session in this directory.'}\n", DIM)
        return
    session = store.find_session(name).session
    if session == current_session:
        controller.notices.write_note("You are already in this session.", YELLOW)
    elif store.is_session_live(session):
        controller.notices.write_note(
            f"It is open in another process. Attach to it: shoal attach {session[:8]}", YELLOW
        )
    else:
        controller.resume_session = session
        controller.finish_with_outcome("resumed")


async def export_conversation(controller: TerminalController, name: str) -> None:
    """Write the conversation to a Markdown file; never overwrite a file."""

    session = controller.session
    text = "\n".join(_render_conversation_markdown(session.messages, str(session.id)))
    text = session.settings.secret_redactor.redact_text(text)
    path = session.cwd / (name or f"shoal-{session.id[:8]}.md")
    try:
        await asyncio.to_thread(_write_new_file, path, text)
    except FileExistsError:
        controller.notices.write_note(
            f"{path} already exists, so nothing was written. Choose another file.", YELLOW
        )
    except OSError as error:
        raise ShoalError(f"Cannot write {path}: {error.strerror}.") from error
    else:
        controller.notices.write_note(f"Wrote the conversation to {path}.")


def _write_new_file(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8", errors="replace") as file:
        file.write(text)


def _render_conversation_markdown(messages: Sequence[Message], session: str) -> Iterator[str]:
    yield f"# Session {session}\n"
    speaker = ""
    for message in messages:
        for block in message.content:
            author = "You" if message.role == "user" else "Agent"
            match block:
                case TextBlock(text=text) if text.strip():
                    if author != speaker:
                        yield f"## {author}\n"
                    speaker = author
                    yield f"{strip_terminal_codes(text).strip()}\n"
                case ImageBlock():
                    yield "*(an image)*\n"
                case ToolUseBlock(name=name, input=tool_input):
                    speaker = "Agent"
                    yield f"**{strip_terminal_codes(name)}**\n"
                    yield _fence_text(
                        json.dumps(tool_input, indent=2, ensure_ascii=False, default=str), "json"
                    )
                case ToolResultBlock():
                    yield _fence_text(extract_tool_result_text(block))
                case _:
                    pass


def _fence_text(text: str, kind: str = "") -> str:
    """Wrap the text in a code fence that is longer than any fence inside it."""
    text = strip_terminal_codes(text).rstrip("\n")
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{kind}\n{text}\n{fence}\n"
