"""Summary of a team for a lead or member whose conversation lost it, in bounded size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from shoal.core.errors import StateFileError, TeamStoreError
from shoal.core.ids import AgentId
from shoal.core.names import LEAD_NAME, AgentName
from shoal.core.teams.roster import TeamRoster
from shoal.core.teams.tasks import Task, find_open_blockers
from shoal.core.teams.team_operations import TeammateStatusSnapshot
from shoal.core.teams.team_storage import RosterStore, TaskBoard
from shoal.core.text.control_tags import escape_control_tags
from shoal.team.team_prompts import format_team_notice
from shoal.tools.task_format import format_task_line

MAX_MEMBERS = 30
MAX_TASKS = 30
_MAX_LINE = 160
"""Maximum characters of a description and of one board line."""
_STATUS_ORDER = ("in_progress", "pending")


class TeamBriefer:
    """Builds summaries of one team from the current roster and board.

    `list_statuses` returns the statuses of the members of a roster.
    """

    def __init__(
        self,
        team: TeamRoster,
        rosters: RosterStore,
        board: TaskBoard,
        list_statuses: Callable[[TeamRoster], Sequence[TeammateStatusSnapshot]],
    ) -> None:
        self._team = team
        self._rosters = rosters
        self._board = board
        self._list_statuses = list_statuses

    async def build_briefing(self, name: AgentName) -> str:
        """Build the summary for the lead or a member whose conversation no longer contains it."""
        try:
            team = await self._rosters.read_team_roster(self._team.name) or self._team
            tasks = await self._board.list_unfinished(), len(await self._board.get_live_task_mapping())
        except (TeamStoreError, StateFileError) as error:
            return format_team_notice("briefing_unreadable", team=self._team.name, error=error)
        return build_team_briefing(team, name, self._list_statuses(team), *tasks)


def build_team_briefing(
    team: TeamRoster,
    me: AgentName,
    members: Sequence[TeammateStatusSnapshot],
    tasks: Sequence[Task],
    total: int,
) -> str:
    """Build a summary of the current roster and board; entries over the limit are only counted.

    `tasks` are the uncompleted tasks, `total` is the number of all tasks.
    """
    description = f": {_truncate_to_one_line(team.description)}" if team.description else ""
    introduction = (
        format_team_notice("briefing_lead", team=team.name, description=description)
        if me == LEAD_NAME
        else format_team_notice("briefing_member", name=me, team=team.name, description=description)
    )
    lines = [
        introduction,
        *_format_roster(me, members),
        *_format_board(me, tasks, total),
    ]
    return escape_control_tags("\n".join(lines))


def teammate_statuses_from_roster(team: TeamRoster) -> tuple[TeammateStatusSnapshot, ...]:
    """Build statuses from the roster, for a process that has no other information about its teammates."""
    return tuple(
        TeammateStatusSnapshot(
            agent=AgentId(each.agent_id),
            name=each.name,
            kind=each.agent_type,
            state="down" if each.is_down else "running" if each.is_active else "idle",
            color=each.color,
            model=each.model,
        )
        for each in team.members
        if each.name != LEAD_NAME
    )


def _format_roster(me: AgentName, members: Sequence[TeammateStatusSnapshot]) -> list[str]:
    others = [each for each in members if each.name != me]
    if not others:
        return [format_team_notice("briefing_alone")]
    lines = [f"Other members: {len(others)}" + ("" if me == LEAD_NAME else ", and the lead, team-lead")]
    lines += [f"- {each.name} ({each.kind}), {each.state}" for each in others[:MAX_MEMBERS]]
    if hidden_counts := Counter[str](each.state for each in others[MAX_MEMBERS:]):
        states = _format_status_counts(hidden_counts)
        lines.append(format_team_notice("briefing_more_members", count=hidden_counts.total(), states=states))
    return lines


def _format_board(me: AgentName, tasks: Sequence[Task], total: int) -> list[str]:
    if not total:
        return [format_team_notice("briefing_no_tasks")]
    counts = Counter[str](completed=max(0, total - len(tasks)))
    counts.update(task.status for task in tasks)
    states = _format_status_counts(+counts)
    lines = [format_team_notice("briefing_tasks", count=counts.total(), states=states)]
    board = {task.id: task for task in tasks}
    # Its own tasks come first: nobody else reminds it of them.
    ordered = sorted(tasks, key=lambda task: (task.owner != me, _STATUS_ORDER.index(task.status)))
    lines += [
        f"- {_truncate_to_one_line(format_task_line(task, find_open_blockers(task, board)))}"
        for task in ordered[:MAX_TASKS]
    ]
    if len(ordered) > MAX_TASKS:
        lines.append(format_team_notice("briefing_more_tasks", count=len(ordered) - MAX_TASKS))
    return lines


def _format_status_counts(counts: Counter[str]) -> str:
    return ", ".join(f"{number} {what}" for what, number in counts.items())


def _truncate_to_one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]}…"
