"""Starts a team from a template: its tasks and members exist before the lead's first turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from shoal.core.agents import Order
from shoal.core.envelopes import first_words
from shoal.core.errors import AgentRefused
from shoal.core.names import LEAD_NAME, AgentName, TaskId, TeamName, agent_name
from shoal.core.tasks import Change, Draft, Task
from shoal.core.templates import Role, Template
from shoal.team.teams import SessionTeams

if TYPE_CHECKING:
    from shoal.app.session.session import Session
    from shoal.core.teams import Spawned

_DESCRIBED = 120
_YOURS = (
    "These tasks on the board are yours. A message tells you when one can begin; until then leave it, and "
    "end your turn when nothing else is yours to do."
)


class StartedTeam(Struct, frozen=True, kw_only=True):
    name: TeamName
    members: tuple[Spawned, ...]
    tasks: tuple[Task, ...]
    prompt: str
    """Prompt of the lead's first turn."""


async def start_team(session: Session, template: Template, goal: str, *, name: str = "") -> StartedTeam:
    """Start a team; if any step fails, nothing is left of it. Raises `ShoalError`."""
    filled = template.filled(goal)
    teams = session.parts.teams
    if not isinstance(teams, SessionTeams):
        raise AgentRefused("This session is a member of a team itself, and leads none.")
    about = " ".join((goal or template.description).split())[:_DESCRIBED]
    team = await teams.found(name or template.name, description=f"{template.name}: {about}")
    try:
        tasks = await _put_on_board(session, team.name, filled)
        members = await teams.enlist([_order(*each, tasks) for each in filled.members])
        await _hand_out(session, team.name, tasks)
    except BaseException:
        await teams.disband()
        raise
    prompt = first_prompt(team.name, filled, goal, tasks)
    return StartedTeam(name=team.name, members=members, tasks=tasks, prompt=prompt)


def _order(member: str, role: Role, tasks: tuple[Task, ...]) -> Order:
    own = [task for task in tasks if task.owner == member]
    board = "\n".join(_task_line(task) for task in own)
    return Order(
        description=first_words(role.prompt),
        prompt=f"{role.prompt.rstrip()}\n\n{_YOURS}\n{board}" if own else role.prompt,
        kind=role.kind,
        model=role.model,
        name=member,
        mode=role.mode,
        isolation=role.isolation,
    )


async def _put_on_board(session: Session, team: TeamName, template: Template) -> tuple[Task, ...]:
    """Create the tasks with owners and blockers before any member can claim one."""
    board = session.parts.between.board(team)
    ids: dict[str, TaskId] = {}
    tasks: list[Task] = []
    for planned in template.ordered_tasks():
        draft = Draft(
            subject=planned.subject, description=planned.description, active_form=planned.active_form
        )
        task = await board.create(draft)
        ids[planned.key] = task.id
        change = Change(
            owner=None if planned.owner is None else agent_name(planned.owner),
            add_blocked_by=tuple(ids[key] for key in planned.blocked_by),
        )
        tasks.append((await board.update(task.id, change, by=LEAD_NAME))[1])
    return tuple(tasks)


async def _hand_out(session: Session, team: TeamName, tasks: tuple[Task, ...]) -> None:
    """Notify owners of unblocked tasks; they are notified of the others when these are unblocked."""
    for task in tasks:
        if task.owner is not None and not task.blocked_by:
            await session.parts.between.assign(team, LEAD_NAME, task.owner, task)


def first_prompt(team: str, template: Template, goal: str, tasks: tuple[Task, ...]) -> str:
    """Build the lead's first prompt: the goal, the members and the board."""
    parts = [template.prompt] if template.prompt else []
    if goal:
        parts.append(f"The goal\n{goal}")
    roster = "\n".join(_member_line(name, template) for name, _ in template.members)
    parts.append(f"Your team {team} is made and its members are at work; do not make it again.\n{roster}")
    if tasks:
        board = "\n".join(_task_line(task) for task in tasks)
        parts.append(
            "The board. Its order is kept for you: who owns a task is told when it can begin, and a task "
            f"without an owner is taken by whoever is free.\n{board}"
        )
    parts.append(
        "What members report comes to you by itself. End your turn whenever you have nothing to decide; "
        "you are woken. When all is done, give the person the result."
    )
    return "\n\n".join(parts)


def _member_line(name: str, template: Template) -> str:
    role = next(role for member, role in template.members if member == name)
    facts = [
        role.kind or "",
        "only reads until its plan is approved" if role.mode == "plan" else role.mode or "",
        "in a worktree of its own" if role.isolation == "worktree" else role.isolation or "",
        role.model or "",
    ]
    told = ", ".join(fact for fact in facts if fact)
    return f"- {name} ({told})" if told else f"- {name}"


def _task_line(task: Task) -> str:
    owner = f" [{task.owner}]" if task.owner else ""
    waits = f" (after {', '.join(f'#{each}' for each in task.blocked_by)})" if task.blocked_by else ""
    return f"- #{task.id} {task.subject}{owner}{waits}"


def planned_tasks(template: Template) -> tuple[Task, ...]:
    """Return the tasks with the ids that the board would assign, for a preview."""
    ids: dict[str, TaskId] = {}
    tasks: list[Task] = []
    for number, planned in enumerate(template.ordered_tasks(), 1):
        ids[planned.key] = TaskId(str(number))
        tasks.append(
            Task(
                id=ids[planned.key],
                subject=planned.subject,
                description=planned.description,
                owner=None if planned.owner is None else AgentName(planned.owner),
                blocked_by=tuple(ids[key] for key in planned.blocked_by),
            )
        )
    return tuple(tasks)
