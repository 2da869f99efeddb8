"""Formats tasks, briefly for a model and as data for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, assert_never

from shoal.core.names import TaskId
from shoal.core.teams.tasks import ATTEMPT_KEY, REFUSAL_KEY, Task, TaskClaimResult, find_open_blockers
from shoal.tools.tool_texts import format_tool_text


def format_task_line(task: Task, waits_for: Sequence[TaskId]) -> str:
    owner = f" ({task.owner})" if task.owner else ""
    blocked_note = f" [waits for {', '.join(waits_for)}]" if waits_for else ""
    return f"#{task.id} {task.status}{owner}: {task.subject}{blocked_note}"


def format_task_details(task: Task, board: Mapping[TaskId, Task]) -> str:
    blockers = find_open_blockers(task, board)
    parts = [format_task_line(task, blockers), task.description]
    if task.blocked_by:
        done = [other for other in task.blocked_by if other not in blockers]
        parts.append(f"Completed blockers: {', '.join(done)}" if done else "")
    if task.blocks:
        parts.append(f"Blocks: {', '.join(task.blocks)}")
    metadata = get_visible_task_metadata(task)
    parts.append(f"Metadata: {metadata}" if metadata else "")
    return "\n".join(part for part in parts if part)


def explain_failed_claim(task: TaskId, claim: TaskClaimResult, board: Mapping[TaskId, Task]) -> str:
    """Return why a claim failed and what to do instead."""
    match claim.reason:
        case "already_claimed":
            owner = claim.task.owner if claim.task is not None else "another agent"
            return format_tool_text("TaskUpdate", "claimed", task=task, owner=owner)
        case "already_resolved":
            return format_tool_text("TaskUpdate", "completed", task=task)
        case "blocked":
            blockers = find_open_blockers(claim.task, board) if claim.task is not None else ()
            listing = ", ".join(blockers) or "others"
            return format_tool_text("TaskUpdate", "blocked", task=task, blockers=listing)
        case "task_not_found" | None:
            return format_tool_text("TaskUpdate", "unknown_task", task=task)
        case _:
            assert_never(claim.reason)


def task_to_dict(task: Task) -> dict[str, Any]:
    """Return the task with the keys of its file."""
    data: dict[str, Any] = {
        "id": task.id,
        "subject": task.subject,
        "description": task.description,
        "activeForm": task.active_form,
        "status": task.status,
        "owner": task.owner,
        "blocks": list(task.blocks),
        "blockedBy": list(task.blocked_by),
        "metadata": get_visible_task_metadata(task) or None,
    }
    return {name: value for name, value in data.items() if value is not None}


def get_visible_task_metadata(task: Task) -> dict[str, Any]:
    return {key: value for key, value in task.metadata.items() if key not in (ATTEMPT_KEY, REFUSAL_KEY)}
