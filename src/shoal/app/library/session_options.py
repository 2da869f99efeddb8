"""Options of a session as keywords, with their types, for programs and type checkers."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict

from shoal.app.agents.agent import Agent, EffortLevel, name_tools
from shoal.app.agents.option_words import name_options_in_error
from shoal.app.config.option_checks import find_environ_problems
from shoal.app.config.tool_selection import split_permission_rule_flags
from shoal.app.library.given_settings import refuse_rules_of_unknown_tools, refuse_wrong_settings
from shoal.app.models.model_choice import MAX_FALLBACKS
from shoal.app.options import Options, QuestionHandler
from shoal.core.budgets.shared_budget import SharedBudget
from shoal.core.clock import Clock
from shoal.core.conversation.tools import Tool
from shoal.core.errors import SettingsError
from shoal.core.extensions.hook_types import Hooks
from shoal.core.ids import is_uuid
from shoal.core.output_type import OutputType
from shoal.core.permissions.permission_changes import RequestedPermissionMode
from shoal.core.ports import Model
from shoal.core.store import Store
from shoal.core.text.encodable_text import find_encoding_problem
from shoal.core.tool_names import ToolEntry
from shoal.core.user_environment import UserEnvironment, get_user_environment
from shoal.policy.rule_names import FOREIGN_TOOL_NAMES, names_no_tool, suggest_tool
from shoal.wire.json_comments import decode_commented_json
from shoal.wire.settings_codec import TeammateMode

PathText: TypeAlias = str | os.PathLike[str]
"""Path of a file or directory."""


class SharedOptions(TypedDict, total=False):
    """Options of sessions and teams. All are optional.

    Relative paths start at `cwd`; `cwd` and `home` themselves start at the process's current directory.
    """

    home: PathText
    """Home directory, where all state is stored; by default `SHOAL_HOME`, or `~/.claude`."""
    environ: Mapping[str, str]
    """Environment variables for the session and its commands, instead of those of the process. `~` means its
    `HOME`, by default the home directory of the account. Temporary files are in its `TMPDIR`."""
    cwd: PathText
    """Project directory; by default the current directory of the process."""
    model: str | Model
    """`provider:name`, an alias, or a model object; by default the configured model."""
    fallback_model: str
    """Model used if the first does not answer, or up to three, separated by commas."""
    mode: RequestedPermissionMode
    """Permission mode; by default as configured."""
    allowed_tools: Sequence[ToolEntry]
    """Permission rules for calls that run without asking."""
    disallowed_tools: Sequence[ToolEntry]
    """Permission rules for calls that are refused."""
    available_tools: Sequence[ToolEntry]
    """Tools that the session's agents may use; by default all."""
    tools: Sequence[Tool]
    """Python tools, in addition to the built-in tools."""
    system_prompt: str
    """Text that replaces the system prompt."""
    append_system_prompt: str
    """Text that is added to the system prompt."""
    effort: EffortLevel
    """How much the lead's model thinks before it answers."""
    thinking_tokens: int
    """Maximum number of tokens for thinking before an answer."""
    betas: Sequence[str]
    """Messages API betas to enable."""
    output_schema: Mapping[str, Any]
    """JSON Schema of the lead's structured answer; `output` takes a Python type instead."""
    max_turns: int
    """Maximum number of model requests by each agent in one turn."""
    max_budget_usd: float
    """Limit for the whole session, including all its agents."""
    budget: SharedBudget
    """`shoal.Budget` that several sessions share, in addition to the limits of each."""
    max_total_tokens: int
    """Limit for all tokens that models read and write."""
    max_agents: int
    """Maximum number of agents ever started in addition to the lead."""
    deadline: float
    """Time limit in seconds for the whole session."""
    hooks: Hooks
    """Hooks by event: functions, (matcher, function), or entries as in settings."""
    mcp_config: Sequence[str | Mapping[str, Any]]
    """MCP servers in the format of `.mcp.json`: JSON, the path of a file, or a mapping."""
    strict_mcp_config: bool
    """True to use only these servers, and ignore settings and `.mcp.json`."""
    channels: Sequence[str]
    """MCP servers that may push messages to the lead, as `server:NAME`."""
    plugin_dirs: Sequence[PathText]
    """Directories of plug-ins for this session."""
    skills: Sequence[str]
    """Names of the skills that agents can use; by default all."""
    slash_commands: bool
    """False to load no skills and commands."""
    add_dirs: Sequence[PathText]
    """Directories in which tools may work, in addition to the project."""
    settings: Mapping[str, Any] | PathText
    """Settings for this session: a mapping, JSON, or the path of a file."""
    setting_sources: Sequence[Literal["user", "project", "local"]]
    """Settings files to load; by default all. Managed files always apply."""
    bare: bool
    """True to load no hooks, skills, agents, plug-ins, MCP servers or instructions from files."""
    skip_permissions: bool
    """True to skip permission checks; only for disposable machines."""
    allow_bypass: bool
    """True if the session may switch to `bypassPermissions` mode later."""
    on_question: QuestionHandler
    """Function that answers questions from all agents; it may be async. A question without an answer is
    denied."""
    attended: bool
    """True if a person can answer questions, for example in the web view."""
    coordinator: bool
    """True if the lead only starts, messages and stops agents."""
    assistant: bool
    """True if the session stays open and all its agents run in the background."""
    session_id: str
    """Id for the new session, a UUID."""
    title: str
    """Human-readable name by which the session can be resumed."""
    persist: bool
    """False to write nothing to disk: no transcript and no journal, so the session cannot be resumed."""
    store: Store | PathText
    """Store of sessions and teams: an object, a directory as a `Path`, `memory:`, `file:DIRECTORY`, or a
    PostgreSQL address."""
    record: PathText
    """Path of the file in which every request and reply is recorded for `replay:`."""
    debug: bool
    """True to write a debug log to the home directory."""
    debug_file: PathText
    """Path of the debug log, which is then written."""
    debug_filter: str
    """Words, separated by commas, of which an event's name must contain one; `!word` excludes events."""
    setup: Literal["init", "maintenance"] | None
    """Trigger of the Setup hooks, which run before the session starts; they do not run if None."""
    trace: str
    """`traceparent` of an existing trace that the session's telemetry continues."""
    seed: int
    """Seed for ids and random numbers, so that a run can be reproduced."""
    clock: Clock
    """Clock of the session, for tests."""


class SessionOptions(SharedOptions, total=False):
    """Options of `shoal.open`, `shoal.run` and `shoal.run_sync`. All are optional."""

    agents: Sequence[Agent[Any]] | Mapping[str, Any] | str
    """Agents that the lead can start: `Agent` objects, fields by name, or the path of a JSON file."""
    agent: str | Agent[Any]
    """Agent whose prompt, tools and model the lead uses."""
    teammate_mode: TeammateMode
    """Backend for teammates."""
    resume: str
    """Id of a session to resume, or its first characters."""
    continue_last: bool
    """True to resume the last session of the project."""
    fork: bool
    """True to continue in a copy and leave the resumed session unchanged."""
    name: str
    """Name of the lead, for other agents and on the task board."""
    team: str
    """Team whose task board the session uses."""


_PATHS = ("cwd", "home", "record", "debug_file")
_PATH_LISTS = ("add_dirs", "plugin_dirs")
_TOOL_LISTS = ("allowed_tools", "disallowed_tools", "available_tools")


_NO_SETTINGS = (
    "shoal.open: settings={} sets nothing. Leave it out, or pass setting_sources=[] to load no settings "
    "files."
)


def build_session_options(
    function: str, given: Mapping[str, Any], output: type[Any] | None
) -> tuple[Options, tuple[Agent[Any], ...]]:
    """Return the options and the agents that the program passed.

    Raises `SettingsError`.
    """
    try:
        return _convert_options(given, output)
    except SettingsError as error:
        name_options_in_error(error, function.removesuffix("()"))
        raise


def _check_model_names(fields: Mapping[str, Any]) -> None:
    for name in ("model", "fallback_model"):
        if isinstance(text := fields.get(name), str) and not text.strip():
            raise SettingsError(f"shoal.open: {name} is empty. Name a model, or leave it out.")
    if str(fields.get("fallback_model") or "").count(",") >= MAX_FALLBACKS:
        raise SettingsError(f"shoal.open: fallback_model: name at most {MAX_FALLBACKS} models.")


def _convert_options(
    given: Mapping[str, Any], output: type[Any] | None
) -> tuple[Options, tuple[Agent[Any], ...]]:
    fields = {name: value for name, value in given.items() if value is not None}
    _check_model_names(fields)
    if fields.get("agent") == "":
        raise SettingsError("shoal.open: agent is empty. Name an agent, or leave it out.")
    if isinstance(session_id := fields.get("session_id"), str) and not is_uuid(session_id):
        raise SettingsError(f"shoal.open: session_id: expected a UUID, got {session_id!r:.80}.")
    _convert_paths(fields)
    _refuse_rules_of_unknown_tools(fields)
    for name in _TOOL_LISTS:
        if name in fields:
            fields[name] = name_tools(fields[name])
    if fields.keys() & {"debug_file", "debug_filter"}:
        fields.setdefault("debug", True)
    fields |= _convert_settings(fields)
    agents = _collect_agents(fields)
    if output is not None:
        if "output_schema" in fields:
            raise SettingsError(
                "shoal.open: output and output_schema cannot be used together. Leave one out."
            )
        fields["output"] = OutputType(output)
    return Options(**fields), agents


def _convert_paths(fields: dict[str, Any]) -> None:
    for name in _PATHS:
        if name in fields:
            fields[name] = _to_path(name, fields[name])
    for problem in find_environ_problems(environ := fields.get("environ")):
        raise SettingsError(f"shoal.open: {problem}")
    user = get_user_environment(environ)
    for name in ("cwd", "home"):
        if name in fields:
            fields[name] = Path(user.expand_home(str(fields[name]))).absolute()
    cwd = fields.get("cwd")
    if cwd is not None and not cwd.is_dir():
        raise SettingsError(f"shoal.open: cwd: {cwd} is not a directory.", path=cwd)
    _start_paths_at(Path.cwd() if cwd is None else cwd, user, fields)
    for name in _PATH_LISTS:
        if isinstance(fields.get(name), list | tuple):
            fields[name] = tuple(_to_path(name, each) for each in fields[name])


def _start_paths_at(base: Path, user: UserEnvironment, fields: dict[str, Any]) -> None:
    """Make paths absolute that are opened without the directory of the project."""
    for name in ("record", "debug_file", "store"):
        if isinstance(path := fields.get(name), Path):
            fields[name] = base / user.expand_home(str(path))
    if isinstance(model := fields.get("model"), str):
        kind, _, file = model.partition(":")
        if kind in ("scripted", "replay") and file:
            fields["model"] = f"{kind}:{base / user.expand_home(file)}"


def _to_path(name: str, value: Any) -> Path:
    if not isinstance(value, str | os.PathLike):
        raise SettingsError(f"shoal.open: {name}: expected a path, got {value!r}.")
    if not os.fspath(value):
        raise SettingsError(f"shoal.open: {name} is empty. Pass a path, or leave it out.")
    if problem := find_encoding_problem(str(value), is_system_text=True):
        raise SettingsError(f"shoal.open: {name}: {str(value)!r} {problem}")
    return Path(value)


def _convert_settings(fields: Mapping[str, Any]) -> dict[str, Any]:
    match fields.get("settings"):
        case None:
            return {}
        case str() as text:
            if text.lstrip().startswith("{"):
                _refuse_wrong_json(text, fields)
            return {}
        case os.PathLike() as path:
            return {"settings": os.fspath(path)}
        case Mapping() as settings:
            if not settings:
                raise SettingsError(_NO_SETTINGS)
            for key in settings:
                if not isinstance(key, str):
                    raise SettingsError(f"shoal.open: settings: expected strings as keys, got {key!r}.")
            try:
                text = json.dumps(dict(settings))
            except (TypeError, ValueError) as error:
                raise SettingsError(f"shoal.open: settings: cannot be written as JSON: {error}.") from None
            _refuse_wrong_json(text, fields)
            return {"settings": text}
        case other:
            raise SettingsError(f"shoal.open: settings: expected a mapping or a path, got {other!r}.")


def _refuse_wrong_json(text: str, fields: Mapping[str, Any]) -> None:
    """Raise `SettingsError` for a part of JSON settings that is not understood."""
    try:
        settings, _ = decode_commented_json(text)
    except ValueError:  # reported with its line when the settings are loaded
        return
    environ = fields.get("environ")
    own_tools = _list_own_tools(fields)
    refuse_wrong_settings(settings, own_tools, environ if isinstance(environ, Mapping) else os.environ)


def _refuse_rules_of_unknown_tools(fields: Mapping[str, Any]) -> None:
    """Raise `SettingsError` for an unknown name. A tool itself is accepted: its agent may start later."""
    own_tools = _list_own_tools(fields)
    for option in ("allowed_tools", "disallowed_tools"):
        entries = [each for each in _list_items(fields, option) if isinstance(each, str)]
        rules = split_permission_rule_flags(entries)
        refuse_rules_of_unknown_tools(f"shoal.open: {option}", rules, own_tools)
    for name in _list_items(fields, "available_tools"):
        if isinstance(name, str) and names_no_tool(name, own_tools) and name not in FOREIGN_TOOL_NAMES:
            suggestion = suggest_tool(name, own_tools)
            raise SettingsError(f"shoal.open: available_tools: there is no tool named {name!r}.{suggestion}")


def _list_own_tools(fields: Mapping[str, Any]) -> set[str]:
    """Return the names of the program's own tools and of those of its agents."""
    listed = (*_list_items(fields, "agents"), fields.get("agent"))
    agents = [agent for agent in listed if isinstance(agent, Agent)]
    given = [*_list_items(fields, "tools"), *(tool for agent in agents for tool in agent.extras.tools)]
    return {tool.schema.name for tool in given if hasattr(tool, "schema")}


def _list_items(fields: Mapping[str, Any], name: str) -> Sequence[Any]:
    given = fields.get(name)
    return given if isinstance(given, list | tuple) else ()


def _collect_agents(fields: dict[str, Any]) -> tuple[Agent[Any], ...]:
    """Replace `Agent` objects with their fields, which other processes can read, and return them."""
    agents = _list_agent_objects(fields)
    lead = fields.get("agent")
    if isinstance(lead, Agent):
        if isinstance(fields.get("agents"), str | Mapping):
            raise SettingsError("shoal.open: agent: an Agent needs agents= to be a list of Agent objects.")
        if lead not in agents:
            agents.append(lead)
        fields["agent"] = lead.name
    names = [each.name for each in agents]
    for name in names:
        if names.count(name) > 1:
            raise SettingsError(f"shoal.open: agents: two agents have the name {name!r}. Rename one of them.")
    if agents:
        fields["agents"] = {each.name: dict(each.fields) for each in agents}
        fields["agent_extras"] = {each.name: each.extras for each in agents}
    return tuple(agents)


def _list_agent_objects(fields: dict[str, Any]) -> list[Agent[Any]]:
    """Take a list of `Agent` objects out of the fields."""
    listed = fields.get("agents")
    if isinstance(listed, Agent):
        raise SettingsError("shoal.open: agents: expected a list of agents. Write agents=[agent].")
    if not isinstance(listed, list | tuple):
        return []
    for each in listed:
        if not isinstance(each, Agent):
            raise SettingsError(f"shoal.open: agents: expected Agent objects, got {each!r}.")
    del fields["agents"]
    return list(listed)
