"""Agent definitions, and the tools and model that each selects."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from shoal.core.agents.subagents import IsolationMode, ResourceRequest
from shoal.core.extensions.mcp_servers import MCP_PREFIX
from shoal.core.names import FORMER_TOOL_NAMES, translate_former_tool
from shoal.core.permissions.permission_changes import PermissionMode
from shoal.core.text.filenames import escape_filename

DefinitionSourceKind: TypeAlias = Literal["managed", "flag", "project", "user", "plugin", "builtin"]
MemoryScope: TypeAlias = Literal["user", "project", "local"]
"""Where an agent's memory is stored."""
EFFORT_LEVELS = ("low", "medium", "high", "xhigh", "max")
THINKING_TOKENS_BY_EFFORT = {"low": 1_024, "medium": 4_096, "high": 16_384, "xhigh": 32_768, "max": 65_536}
INHERIT_MODEL = "inherit"
ALL_TOOLS = "*"


def compute_thinking_tokens(effort: str | int) -> int | None:
    """Return the thinking tokens of an effort; None for an unknown level."""
    return max(0, effort) if isinstance(effort, int) else THINKING_TOKENS_BY_EFFORT.get(effort)


def name_effort_level(effort: str | int) -> str:
    """Return the level of an effort: the highest whose thinking tokens it reaches."""
    if isinstance(effort, str):
        return effort
    reached = [level for level, tokens in THINKING_TOKENS_BY_EFFORT.items() if tokens <= effort]
    return reached[-1] if reached else "low"


class DefinitionSource(Struct, frozen=True, kw_only=True):
    """Source of a definition. `path` is None for one passed by a flag."""

    kind: DefinitionSourceKind
    path: Path | None = None
    lines: Mapping[str, int] = {}
    """Line numbers of the fields that are set, by their names in `AgentDefinition` and its parts."""

    def locate_field(self, field: str) -> str | None:
        """Return file and line of a field; None if it is not set."""
        if field not in self.lines:
            return None
        return f"{self}:{self.lines[field]}" if self.lines[field] else str(self)

    @property
    def is_trusted(self) -> bool:
        """False for sources that may come from anyone: they must not widen the parent's permissions."""
        return self.kind not in ("project", "plugin")

    def __str__(self) -> str:
        if self.path is None:
            return "--agents" if self.kind == "flag" else self.kind
        return escape_filename(self.path)


class AgentCapabilities(Struct, frozen=True, kw_only=True):
    """Tools, MCP servers and skills that a definition gives its agents."""

    tools: tuple[str, ...] | None = None
    """Names, and `Tool(pattern)`; None is all. `select_definition_tools` resolves them."""
    disallowed_tools: tuple[str, ...] = ()
    required_mcp_servers: tuple[str, ...] = ()
    mcp_servers: tuple[str | Mapping[str, Any], ...] = ()
    """Names of configured servers, or a name with an inline server configuration."""
    skills: tuple[str, ...] = ()

    @property
    def can_name_mcp_tools(self) -> bool:
        """True if the tools may include those of MCP servers."""
        return self.tools is None or any(
            entry == ALL_TOOLS or entry.startswith(MCP_PREFIX) for entry in self.tools
        )


class AgentRunRules(Struct, frozen=True, kw_only=True):
    """Rules for each run of an agent: how it starts, what limits it and how it ends."""

    initial_prompt: str = ""
    background: bool = False
    isolation: IsolationMode | None = None
    resources: ResourceRequest | None = None
    max_turns: int | None = None
    max_budget_usd: float | None = None
    acceptance: str | None = None
    """Command that the runtime runs before the work counts as done."""
    one_shot: bool = False
    """True if it ends with its result: nobody continues the conversation."""


class AgentDefinition(Struct, frozen=True, kw_only=True):
    name: str
    description: str
    prompt: str
    """System prompt."""
    source: DefinitionSource
    capabilities: AgentCapabilities = AgentCapabilities()
    run: AgentRunRules = AgentRunRules()
    model: str | None = None
    """Alias or name; None inherits the parent's model."""
    effort: str | int | None = None
    """One of `EFFORT_LEVELS`, or a number of thinking tokens."""
    permission_mode: PermissionMode | None = None
    color: str | None = None
    memory: MemoryScope | None = None
    hooks: Mapping[str, Any] = {}
    instructions: bool = True
    """True if its prompt includes CLAUDE.md, AGENTS.md and similar files."""


class DefinitionProblem(Struct, frozen=True, kw_only=True):
    """Problem that makes a definition unusable."""

    what: str
    name: str
    """Name of the agent, or of its file if that could not be read."""
    source: DefinitionSource
    line: int | None = None
    field: str | None = None
    is_plain_text: bool = False
    """True if the file has no front matter, so it may not be meant as a definition."""

    def __str__(self) -> str:
        location = str(self.source) if self.line is None else f"{self.source}:{self.line}"
        return f"{location}: {self.what}" if self.field is None else f"{location}: {self.field}: {self.what}"


class ToolSelection(Struct, frozen=True, kw_only=True):
    """Tools that a definition selects."""

    names: tuple[str, ...]
    """Tool names, in the order of the available tools."""
    only: tuple[str, ...] = ()
    """`Tool(pattern)` entries: only calls that match a pattern are allowed."""
    never: tuple[str, ...] = ()
    """Denied tools and `Tool(pattern)` entries, which apply to the agents it starts as well."""
    missing: tuple[str, ...] = ()
    """Named tools that are not available here."""


def select_definition_tools(
    capabilities: AgentCapabilities, available: Iterable[str], also: Collection[str] = ()
) -> ToolSelection:
    """Select the tools of a definition. Disallowed ones are removed last; `also` is always added."""
    offered = tuple(dict.fromkeys(available))
    allowed_entries = tuple(_replace_former_tool_name(entry, offered) for entry in capabilities.tools or ())
    denied_entries = tuple(
        _replace_former_tool_name(entry, offered, denies=True) for entry in capabilities.disallowed_tools
    )
    selects_all = capabilities.tools is None or ALL_TOOLS in allowed_entries
    denied_names = [entry for entry in denied_entries if not _has_tool_pattern(entry)]
    chosen = offered if selects_all else _select_tools_named_by_entries((*allowed_entries, *also), offered)
    removed = _select_tools_named_by_entries(denied_names, offered)
    names = tuple(name for name in chosen if name not in removed) if removed else chosen
    return ToolSelection(
        names=names,
        only=tuple(
            entry
            for entry in allowed_entries
            if _has_tool_pattern(entry) and _extract_tool_name_of_entry(entry) in names
        ),
        never=tuple(
            dict.fromkeys(
                name
                for entry in denied_entries
                # Every tool is denied by name, because a teammate keeps the tools of its team.
                for name in (removed if entry == ALL_TOOLS else (entry,))
            )
        ),
        missing=tuple(
            entry
            for entry in allowed_entries
            if entry != ALL_TOOLS and not _select_tools_named_by_entries((entry,), offered)
        ),
    )


def select_agent_model(
    *, env: str | None, call: str | None, definition: str | None, parent: Collection[str] = ()
) -> str | None:
    """Return the first requested model that is set; None for the parent's running model.

    `parent` are the names of the parent's model: an alias of its family means that same model.
    """
    requested = next(filter(None, (env, call, definition)), INHERIT_MODEL)
    return None if requested == INHERIT_MODEL or requested in parent else requested


def _replace_former_tool_name(entry: str, offered: Collection[str], *, denies: bool = False) -> str:
    tool = _extract_tool_name_of_entry(entry)
    if tool not in FORMER_TOOL_NAMES or tool in offered:
        return entry
    if tool == entry and not denies:
        return FORMER_TOOL_NAMES[tool]
    pattern = entry[len(tool) + 1 :].removesuffix(")") if _has_tool_pattern(entry) else None
    current, pattern = translate_former_tool(tool, pattern)
    return current if pattern is None else f"{current}({pattern})"


def _extract_tool_name_of_entry(entry: str) -> str:
    return entry.partition("(")[0]


def _has_tool_pattern(entry: str) -> bool:
    return "(" in entry


def _select_tools_named_by_entries(entries: Collection[str], offered: tuple[str, ...]) -> tuple[str, ...]:
    if not entries:
        return ()
    return tuple(
        name
        for name in offered
        if any(matches_tool_list_entry(_extract_tool_name_of_entry(entry), name) for entry in entries)
    )


def matches_tool_list_entry(named: str, tool: str) -> bool:
    """Return True if the entry names the tool: `mcp__server` matches all its tools, `*` any characters."""
    if named in (tool, ALL_TOOLS):
        return True
    if "*" in named:
        return fnmatchcase(tool, named)
    return named.startswith("mcp__") and named.count("__") == 1 and tool.startswith(f"{named}__")
