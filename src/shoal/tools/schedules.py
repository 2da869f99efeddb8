"""Tools that schedule prompts for the lead."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta

from shoal.core.ids import LEAD
from shoal.core.schedules import Due, Timetable
from shoal.core.tools import Outcome, Site, Tool, failed
from shoal.tools.define import tool

SCHEDULE_TOOLS = ("CronCreate", "CronList", "CronDelete")
_LONGEST = 10_000
_SHOWN = 80
_NOT_YOURS = "Schedules are the lead's: an agent ends with its job. Name what to schedule in your report."


def schedule_tools(timetable: Timetable, *, attended: bool) -> tuple[Tool, ...]:
    """Return the schedule tools; `attended` is True if the session stays open when idle."""
    return (_create(timetable, attended=attended), _list(timetable), _delete(timetable))


def _create(timetable: Timetable, *, attended: bool) -> Tool:
    @tool(name="CronCreate", deadline=10)
    async def cron_create(
        cron: Annotated[str, "Minute, hour, day of month, month, day of week, in local time: 0 9 * * 1-5"],
        prompt: Annotated[str, Meta(min_length=1, max_length=_LONGEST), "What you are to be told then"],
        recurring: Annotated[  # noqa: FBT002 - the protocol names it
            bool, "Every time it fits; false: the next time alone"
        ] = True,
        *,
        site: Site,
    ) -> Outcome:
        """Have a prompt come to you at set times, as long as this session lives. It comes when you are not
        busy; times missed meanwhile come once. A schedule runs out after seven days."""
        if site.agent.agent != LEAD:
            return failed(_NOT_YOURS)
        made = timetable.make(site.agent.agent, cron, prompt, recurring=recurring)
        how = f"until {_time(made.schedule.until)}" if recurring else "once"
        lines = [f"Schedule {made.schedule.id} is kept: next at {_time(made.at)}, {how}."]
        if not attended:
            lines.append(
                "This run is not kept open for it: it ends when its work is done, whether the time has come "
                "or not. A session that is resumed has its schedules again."
            )
        return Outcome(content="\n".join(lines), data=_facts(made))

    return cron_create


def _list(timetable: Timetable) -> Tool:
    @tool(name="CronList", reads_only=True, deadline=10)
    async def cron_list() -> Outcome:
        """List your schedules and when each comes next."""
        schedules = timetable.all()
        return Outcome(
            content="\n".join(map(_line, schedules)) or "There are no schedules.",
            data={"schedules": [_facts(each) for each in schedules]},
        )

    return cron_list


def _delete(timetable: Timetable) -> Tool:
    @tool(name="CronDelete", deadline=10)
    async def cron_delete(
        id: Annotated[str, "The id that CronCreate gave"],  # noqa: A002 - the protocol names it
        site: Site,
    ) -> Outcome:
        """End a schedule."""
        if site.agent.agent != LEAD:
            return failed(_NOT_YOURS)
        ended = timetable.delete(id)
        return Outcome(content=f"Schedule {ended.id} is ended: {ended.cron}", data={"id": ended.id})

    return cron_delete


def _line(due: Due) -> str:
    schedule = due.schedule
    text = " ".join(schedule.prompt.split())
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    how = "" if schedule.recurring else " (once)"
    return f"{schedule.id}: {schedule.cron}{how}, next at {_time(due.at)}: {shown}"


def _facts(due: Due) -> dict[str, object]:
    schedule = due.schedule
    return {
        "id": schedule.id,
        "cron": schedule.cron,
        "recurring": schedule.recurring,
        "next": due.at,
        "prompt": schedule.prompt,
    }


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000).astimezone().isoformat(sep=" ", timespec="minutes")
