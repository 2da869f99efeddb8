"""Agents that a Python program defines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypedDict, TypeVar, overload

from shoal.app.definitions.agent_files import validate_agent_tool_rules
from shoal.app.options import AgentExtras
from shoal.core.agents.agent_definitions import MemoryScope
from shoal.core.conversation.tools import Tool
from shoal.core.errors import InvalidAgentDefinition, SettingsError
from shoal.core.keyword_checks import check_keywords
from shoal.core.output_type import AnswerT_co, OutputType
from shoal.core.permissions.permission_changes import PermissionMode
from shoal.core.text.encodable_text import find_encoding_problem
from shoal.core.tool_names import DUPLICATE_TOOL_ADVICE, ToolEntry, find_duplicate_tool_name
from shoal.wire.agent_definition_codec import ParsedAgentDefinition, parse_json_agent_definitions

if TYPE_CHECKING:
    from typing import Unpack

EffortLevel: TypeAlias = Literal["low", "medium", "high", "xhigh", "max"]
"""How much a model thinks before it answers."""
AnswerT = TypeVar("AnswerT")
_FIELD_NAMES = {
    "disallowed_tools": "disallowedTools",
    "mode": "permissionMode",
    "max_turns": "maxTurns",
    "mcp_servers": "mcpServers",
    "accept": "acceptance",
    "budget_usd": "maxBudgetUsd",
}
"""Fields whose names differ in agent files."""


class AgentResources(TypedDict, total=False):
    """Share of a machine of a cluster, and labels that the machine must have."""

    cpus: float
    """Number of cores; by default as the settings of the cluster say."""
    memory: int | str
    """Bytes, or a size such as `4 GB`."""
    gpus: float
    """Number of graphics processors."""
    labels: Mapping[str, str]
    """Labels that the machine must have."""


class AgentPlacementFields(TypedDict, total=False):
    """Optional fields of an agent about where it runs."""

    isolation: Literal["worktree", "remote"]
    """`worktree` gives each agent a separate git worktree; `remote` runs it on another machine of a
    cluster."""
    resources: AgentResources
    """Share of a machine that the agent needs, if it runs on a cluster."""


class AgentFields(AgentPlacementFields, total=False):
    """Optional fields of an agent."""

    description: str
    """When to use the agent, as shown to the lead's model; by default, the first line of the prompt."""
    tools: Sequence[ToolEntry]
    """Tools that the agent may use: names, `ToolRule`s and Python tools; by default all."""
    disallowed_tools: Sequence[ToolEntry]
    """Tools that the agent may not use, and rules for calls that are refused."""
    model: str
    """Name or alias; by default the model of the lead."""
    budget_usd: float
    """Limit for each agent with this definition."""
    mode: PermissionMode
    """Permission mode; never more permissive than the lead's mode."""
    effort: EffortLevel | int
    """How much the model thinks: a level, or a number of tokens."""
    max_turns: int
    """Maximum number of model requests."""
    accept: str
    """Shell command that must succeed before the work counts as done."""
    skills: Sequence[str]
    """Skills that are in its prompt from the start."""
    mcp_servers: Sequence[str | Mapping[str, Any]]
    """MCP servers that it uses: names, or definitions."""
    memory: MemoryScope
    """Where its notes from earlier runs are stored."""
    color: str
    """Color of its name in user interfaces."""
    instructions: bool
    """False to leave out the project's CLAUDE.md, AGENTS.md and similar files."""


class Agent(Generic[AnswerT_co]):
    """Definition of an agent: its prompt, tools, model, limits and the type of its answer."""

    @overload
    def __init__(
        self: Agent[None], name: str, *, prompt: str, output: None = None, **fields: Unpack[AgentFields]
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[AnswerT], name: str, *, prompt: str, output: type[AnswerT], **fields: Unpack[AgentFields]
    ) -> None: ...
    @check_keywords("shoal.Agent()", AgentFields)
    def __init__(
        self, name: str, *, prompt: str, output: type[Any] | None = None, **fields: Unpack[AgentFields]
    ) -> None:
        """Raises `SettingsError` for a wrong value, and `TypeError` for an unknown field or output type."""
        given: dict[str, Any] = dict(fields)
        _check_field_types(name, prompt, given)
        self.name = name
        """Name of the agent."""
        self.prompt = prompt
        """System prompt of the agent."""
        tools = given.pop("tools", None)
        python_tools = tuple(_iter_python_tools(name, tools))
        answer = None if output is None else OutputType(output)
        if tools is not None:
            given["tools"] = name_tools(tools)
        if "disallowed_tools" in given:
            given["disallowed_tools"] = name_tools(given["disallowed_tools"])
        given.setdefault("description", prompt.strip().partition("\n")[0] or name)
        self.fields: Mapping[str, Any] = {
            "prompt": prompt,
            **{_FIELD_NAMES.get(key, key): _to_json_value(value) for key, value in given.items()},
        }
        """Fields in the format of agent files."""
        self.extras = AgentExtras(tools=python_tools, output=answer, fields=self.fields)
        self.parsed = self._parse()

    def __repr__(self) -> str:
        return f"<agent {self.name}>"

    @property
    def description(self) -> str:
        """When to use the agent, as shown to the lead's model."""
        return self.parsed.definition.description

    @property
    def output(self) -> OutputType[Any] | None:
        """Type of its answer; None for text."""
        return self.extras.output

    def _parse(self) -> ParsedAgentDefinition:
        try:
            (parsed,) = parse_json_agent_definitions({self.name: self.fields})
            for part in parsed.unused_parts:
                # In a file it is a note; a program that sets something expects that it counts.
                field, _, what = part.partition(f"{self.name}.")[2].partition(": ")
                raise self._build_error(field, f"{what}. Correct it, or leave it out")
            return validate_agent_tool_rules(parsed)
        except InvalidAgentDefinition as error:
            field = (error.field or "").removeprefix(f"{self.name}.")
            raise self._build_error("" if field == self.name else field, error.problem.what) from None

    def _build_error(self, field: str, what: str) -> SettingsError:
        python_names = {json_name: name for name, json_name in _FIELD_NAMES.items()}
        location = f"{python_names.get(field, field)}: " if field else ""
        end = "" if what.endswith("?") else "."
        return SettingsError(f"shoal.Agent({self.name!r}): {location}{what}{end}")


def _check_field_types(name: Any, prompt: Any, given: Mapping[str, Any]) -> None:
    """Raise `SettingsError` for wrong types that files may have, because there all values are texts."""
    origin = f"shoal.Agent({name!r})"
    for field, value in (("name", name), ("prompt", prompt)):
        if not isinstance(value, str):
            raise SettingsError(f"{origin}: {field}: expected a string, got {value!r:.80}.")
    if not prompt.strip():
        raise SettingsError(f"{origin}: prompt is empty. Tell the agent what it is and how it works.")
    for field, value in (("name", name), ("prompt", prompt), *given.items()):
        if isinstance(value, str) and (problem := find_encoding_problem(value)):
            raise SettingsError(f"{origin}: {field} {problem}")
    for field in ("disallowed_tools", "skills", "mcp_servers"):
        _check_list_field(f"{origin}: {field}", field, given.get(field))
    instructions = given.get("instructions")
    if instructions is not None and not isinstance(instructions, bool):
        raise SettingsError(f"{origin}: instructions: expected True or False, got {instructions!r:.80}.")
    max_turns = given.get("max_turns")
    if max_turns is not None and (isinstance(max_turns, bool) or not isinstance(max_turns, int)):
        raise SettingsError(
            f"{origin}: max_turns: expected an integer greater than 0, got {max_turns!r:.80}."
        )


def _check_list_field(origin: str, field: str, value: Any) -> None:
    if value is not None and (isinstance(value, str) or not isinstance(value, Sequence)):
        advice = f" Write {field}=[{value!r}]." if isinstance(value, str) else ""
        raise SettingsError(f"{origin}: expected a list, got {value!r:.80}.{advice}")
    for text in value or ():
        if isinstance(text, str) and (problem := find_encoding_problem(text)):
            raise SettingsError(f"{origin}: {text!r} {problem}")


def name_tools(entries: Any) -> Any:
    """Return the entries of a list of tools as text; anything but a list is left for the checks."""
    if not isinstance(entries, list | tuple):
        return entries
    return [each.schema.name if hasattr(each, "schema") else each for each in entries]


def restore_agent(name: str, fields: Mapping[str, Any]) -> Agent[None]:
    """Return an agent from its fields in the format of agent files."""
    python_names = {json_name: field for field, json_name in _FIELD_NAMES.items()}
    given: Any = {python_names.get(key, key): value for key, value in fields.items()}
    return Agent(name, **given)


def _iter_python_tools(agent: str, tools: Any) -> Sequence[Tool]:
    if tools is None:
        return ()
    if isinstance(tools, str) or not isinstance(tools, Sequence):
        advice = f" Write tools=[{tools!r}]." if isinstance(tools, str) else ""
        raise SettingsError(
            f"shoal.Agent({agent!r}): tools: expected a list of names and tools, got {tools!r}.{advice}"
        )
    found = [tool for tool in tools if not isinstance(tool, str)]
    for tool in found:
        if not hasattr(tool, "schema") or not hasattr(tool, "run"):
            raise SettingsError(
                f"shoal.Agent({agent!r}): tools: expected a name or a tool, got {tool!r}. Make a tool from a "
                "function with @shoal.tool."
            )
    if (name := find_duplicate_tool_name(found)) is not None:
        raise SettingsError(
            f"shoal.Agent({agent!r}): tools: two tools have the name {name!r}. {DUPLICATE_TOOL_ADVICE}"
        )
    return found


def _to_json_value(value: Any) -> Any:
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
