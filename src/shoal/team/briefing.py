"""What a lead or a member is told of its team when its conversation no longer holds it, in bounded size."""

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
"""Characters of a description, and of one line of the board."""
_FIRST = ("in_progress", "pending")


def briefing(
    team: Team, me: AgentName, members: Sequence[Teammate], tasks: Sequence[Task], every: int
) -> str:
    """The roster and the board as they are now; what is too much for either is counted.

    `tasks` are those that are not completed, of `every` that there is.
    """
    about = f": {_cut(team.description)}" if team.description else ""
    you = f"You lead the team {team.name}" if me == LEAD_NAME else f"You are {me} in the team {team.name}"
    lines = [f"{you}{about}. It stands like this now.", *_roster(me, members), *_board(me, tasks, every)]
    return neutral("\n".join(lines))


def as_entered(team: Team) -> tuple[Teammate, ...]:
    """The members as the roster has them, for one that sees no more of them."""
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
    # Its own come first: nobody else reminds it of them.
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
