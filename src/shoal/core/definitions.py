"""What an agent is before it runs: its definition, the tools that names, and the model it asks for."""

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
    """Where a definition stands. `path` is None for one that came with a flag."""

    kind: SourceKind
    path: Path | None = None
    lines: Mapping[str, int] = {}
    """Of the fields that are set there, by their names in `Definition`."""

    def place(self, field: str) -> str | None:
        """File and line of a field; None where it is not set."""
        if field not in self.lines:
            return None
        return f"{self}:{self.lines[field]}" if self.lines[field] else str(self)

    @property
    def trusted(self) -> bool:
        """False for what may come from anyone: it must not widen what its parent may do."""
        return self.kind not in ("project", "plugin")

    def __str__(self) -> str:
        if self.path is None:
            return "--agents" if self.kind == "flag" else self.kind
        return shown(self.path)


class Definition(Struct, frozen=True, kw_only=True):
    name: str
    description: str
    prompt: str
    """The system prompt."""
    source: Source
    tools: tuple[str, ...] | None = None
    """Names, and `Tool(pattern)`; None is all. `tool_names` says what they come down to."""
    disallowed_tools: tuple[str, ...] = ()
    model: str | None = None
    """An alias or a name; None inherits the parent's."""
    effort: str | int | None = None
    """A level of `EFFORTS`, or a number of thinking tokens."""
    permission_mode: Mode | None = None
    background: bool = False
    isolation: Isolation | None = None
    max_turns: int | None = None
    color: str | None = None
    memory: MemoryScope | None = None
    required_mcp_servers: tuple[str, ...] = ()
    mcp_servers: tuple[str | Mapping[str, Any], ...] = ()
    """Names of configured servers, or a name with the configuration of a server of its own."""
    hooks: Mapping[str, Any] = {}
    skills: tuple[str, ...] = ()
    initial_prompt: str = ""
    acceptance: str | None = None
    """A command that the runtime runs before the work counts as done."""
    max_budget_usd: float | None = None
    one_shot: bool = False
    """Whether its result is all there is: nobody will go on talking with it."""
    instructions: bool = True
    """Whether it is told what CLAUDE.md, AGENTS.md and the like say."""


class Problem(Struct, frozen=True, kw_only=True):
    """A definition that cannot be used, and what is wrong with it."""

    what: str
    name: str
    """The agent's, or its file's where that could not be read."""
    source: Source
    line: int | None = None
    field: str | None = None

    def __str__(self) -> str:
        place = str(self.source) if self.line is None else f"{self.source}:{self.line}"
        return f"{place}: {self.what}" if self.field is None else f"{place}: {self.field}: {self.what}"


class Toolset(Struct, frozen=True, kw_only=True):
    """The tools that a definition comes down to."""

    names: tuple[str, ...]
    """In the order in which they are available."""
    only: tuple[str, ...] = ()
    """`Tool(pattern)`: of that tool nothing but what one of its patterns fits."""
    never: tuple[str, ...] = ()
    """`Tool(pattern)`: the tool is there, and this of it is denied."""
    missing: tuple[str, ...] = ()
    """Named, and not to be had here."""


# Tools of other programs and other days, and where their work is done here.
_FORMER = {
    "Task": "Agent",
    "MultiEdit": "Edit",
    "LS": "Glob",
    "NotebookRead": "Read",
    "TodoRead": "TodoWrite",
    "KillBash": "KillShell",
}


def tool_names(definition: Definition, available: Iterable[str], also: Collection[str] = ()) -> Toolset:
    """What is disallowed is taken off last, whatever `tools` says; those in `also` it has in any case."""
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
    """The first wish that is set; None for the parent's own running model.

    `parent` are the names that mean the parent's model: an alias of its family is that very model.
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
    """`mcp__server` and `mcp__server__*` mean every tool of that server."""
    if named in (tool, EVERY):
        return True
    server = named.removesuffix("__*")
    return server.startswith("mcp__") and server.count("__") == 1 and tool.startswith(f"{server}__")
