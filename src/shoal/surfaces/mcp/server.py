"""Tools of `shoal mcp serve`, with which any MCP client leads or joins teams and starts runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Annotated, Any, Literal, ParamSpec, TypeAlias

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

import shoal
from shoal.app.outside.background_runs import BackgroundRuns
from shoal.app.teams.guest import Guest, Letter, Seat
from shoal.app.teams.guest_tasks import GuestTasks, Wish, task_data
from shoal.app.teams.record import AgentsRecord
from shoal.core.backends import Papers
from shoal.core.errors import AgentRefused, ShoalError
from shoal.core.ids import AgentId
from shoal.core.names import agent_name
from shoal.core.roster import Member, Newcomer, Team
from shoal.core.tasks import Draft
from shoal.wire.papers import command_line

Given = ParamSpec("Given")
Data: TypeAlias = dict[str, Any]
LONGEST_WAIT = 300.0
LONGEST_TEXT = 20_000
"""Characters of one returned text."""
MOST_TASKS = 200
MOST_MEMBERS = 200
_TeamName: TypeAlias = Annotated[
    str | None, Field(description="The team; needed only where you are in several")
]
_TaskIds: TypeAlias = Annotated[list[str], Field(max_length=1000)]
_Wait: TypeAlias = Annotated[float, Field(ge=0, le=LONGEST_WAIT, description="Seconds to wait for it")]
_Text: TypeAlias = Annotated[str, Field(min_length=1, max_length=1_000_000)]
_ABOUT = (
    "Shoal runs teams of agents that share a task board and write to each other. Make a team and lead it, or "
    "work in the one you were put into: take messages, claim tasks, tell the lead what came of them."
)


def plainly(work: Callable[Given, Awaitable[Data]]) -> Callable[Given, Awaitable[Data]]:
    """Report a `ShoalError` to the client as a failed call with its message."""

    @wraps(work)
    async def done(*args: Given.args, **given: Given.kwargs) -> Data:
        try:
            return await work(*args, **given)
        except ShoalError as error:
            raise ToolError(str(error)[:LONGEST_TEXT]) from error

    return done


class TeamTools:
    """One method per tool, with the tool's name."""

    def __init__(
        self, record: AgentsRecord, guest: Guest, runs: BackgroundRuns, *, model: str | None, kind: str
    ) -> None:
        self._record = record
        self._guest = guest
        self._tasks = GuestTasks(record, guest)
        self._runs = runs
        self._model = model
        self._kind = kind

    # Teams

    async def team_create(self, name: _Text, description: str = "") -> Data:
        """Make a team that you lead. A name that is taken gets a number."""
        return self._team(await self._guest.create(name, description or None))

    async def team_list(self) -> Data:
        """List the teams there are, and who you are in yours."""
        yours = {seat.team: seat.name for seat in self._guest.seats()}
        return {
            "teams": [{"name": name, "you": yours.get(name)} for name in await self._record.rosters.list()]
        }

    async def team_show(self, team: _TeamName = None) -> Data:
        """Show a team: its members, and how many tasks are open."""
        name = team or self._guest.seat(None).team
        found = await self._guest.team(name)
        tasks = await self._record.board(found.name).list()
        open_tasks = sum(task.status != "completed" for task in tasks)
        return {**self._team(found), "tasks": {"all": len(tasks), "open": open_tasks}}

    async def team_delete(self, team: _TeamName = None) -> Data:
        """Delete a team that you lead, with its mail and tasks. Refused while a member is at work: ask it to
        shut down first."""
        seat = self._guest.seat(team)
        if seat.leads:
            for member in (await self._guest.team(seat.team)).members:
                if self._runs.is_running(member.agent_id) is False:
                    await self._guest.gone(seat.team, member.name)
        await self._guest.delete(seat)
        return {"deleted": seat.team}

    # Tasks

    async def task_create(
        self,
        subject: _Text,
        description: str = "",
        blocked_by: Annotated[_TaskIds, Field(description="Tasks that this one waits for")] = [],  # noqa: B006 - copied for each call
        metadata: Data = {},  # noqa: B006
        team: _TeamName = None,
    ) -> Data:
        """Put a task on the board: one piece of work that one agent can finish alone."""
        draft = Draft(subject=subject, description=description, metadata=metadata)
        return task_data(await self._tasks.create(self._guest.seat(team), draft, blocked_by))

    async def task_list(
        self, status: Literal["pending", "in_progress", "completed"] | None = None, team: _TeamName = None
    ) -> Data:
        """List tasks without their descriptions. A task is free when it is pending, has no owner, and what it
        waits for is completed."""
        every = await self._tasks.list(self._guest.seat(team))
        wanted = [task for task in every if status in (None, task.status)]
        rows = [_row(task_data(task)) for task in wanted[:MOST_TASKS]]
        return {"tasks": rows, "left_out": max(0, len(wanted) - MOST_TASKS)}

    async def task_get(self, task: str, team: _TeamName = None) -> Data:
        """Read one task with everything it holds."""
        found = task_data(await self._tasks.get(self._guest.seat(team), task))
        return {**found, "description": _cut(found["description"])}

    async def task_update(  # noqa: PLR0913, PLR0917 - the inputs of the tool
        self,
        task: str,
        status: Literal["pending", "in_progress", "completed", "deleted"] | None = None,
        owner: Annotated[str | None, Field(description="Who works on it; empty for nobody")] = None,
        subject: str | None = None,
        description: str | None = None,
        add_blocks: _TaskIds = [],  # noqa: B006
        add_blocked_by: _TaskIds = [],  # noqa: B006
        metadata: Annotated[Data, Field(description="Merged key by key; null deletes a key")] = {},  # noqa: B006
        attempt: Annotated[
            str | None, Field(description="From your claim; without it the one you hold it under counts")
        ] = None,
        team: _TeamName = None,
    ) -> Data:
        """Change a task. Set it in_progress when you begin: that claims it for you under an attempt, and
        fails if another has it. Set it completed when it is wholly done. A change of status under an attempt
        that no longer holds the task is refused."""
        wish = Wish(
            status=status,
            owner=owner,
            subject=subject,
            description=description,
            blocks=add_blocks,
            blocked_by=add_blocked_by,
            metadata=metadata,
            attempt=attempt,
        )
        return task_data(*await self._tasks.update(self._guest.seat(team), task, wish))

    # Mail

    async def message_send(
        self,
        to: Annotated[str, Field(description="A member's name, team-lead, or * for everyone")],
        text: _Text,
        summary: Annotated[str, Field(description="What it is about, in five to ten words")] = "",
        kind: Annotated[
            Literal["message", "fyi", "shutdown_request"],
            Field(description="fyi wakes nobody; a lead asks a member to end with shutdown_request"),
        ] = "message",
        team: _TeamName = None,
    ) -> Data:
        """Write to a member of your team. It is kept on disk when this returns."""
        seat = self._guest.seat(team)
        if kind == "shutdown_request":
            return {"request_id": await self._guest.ask_to_end(seat, to, text)}
        receipts = await self._guest.send(seat, to, text, summary, fyi=kind == "fyi")
        return {"sent": [{"id": receipt.id, "standing": receipt.standing} for receipt in receipts]}

    async def message_take(
        self,
        wait_seconds: _Wait = 0.0,
        limit: Annotated[int, Field(ge=1, le=50)] = 20,
        team: _TeamName = None,
    ) -> Data:
        """Take your unread messages, the oldest first; with wait_seconds wait for one. They count as read
        when you call this again: if you end before, you get them again, with the same ids."""
        letters = await self._guest.take(self._guest.seat(team), wait=wait_seconds, limit=limit)
        return {"messages": [_letter(letter) for letter in letters]}

    # Runs

    async def spawn(
        self,
        prompt: _Text,
        name: Annotated[
            str | None, Field(description="Start a member of this name in a team that you lead")
        ] = None,
        agent_type: Annotated[str | None, Field(description="Of a member: which agent it is")] = None,
        template: Annotated[
            str | None, Field(description="Start a team of its own from this template; prompt is its goal")
        ] = None,
        max_budget_usd: Annotated[float | None, Field(gt=0)] = None,
        team: _TeamName = None,
    ) -> Data:
        """Start work in the background and get its id: an agent that works on the prompt alone, with a name a
        member of your team, with a template a whole team. It goes on if you end. See run_status and
        run_result; a member writes to you."""
        if name is not None and template is not None:
            raise AgentRefused("A member has a name and a team run a template: give one of them.")
        if name is not None:
            seat = self._guest.seat(team)
            return await self._member(seat, name, prompt, agent_type, max_budget_usd)
        if agent_type is not None:
            raise AgentRefused("agent_type is for a member of your team: give it a name too.")
        if template is not None:
            return {"id": self._runs.start_team(template, prompt, max_budget_usd=max_budget_usd)}
        return {"id": self._runs.start(prompt, max_budget_usd=max_budget_usd)}

    async def run_status(self, id: str) -> Data:  # noqa: A002 - the tool's input
        """How a run stands: running, done, failed or died."""
        if "@" in id:
            return await self._member_status(id)
        standing = self._runs.status(id)
        return {name: getattr(standing, name) for name in standing.__struct_fields__}

    async def run_result(self, id: str, wait_seconds: _Wait = 0.0) -> Data:  # noqa: A002
        """What came of a run that spawn started, waiting for its end. A member's results are its messages."""
        if "@" in id:
            raise AgentRefused(f"{id} is a member of a team: it writes to you. See message_take.")
        outcome = await self._runs.result(id, wait=wait_seconds)
        data = {name: getattr(outcome, name) for name in outcome.__struct_fields__}
        return {**data, "text": _cut(outcome.text)}

    async def _member(
        self, seat: Seat, name: str, prompt: str, kind: str | None, max_budget_usd: float | None
    ) -> Data:
        if self._model is None:
            raise AgentRefused(
                "No model is configured for members. Start this server with --model NAME, or set one in "
                "settings."
            )
        flags = self._runs.flags
        newcomer = Newcomer(
            name=agent_name(name),
            agent_type=kind or self._kind,
            model=self._model,
            cwd=str(self._runs.cwd),
            prompt=prompt,
            backend_type="process",
            tmux_pane_id="process",
        )
        member = await self._guest.called(seat, newcomer)
        papers = Papers(
            agent=AgentId(member.agent_id),
            name=member.name,
            team=seat.team,
            color=member.color,
            session=self._guest.session,
            kind=member.agent_type,
            model=self._model,
            mode=flags.mode,
            allowed=flags.allowed,
            disallowed=flags.disallowed,
            skip_permissions=flags.skip_permissions,
            max_budget_usd=flags.budget(max_budget_usd),
            settings=flags.settings,
            plugin_dirs=tuple(map(str, flags.plugin_dirs)),
        )
        try:
            self._runs.start_member(member.agent_id, command_line(papers))
        except BaseException:
            await self._guest.gone(seat.team, member.name)
            raise
        return {"id": member.agent_id, "name": member.name, "team": seat.team}

    async def _member_status(self, id_: str) -> Data:
        name, _, team = id_.partition("@")
        member = (await self._guest.team(team)).member(name)
        alive = self._runs.is_running(id_)
        if member is None or alive is False:
            code = self._runs.exit_code(id_)
            state = "done" if code in (None, 0) else "failed"
            return {
                "id": id_,
                "state": state,
                "exit_code": code,
                "detail": self._runs.wrote(id_) if code else "",
            }
        return {"id": id_, "state": "running", "working": bool(member.is_active)}

    def _team(self, team: Team) -> Data:
        seats = {seat.team: seat.name for seat in self._guest.seats()}
        return {
            "name": team.name,
            "description": team.description,
            "you": seats.get(team.name),
            "members": [_member(each) for each in team.members[:MOST_MEMBERS]],
            "members_left_out": max(0, len(team.members) - MOST_MEMBERS),
        }


def _member(member: Member) -> Data:
    return {
        "name": member.name,
        "type": member.agent_type,
        "model": member.model,
        "working": member.is_active,
    }


def _row(task: Data) -> Data:
    return {key: value for key, value in task.items() if key not in ("description", "metadata")}


def _letter(letter: Letter) -> Data:
    mail = letter.mail
    return {
        "id": mail.id,
        "from": mail.sender,
        "text": _cut(mail.text),
        "summary": mail.summary,
        "timestamp": mail.timestamp,
        "kind": letter.kind,
        "signature": letter.verdict,
    }


def _cut(text: str) -> str:
    if len(text) <= LONGEST_TEXT:
        return text
    return f"{text[:LONGEST_TEXT]}\n[… cut, {len(text):,} characters in all]"


TOOLS = (
    *("team_create", "team_list", "team_show", "team_delete"),
    *("task_create", "task_list", "task_get", "task_update"),
    *("message_send", "message_take", "spawn", "run_status", "run_result"),
)


def server_with(tools: TeamTools) -> MCPServer[Any]:
    server: MCPServer[Any] = MCPServer(
        "shoal", instructions=_ABOUT, version=shoal.__version__, log_level="ERROR"
    )
    for name in TOOLS:
        server.add_tool(plainly(getattr(tools, name)), name=name)
    return server
