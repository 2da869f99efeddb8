"""Team templates: roles, tasks and limits, and the checks between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from shoal.core.agents import Isolation
from shoal.core.definitions import SourceKind
from shoal.core.errors import BadName
from shoal.core.filenames import shown
from shoal.core.names import RESERVED, agent_name

GOAL = "{goal}"
MOST_MEMBERS = 32
Place: TypeAlias = tuple[str | int, ...]
"""Path of a field in a template: `("roles", 0, "mode")`."""
RoleMode: TypeAlias = Literal["default", "acceptEdits", "plan", "dontAsk", "bypassPermissions"]


class Origin(Struct, frozen=True, kw_only=True):
    """File of a template, with the line of each field."""

    kind: SourceKind
    path: Path
    lines: Mapping[Place, int] = {}

    @property
    def trusted(self) -> bool:
        """False for sources that may come from anyone: they must not widen permissions."""
        return self.kind not in ("project", "plugin")

    def line(self, place: Place) -> int | None:
        """Return the line of the field, or of the nearest enclosing one."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place)

    def __str__(self) -> str:
        return shown(self.path)


class Role(Struct, frozen=True, kw_only=True):
    """Role of one or more teammates."""

    name: str
    prompt: str
    kind: str | None = None
    """Agent type; None is the default type."""
    model: str | None = None
    mode: RoleMode | None = None
    isolation: Isolation | None = None
    count: int = 1

    @property
    def members(self) -> tuple[str, ...]:
        if self.count == 1:
            return (self.name,)
        return tuple(f"{self.name}-{number}" for number in range(1, self.count + 1))


class PlannedTask(Struct, frozen=True, kw_only=True):
    key: str
    """Key by which other tasks of the template refer to it."""
    subject: str
    description: str = ""
    active_form: str = ""
    blocked_by: tuple[str, ...] = ()
    owner: str | None = None
    """Member that owns it; None lets any free member claim it."""


class Template(Struct, frozen=True, kw_only=True):
    name: str
    description: str
    prompt: str
    """Prompt of the lead."""
    origin: Origin
    roles: tuple[Role, ...]
    tasks: tuple[PlannedTask, ...] = ()
    budget_usd: float | None = None
    budget_tokens: int | None = None

    @property
    def members(self) -> tuple[tuple[str, Role], ...]:
        return tuple((name, role) for role in self.roles for name in role.members)

    @property
    def needs_goal(self) -> bool:
        texts = [self.prompt, *(role.prompt for role in self.roles)]
        texts += [text for task in self.tasks for text in (task.subject, task.description)]
        return any(GOAL in text for text in texts)

    def filled(self, goal: str) -> Template:
        """Return the template with the goal in place of each placeholder."""
        line = " ".join(goal.split())
        return replace(
            self,
            prompt=self.prompt.replace(GOAL, goal),
            roles=tuple(replace(role, prompt=role.prompt.replace(GOAL, goal)) for role in self.roles),
            tasks=tuple(
                replace(
                    task,
                    subject=task.subject.replace(GOAL, line),
                    description=task.description.replace(GOAL, goal),
                )
                for task in self.tasks
            ),
        )

    def ordered_tasks(self) -> tuple[PlannedTask, ...]:
        """Return the tasks after their blockers, else as written. Requires a template without problems."""
        done: dict[str, PlannedTask] = {}
        waiting = list(self.tasks)
        while waiting:
            task = next(each for each in waiting if all(key in done for key in each.blocked_by))
            done[task.key] = task
            waiting.remove(task)
        return tuple(done.values())


class Flaw(Struct, frozen=True, kw_only=True):
    """Problem in a template: what, where, and how to fix it."""

    what: str
    origin: Origin
    place: Place = ()

    @property
    def line(self) -> int | None:
        return self.origin.line(self.place)

    @property
    def field(self) -> str:
        return _spelled(self.place)

    def __str__(self) -> str:
        line = self.line
        where = str(self.origin) if line is None else f"{self.origin}:{line}"
        return f"{where}: {self.field}: {self.what}" if self.place else f"{where}: {self.what}"


def flaws(template: Template) -> Iterator[Flaw]:
    """Yield the inconsistencies between the parts of a template."""

    def flaw(what: str, *place: str | int) -> Flaw:
        return Flaw(what=what, origin=template.origin, place=place)

    if not template.roles:
        yield flaw("there are no roles: a team needs at least one", "roles")
    total = sum(role.count for role in template.roles)
    if total > MOST_MEMBERS:
        # Checked before the names are built: there may be more of those than memory holds.
        yield flaw(f"{total:,} members are too many; a template makes at most {MOST_MEMBERS}", "roles")
        return
    owners: dict[str, int] = {}
    for number, role in enumerate(template.roles):
        if (wrong := _wrong_name(role)) is not None:
            yield flaw(wrong, "roles", number, "name")
        for name in role.members:
            if name in owners:
                line = template.origin.line(("roles", owners[name], "name"))
                first = f", first on line {line}" if line else ""
                yield flaw(f"two members are named {name!r}{first}; rename one", "roles", number, "name")
            owners.setdefault(name, number)
    yield from _task_flaws(template, owners, flaw)


def _task_flaws(template: Template, members: Mapping[str, int], flaw: Callable[..., Flaw]) -> Iterator[Flaw]:
    keys: dict[str, int] = {}
    for number, task in enumerate(template.tasks):
        if task.key in keys:
            yield flaw(f"two tasks have the key {task.key!r}; rename one", "tasks", number, "key")
        keys.setdefault(task.key, number)
    several = {role.name: role for role in template.roles if role.count > 1}
    for number, task in enumerate(template.tasks):
        for key in task.blocked_by:
            if key not in keys:
                what = f"there is no task with the key {key!r}; there are: {', '.join(keys)}"
                yield flaw(what, "tasks", number, "blockedBy")
        if task.owner in several:
            named = ", ".join(several[task.owner].members)
            what = f"{task.owner} has several members: name one of {named}, or leave owner out"
            yield flaw(what, "tasks", number, "owner")
        elif task.owner is not None and task.owner not in members:
            known = ", ".join(members) or "none"
            yield flaw(f"no role is named {task.owner!r}; there are: {known}", "tasks", number, "owner")
    circle = _circle(template.tasks)
    if circle:
        way = " → ".join((*circle, circle[0]))
        what = f"these tasks wait for each other for ever: {way}; take one of them out of blockedBy"
        yield flaw(what, "tasks", keys[circle[0]], "blockedBy")


def _circle(tasks: Sequence[PlannedTask]) -> tuple[str, ...]:
    """Return the keys of tasks that block each other in a cycle; empty if there is none."""
    waits_for = {task.key: task.blocked_by for task in tasks}
    cleared: set[str] = set()
    for start, keys in waits_for.items():
        path: list[str] = [start]
        branches = [iter(keys)]
        while branches:
            key = next(branches[-1], None)
            if key is None:
                cleared.add(path.pop())
                branches.pop()
            elif key in path:
                return tuple(path[path.index(key) :])
            elif key in waits_for and key not in cleared:
                path.append(key)
                branches.append(iter(waits_for[key]))
    return ()


def _wrong_name(role: Role) -> str | None:
    if role.name in RESERVED:
        return f"{role.name!r} is kept for the program itself; choose another"
    try:
        agent_name(role.members[-1])
    except BadName as error:
        return str(error).rstrip(".")
    return None


def _spelled(place: Place) -> str:
    """Format a field path with indexes from 1: `roles[1].mode` is that of the first role."""
    text = ""
    for part in place:
        text += f"[{part + 1}]" if isinstance(part, int) else f".{part}" if text else part
    return text
