"""Summary of a team for a lead or member whose conversation lost it, in bounded size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from shoal.core.ids import AgentId
from shoal.core.names import LEAD_NAME, AgentName
from shoal.core.neutral import neutral
from shoal.core.roster import Team
from shoal.core.tasks import Task, open_blockers
from shoal.core.teams import Teammate
from shoal.tools.task_texts import line

MOST_MEMBERS = 30
MOST_TASKS = 30
_LONGEST = 160
"""Maximum characters of a description and of one board line."""
_FIRST = ("in_progress", "pending")


def briefing(
    team: Team, me: AgentName, members: Sequence[Teammate], tasks: Sequence[Task], every: int
) -> str:
    """Build a summary of the current roster and board; entries over the limit are only counted.

    `tasks` are the uncompleted tasks, `total` is the number of all tasks.
    """
    about = f": {_cut(team.description)}" if team.description else ""
    you = f"You lead the team {team.name}" if me == LEAD_NAME else f"You are {me} in the team {team.name}"
    lines = [f"{you}{about}. It stands like this now.", *_roster(me, members), *_board(me, tasks, every)]
    return neutral("\n".join(lines))


def as_entered(team: Team) -> tuple[Teammate, ...]:
    """Build statuses from the roster, for a process that knows nothing else about its teammates."""
    return tuple(
        Teammate(
            agent=AgentId(each.agent_id),
            name=each.name,
            kind=each.agent_type,
            state="running" if each.is_active else "idle",
            color=each.color,
            model=each.model,
        )
        for each in team.members
        if each.name != LEAD_NAME
    )


def _roster(me: AgentName, members: Sequence[Teammate]) -> list[str]:
    others = [each for each in members if each.name != me]
    if not others:
        return ["It has no members beside you."]
    lines = [f"Members beside you: {len(others)}" + ("" if me == LEAD_NAME else ", and the lead team-lead")]
    lines += [f"- {each.name} ({each.kind}), {each.state}" for each in others[:MOST_MEMBERS]]
    if more := Counter[str](each.state for each in others[MOST_MEMBERS:]):
        lines.append(f"- and {more.total()} others: {_counted(more)}. ListAgents shows all.")
    return lines


def _board(me: AgentName, tasks: Sequence[Task], every: int) -> list[str]:
    if not every:
        return ["There are no tasks on its board."]
    counts = Counter[str](completed=max(0, every - len(tasks)))
    counts.update(task.status for task in tasks)
    lines = [f"Tasks on its board: {counts.total()} ({_counted(+counts)})"]
    board = {task.id: task for task in tasks}
    # Its own tasks come first: nobody else reminds it of them.
    order = sorted(tasks, key=lambda task: (task.owner != me, _FIRST.index(task.status)))
    lines += [f"- {_cut(line(task, open_blockers(task, board)))}" for task in order[:MOST_TASKS]]
    if len(order) > MOST_TASKS:
        lines.append(f"- and {len(order) - MOST_TASKS} open ones more. TaskList shows all.")
    return lines


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{number} {what}" for what, number in counts.items())


def _cut(text: str) -> str:
    whole = " ".join(text.split())
    return whole if len(whole) <= _LONGEST else f"{whole[:_LONGEST]}…"
