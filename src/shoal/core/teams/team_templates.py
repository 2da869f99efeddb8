"""Team templates: roles, tasks and limits, and the checks between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from shoal.core.agents.agent_definitions import DefinitionSourceKind
from shoal.core.agents.subagents import IsolationMode, ResourceRequest
from shoal.core.errors import InvalidName
from shoal.core.names import RESERVED_NAMES, parse_teammate_name
from shoal.core.text.filenames import escape_filename

GOAL_PLACEHOLDER = "{goal}"
MAX_MEMBERS = 32
FieldPath: TypeAlias = tuple[str | int, ...]
"""Path of a field in a template: `("roles", 0, "mode")`."""
RoleMode: TypeAlias = Literal["default", "acceptEdits", "plan", "dontAsk", "bypassPermissions"]


class TeamTemplateSource(Struct, frozen=True, kw_only=True):
    """File of a template, with the line of each field."""

    kind: DefinitionSourceKind
    path: Path
    lines: Mapping[FieldPath, int] = {}

    @property
    def is_trusted(self) -> bool:
        """False for sources that may come from anyone: they must not widen permissions."""
        return self.kind not in ("project", "plugin")

    def find_field_line(self, place: FieldPath) -> int | None:
        """Return the line of the field, or of the nearest enclosing one."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place)

    def __str__(self) -> str:
        return escape_filename(self.path)


class TeamTemplateRole(Struct, frozen=True, kw_only=True):
    """Role of one or more teammates."""

    name: str
    prompt: str
    kind: str | None = None
    """Agent type; None is the default type."""
    model: str | None = None
    mode: RoleMode | None = None
    isolation: IsolationMode | None = None
    resources: ResourceRequest | None = None
    count: int = 1

    @property
    def role_member_names(self) -> tuple[str, ...]:
        if self.count == 1:
            return (self.name,)
        return tuple(f"{self.name}-{number}" for number in range(1, self.count + 1))


class TeamTemplateTask(Struct, frozen=True, kw_only=True):
    key: str
    """Key by which other tasks of the template refer to it."""
    subject: str
    description: str = ""
    active_form: str = ""
    blocked_by: tuple[str, ...] = ()
    owner: str | None = None
    """Member that owns it; None lets any free member claim it."""


class TeamTemplate(Struct, frozen=True, kw_only=True):
    name: str
    description: str
    prompt: str
    """Prompt of the lead."""
    source: TeamTemplateSource
    roles: tuple[TeamTemplateRole, ...]
    tasks: tuple[TeamTemplateTask, ...] = ()
    budget_usd: float | None = None
    budget_tokens: int | None = None

    @property
    def members_with_roles(self) -> tuple[tuple[str, TeamTemplateRole], ...]:
        return tuple((name, role) for role in self.roles for name in role.role_member_names)

    @property
    def needs_goal(self) -> bool:
        texts = [self.prompt, *(role.prompt for role in self.roles)]
        texts += [text for task in self.tasks for text in (task.subject, task.description)]
        return any(GOAL_PLACEHOLDER in text for text in texts)

    def fill_goal(self, goal: str) -> TeamTemplate:
        """Return the template with the goal in place of each placeholder."""
        line = " ".join(goal.split())
        return replace(
            self,
            prompt=self.prompt.replace(GOAL_PLACEHOLDER, goal),
            roles=tuple(
                replace(role, prompt=role.prompt.replace(GOAL_PLACEHOLDER, goal)) for role in self.roles
            ),
            tasks=tuple(
                replace(
                    task,
                    subject=task.subject.replace(GOAL_PLACEHOLDER, line),
                    description=task.description.replace(GOAL_PLACEHOLDER, goal),
                )
                for task in self.tasks
            ),
        )

    def order_tasks_by_dependency(self) -> tuple[TeamTemplateTask, ...]:
        """Return the tasks after their blockers, else as written. Requires a template without problems."""
        ordered: dict[str, TeamTemplateTask] = {}
        remaining = list(self.tasks)
        while remaining:
            task = next(each for each in remaining if all(key in ordered for key in each.blocked_by))
            ordered[task.key] = task
            remaining.remove(task)
        return tuple(ordered.values())


class TeamTemplateProblem(Struct, frozen=True, kw_only=True):
    """Problem in a template: what, where, and how to fix it."""

    what: str
    source: TeamTemplateSource
    field_path: FieldPath = ()

    @property
    def line(self) -> int | None:
        return self.source.find_field_line(self.field_path)

    @property
    def field(self) -> str:
        return _format_field_path(self.field_path)

    def __str__(self) -> str:
        line = self.line
        location = str(self.source) if line is None else f"{self.source}:{line}"
        return f"{location}: {self.field}: {self.what}" if self.field_path else f"{location}: {self.what}"


def find_team_template_problems(template: TeamTemplate) -> Iterator[TeamTemplateProblem]:
    """Yield the inconsistencies between the parts of a template."""

    def make_problem(what: str, *field_path: str | int) -> TeamTemplateProblem:
        return TeamTemplateProblem(what=what, source=template.source, field_path=field_path)

    if not template.roles:
        yield make_problem("there are no roles; a team needs at least one", "roles")
    total = sum(role.count for role in template.roles)
    if total > MAX_MEMBERS:
        # Checked before the names are built: there may be more of those than memory holds.
        yield make_problem(
            f"{total:,} members are too many; a template may have at most {MAX_MEMBERS}", "roles"
        )
        return
    owners: dict[str, int] = {}
    for number, role in enumerate(template.roles):
        if (problem := _explain_invalid_role_name(role)) is not None:
            yield make_problem(problem, "roles", number, "name")
        for name in role.role_member_names:
            if name in owners:
                line = template.source.find_field_line(("roles", owners[name], "name"))
                first_use = f", first on line {line}" if line else ""
                yield make_problem(
                    f"two members have the name {name!r}{first_use}; rename one of them",
                    "roles",
                    number,
                    "name",
                )
            owners.setdefault(name, number)
    yield from _find_template_task_problems(template, owners, make_problem)


def _find_template_task_problems(
    template: TeamTemplate, members: Mapping[str, int], make_problem: Callable[..., TeamTemplateProblem]
) -> Iterator[TeamTemplateProblem]:
    keys: dict[str, int] = {}
    for number, task in enumerate(template.tasks):
        if task.key in keys:
            yield make_problem(
                f"two tasks have the key {task.key!r}; rename one of them", "tasks", number, "key"
            )
        keys.setdefault(task.key, number)
    multi_member_roles = {role.name: role for role in template.roles if role.count > 1}
    for number, task in enumerate(template.tasks):
        for key in task.blocked_by:
            if key not in keys:
                what = f"there is no task with the key {key!r}; known keys: {', '.join(keys)}"
                yield make_problem(what, "tasks", number, "blockedBy")
        if task.owner in multi_member_roles:
            member_names = ", ".join(multi_member_roles[task.owner].role_member_names)
            what = f"{task.owner} has several members; name one of {member_names}, or remove owner"
            yield make_problem(what, "tasks", number, "owner")
        elif task.owner is not None and task.owner not in members:
            listing = ", ".join(members) or "none"
            yield make_problem(
                f"there is no role {task.owner!r}; known roles: {listing}", "tasks", number, "owner"
            )
    cycle = _find_template_task_cycle(template.tasks)
    if cycle:
        cycle_text = " → ".join((*cycle, cycle[0]))
        what = f"these tasks wait for each other forever: {cycle_text}; remove one of them from blockedBy"
        yield make_problem(what, "tasks", keys[cycle[0]], "blockedBy")


def _find_template_task_cycle(tasks: Sequence[TeamTemplateTask]) -> tuple[str, ...]:
    """Return the keys of tasks that block each other in a cycle; empty if there is none."""
    blockers = {task.key: task.blocked_by for task in tasks}
    checked: set[str] = set()
    for start, keys in blockers.items():
        path: list[str] = [start]
        branches = [iter(keys)]
        while branches:
            key = next(branches[-1], None)
            if key is None:
                checked.add(path.pop())
                branches.pop()
            elif key in path:
                return tuple(path[path.index(key) :])
            elif key in blockers and key not in checked:
                path.append(key)
                branches.append(iter(blockers[key]))
    return ()


def _explain_invalid_role_name(role: TeamTemplateRole) -> str | None:
    if role.name in RESERVED_NAMES:
        return f"{role.name!r} is reserved; choose another name"
    try:
        parse_teammate_name(role.role_member_names[-1])
    except InvalidName as error:
        return str(error).rstrip(".")
    return None


def _format_field_path(field_path: FieldPath) -> str:
    """Format a field path with indexes from 1: `roles[1].mode` is that of the first role."""
    text = ""
    for part in field_path:
        text += f"[{part + 1}]" if isinstance(part, int) else f".{part}" if text else part
    return text
