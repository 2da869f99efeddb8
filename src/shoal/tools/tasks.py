"""Task tools on a board that a team shares or one session owns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, structs

from shoal.core.agents import Ran
from shoal.core.errors import RecordError, StoreError
from shoal.core.identity import Identity
from shoal.core.names import AgentName, TaskId, agent_name, task_id
from shoal.core.record import Attempts, TaskBoard
from shoal.core.tasks import Change, Claim, Draft, Task, around, begun_by, open_blockers, unblocked_by
from shoal.core.tools import Outcome, Site, Tool, failed
from shoal.tools.define import FunctionTool, Named, tool
from shoal.tools.task_texts import as_data, line, refused, whole

Boards: TypeAlias = Callable[[Identity], TaskBoard]
Assigned: TypeAlias = Callable[[Identity, AgentName, Task], Awaitable[None]]
Accept: TypeAlias = Callable[[str, Identity], Awaitable[tuple[Ran, str]]]
LedAs: TypeAlias = Callable[[Identity, str], Identity | None]
_DEADLINE = 60
_ACCEPTING = 660
"""Seconds for an update, which may run an acceptance command first."""

_Text = Annotated[str, Meta(min_length=1)]
_Id = Annotated[str, "The task's id, as TaskList shows it", Named("taskId")]
_Ids = Annotated[list[str], Meta(max_length=1000)]
_Metadata = dict[str, Any]
_ABOUT_METADATA = "Anything to keep with it; acceptance: a command that must pass before it is completed"
_Team = Annotated[str | None, "The team you lead, for its board; that of your own team if left out"]
_Status = Literal["pending", "in_progress", "completed", "deleted"]


async def _nobody_told(_: Identity, __: AgentName, ___: Task) -> None:
    return


def task_tools(
    boards: Boards,
    assigned: Assigned = _nobody_told,
    accept: Accept | None = None,
    attempts: Attempts | None = None,
    led_as: LedAs | None = None,
) -> tuple[Tool, ...]:
    """Return the task tools, for any number of agents.

    `find_board` returns an agent's board; `notify_assignee` informs an agent of its task. `run_acceptance`
    runs the `acceptance` command from a task's metadata before the task is completed. `attempts` also holds
    claims that the runtime made for agents. `find_lead_identity` returns the identity an agent has on the
    board of another team that it leads; without it the `team_name` input is hidden.
    """
    desk = _Desk(boards, assigned, accept, {} if attempts is None else attempts, led_as)
    made = (_create(desk), _get(desk), _list(desk), _update(desk))
    if led_as is None:
        for each in made:
            each.show(each.inputs_but("team_name"))
    return made


def _create(desk: _Desk) -> FunctionTool:
    @tool(name="TaskCreate", deadline=_DEADLINE)
    async def create(
        subject: Annotated[_Text, "What is to be done, in one line: Fix the login test"],
        description: Annotated[str, "What belongs to it, and how one sees that it is done"],
        active_form: Annotated[str, "As it is being done: Fixing the login test", Named("activeForm")] = "",
        metadata: Annotated[_Metadata, _ABOUT_METADATA] = {},  # noqa: B006 - copied for each call
        team_name: _Team = None,
        *,
        site: Site,
    ) -> Outcome:
        """Put a task on the board. Use it for work of three steps or more, and for work that several agents
        share: one task per piece that one agent can finish alone. It starts as pending, without an owner.
        Order tasks with TaskUpdate (addBlockedBy)."""
        draft = Draft(subject=subject, description=description, active_form=active_form, metadata=metadata)
        return await _told(desk.create(draft, site, team_name))

    return create


def _get(desk: _Desk) -> FunctionTool:
    @tool(name="TaskGet", reads_only=True, deadline=_DEADLINE)
    async def get(task: _Id, team_name: _Team = None, *, site: Site) -> Outcome:
        """Read a task: its description, state, owner, what it waits for and what waits for it."""
        return await _told(desk.get(task, site, team_name))

    return get


def _list(desk: _Desk) -> FunctionTool:
    @tool(name="TaskList", reads_only=True, deadline=_DEADLINE)
    async def list_(team_name: _Team = None, *, site: Site) -> Outcome:
        """List all tasks with state, owner and open blockers. A task is free when it is pending, has no owner
        and waits for nothing; take the free one with the lowest id first."""
        return await _told(desk.list(site, team_name))

    return list_


def _update(desk: _Desk) -> FunctionTool:
    @tool(name="TaskUpdate", deadline=_ACCEPTING)
    async def update(  # noqa: PLR0913, PLR0917 - the inputs that the protocol names
        task: _Id,
        subject: _Text | None = None,
        description: str | None = None,
        active_form: Annotated[str | None, Named("activeForm")] = None,
        status: Annotated[_Status | None, "deleted removes the task for good"] = None,
        add_blocks: Annotated[_Ids, "Ids of tasks that wait for this one", Named("addBlocks")] = [],  # noqa: B006
        add_blocked_by: Annotated[_Ids, "Ids of tasks this one waits for", Named("addBlockedBy")] = [],  # noqa: B006
        owner: Annotated[str | None, "Who works on it; empty for nobody"] = None,
        metadata: Annotated[_Metadata, "Merged key by key; null deletes a key"] = {},  # noqa: B006
        team_name: _Team = None,
        *,
        site: Site,
    ) -> Outcome:
        """Change a task. Set it in_progress when you begin: that claims it for you, and fails if another has
        it. Set it completed only when it is wholly done; if you cannot finish, set it back to pending and
        say why in its description. What waited for it becomes free by itself."""
        wish = _Wish(
            subject=subject,
            description=description,
            active_form=active_form,
            status=status,
            owner=owner,
            add_blocks=add_blocks,
            add_blocked_by=add_blocked_by,
            metadata=metadata,
        )
        return await _told(desk.update(task, wish, site, team_name))

    return update


class _Wish(Struct, frozen=True, kw_only=True):
    """An update as requested by the model; None leaves a field unchanged."""

    subject: str | None
    description: str | None
    active_form: str | None
    status: _Status | None
    owner: str | None
    add_blocks: list[str]
    add_blocked_by: list[str]
    metadata: _Metadata

    def claims(self, me: AgentName) -> bool:
        """Return True if the update claims the task: it sets the caller as owner, or starts the task."""
        return self.owner == me if self.owner is not None else self.status == "in_progress"

    def change(self, *, claimed: bool, attempt: str | None) -> Change:
        owner: AgentName | UnsetType | None = UNSET
        if self.owner is not None and not claimed:
            owner = agent_name(self.owner) if self.owner.strip() else None
        done_by_claim = claimed and self.status == "in_progress"
        return Change(
            subject=_given(self.subject),
            description=_given(self.description),
            active_form=_given(self.active_form),
            status=UNSET if self.status is None or done_by_claim else self.status,
            owner=owner,
            add_blocks=tuple(map(task_id, self.add_blocks)),
            add_blocked_by=tuple(map(task_id, self.add_blocked_by)),
            metadata=self.metadata,
            attempt=attempt,
        )


class _Desk:
    """Implements the tools, with the attempts under which agents of this process hold their tasks."""

    def __init__(
        self,
        boards: Boards,
        assigned: Assigned,
        accept: Accept | None,
        attempts: Attempts,
        led_as: LedAs | None,
    ) -> None:
        self._boards = boards
        self._assigned = assigned
        self._accept = accept
        self._attempts = attempts
        self._led_as = led_as

    def _standing(self, site: Site, team: str | None) -> Site:
        """Return the context with the agent's identity on that board.

        Raises `TeamStoreError` if the agent does not lead the team.
        """
        if team is None or team == site.agent.team:
            return site
        lead = None if self._led_as is None else self._led_as(site.agent, team)
        if lead is None:
            raise RecordError(f"You do not lead a team {team!r}.")
        return structs.replace(site, agent=lead)

    async def create(self, draft: Draft, site: Site, team: str | None) -> Outcome:
        site = self._standing(site, team)
        if site.hooks.wants("TaskCreated"):
            # Before it is on the board, where another agent could claim it at once.
            told = {"task_subject": draft.subject, "task_description": draft.description}
            verdict = await site.hooks.run("TaskCreated", told)
            if verdict.blocked is not None:
                return failed(f"The task was not created: a TaskCreated hook says no: {verdict.blocked}")
        task = await self._boards(site.agent).create(draft)
        return Outcome(
            content=f"Task {task.id} is on the board: {task.subject}", data={"task": as_data(task)}
        )

    async def get(self, text: str, site: Site, team: str | None) -> Outcome:
        site = self._standing(site, team)
        board = self._boards(site.agent)
        task = await board.get(task_id(text))
        if task is None:
            return failed(f"There is no task {text}. TaskList shows the tasks there are.")
        return Outcome(content=whole(task, await board.look()), data={"task": as_data(task)})

    async def list(self, site: Site, team: str | None) -> Outcome:
        site = self._standing(site, team)
        tasks = await self._boards(site.agent).list()
        every = {task.id: task for task in tasks}
        lines = [line(task, open_blockers(task, every)) for task in tasks]
        return Outcome(
            content="\n".join(lines) or "There are no tasks. TaskCreate makes one.",
            data={"tasks": [as_data(task) for task in tasks]},
        )

    async def update(self, text: str, wish: _Wish, site: Site, team: str | None) -> Outcome:
        site = self._standing(site, team)
        board, me, task = self._boards(site.agent), agent_name(site.agent.name), task_id(text)
        key = (site.agent.agent, task)
        if (refusal := await self._forbidden(board, task, wish, site)) is not None:
            return failed(refusal)
        claim: Claim | None = None
        if wish.claims(me):
            # Validated before anything is claimed: invalid input changes nothing.
            wish.change(claimed=True, attempt=None)
            claim = await board.claim(task, by=me)
            if not claim.success:
                return failed(refused(task, claim, await board.look()))
            self._attempts[key] = claim.attempt or ""
        elif (held := await self._held_by_another(board, task, wish, me, site)) is not None:
            return failed(held)
        change = wish.change(claimed=claim is not None, attempt=self._attempts.get(key))
        try:
            before, after = await board.update(task, change, by=me) if _says(change) else _same(claim)
        except RecordError:
            if claim is not None and claim.attempt is not None:
                await board.release(task, attempt=claim.attempt)
            raise
        if change.status is not UNSET and change.status != "in_progress":
            self._attempts.pop(key, None)
        if after.owner not in (None, before.owner, me):
            await self._assigned(site.agent, after.owner, after)
        if wish.status == "completed":
            await self._tell_owners(board, after, me, site)
        return await self._done(board, wish, after, me, claimed=claim is not None)

    async def _tell_owners(self, board: TaskBoard, done: Task, me: AgentName, site: Site) -> None:
        """Notify owners of tasks this one blocked: nobody else will claim those."""
        for task in begun_by(done.id, around(done, await board.look())):
            if task.owner not in (None, me):
                await self._assigned(site.agent, task.owner, task)

    async def _forbidden(self, board: TaskBoard, task: TaskId, wish: _Wish, site: Site) -> str | None:
        """Return why the update is not allowed, whoever holds the task."""
        if (eased := await _eased(board, task, wish, site)) is not None or wish.status != "completed":
            return eased
        return await self._not_accepted(board, task, site) or await _objection(board, task, site)

    async def _not_accepted(self, board: TaskBoard, task: TaskId, site: Site) -> str | None:
        """Return why the task is not done, if its acceptance command fails."""
        found = await board.get(task)
        command = None if found is None else found.metadata.get("acceptance")
        if self._accept is None or not isinstance(command, str):
            return None
        ran, wrote = await self._accept(command, site.agent)
        if ran.exit_code == 0:
            return None
        how = "did not end in time" if ran.exit_code is None else f"ended with {ran.exit_code}"
        return f"Task {task} is not completed: its acceptance command `{command}` {how}.\n\n{wrote}"

    async def _held_by_another(
        self, board: TaskBoard, task: TaskId, wish: _Wish, me: AgentName, site: Site
    ) -> str | None:
        """Refuse to end another agent's task, unless the caller is the lead."""
        if wish.status not in ("completed", "pending") or site.agent.is_lead:
            return None
        found = await board.get(task)
        if found is None or found.owner == me:
            return None
        if found.status == wish.status == "completed":
            by = f" by {found.owner}" if found.owner else ""
            return f"Task {task} was completed{by} already: nothing is left to do for it."
        if found.status != "in_progress" or found.owner is None:
            return None
        return (
            f"Task {task} is being worked on by {found.owner}, so it was not changed. "
            f"Write to {found.owner} or to the lead."
        )

    async def _done(
        self, board: TaskBoard, wish: _Wish, task: Task, me: AgentName, *, claimed: bool
    ) -> Outcome:
        if wish.status == "deleted":
            return Outcome(content=f"Task {task.id} is deleted.", data={"deleted": task.id})
        tasks = await board.look()
        said = ["It is yours now." if claimed else ""]
        if wish.status == "completed":
            near = around(task, tasks)
            free = unblocked_by(task.id, near)
            said += [f"Now free: {', '.join(other.id for other in free)}."] if free else []
            owned = begun_by(task.id, near)
            mine = [other.id for other in owned if other.owner == me]
            others = [f"{other.id} ({other.owner}, who is told)" for other in owned if other.owner != me]
            said += [f"Yours, and free to begin now: {', '.join(mine)}."] if mine else []
            said += [f"Can begin now: {', '.join(others)}."] if others else []
        text = " ".join(filter(None, (line(task, open_blockers(task, tasks)), *said)))
        return Outcome(content=text, data={"task": as_data(task)})


async def _eased(board: TaskBoard, task: TaskId, wish: _Wish, site: Site) -> str | None:
    """Refuse a change of the acceptance command by anyone but the lead."""
    if site.agent.is_lead or "acceptance" not in wish.metadata:
        return None
    found = await board.get(task)
    command = None if found is None else found.metadata.get("acceptance")
    if command in (None, wish.metadata["acceptance"]):
        return None
    return (
        f"Task {task} is done when its acceptance command `{command}` passes; only the lead changes that. "
        "Nothing was changed: write to the lead if the command is wrong."
    )


async def _objection(board: TaskBoard, task: TaskId, site: Site) -> str | None:
    """Return a hook's objection to completing the task."""
    if not site.hooks.wants("TaskCompleted") or (found := await board.get(task)) is None:
        return None
    told = {"task_id": task, "task_subject": found.subject, "task_description": found.description}
    verdict = await site.hooks.run("TaskCompleted", told)
    if verdict.blocked is None:
        return None
    return f"Task {task} is not completed: a TaskCompleted hook says no: {verdict.blocked}"


async def _told(answer: Awaitable[Outcome]) -> Outcome:
    """Turn store errors into failed output: an unusable board must not end the turn."""
    try:
        return await answer
    except StoreError as refusal:
        return failed(str(refusal))


def _given(value: str | None) -> str | UnsetType:
    return UNSET if value is None else value


def _says(change: Change) -> bool:
    """Return True if the change sets anything."""
    return structs.replace(change, attempt=None) != Change()


def _same(claim: Claim | None) -> tuple[Task, Task]:
    if claim is None or claim.task is None:
        raise RecordError("Nothing was given to change. Give a status, an owner, or another field.")
    return claim.task, claim.task
