"""Tools that schedule prompts for the lead."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta

from shoal.core.agents.schedules import ScheduleOccurrence, Scheduler
from shoal.core.conversation.tools import Tool, ToolContext, ToolOutput, create_tool_error_output
from shoal.core.ids import LEAD_ID
from shoal.tools.builtin_tool import builtin_tool
from shoal.tools.tool_texts import format_tool_text, load_tool_text

SCHEDULE_TOOLS = ("CronCreate", "CronList", "CronDelete")
_MAX_PROMPT_CHARACTERS = 10_000
_MAX_SHOWN_CHARACTERS = 80


def build_schedule_tools(scheduler: Scheduler, *, attended: bool) -> tuple[Tool, ...]:
    """Return the schedule tools; `attended` is True if the session stays open when idle."""
    return (
        _build_cron_create_tool(scheduler, attended=attended),
        _build_cron_list_tool(scheduler),
        _build_cron_delete_tool(scheduler),
    )


def _build_cron_create_tool(scheduler: Scheduler, *, attended: bool) -> Tool:
    @builtin_tool(name="CronCreate", deadline=10)
    async def cron_create(
        cron: str,
        prompt: Annotated[str, Meta(min_length=1, max_length=_MAX_PROMPT_CHARACTERS)],
        recurring: bool = True,  # noqa: FBT001, FBT002 - the protocol names it
        *,
        context: ToolContext,
    ) -> ToolOutput:
        if context.agent.agent != LEAD_ID:
            return create_tool_error_output(format_tool_text("CronCreate", "lead_only"))
        occurrence = scheduler.create_schedule(context.agent.agent, cron, prompt, recurring=recurring)
        duration = f"until {_format_local_time(occurrence.schedule.expires_at)}" if recurring else "once"
        lines = [
            format_tool_text(
                "CronCreate",
                "created",
                id=occurrence.schedule.id,
                time=_format_local_time(occurrence.at),
                duration=duration,
            )
        ]
        if not attended:
            lines.append(format_tool_text("CronCreate", "unattended"))
        return ToolOutput(content="\n".join(lines), data=_encode_schedule_occurrence(occurrence))

    return cron_create


def _build_cron_list_tool(scheduler: Scheduler) -> Tool:
    @builtin_tool(name="CronList", reads_only=True, deadline=10)
    async def cron_list() -> ToolOutput:
        schedules = scheduler.list_schedules()
        return ToolOutput(
            content="\n".join(map(_format_schedule_occurrence, schedules))
            or load_tool_text("CronList", "empty"),
            data={"schedules": [_encode_schedule_occurrence(each) for each in schedules]},
        )

    return cron_list


def _build_cron_delete_tool(scheduler: Scheduler) -> Tool:
    @builtin_tool(name="CronDelete", deadline=10)
    async def cron_delete(
        id: str,  # noqa: A002 - the protocol names it
        context: ToolContext,
    ) -> ToolOutput:
        if context.agent.agent != LEAD_ID:
            return create_tool_error_output(format_tool_text("CronCreate", "lead_only"))
        deleted = scheduler.delete_schedule(id)
        return ToolOutput(
            content=format_tool_text("CronDelete", "deleted", id=deleted.id, cron=deleted.cron),
            data={"id": deleted.id},
        )

    return cron_delete


def _format_schedule_occurrence(occurrence: ScheduleOccurrence) -> str:
    schedule = occurrence.schedule
    text = " ".join(schedule.prompt.split())
    excerpt = text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]}…"
    suffix = "" if schedule.recurring else " (once)"
    return f"{schedule.id}: {schedule.cron}{suffix}, next at {_format_local_time(occurrence.at)}: {excerpt}"


def _encode_schedule_occurrence(occurrence: ScheduleOccurrence) -> dict[str, object]:
    schedule = occurrence.schedule
    return {
        "id": schedule.id,
        "cron": schedule.cron,
        "recurring": schedule.recurring,
        "next": occurrence.at,
        "prompt": schedule.prompt,
    }


def _format_local_time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000).astimezone().isoformat(sep=" ", timespec="minutes")
