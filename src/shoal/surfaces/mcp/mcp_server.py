"""Tools of `shoal mcp serve`, with which any MCP client leads or joins teams and starts runs."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, Literal, ParamSpec, TypeAlias

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field, ValidationError

import shoal
from shoal.app.model_notices import format_session_notice
from shoal.app.run_access.background_runs import BackgroundRunManager
from shoal.app.teams.external_member import ExternalMember, ExternalMemberIdentity, MailWithSignatureVerdict
from shoal.app.teams.external_task_board import (
    ExternalMemberBoardAccess,
    ExternalTaskUpdateRequest,
    encode_task_with_attempt,
)
from shoal.app.teams.team_store import TeamStore
from shoal.core.errors import AgentRequestRefused, ShoalError
from shoal.core.ids import AgentId
from shoal.core.names import parse_teammate_name
from shoal.core.teams.member_backends import MemberLaunchArgs
from shoal.core.teams.roster import NewMember, RosterEntry, TeamRoster
from shoal.core.teams.tasks import TaskDraft
from shoal.core.text.encodable_text import repair_surrogates
from shoal.core.text.model_texts import ModelTexts, fill_template
from shoal.surfaces.mcp.json_rpc_lines import RepairedMessageStream
from shoal.wire.launch_args_codec import build_member_launch_flags

Given = ParamSpec("Given")
Data: TypeAlias = dict[str, Any]
LONGEST_WAIT = 300.0
LONGEST_TEXT = 20_000
"""Maximum number of characters in one returned text."""
MOST_TASKS = 200
MOST_MEMBERS = 200
_TEXTS = ModelTexts(Path(__file__).parent / "prompts").load_sections("server")
_TeamName: TypeAlias = Annotated[str | None, Field(description=_TEXTS["input:team"])]
_TaskId: TypeAlias = Annotated[str, Field(coerce_numbers_to_str=True)]
_TaskIds: TypeAlias = Annotated[list[_TaskId], Field(max_length=1000)]
_Wait: TypeAlias = Annotated[float, Field(ge=0, le=LONGEST_WAIT, description=_TEXTS["input:wait_seconds"])]
_Text: TypeAlias = Annotated[str, Field(min_length=1, max_length=1_000_000, pattern=r"\S")]


def convert_errors_to_tool_errors(work: Callable[Given, Awaitable[Data]]) -> Callable[Given, Awaitable[Data]]:
    """Report a `ShoalError` to the client as a failed call with its message; make all texts encodable."""

    @wraps(work)
    async def call_tool(*args: Given.args, **arguments: Given.kwargs) -> Data:
        try:
            return {name: _repair_texts(value) for name, value in (await work(*args, **arguments)).items()}
        except ShoalError as error:
            raise ToolError(repair_surrogates(str(error)[:LONGEST_TEXT])) from error

    return call_tool


class TeamMcpServerTools:
    """One method per tool, with the tool's name; `prompts/server.md` describes it to the client."""

    def __init__(
        self,
        team_store: TeamStore,
        external_member: ExternalMember,
        runs: BackgroundRunManager,
        *,
        model: str | None,
        kind: str,
    ) -> None:
        self._team_store = team_store
        self._external_member = external_member
        self._tasks = ExternalMemberBoardAccess(team_store, external_member)
        self._runs = runs
        self._model = model
        self._kind = kind

    # Teams

    async def team_create(self, name: _Text, description: str = "") -> Data:
        return self._team_roster_to_dict(await self._external_member.create_team(name, description or None))

    async def team_list(self) -> Data:
        own_names = {identity.team: identity.name for identity in self._external_member.list_identities()}
        rosters = self._team_store.rosters
        teams = [await rosters.read_team_roster(name) for name in await rosters.list_teams()]
        return {
            "teams": [
                {
                    "name": team.name,
                    "given_name": team.given_name or team.name,
                    "you": own_names.get(team.name),
                }
                for team in teams
                if team is not None
            ]
        }

    async def team_show(self, team: _TeamName = None) -> Data:
        name = team or self._external_member.get_identity(None).team
        roster = await self._external_member.read_team(name)
        tasks = await self._team_store.open_board(roster.name).list_tasks()
        open_tasks = sum(task.status != "completed" for task in tasks)
        return {**self._team_roster_to_dict(roster), "tasks": {"all": len(tasks), "open": open_tasks}}

    async def team_delete(self, team: _TeamName = None) -> Data:
        identity = self._external_member.get_identity(team)
        if identity.is_lead:
            for member in (await self._external_member.read_team(identity.team)).members:
                if self._runs.is_running(member.agent_id) is False:
                    await self._external_member.remove_member(identity.team, member.name)
        await self._external_member.delete_team(identity)
        return {"deleted": identity.team}

    # Tasks

    async def task_create(
        self,
        subject: Annotated[str, Field(max_length=1_000_000)],  # the board refuses a blank one and says why
        description: str = "",
        blocked_by: Annotated[_TaskIds, Field(description=_TEXTS["input:blocked_by"])] = [],  # noqa: B006 - copied for each call
        metadata: Data = {},  # noqa: B006
        team: _TeamName = None,
    ) -> Data:
        draft = TaskDraft(subject=subject, description=description, metadata=metadata)
        return encode_task_with_attempt(
            await self._tasks.create(self._external_member.get_identity(team), draft, blocked_by)
        )

    async def task_list(
        self, status: Literal["pending", "in_progress", "completed"] | None = None, team: _TeamName = None
    ) -> Data:
        all_tasks = await self._tasks.list(self._external_member.get_identity(team))
        matching_tasks = [task for task in all_tasks if status in (None, task.status)]
        rows = [_drop_task_details(encode_task_with_attempt(task)) for task in matching_tasks[:MOST_TASKS]]
        return {"tasks": rows, "left_out": max(0, len(matching_tasks) - MOST_TASKS)}

    async def task_get(self, task: _TaskId, team: _TeamName = None) -> Data:
        encoded_task = encode_task_with_attempt(
            await self._tasks.get(self._external_member.get_identity(team), task)
        )
        return {**encoded_task, "description": _truncate_text(encoded_task["description"])}

    async def task_update(  # noqa: PLR0913, PLR0917 - the inputs of the tool
        self,
        task: _TaskId,
        status: Literal["pending", "in_progress", "completed", "deleted"] | None = None,
        owner: Annotated[str | None, Field(description=_TEXTS["input:owner"])] = None,
        subject: str | None = None,
        description: str | None = None,
        add_blocks: _TaskIds = [],  # noqa: B006
        add_blocked_by: _TaskIds = [],  # noqa: B006
        metadata: Annotated[Data, Field(description=_TEXTS["input:metadata"])] = {},  # noqa: B006
        attempt: Annotated[str | None, Field(description=_TEXTS["input:attempt"])] = None,
        team: _TeamName = None,
    ) -> Data:
        update_request = ExternalTaskUpdateRequest(
            status=status,
            owner=owner,
            subject=subject,
            description=description,
            blocks=add_blocks,
            blocked_by=add_blocked_by,
            metadata=metadata,
            attempt=attempt,
        )
        return encode_task_with_attempt(
            *await self._tasks.update(self._external_member.get_identity(team), task, update_request)
        )

    # Mail

    async def message_send(
        self,
        to: Annotated[str, Field(description=_TEXTS["input:to"])],
        text: _Text,
        summary: Annotated[str, Field(description=_TEXTS["input:summary"])] = "",
        kind: Annotated[
            Literal["message", "fyi", "shutdown_request"],
            Field(description=_TEXTS["input:kind"]),
        ] = "message",
        team: _TeamName = None,
    ) -> Data:
        identity = self._external_member.get_identity(team)
        if kind == "shutdown_request":
            return {"request_id": await self._external_member.request_shutdown(identity, to, text)}
        receipts = await self._external_member.send_mail(identity, to, text, summary, fyi=kind == "fyi")
        return {"sent": [{"id": receipt.id, "standing": receipt.standing} for receipt in receipts]}

    async def message_take(
        self,
        wait_seconds: _Wait = 0.0,
        limit: Annotated[int, Field(ge=1, le=50)] = 20,
        team: _TeamName = None,
    ) -> Data:
        messages = await self._external_member.take_mail(
            self._external_member.get_identity(team), wait=wait_seconds, limit=limit
        )
        return {"messages": [_verified_mail_to_dict(message) for message in messages]}

    # Runs

    async def spawn(
        self,
        prompt: _Text,
        name: Annotated[str | None, Field(description=_TEXTS["input:name"])] = None,
        agent_type: Annotated[str | None, Field(description=_TEXTS["input:agent_type"])] = None,
        template: Annotated[str | None, Field(description=_TEXTS["input:template"])] = None,
        max_budget_usd: Annotated[float | None, Field(gt=0)] = None,
        team: _TeamName = None,
    ) -> Data:
        if name is not None and template is not None:
            raise AgentRequestRefused(_TEXTS["error:name_and_template"])
        if name is not None:
            identity = self._external_member.get_identity(team)
            return await self._start_member(identity, name, prompt, agent_type, max_budget_usd)
        for argument, value in (("agent_type", agent_type), ("team", team)):
            if value is not None:
                text = _TEXTS["error:member_argument_without_name"].format(argument=argument)
                raise AgentRequestRefused(text)
        if template is not None:
            run = self._runs.start_team_run(template, prompt, max_budget_usd=max_budget_usd)
        else:
            run = self._runs.start_prompt_run(prompt, max_budget_usd=max_budget_usd)
        has_begun = await self._runs.wait_until_begun(run, partial(self._runs.has_session_begun, run))
        return {"id": run, **_describe_start(has_begun=has_begun)}

    async def run_status(self, id: str) -> Data:  # noqa: A002 - the tool's input
        if "@" in id:
            return await self._member_status(id)
        status = self._runs.get_status(id)
        return {name: getattr(status, name) for name in status.__struct_fields__}

    async def run_result(self, id: str, wait_seconds: _Wait = 0.0) -> Data:  # noqa: A002
        if "@" in id:
            raise AgentRequestRefused(fill_template(_TEXTS["error:result_of_member"], id=id))
        outcome = await self._runs.wait_for_result(id, wait=wait_seconds)
        data = {name: getattr(outcome, name) for name in outcome.__struct_fields__}
        return {**data, "text": _truncate_text(outcome.text)}

    async def _start_member(
        self,
        identity: ExternalMemberIdentity,
        name: str,
        prompt: str,
        kind: str | None,
        max_budget_usd: float | None,
    ) -> Data:
        if self._model is None:
            raise AgentRequestRefused(_TEXTS["error:no_model"])
        flags = self._runs.flags
        new_member = NewMember(
            name=parse_teammate_name(name),
            agent_type=kind or self._kind,
            model=self._model,
            cwd=str(self._runs.cwd),
            prompt=prompt,
            backend_type="process",
            tmux_pane_id="process",
        )
        member = await self._external_member.add_member(identity, new_member)
        launch_args = MemberLaunchArgs(
            agent=AgentId(member.agent_id),
            name=member.name,
            team=identity.team,
            color=member.color,
            session=self._external_member.session,
            kind=member.agent_type,
            model=self._model,
            mode=flags.mode,
            allowed=flags.allowed,
            disallowed=flags.disallowed,
            skip_permissions=flags.skip_permissions,
            max_budget_usd=flags.cap_budget(max_budget_usd),
            settings=flags.settings,
            plugin_dirs=tuple(map(str, flags.plugin_dirs)),
        )

        async def has_begun() -> bool:
            # Its prompt is marked read once it is in its transcript.
            mailboxes = self._team_store.open_mailboxes(identity.team)
            return not await mailboxes.take_unread(member.name, limit=1)

        try:
            self._runs.start_member_process(member.agent_id, build_member_launch_flags(launch_args))
            is_working = await self._runs.wait_until_begun(member.agent_id, has_begun)
        except BaseException:
            await self._external_member.remove_member(identity.team, member.name)
            raise
        started = {"id": member.agent_id, "name": member.name, "team": identity.team}
        return {**started, **_describe_start(has_begun=is_working)}

    async def _member_status(self, id_: str) -> Data:
        name, _, team = id_.partition("@")
        roster = await self._external_member.read_team(team)
        member, is_running = roster.find_member(name), self._runs.is_running(id_)
        if member is None and not self._runs.is_started_here(id_):
            text = format_session_notice("unknown_member", team=roster.name, name=repr(name))
            raise AgentRequestRefused(text)
        if member is None or is_running is False:
            code = self._runs.get_exit_code(id_)
            state = "done" if code in (None, 0) else "failed"
            return {
                "id": id_,
                "state": state,
                "exit_code": code,
                "detail": self._runs.read_stderr_tail(id_) if code else "",
            }
        return {"id": id_, "state": "running", "working": bool(member.is_active)}

    def _team_roster_to_dict(self, team: TeamRoster) -> Data:
        own_names = {identity.team: identity.name for identity in self._external_member.list_identities()}
        return {
            "name": team.name,
            "description": team.description,
            "you": own_names.get(team.name),
            "members": [_roster_entry_to_dict(each) for each in team.members[:MOST_MEMBERS]],
            "members_left_out": max(0, len(team.members) - MOST_MEMBERS),
        }


def _describe_start(*, has_begun: bool) -> Data:
    return {} if has_begun else {"state": "starting", "detail": _TEXTS["run_is_starting"]}


def _roster_entry_to_dict(member: RosterEntry) -> Data:
    return {
        "name": member.name,
        "type": member.agent_type,
        "model": member.model,
        "working": member.is_active,
    }


def _drop_task_details(task: Data) -> Data:
    return {key: value for key, value in task.items() if key not in ("description", "metadata")}


def _verified_mail_to_dict(verified_mail: MailWithSignatureVerdict) -> Data:
    mail = verified_mail.mail
    return {
        "id": mail.id,
        "from": mail.sender,
        "text": _truncate_text(mail.text),
        "summary": mail.summary,
        "timestamp": mail.timestamp,
        "kind": verified_mail.kind,
        "signature": verified_mail.verdict,
    }


def _repair_texts(value: Any) -> Any:
    """Return the value without half surrogate pairs, which files of other programs may contain."""
    match value:
        case str():
            return value if value.isascii() else repair_surrogates(value)
        case list() | tuple():
            return [_repair_texts(each) for each in value]
        case dict():
            return {_repair_texts(name): _repair_texts(each) for name, each in value.items()}
        case _:
            return value


def _truncate_text(text: str) -> str:
    if len(text) <= LONGEST_TEXT:
        return text
    return f"{text[:LONGEST_TEXT]}\n[… cut, {len(text):,} characters in total]"


TOOLS = (
    *("team_create", "team_list", "team_show", "team_delete"),
    *("task_create", "task_list", "task_get", "task_update"),
    *("message_send", "message_take", "spawn", "run_status", "run_result"),
)


class TeamMcpServer(MCPServer[Any]):
    """Refuses wrong arguments with a sentence; the protocol's library ignores unknown ones."""

    async def run_stdio_async(self) -> None:
        from mcp.server.stdio import stdio_server

        async with stdio_server() as (messages, answers):
            await self._lowlevel_server.run(
                RepairedMessageStream(messages, answers),
                answers,
                self._lowlevel_server.create_initialization_options(),
            )

    async def call_tool(self, name: str, arguments: Data, *rest: Any, **options: Any) -> Any:
        tool = next((tool for tool in self._tool_manager.list_tools() if tool.name == name), None)
        if tool is None:
            return await super().call_tool(name, arguments, *rest, **options)
        required = tool.parameters.get("required", ())
        # Many clients send null for an argument that they leave out.
        given = {key: value for key, value in arguments.items() if value is not None or key in required}
        known = tool.parameters.get("properties", {})
        if unknown := sorted(arguments.keys() - known.keys()):
            raise ToolError(
                fill_template(
                    _TEXTS["error:unknown_argument"],
                    tool=name,
                    unknown=", ".join(map(repr, unknown)),
                    known=", ".join(known) or "none",
                )
            )
        try:
            tool.fn_metadata.validate_arguments(given)
        except ValidationError as error:
            raise ToolError(_describe_wrong_arguments(name, error)) from error
        try:
            return await super().call_tool(name, given, *rest, **options)
        except ToolError as error:
            # The library puts "Error executing tool" before the sentence.
            raise (error.__cause__ if isinstance(error.__cause__, ToolError) else error) from None


def _describe_wrong_arguments(tool: str, error: ValidationError) -> str:
    sentences = []
    for problem in error.errors(include_url=False):
        values = {"tool": tool, "argument": repr(".".join(map(str, problem["loc"])))}
        kind = "wrong_argument"
        if problem["type"] == "missing":
            kind = "missing_argument"
        elif problem["type"] == "string_pattern_mismatch" or problem["input"] == "":
            kind = "empty_argument"
        else:
            values["expected"] = re.sub("^(Input|String) should", "must", problem["msg"])
            values["given"] = json.dumps(problem["input"])[:80]
        sentences.append(fill_template(_TEXTS[f"error:{kind}"], **values))
    return " ".join(sentences)


def create_mcp_server(tools: TeamMcpServerTools) -> MCPServer[Any]:
    server = TeamMcpServer("shoal", instructions=_TEXTS[""], version=shoal.__version__, log_level="ERROR")
    for name in TOOLS:
        tool = convert_errors_to_tool_errors(getattr(tools, name))
        server.add_tool(tool, name=name, description=_TEXTS[name])
    for registered in server._tool_manager.list_tools():
        registered.parameters["additionalProperties"] = False
    return server
