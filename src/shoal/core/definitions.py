"""Agent definitions, and the tools and model that each selects."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from shoal.core.agents import Isolation
from shoal.core.filenames import shown
from shoal.core.permissions import Mode

SourceKind: TypeAlias = Literal["managed", "flag", "project", "user", "plugin", "builtin"]
MemoryScope: TypeAlias = Literal["user", "project", "local"]
EFFORTS = ("low", "medium", "high", "xhigh", "max")
INHERIT = "inherit"
EVERY = "*"


class Source(Struct, frozen=True, kw_only=True):
    """Source of a definition. `path` is None for one passed by a flag."""

    kind: SourceKind
    path: Path | None = None
    lines: Mapping[str, int] = {}
    """Line numbers of the fields that are set, by their names in `AgentDefinition`."""

    def place(self, field: str) -> str | None:
        """Return file and line of a field; None if it is not set."""
        if field not in self.lines:
            return None
        return f"{self}:{self.lines[field]}" if self.lines[field] else str(self)

    @property
    def trusted(self) -> bool:
        """False for sources that may come from anyone: they must not widen the parent's permissions."""
        return self.kind not in ("project", "plugin")

    def __str__(self) -> str:
        if self.path is None:
            return "--agents" if self.kind == "flag" else self.kind
        return shown(self.path)


class Definition(Struct, frozen=True, kw_only=True):
    name: str
    description: str
    prompt: str
    """System prompt."""
    source: Source
    tools: tuple[str, ...] | None = None
    """Names, and `Tool(pattern)`; None is all. `select_tools` resolves them."""
    disallowed_tools: tuple[str, ...] = ()
    model: str | None = None
    """Alias or name; None inherits the parent's model."""
    effort: str | int | None = None
    """One of `EFFORT_LEVELS`, or a number of thinking tokens."""
    permission_mode: Mode | None = None
    background: bool = False
    isolation: Isolation | None = None
    max_turns: int | None = None
    color: str | None = None
    memory: MemoryScope | None = None
    required_mcp_servers: tuple[str, ...] = ()
    mcp_servers: tuple[str | Mapping[str, Any], ...] = ()
    """Names of configured servers, or a name with an inline server configuration."""
    hooks: Mapping[str, Any] = {}
    skills: tuple[str, ...] = ()
    initial_prompt: str = ""
    acceptance: str | None = None
    """Command that the runtime runs before the work counts as done."""
    max_budget_usd: float | None = None
    one_shot: bool = False
    """True if it ends with its result: nobody continues the conversation."""
    instructions: bool = True
    """True if its prompt includes CLAUDE.md, AGENTS.md and similar files."""


class Problem(Struct, frozen=True, kw_only=True):
    """Problem that makes a definition unusable."""

    what: str
    name: str
    """Name of the agent, or of its file if that could not be read."""
    source: Source
    line: int | None = None
    field: str | None = None

    def __str__(self) -> str:
        place = str(self.source) if self.line is None else f"{self.source}:{self.line}"
        return f"{place}: {self.what}" if self.field is None else f"{place}: {self.field}: {self.what}"


class Toolset(Struct, frozen=True, kw_only=True):
    """Tools that a definition selects."""

    names: tuple[str, ...]
    """Tool names, in the order of the available tools."""
    only: tuple[str, ...] = ()
    """`Tool(pattern)` entries: only calls that match a pattern are allowed."""
    never: tuple[str, ...] = ()
    """`Tool(pattern)` entries: matching calls of the tool are denied."""
    missing: tuple[str, ...] = ()
    """Named tools that are not available here."""


# Tool names of other programs and older versions, and their current equivalents.
_FORMER = {
    "Task": "Agent",
    "MultiEdit": "Edit",
    "LS": "Glob",
    "NotebookRead": "Read",
    "TodoRead": "TodoWrite",
    "KillBash": "KillShell",
}


def tool_names(definition: Definition, available: Iterable[str], also: Collection[str] = ()) -> Toolset:
    """Select the tools of a definition. Disallowed ones are removed last; `also` is always added."""
    offered = tuple(dict.fromkeys(available))
    wanted = tuple(_today(entry, offered) for entry in definition.tools or ())
    unwanted = tuple(_today(entry, offered) for entry in definition.disallowed_tools)
    every = definition.tools is None or EVERY in wanted
    off = [entry for entry in unwanted if not _patterned(entry)]
    chosen = offered if every else _meant((*wanted, *also), offered)
    gone = _meant(off, offered)
    names = tuple(name for name in chosen if name not in gone) if gone else chosen
    return Toolset(
        names=names,
        only=tuple(entry for entry in wanted if _patterned(entry) and _tool(entry) in names),
        never=tuple(entry for entry in unwanted if _patterned(entry) and _tool(entry) in names),
        missing=tuple(entry for entry in wanted if entry != EVERY and not _meant((entry,), offered)),
    )


def wished_model(
    *, env: str | None, call: str | None, definition: str | None, parent: Collection[str] = ()
) -> str | None:
    """Return the first requested model that is set; None for the parent's running model.

    `parent` are the names of the parent's model: an alias of its family means that same model.
    """
    wish = next(filter(None, (env, call, definition)), INHERIT)
    return None if wish == INHERIT or wish in parent else wish


def _today(entry: str, offered: Collection[str]) -> str:
    tool = _tool(entry)
    now = _FORMER.get(tool)
    return now + entry[len(tool) :] if now is not None and tool not in offered else entry


def _tool(entry: str) -> str:
    return entry.partition("(")[0]


def _patterned(entry: str) -> bool:
    return "(" in entry


def _meant(entries: Collection[str], offered: tuple[str, ...]) -> tuple[str, ...]:
    if not entries:
        return ()
    return tuple(name for name in offered if any(means(_tool(entry), name) for entry in entries))


def means(named: str, tool: str) -> bool:
    """Return True if the entry names the tool. `mcp__server` and `mcp__server__*` match all its tools."""
    if named in (tool, EVERY):
        return True
    server = named.removesuffix("__*")
    return server.startswith("mcp__") and server.count("__") == 1 and tool.startswith(f"{server}__")
