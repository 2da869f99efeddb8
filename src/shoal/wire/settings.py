"""Settings files ⇄ types: what each may hold, how several are merged, and where a mistake is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

from shoal.core.decisions import Mode
from shoal.core.errors import SettingsError
from shoal.wire.content import load
from shoal.wire.foreign import converted
from shoal.wire.json_lines import line_of

Seconds: TypeAlias = Annotated[float, Meta(gt=0)]
Dollars: TypeAlias = Annotated[float, Meta(ge=0)]
WorktreeGuard: TypeAlias = Literal["sandbox", "weak"]
Tokens: TypeAlias = Annotated[int, Meta(gt=0)]
Count: TypeAlias = Annotated[int, Meta(gt=0)]


class ModelFacts(Struct, frozen=True, kw_only=True):
    """What a person knows about a model: dollars per million tokens, and sizes in tokens."""

    input: Dollars | None = None
    """A million tokens that it reads."""
    output: Dollars | None = None
    """A million tokens that it writes."""
    cache_write: Dollars | None = None
    """A million tokens put into the prompt cache; None is a quarter more than `input`."""
    cache_read: Dollars | None = None
    """A million tokens read from the prompt cache; None is `input`."""
    window: Tokens | None = None
    """What a conversation may hold."""
    max_output: Tokens | None = None
    """The longest answer it gives."""
    images: bool | None = None
    """Whether it sees pictures."""
    tools: bool | None = None
    """Whether it calls tools by itself; else calls are asked for and read as text."""
    api: Literal["chat", "responses"] | None = None
    """Over which of OpenAI's two it is asked, at any base URL."""


class AgentLimits(Struct, frozen=True, kw_only=True):
    """None means no limit."""

    usd: Dollars | None = None
    """US dollars."""
    tokens: Tokens | None = None
    """Tokens that models read, cached or not, and write."""
    requests: Count | None = None
    """Requests to models."""
    seconds: Seconds | None = None
    """Time at work."""


class SandboxSettings(Struct, frozen=True, kw_only=True, rename="camel"):
    """How shell commands are confined; see `core.sandbox`."""

    enabled: bool | Literal["auto"] = "auto"
    """`auto` confines where the machine can; `true` refuses to run a command where it cannot."""
    network: bool = True
    """Whether confined commands reach the network."""
    auto_allow: bool = False
    """Whether a confined command may run without asking; rules that deny or ask still hold."""
    writable: tuple[str, ...] = ()
    """Paths that confined commands may write besides the project, granted directories and TMPDIR."""
    hidden: tuple[str, ...] = ()
    """Paths that confined commands do not see, besides keys and credentials."""


class TelemetrySettings(Struct, frozen=True, kw_only=True):
    """What OpenTelemetry is told; where it goes the usual OTEL_ variables say."""

    enabled: bool | None = None
    """None leaves it to those variables."""
    content: bool = False
    """Whether it is told what is said: prompts, answers, and what goes into tools and comes out."""


TeammateMode: TypeAlias = Literal["auto", "in-process", "process", "tmux", "iterm2"]


class Own(Struct, frozen=True, kw_only=True):
    """The settings under `shoal`, which no other program reads."""

    model: str | None = None
    """The model to ask; stronger than `model` of the same file, which other programs read too."""
    models: dict[str, ModelFacts] = {}
    """By a model's name, what is not known of it or known wrongly."""
    aliases: dict[str, str] = {}
    """Names of your own for models."""
    compact_at: Annotated[float, Meta(gt=0, le=1)] = 0.85
    """The share of the window at which a conversation is compacted."""
    session_memory: bool = False
    """Whether a session keeps notes beside its conversation, brought up to date at each compaction."""
    request_deadline: Seconds | None = None
    """For one whole answer of a model; None is the provider's usual."""
    stream_gap: Seconds | None = None
    """Seconds without a byte after which an answer is asked for again; None is the provider's usual."""
    outage_patience: Seconds = 900.0
    """Seconds a provider may be away before an agent gives up."""
    question_patience: Seconds | None = None
    """Seconds to wait for a person; None is for ever where one may come, and not at all where none can."""
    notify: Literal["off", "bell", "desktop", "both"] = "bell"
    """How a person is called when a question waits: by the terminal's bell, on the desktop, or not at all."""
    unattended_allow: tuple[str, ...] = ()
    """Rules for what may run where nobody is there, or came in time, to be asked; the rest is refused."""
    output_limit: Annotated[int, Meta(ge=1000)] = 100_000
    """Characters of a tool's output that enter the conversation; the rest is kept in a file."""
    max_output_tokens: Tokens | None = None
    """The longest answer that is asked for; None is what the model gives."""
    thinking_tokens: Annotated[int, Meta(ge=0)] = 0
    """Tokens a model may think with before it answers; 0 is none."""
    max_turns: Annotated[int, Meta(gt=0)] | None = None
    """Requests of one turn of the lead."""
    max_budget_usd: Dollars | None = None
    """US dollars, for the whole session with all its agents, as the four below."""
    max_total_tokens: Tokens | None = None
    """Tokens that models read, cached or not, and write."""
    max_requests: Count | None = None
    """Requests to models."""
    max_seconds: Seconds | None = None
    """Seconds from the start of this process."""
    max_agents: Count | None = None
    """Agents that may ever be started beside the lead."""
    max_concurrent: Count = 20
    """Agents that may run at once beside the lead."""
    max_depth: Annotated[int, Meta(ge=0)] = 3
    """How deep agents may start agents; 0 lets nobody start one."""
    agent_limits: AgentLimits = AgentLimits()
    """For each agent but the lead."""
    agent_type_limits: dict[str, AgentLimits] = {}
    """For all agents of a type together; seconds for each of them."""
    fan_out_preview: Count | None = 8
    """Agents that may be started at once without asking a person first; null never asks."""
    theme: Literal["dark", "light", "ansi"] | None = None
    """Of the full-screen terminal; `ansi` uses the terminal's own colours, None asks the terminal."""
    plain: bool = False
    """Whether the terminal is line by line, without a full screen."""
    coordinator: bool = False
    """Whether the lead only starts, tells and stops agents, which then all run in the background."""
    assistant: bool = False
    """Whether a session stays open for people and schedules; its agents then all run in the background."""
    background_agents: bool = True
    """Whether agents may run in the background."""
    agent_cwd: bool = False
    """Whether the model is told that it can choose the directory an agent works in."""
    auto_background: Annotated[float, Meta(ge=0)] = 120.0
    """Seconds after which an agent that is waited for goes on in the background; 0 is never."""
    stuck_after: Seconds = 60.0
    """Seconds of silence after which a background command whose last line asks for something is told of."""
    forks: bool = False
    """Whether an agent started without a type is a fork of who starts it, where a person is there."""
    report_tokens: Annotated[int, Meta(ge=200)] = 1_000
    """Tokens of an agent's report that enter the conversation of who started it; the rest is in a file."""
    shutdown_grace: Seconds = 30.0
    """Seconds a teammate has to answer a request to shut down before it is ended."""
    stall_after: Seconds = 300.0
    """Seconds without a sign of a teammate at work after which its turn is begun again, and then failed; one
    in a process of its own is asked for a sign then, and goes on in another process where it gives none."""
    team_depth: Count = 1
    """How deep teams may nest: with 2, teammates may lead teams of their own."""
    implicit_team: bool = False
    """Whether an agent that the lead starts with a name, where there is no team, makes one and joins it."""
    teammate_mode: TeammateMode = "auto"
    """Where teammates run: in this process, in processes of their own, or in those and seen in panes."""
    split_panes: bool = True
    """Whether panes are split off the lead's window; else each gets a window of its own."""
    teammate_programs: dict[str, tuple[str, ...]] = {}
    """Other programs that can be teammates: for each agent type the words that start one."""
    teammate_restarts: Annotated[int, Meta(ge=0)] = 2
    """How often a teammate whose process died is started again with its history, before it is reported."""
    file_leases: tuple[str, ...] = ()
    """Patterns of files that stay with the agent that changed them until it ends; none is no leases."""
    plan_approver: Literal["auto", "lead", "user"] = "user"
    """Who approves a plan that an agent had to make: at once, the lead (for the lead a person), a person."""
    mcp_wait: Annotated[float, Meta(ge=0)] | None = None
    """Seconds after the start for which the first request waits for MCP servers that are coming up; None is
    5 where a person is there, and 30 where nobody could ask again."""
    mcp_deadline: Seconds = 60.0
    """Seconds for one call of an MCP server's tool without a sign of life."""
    channels: tuple[str, ...] = ()
    """MCP servers that may push messages to the lead, each as `server:NAME`."""
    trust_unsigned_mail: Literal["never", "ask", "always"] = "ask"
    """Whether what another program writes to a team in an agent's name is obeyed; `ask` asks a person."""
    plugins: tuple[str, ...] = ()
    """Directories of plug-ins; those of all settings files together."""
    durable: bool = False
    """Whether every line reaches the disk before work goes on, so that a power cut loses nothing either."""
    sandbox: SandboxSettings = SandboxSettings()
    """How shell commands are confined."""
    instructions: bool = True
    """Whether agents are told what CLAUDE.md, AGENTS.md and the like say."""
    telemetry: TelemetrySettings = TelemetrySettings()
    """What OpenTelemetry is told."""
    worktree_guard: WorktreeGuard = "sandbox"
    """What holds an agent in its worktree; `weak` lets it work where no sandbox can hold its commands."""


class Rules(Struct, frozen=True, kw_only=True, rename="camel"):
    """What agents may do; the lists of all files count together."""

    allow: tuple[str, ...] = ()
    """Rules for what runs without asking."""
    ask: tuple[str, ...] = ()
    """Rules for what is always asked; stronger than `allow`."""
    deny: tuple[str, ...] = ()
    """Rules for what never runs; stronger than both."""
    default_mode: Mode | None = None
    """What becomes of a call that no rule speaks of, where no flag says it."""
    additional_directories: tuple[str, ...] = ()
    """Directories that tools work in besides the project."""


class Known(Struct, frozen=True, kw_only=True, rename="camel"):
    """The part of a settings file that Shoal acts on. Every other key belongs to another program."""

    model: str | None = None
    """The model to ask."""
    permissions: Rules = Rules()
    """What agents may do."""
    env: dict[str, str | int | float | bool] = {}
    """Variables for the processes that tools start; those of providers count in your own files alone."""
    cleanup_period_days: Annotated[int, Meta(ge=0)] = 30
    """Days for which what has ended is kept: transcripts, journals and the other files of runs, debug logs,
    snapshots of the shell. Older ones are removed when a session starts, once a day, but for what a team
    needs that still exists; with 0 that is all that ended an hour ago or earlier. It counts in your own files
    alone."""
    hooks: Any = None
    """Programs that are told what agents do, by event."""
    disable_all_hooks: bool | None = None
    """In your own files: `true` turns off all hooks but managed ones."""
    mcp_servers: dict[str, Any] = {}
    """MCP servers, by name."""
    disabled_mcpjson_servers: tuple[str, ...] = ()
    """Servers of a project's `.mcp.json` that are not started."""
    shoal: Own = Own()
    """Shoal's own settings, which no other program reads."""


Kind: TypeAlias = Literal["managed", "command line", "local", "project", "mcp", "agent", "plugin", "user"]


class Document(Struct, frozen=True, kw_only=True):
    """One source of settings."""

    name: str
    kind: Kind
    path: Path | None
    text: str
    raw: dict[str, Any]

    @property
    def is_persons(self) -> bool:
        """False for files of the project, which may come from anyone."""
        return self.kind not in ("local", "project", "mcp", "agent", "plugin")

    def __repr__(self) -> str:
        return f"Document({self.name})"  # the text may hold keys

    def place(self, keys: Sequence[str]) -> str:
        return f"{self.name}:{line_of(self.text, keys)}"


def read_document(text: str, *, name: str, kind: Kind, path: Path | None) -> Document:
    """Raises `SettingsError` with the file, the line and the key of the first mistake."""
    try:
        raw = load(text.encode()) if text.strip() else {}
    except ValueError as error:
        line = getattr(error, "lineno", 1)
        why = getattr(error, "msg", str(error))
        raise SettingsError(f"{name}:{line}: not valid JSON: {why}.", path=path, line=line) from error
    if not isinstance(raw, dict):
        raise SettingsError(f"{name}:1: settings are a JSON object, {{…}}.", path=path, line=1)
    document = Document(name=name, kind=kind, path=path, text=text, raw=raw)
    known_part(document.raw, document)
    return document


def known_part(raw: Mapping[str, Any], document: Document | None = None) -> Known:
    try:
        return converted(raw, Known)
    except msgspec.ValidationError as error:
        why, _, where = str(error).partition(" - at ")
        keys = re.findall(r"[^.\[\]`$]+", where.replace("[...]", ""))
        name, line = ("settings", 1)
        if document is not None:
            name, line = document.name, line_of(document.text, keys)
        raise SettingsError(
            f"{name}:{line}: {'.'.join(keys)}: {why}.",
            path=document.path if document is not None else None,
            line=line,
        ) from error


_NESTED = (("sandbox", SandboxSettings), ("agent_limits", AgentLimits), ("telemetry", TelemetrySettings))
_MOST_NAMED = 20
"""Of the keys that are none: a file of thousands would take minutes to look through, and nobody reads on."""
_BY_NAME = (("agent_type_limits", AgentLimits), ("models", ModelFacts))


def unknown_keys(document: Document) -> Iterator[str]:
    """A sentence for each key under `shoal` that is none of ours."""
    places: list[tuple[tuple[str, ...], type[Struct]]] = [(("shoal",), Own)]
    places += [(("shoal", key), kind) for key, kind in _NESTED]
    for key, kind in _BY_NAME:
        names = document.raw["shoal"][key] if holds(document, ("shoal", key)) else ()
        places += [(("shoal", key, name), kind) for name in names]
    for way, known in places:
        if holds(document, way):
            yield from _strangers(document, way, known.__struct_encode_fields__)


def _strangers(document: Document, way: tuple[str, ...], known: Sequence[str]) -> Iterator[str]:
    given: Any = document.raw
    for key in way:
        given = given[key]
    strangers = [key for key in given if key not in known] if isinstance(given, dict) else []
    for key in strangers[:_MOST_NAMED]:
        from difflib import get_close_matches

        near = get_close_matches(key, known, n=1)
        hint = f" Is {near[0]} meant?" if near else ""
        place, name = document.place((*way, key)), ".".join((*way, key))
        yield f"{place}: {name} is not a setting and is ignored.{hint}"
    if (more := len(strangers) - _MOST_NAMED) > 0:
        what = f"{more:,} more keys of {'.'.join(way)} are not settings and are ignored"
        yield f"{document.place(way)}: {what}."


_JOINED = frozenset({"allow", "ask", "deny", "additionalDirectories"})


def merged(documents: Sequence[Document]) -> dict[str, Any]:
    """All of them as one: mappings are merged, permission lists joined; of anything else the first wins."""
    result: dict[str, Any] = {}
    for document in documents:
        _merge(result, document.raw)
    return result


def _merge(into: dict[str, Any], raw: Mapping[str, Any], *, within: str = "") -> None:
    for key, value in raw.items():
        present = into.get(key)
        if present is None:
            into[key] = value
            if isinstance(value, dict):
                into[key] = {}
                _merge(into[key], value, within=key)
        elif isinstance(present, dict) and isinstance(value, dict):
            _merge(present, value, within=key)
        elif within == "permissions" and key in _JOINED and isinstance(value, list):
            into[key] = [*present, *(rule for rule in value if rule not in present)]


def holds(document: Document, keys: Sequence[str]) -> bool:
    value: Any = document.raw
    for key in keys:
        if not isinstance(value, dict) or value.get(key) is None:
            return False
        value = value[key]
    return True
