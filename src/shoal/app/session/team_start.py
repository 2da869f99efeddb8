"""Starts a team from a template: its tasks and members exist before the lead's first turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from shoal.app.model_notices import format_session_notice
from shoal.app.teams.board_changes import add_board_task
from shoal.core.agents.subagents import SpawnRequest
from shoal.core.errors import AgentRequestRefused
from shoal.core.names import LEAD_NAME, AgentName, TaskId, TeamName, parse_agent_name
from shoal.core.teams.mail_envelopes import abbreviate_text_to_one_line
from shoal.core.teams.tasks import Task, TaskDraft
from shoal.core.teams.team_templates import TeamTemplate, TeamTemplateRole

if TYPE_CHECKING:
    from shoal.app.session.session import Session
    from shoal.core.teams.team_operations import TeammateSpawnResult

_MAX_DESCRIPTION = 120


class StartedTeam(Struct, frozen=True, kw_only=True):
    name: TeamName
    members: tuple[TeammateSpawnResult, ...]
    tasks: tuple[Task, ...]
    prompt: str
    """Prompt of the lead's first turn."""


async def start_team_from_template(
    session: Session, template: TeamTemplate, goal: str, *, name: str = ""
) -> StartedTeam:
    """Start a team; if any step fails, everything is undone. Raises `ShoalError`."""
    filled = template.fill_goal(goal)
    teams = session.led_teams
    if teams is None:
        raise AgentRequestRefused(format_session_notice("member_cannot_lead"))
    summary = " ".join((goal or template.description).split())[:_MAX_DESCRIPTION]
    team = await teams.create_led_team(name or template.name, description=f"{template.name}: {summary}")
    try:
        tasks = await _create_template_tasks(session, team.name, filled)
        members = await teams.add_members(
            [_build_member_spawn_request(*each, tasks) for each in filled.members_with_roles]
        )
        await _notify_task_owners(session, team.name, tasks)
    except BaseException:
        await teams.disband_team()
        raise
    prompt = build_lead_team_prompt(team.name, filled, goal, tasks)
    return StartedTeam(name=team.name, members=members, tasks=tasks, prompt=prompt)


def _build_member_spawn_request(member: str, role: TeamTemplateRole, tasks: tuple[Task, ...]) -> SpawnRequest:
    own_tasks = [task for task in tasks if task.owner == member]
    board = "\n".join(_format_task_line(task) for task in own_tasks)
    return SpawnRequest(
        description=abbreviate_text_to_one_line(role.prompt),
        prompt=f"{role.prompt.rstrip()}\n\n{format_session_notice('own_tasks')}\n{board}"
        if own_tasks
        else role.prompt,
        kind=role.kind,
        model=role.model,
        name=member,
        mode=role.mode,
        isolation=role.isolation,
        resources=role.resources,
    )


async def _create_template_tasks(
    session: Session, team: TeamName, template: TeamTemplate
) -> tuple[Task, ...]:
    """Create the tasks with owners and blockers before any member can claim one."""
    ids: dict[str, TaskId] = {}
    tasks: list[Task] = []
    for template_task in template.order_tasks_by_dependency():
        draft = TaskDraft(
            subject=template_task.subject,
            description=template_task.description,
            active_form=template_task.active_form,
            owner=None if template_task.owner is None else parse_agent_name(template_task.owner),
        )
        task = await add_board_task(
            session.runtime.team_store,
            team,
            draft,
            blocked_by=[ids[key] for key in template_task.blocked_by],
            by=LEAD_NAME,
        )
        ids[template_task.key] = task.id
        tasks.append(task)
    return tuple(tasks)


async def _notify_task_owners(session: Session, team: TeamName, tasks: tuple[Task, ...]) -> None:
    """Notify owners of unblocked tasks; they are notified of the others when these are unblocked."""
    for task in tasks:
        if task.owner is not None and not task.blocked_by:
            await session.runtime.team_store.post_assignment(team, LEAD_NAME, task.owner, task)


def build_lead_team_prompt(team: str, template: TeamTemplate, goal: str, tasks: tuple[Task, ...]) -> str:
    """Build the lead's first prompt: the goal, the members and the board."""
    sections = [template.prompt] if template.prompt else []
    if goal:
        sections.append(format_session_notice("team_goal", goal=goal))
    roster = "\n".join(_format_member_line(name, template) for name, _ in template.members_with_roles)
    sections.append(format_session_notice("team_started", team=team, members=roster))
    if tasks:
        board = "\n".join(_format_task_line(task) for task in tasks)
        sections.append(format_session_notice("team_board", tasks=board))
    sections.append(format_session_notice("team_advice"))
    return "\n\n".join(sections)


def _format_member_line(name: str, template: TeamTemplate) -> str:
    role = next(role for member, role in template.members_with_roles if member == name)
    facts = [
        role.kind or "",
        "only reads until its plan is approved" if role.mode == "plan" else role.mode or "",
        "in its own worktree" if role.isolation == "worktree" else role.isolation or "",
        role.model or "",
    ]
    details = ", ".join(fact for fact in facts if fact)
    return f"- {name} ({details})" if details else f"- {name}"


def _format_task_line(task: Task) -> str:
    owner = f" [{task.owner}]" if task.owner else ""
    blockers = f" (after {', '.join(f'#{each}' for each in task.blocked_by)})" if task.blocked_by else ""
    return f"- #{task.id} {task.subject}{owner}{blockers}"


def preview_template_tasks(template: TeamTemplate) -> tuple[Task, ...]:
    """Return the tasks with the ids that the board would assign, for a preview."""
    ids: dict[str, TaskId] = {}
    tasks: list[Task] = []
    for number, template_task in enumerate(template.order_tasks_by_dependency(), 1):
        ids[template_task.key] = TaskId(str(number))
        tasks.append(
            Task(
                id=ids[template_task.key],
                subject=template_task.subject,
                description=template_task.description,
                owner=None if template_task.owner is None else AgentName(template_task.owner),
                blocked_by=tuple(ids[key] for key in template_task.blocked_by),
            )
        )
    return tuple(tasks)
