"""Settings codec: the schema of settings files, their merge rules and the position of mistakes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from shoal.core.errors import SettingsError
from shoal.core.extensions.mcp_servers import MCP_PREFIX
from shoal.core.permissions.permission_decisions import PermissionMode
from shoal.core.unused_items import UnusedItem
from shoal.wire.foreign_json import convert_to_schema
from shoal.wire.json_comments import decode_commented_json
from shoal.wire.json_line_numbers import find_json_key_line
from shoal.wire.settings_entries import drop_unusable_entries

Seconds: TypeAlias = Annotated[float, Meta(gt=0)]
Dollars: TypeAlias = Annotated[float, Meta(ge=0)]
WorktreeGuard: TypeAlias = Literal["sandbox", "weak"]
Tokens: TypeAlias = Annotated[int, Meta(gt=0)]
Count: TypeAlias = Annotated[int, Meta(gt=0)]


class ModelSettings(Struct, frozen=True, kw_only=True):
    """Properties of a model: dollars per million tokens, and sizes in tokens."""

    input: Dollars | None = None
    """Price of a million input tokens."""
    output: Dollars | None = None
    """Price of a million output tokens."""
    cache_write: Dollars | None = None
    """Price of a million tokens written to the prompt cache; None means a quarter more than `input`."""
    cache_read: Dollars | None = None
    """Price of a million tokens read from the prompt cache; None means the same as `input`."""
    window: Tokens | None = None
    """Size of the context window."""
    max_output: Tokens | None = None
    """Maximum length of an answer."""
    images: bool | None = None
    """True if the model accepts images."""
    tools: bool | None = None
    """True if the model supports tool calls; otherwise calls are requested and parsed as text."""
    api: Literal["chat", "responses"] | None = None
    """OpenAI API used for the model, at any base URL."""


class AgentLimitSettings(Struct, frozen=True, kw_only=True):
    """Limits for an agent; None means no limit."""

    usd: Dollars | None = None
    """US dollars."""
    tokens: Tokens | None = None
    """Input tokens, cached or not, and output tokens."""
    requests: Count | None = None
    """Requests to models."""
    seconds: Seconds | None = None
    """Seconds of working time."""


class SandboxSettings(Struct, frozen=True, kw_only=True, rename="camel"):
    """Sandbox for shell commands."""

    enabled: bool | Literal["auto", "worktrees"] = "auto"
    """`auto` uses a sandbox if the machine supports it; with `true`, Shoal refuses to run commands without a
    sandbox; `worktrees` uses a sandbox only for agents in worktrees."""
    network: bool = True
    """True if sandboxed commands may use the network."""
    auto_allow: bool = False
    """True if sandboxed commands run without asking; deny and ask rules still apply."""
    writable: tuple[str, ...] = ()
    """Paths that sandboxed commands may write to, in addition to the project, granted directories and
    TMPDIR."""
    hidden: tuple[str, ...] = ()
    """Paths hidden from sandboxed commands in addition to keys and credentials; `*` and `**` match names."""
    read_only: tuple[str, ...] = ()
    """Paths that sandboxed commands cannot write to, even inside writable paths; `*` and `**` match names."""
    withheld_variables: tuple[str, ...] = ()
    """Environment variables that shell commands do not get."""
    private_temp: bool = False
    """True if sandboxed commands write temporary files only to a directory of the session, and not to the
    shared one."""


class TelemetrySettings(Struct, frozen=True, kw_only=True):
    """OpenTelemetry export; the standard OTEL_ variables set the destination."""

    enabled: bool | None = None
    """True to export; None means that the OTEL_ variables decide."""
    content: bool = False
    """True to export content: prompts, answers, tool inputs and tool outputs."""


class ClusterSettings(Struct, frozen=True, kw_only=True):
    """Ray cluster on whose machines teammates run if `teammate_mode` is `ray`. Applies only in user files."""

    address: str | None = None
    """Head of the cluster, as `HOST:PORT`. Shoal uses only the cluster named here."""
    lead_host: str | None = None
    """Address at which the other machines reach this one; None means the address that it uses to reach
    the head."""
    cpus: Annotated[float, Meta(ge=0)] = 0.1
    """Number of CPUs that a teammate reserves on its machine; a process for several teammates reserves it
    once."""
    members_per_process: Annotated[int, Meta(ge=1)] = 1
    """Number of teammates that share a process on their machine. A teammate that asks for `resources` has
    its own process."""
    files: Literal["git", "shared"] = "git"
    """Files of a teammate: `git` gives it a checkout of your last commit on its machine, and its work comes
    back as commits; `shared` uses the same path on all machines."""
    uncommitted: bool = False
    """True if a new teammate also gets your uncommitted changes, as one commit on top of your last commit."""
    fetch_from_remote: bool = True
    """True if the other machines fetch the commits that you have pushed from a remote of the repository, if
    they can reach it; the rest comes from this machine. False sends everything from this machine."""
    send_keys: bool = False
    """True if teammates on other machines use the model keys of this machine; this needs TLS (`RAY_USE_TLS`).
    Otherwise, each machine uses its own keys."""
    without_own_hooks: bool = False
    """True if teammates run on other machines although hooks of your own settings decide about calls: these
    hooks do not run there. False refuses to start such teammates."""


TeammateMode: TypeAlias = Literal["auto", "in-process", "process", "tmux", "iterm2", "ray"]
"""Backend for teammates: where they run."""


class ShoalSettings(Struct, frozen=True, kw_only=True):
    """Settings under `shoal`, which no other program reads."""

    model: str | None = None
    """Model to use; overrides `model` in the same file, which other programs read too."""
    models: dict[str, ModelSettings] = {}
    """Model properties by model name, to add or correct what Shoal knows."""
    aliases: dict[str, str] = {}
    """Your aliases for model names."""
    compact_at: Annotated[float, Meta(gt=0, le=1)] = 0.85
    """Share of the context window at which a conversation is compacted."""
    session_memory: bool = False
    """True to keep session notes, which are updated at each compaction."""
    request_deadline: Seconds | None = None
    """Seconds for a complete model response; None means the provider's default."""
    stream_gap: Seconds | None = None
    """Seconds without a byte after which a request is retried; None means the provider's default."""
    outage_patience: Seconds = 900.0
    """Seconds that a provider may be unavailable before an agent gives up."""
    question_patience: Seconds | None = None
    """Seconds to wait for a person; None waits forever if a person can answer, and not at all otherwise."""
    notify: Literal["off", "bell", "desktop", "both"] = "bell"
    """Notification for a waiting question: terminal bell, desktop notification, both or none."""
    unattended_allow: tuple[str, ...] = ()
    """Rules for calls that may run if nobody can answer, or nobody answers in time; others are refused."""
    output_limit: Annotated[int, Meta(ge=1000)] = 100_000
    """Maximum number of characters of a tool's output in the conversation; the rest is stored in a file."""
    max_output_tokens: Tokens | None = None
    """Maximum length of a requested answer; None means the model's maximum."""
    thinking_tokens: Annotated[int, Meta(ge=0)] | None = None
    """Thinking tokens before an answer; 0 disables thinking. With None, models that decide for themselves how
    much to think (Claude 4.6 and newer) do so, and other models do not think."""
    max_turns: Annotated[int, Meta(gt=0)] | None = None
    """Maximum requests in one turn of the lead."""
    max_budget_usd: Dollars | None = None
    """Maximum US dollars for the whole session, including all its agents. The next four limits also cover the
    whole session."""
    max_total_tokens: Tokens | None = None
    """Maximum input tokens, cached or not, plus output tokens."""
    max_requests: Count | None = None
    """Maximum requests to models."""
    max_seconds: Seconds | None = None
    """Time limit in seconds, counted from the start of this process."""
    max_agents: Count | None = None
    """Maximum number of agents started in total, not counting the lead."""
    max_concurrent: Count = 20
    """Maximum number of agents that run at once, not counting the lead."""
    max_depth: Annotated[int, Meta(ge=0)] = 3
    """Maximum nesting depth of agents; 0 means that no agent can be started."""
    agent_limits: AgentLimitSettings = AgentLimitSettings()
    """Limits for each agent except the lead."""
    agent_type_limits: dict[str, AgentLimitSettings] = {}
    """Limits for all agents of a type together; seconds apply to each agent."""
    max_repeated_calls: Count | None = 5
    """Number of times in a row that an agent may make the same tool call with the same result. After that,
    Shoal warns the agent once, then pauses it with a question. Five times as many replies in a row may have
    only calls that fail. None turns both checks off. Calls of 10 seconds or more do not count."""
    max_unproductive_messages: Count | None = 20
    """Number of messages that an agent may send to one other agent without a change to a task or a file.
    After that, Shoal warns the agent once, then pauses it with a question. None turns the check off."""
    fan_out_preview: Count | None = 8
    """Number of agents that may start at once without asking a person first; None never asks."""
    theme: Literal["dark", "light", "ansi"] | None = None
    """Theme for the full-screen terminal; `ansi` uses the terminal's colors, None queries the terminal."""
    plain: bool = False
    """True to use the line-based terminal instead of the full-screen terminal."""
    coordinator: bool = False
    """True if the lead only starts, messages and stops agents, which all run in the background."""
    assistant: bool = False
    """True if a session stays open for messages and scheduled prompts; its agents all run in the
    background."""
    background_agents: bool = True
    """True if agents may run in the background."""
    agent_cwd: bool = False
    """True to tell the model that it can choose an agent's working directory."""
    auto_background: Annotated[float, Meta(ge=0)] = 120.0
    """Seconds after which a foreground agent moves to the background; 0 means never."""
    stuck_after: Seconds = 60.0
    """Seconds of silence after which Shoal reports a background command that seems to be waiting for
    input."""
    forks: bool = False
    """True to start a fork of the parent if a call names no agent type and a person is present."""
    report_tokens: Annotated[int, Meta(ge=200)] = 1_000
    """Maximum number of tokens of an agent's report in its parent's conversation; the rest is in a file."""
    shutdown_grace: Seconds = 30.0
    """Seconds that a teammate has to answer a shutdown request before it is stopped."""
    stall_after: Seconds = 300.0
    """Seconds without activity after which a working teammate's turn is restarted; if it stalls again, the
    turn fails. A teammate in a separate process is pinged first, and continues in a new process if it does
    not reply."""
    workflow_tool: bool = False
    """True to let the lead's model write workflows and run them after your approval."""
    team_depth: Count = 1
    """Maximum nesting depth of teams: with 2, teammates may lead teams."""
    implicit_team: bool = False
    """True if a named agent that the lead starts without a team creates a team and joins it."""
    teammate_mode: TeammateMode = "auto"
    """Backend for teammates: this process, separate processes, separate processes shown in panes, or the
    machines of a Ray cluster."""
    cluster: ClusterSettings = ClusterSettings()
    """Ray cluster for teammates on other machines."""
    split_panes: bool = True
    """True if panes are split from the lead's window; otherwise each pane gets its own window."""
    teammate_programs: dict[str, tuple[str, ...]] = {}
    """Other programs that can be teammates: the command line for each agent type."""
    teammate_restarts: Annotated[int, Meta(ge=0)] = 5
    """Number of consecutive restarts of a teammate whose process keeps dying, before Shoal gives up on it.
    Each restart keeps its history. The limit does not apply to a teammate that cannot be started: Shoal keeps
    retrying."""
    file_leases: tuple[str, ...] = ()
    """Patterns for leased files. A leased file belongs to the agent that changed it until that agent ends. An
    empty list disables leases."""
    plan_approver: Literal["auto", "lead", "user"] = "user"
    """Who approves plans: Shoal itself, the lead (a person for the lead's own plan), or a person. If no
    person can answer, the lead approves the plans of its teammates, and its own plan is the result."""
    mcp_wait: Annotated[float, Meta(ge=0)] | None = None
    """Seconds that the first request waits for all MCP servers to connect, counted from the start. With None,
    it waits only for required servers (from `--mcp-config`, with `alwaysLoad`, or named by a flag): 5 seconds
    if a person is present, and 30 in an unattended run."""
    mcp_deadline: Seconds = 60.0
    """Seconds without progress after which an MCP tool call fails."""
    web_search: str | None = None
    """Search service for the WebSearch tool: `provider`, the name of an MCP tool, or the URL of a SearXNG,
    Brave or Tavily search. Applies only in user files. None means the provider, if it can search."""
    channels: tuple[str, ...] = ()
    """MCP servers that may push messages to the lead, as `server:NAME`."""
    trust_unsigned_mail: Literal["never", "ask", "always"] = "ask"
    """Policy for unsigned team mail that another program sends in an agent's name; `ask` asks a person."""
    plugins: tuple[str, ...] = ()
    """Plug-in directories; the lists from all settings files are combined."""
    store: str | None = None
    """Store of sessions and teams: `postgresql://USER@HOST/DATABASE` for a database that several machines
    share, or `file:DIRECTORY`; None means the home directory. Applies only in user files."""
    durable: bool = False
    """True to wait for the disk after each change of transcripts, journals, results, questions, rosters,
    tasks and mail, so that a power failure loses none of them. It does not cover files in the project, their
    earlier contents for undo, or plan files."""
    sandbox: SandboxSettings = SandboxSettings()
    """Sandbox for shell commands."""
    instructions: bool = True
    """True if agents receive CLAUDE.md, AGENTS.md and similar instruction files."""
    telemetry: TelemetrySettings = TelemetrySettings()
    """OpenTelemetry export."""
    worktree_guard: WorktreeGuard = "sandbox"
    """Guard that keeps an agent in its worktree; `weak` lets it work even if its commands cannot be
    sandboxed."""


class PermissionSettings(Struct, frozen=True, kw_only=True, rename="camel"):
    """Agents' permissions; the lists from all files are combined."""

    allow: tuple[str, ...] = ()
    """Rules for calls that run without asking."""
    ask: tuple[str, ...] = ()
    """Rules for calls that Shoal always asks about; they override `allow`."""
    deny: tuple[str, ...] = ()
    """Rules for calls that never run; they override `allow` and `ask`."""
    default_mode: PermissionMode | None = None
    """Permission mode for calls that match no rule, unless a flag sets it."""
    additional_directories: tuple[str, ...] = ()
    """Directories that tools may use in addition to the project."""


class AttributionSettings(Struct, frozen=True, kw_only=True):
    """Text that agents add to commits and pull requests."""

    commit: str | None = None
    """Text at the end of commit messages; an empty string adds nothing."""
    pr: str | None = None
    """Text at the end of pull request descriptions; an empty string adds nothing."""


class SettingsSchema(Struct, frozen=True, kw_only=True, rename="camel"):
    """The keys of a settings file that Shoal uses. Every other key belongs to another program."""

    model: str | None = None
    """Model to use."""
    permissions: PermissionSettings = PermissionSettings()
    """Agents' permissions."""
    env: dict[str, str | int | float | bool] = {}
    """Environment variables for processes that tools start; provider variables apply only in user files."""
    cleanup_period_days: Annotated[int, Meta(ge=0)] = 30
    """Days to keep files of ended sessions: transcripts, journals and other run files, debug logs, shell
    snapshots. Older files are removed when a session starts, once a day, except files that an existing team
    needs. With 0, everything that ended at least an hour ago is removed. Applies only in user files."""
    disable_all_hooks: bool | None = None
    """In user files: `true` disables all hooks except managed hooks."""
    mcp_servers: dict[str, Any] = {}
    """MCP servers, by name."""
    disabled_mcpjson_servers: tuple[str, ...] = ()
    """Servers in a project's `.mcp.json` that are disabled."""
    disabled_mcp_servers: tuple[str, ...] = ()
    """MCP servers that are disabled, from any file."""
    agent: str | None = None
    """Agent whose prompt, tools and model the lead uses; the flag `--agent` overrides it."""
    language: str | None = None
    """Language in which the lead answers."""
    theme: str | None = None
    """Claude Code theme, such as `dark` or `light-daltonized`; `shoal.theme` overrides it."""
    attribution: AttributionSettings = AttributionSettings()
    """Text that agents add to commits and pull requests."""
    include_co_authored_by: bool | None = None
    """`false`: agents add nothing to commits and pull requests. Superseded by `attribution`."""
    plans_directory: str | None = None
    """Directory for plan files. It is ignored if it is outside the project."""
    shoal: ShoalSettings = ShoalSettings()
    """Shoal's own settings, which no other program reads."""


class PerFileSettingsSchema(Struct, frozen=True, kw_only=True, rename="camel"):
    """The keys that Shoal reads from each settings file, because the effect depends on the file.

    Their readers check the values, so the types are open here.
    """

    effort_level: Any = None
    """Reasoning effort: low, medium, high, xhigh or max. `--effort` and `CLAUDE_CODE_EFFORT_LEVEL`
    override it."""
    always_thinking_enabled: Any = None
    """`false` disables thinking before an answer, and `true` enables it; `MAX_THINKING_TOKENS`
    overrides both."""
    fallback_model: Any = None
    """Up to three models to use, in this order, if the main model does not answer."""
    available_models: Any = None
    """Models that may be used, by name, alias or beginning of an id. If several files
    have a list, a model must be in all of them."""
    model_overrides: Any = None
    """A gateway's ids for Anthropic's models. Applies only in user files."""
    auto_compact_enabled: Any = None
    """`false`: conversations are compacted only on request."""
    teammate_mode: Any = None
    """Backend for teammates: `in-process`, `auto`, `tmux` or `iterm2`; `shoal.teammate_mode` overrides it."""
    api_key_helper: Any = None
    """Shell command that prints the key for Anthropic's API, if no variable sets a key. It runs again after
    five minutes, and when the key is refused. In a project's file, it needs trust."""
    hooks: Any = None
    """Hooks by event."""
    output_style: Any = None
    """Output style of the lead: Proactive, Concise, Explanatory, Learning, or the name of a file in
    `output-styles`."""
    claude_md_excludes: Any = None
    """Instruction files to skip, as patterns for absolute paths. A project's patterns exclude only its own
    files."""
    auto_memory_enabled: Any = None
    """`false` ignores notes about the project from earlier sessions."""
    auto_memory_directory: Any = None
    """Directory of the notes about the project, as an absolute path. Applies only in user files."""
    disable_skill_shell_execution: Any = None
    """`true` in any file: the commands in the text of skills and slash commands do not run."""
    skill_overrides: Any = None
    """Access to skills, by name: `on`, `name-only`, `user-invocable-only` or `off`."""


SettingsSourceKind: TypeAlias = Literal[
    "managed", "command line", "local", "project", "mcp", "private", "agent", "plugin", "workflow", "user"
]
"""`private` holds the user's own MCP servers for one project."""


class SettingsDocument(Struct, frozen=True, kw_only=True):
    """One source of settings."""

    name: str
    kind: SettingsSourceKind
    path: Path | None
    text: str
    """Content without comments, for line numbers."""
    raw: dict[str, Any]
    """Settings without unusable entries."""
    unused: tuple[UnusedItem, ...] = ()
    """Entries that were left out."""

    @property
    def is_user_controlled(self) -> bool:
        """True if the user controls the source; False for project files, which may come from anyone."""
        return self.kind not in ("local", "project", "mcp", "agent", "plugin", "workflow")

    def __repr__(self) -> str:
        return f"Document({self.name})"  # the text may hold keys

    def locate_key(self, keys: Sequence[str]) -> str:
        return f"{self.name}:{find_json_key_line(self.text, keys)}"


def parse_settings_document(
    text: str, *, name: str, kind: SettingsSourceKind, path: Path | None
) -> SettingsDocument:
    """Parse settings; raise `SettingsError` with the file, line and key of the first mistake."""
    try:
        raw, text = decode_commented_json(text) if text.strip() else ({}, text)
    except ValueError as error:
        line = getattr(error, "lineno", 1)
        reason = getattr(error, "msg", str(error))
        raise SettingsError(f"{name}:{line}: not valid JSON: {reason}.", path=path, line=line) from error
    if not isinstance(raw, dict):
        raise SettingsError(f"{name}:1: settings must be a JSON object, {{…}}.", path=path, line=1)
    usable, unusable = drop_unusable_entries(raw)
    document = SettingsDocument(name=name, kind=kind, path=path, text=text, raw=usable)
    convert_to_settings_schema(document.raw, document)
    items = (
        UnusedItem(location=document.locate_key(keys), name=".".join(keys), reason=reason)
        for keys, reason in unusable
    )
    return replace(document, unused=tuple(items)) if unusable else document


def convert_to_settings_schema(
    raw: Mapping[str, Any], document: SettingsDocument | None = None
) -> SettingsSchema:
    if document is not None:
        _refuse_misspelled_permission_key(document)
    try:
        return convert_to_schema(raw, SettingsSchema)
    except msgspec.ValidationError as error:
        reason, _, location = str(error).partition(" - at ")
        keys = re.findall(r"[^.\[\]`$]+", location.replace("[...]", ""))
        name, line = ("settings", 1)
        if document is not None:
            name, line = document.name, find_json_key_line(document.text, keys)
        raise SettingsError(
            f"{name}:{line}: {'.'.join(keys)}: {describe_schema_mismatch(reason)}.",
            path=document.path if document is not None else None,
            line=line,
        ) from error


_TYPE_WORDS = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "an integer",
    "null": "null",
    "object": "an object",
    "str": "a string",
}


def describe_schema_mismatch(reason: str) -> str:
    """Return msgspec's reason in JSON terms: "expected a string, got a number"."""
    match = re.fullmatch(r"Expected `([^`]*)`( (?:of length )?[<>]=? ?\S+)?(?:, got `([^`]*)`)?", reason)
    if match is None:
        return reason[:1].lower() + reason[1:]
    expected, got = (
        " or ".join(_TYPE_WORDS.get(word, word) for word in (names or "").split(" | "))
        for names in match.group(1, 3)
    )
    return f"expected {expected}{match[2] or ''}{f', got {got}' if got else ''}"


# Keys that other programs read in the same section.
_FOREIGN_PERMISSION_KEYS = ("disableBypassPermissionsMode", "disableAutoMode")
_COMFORT_PERMISSION_KEYS = frozenset({"allow", "additionalDirectories", "disableAutoMode"})


def _refuse_misspelled_permission_key(document: SettingsDocument) -> None:
    """Raise `SettingsError` for a key that is probably `deny` or another restricting key, misspelled.

    Other unknown keys belong to other programs.
    """
    section = document.raw.get("permissions")
    known = (*PermissionSettings.__struct_encode_fields__, *_FOREIGN_PERMISSION_KEYS)
    unknown = [key for key in section if key not in known] if isinstance(section, dict) else []
    if not unknown:
        return
    from difflib import get_close_matches

    for key in unknown[:_MAX_REPORTED]:
        close = get_close_matches(key, known, n=1)
        if close and close[0] not in _COMFORT_PERMISSION_KEYS:
            line = find_json_key_line(document.text, ["permissions", key])
            raise SettingsError(
                f"{document.name}:{line}: permissions.{key}: unknown key. Did you mean {close[0]}?",
                path=document.path,
                line=line,
            )


_NESTED_SECTIONS = (
    ("sandbox", SandboxSettings),
    ("agent_limits", AgentLimitSettings),
    ("telemetry", TelemetrySettings),
    ("cluster", ClusterSettings),
)
_MAX_REPORTED = 20
"""Maximum number of unknown keys reported: matching thousands would take minutes, and nobody reads that
many."""
_NAMED_SECTIONS = (("agent_type_limits", AgentLimitSettings), ("models", ModelSettings))


def describe_unknown_shoal_settings(document: SettingsDocument) -> Iterator[str]:
    """Yield a sentence for each unknown key under `shoal`."""
    sections: list[tuple[tuple[str, ...], type[Struct]]] = [(("shoal",), ShoalSettings)]
    sections += [(("shoal", key), kind) for key, kind in _NESTED_SECTIONS]
    for key, kind in _NAMED_SECTIONS:
        names = document.raw["shoal"][key] if has_settings_key(document, ("shoal", key)) else ()
        sections += [(("shoal", key, name), kind) for name in names]
    for key_path, schema in sections:
        if has_settings_key(document, key_path):
            yield from _describe_unknown_settings_keys(document, key_path, schema.__struct_encode_fields__)


def _describe_unknown_settings_keys(
    document: SettingsDocument, key_path: tuple[str, ...], known_keys: Sequence[str]
) -> Iterator[str]:
    section: Any = document.raw
    for key in key_path:
        section = section[key]
    unknown_keys = [key for key in section if key not in known_keys] if isinstance(section, dict) else []
    for key in unknown_keys[:_MAX_REPORTED]:
        from difflib import get_close_matches

        matches = get_close_matches(key, known_keys, n=1)
        hint = f" Did you mean {matches[0]}?" if matches else ""
        location, name = document.locate_key((*key_path, key)), ".".join((*key_path, key))
        yield f"{location}: {name} is not a setting and is ignored.{hint}"
    if (more := len(unknown_keys) - _MAX_REPORTED) > 0:
        text = f"{more:,} more keys of {'.'.join(key_path)} are not settings and are ignored"
        yield f"{document.locate_key(key_path)}: {text}."


_JOINED_LISTS = frozenset({"allow", "ask", "deny", "additionalDirectories"})


def merge_settings_documents(documents: Sequence[SettingsDocument]) -> dict[str, Any]:
    """Merge all documents: mappings are merged, permission lists joined; for other values the first wins."""
    result: dict[str, Any] = {}
    for document in documents:
        _merge_settings_into(result, document.raw)
    return result


def _merge_settings_into(target: dict[str, Any], raw: Mapping[str, Any], *, parent_key: str = "") -> None:
    for key, value in raw.items():
        current = target.get(key)
        if current is None:
            target[key] = value
            if isinstance(value, dict):
                target[key] = {}
                _merge_settings_into(target[key], value, parent_key=key)
        elif isinstance(current, dict) and isinstance(value, dict):
            _merge_settings_into(current, value, parent_key=key)
        elif parent_key == "permissions" and key in _JOINED_LISTS and isinstance(value, list):
            target[key] = [*current, *(rule for rule in value if rule not in current)]


def is_web_search_choice(value: str) -> bool:
    """Return True for a value of `shoal.web_search` that can answer searches."""
    return not value or value == "provider" or value.startswith((MCP_PREFIX, "https://", "http://"))


def has_settings_key(document: SettingsDocument, keys: Sequence[str]) -> bool:
    value: Any = document.raw
    for key in keys:
        if not isinstance(value, dict) or value.get(key) is None:
            return False
        value = value[key]
    return True
