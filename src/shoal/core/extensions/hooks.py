"""Hooks: the user's programs that run on events of agents, and the decisions they return."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, get_args

from msgspec import Struct

from shoal.core.ids import AgentId
from shoal.core.keyword_checks import CheckedStruct
from shoal.core.permissions.permission_changes import PermissionSuggestion, RuleBehavior
from shoal.core.text.lazy_patterns import compile_on_first_use

HookEvent: TypeAlias = Literal[
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "PermissionRequest",
    "UserPromptSubmit",
    "Stop",
    "SubagentStart",
    "SubagentStop",
    "TeammateIdle",
    "TaskCreated",
    "TaskCompleted",
    "SessionStart",
    "SessionEnd",
    "PreCompact",
    "Notification",
    "WorktreeCreate",
    "WorktreeRemove",
    "InstructionsLoaded",
    "ConfigChange",
    "StopFailure",
    "PostCompact",
    "PostToolBatch",
    "PermissionDenied",
    "UserPromptExpansion",
    "Setup",
]
"""Name of an event on which hooks run."""
HOOK_EVENTS: tuple[HookEvent, ...] = get_args(HookEvent)
FOREIGN_EVENTS = frozenset(
    {
        "CwdChanged",
        "FileChanged",
        "DirectoryAdded",
        "Elicitation",
        "ElicitationResult",
        "MessageDisplay",
    }
)
"""Events of other programs that do not exist here."""
MATCHER_FIELDS: Mapping[HookEvent, str] = {
    "PreToolUse": "tool_name",
    "PostToolUse": "tool_name",
    "PostToolUseFailure": "tool_name",
    "PermissionRequest": "tool_name",
    "SubagentStart": "agent_type",
    "SubagentStop": "agent_type",
    "SessionStart": "source",
    "SessionEnd": "reason",
    "PreCompact": "trigger",
    "Notification": "notification_type",
    "InstructionsLoaded": "load_reason",
    "ConfigChange": "source",
    "StopFailure": "error",
    "PostCompact": "trigger",
    "PermissionDenied": "tool_name",
    "UserPromptExpansion": "command_name",
    "Setup": "trigger",
}
"""Field that a matcher applies to; for other events every hook runs."""
MATCHER_VALUES: Mapping[HookEvent, tuple[str, ...]] = {
    "SessionStart": ("startup", "resume", "fork", "clear", "compact"),
    "SessionEnd": ("clear", "prompt_input_exit", "other"),
    "PreCompact": ("manual", "auto"),
    "PostCompact": ("manual", "auto"),
    "Notification": ("permission_prompt", "elicitation_dialog", "idle_prompt"),
    "InstructionsLoaded": ("session_start", "nested_traversal", "path_glob_match", "include"),
    "ConfigChange": ("user_settings", "project_settings", "local_settings", "policy_settings"),
    "StopFailure": (
        "rate_limit",
        "overloaded",
        "authentication_failed",
        "invalid_request",
        "server_error",
        "unknown",
    ),
    "Setup": ("init", "maintenance"),
}
"""All values of the matched field, for events that have a fixed set of them."""
NOTIFY_ONLY_EVENTS: frozenset[HookEvent] = frozenset(
    {
        "SubagentStart",
        "SessionStart",
        "SessionEnd",
        "Notification",
        "WorktreeRemove",
        "InstructionsLoaded",
        "StopFailure",
        "PostCompact",
        "PermissionDenied",
        "Setup",
    }
)
"""Events that cannot be blocked: a blocking answer is only shown to the user."""
BLOCKING_EVENTS: frozenset[HookEvent] = frozenset(
    {
        "PreToolUse",
        "PermissionRequest",
        "TaskCreated",
        "TaskCompleted",
        "PreCompact",
        "WorktreeCreate",
        "UserPromptExpansion",
        "ConfigChange",
    }
)
"""Events that hooks decide before they happen; a background hook would answer too late."""
STOP_EVENTS: frozenset[HookEvent] = frozenset({"Stop", "SubagentStop", "TeammateIdle"})
"""Events that repeat each time an agent is sent back to work."""
UNSTOPPABLE_EVENTS: frozenset[HookEvent] = frozenset(
    {"SubagentStart", "SessionEnd", "Notification", "WorktreeRemove", "InstructionsLoaded"}
)
"""Events outside an agent's turn, which no answer can end."""
VARIABLE_EVENTS: frozenset[HookEvent] = frozenset({"SessionStart", "Setup"})
"""Events whose commands may set variables for agents' shell commands."""
MAX_WAKES_IN_A_ROW = 8
"""Number of times in a row that hooks may send a stopping agent back to work before it stops anyway."""
DEFAULT_HOOK_SECONDS = 60.0
"""Default timeout of a function."""
PROGRAM_HOOK_SECONDS = 600.0
"""Default timeout of a command, a URL or an MCP tool."""
PROMPT_HOOK_SECONDS = 30.0
"""Default timeout of a hook that asks a model, and of every hook that a person's prompt waits for."""
AGENT_HOOK_SECONDS = 60.0
"""Default timeout of a hook that starts an agent."""
MAX_AGENT_HOOK_TURNS = 50
MAX_HOOK_SECONDS = 24 * 3600.0
SESSION_END_HOOK_SECONDS = 5.0
"""Default timeout of a hook at the end of a session."""


_QUOTED_PATH = r"(?:[\w@%+=:,./-]|'[^']*'|\"'\")+"
_PLUGIN_VARIABLES = compile_on_first_use(
    rf"\Aexport CLAUDE_PLUGIN_ROOT={_QUOTED_PATH} CLAUDE_PLUGIN_DATA={_QUOTED_PATH}; "
    rf"(?:mkdir -p {_QUOTED_PATH}; )?"
)
"""What `add_plugin_variables` adds; the paths are quoted, so a match cannot hide a command."""


def add_plugin_variables(command: str, root: str, data: str) -> str:
    """Return a shell command of a plug-in with the variables that name the plug-in's directories."""
    quoted_root, quoted_data = shlex.quote(root), shlex.quote(data)
    make = f"mkdir -p {quoted_data}; " if "CLAUDE_PLUGIN_DATA" in command else ""
    return f"export CLAUDE_PLUGIN_ROOT={quoted_root} CLAUDE_PLUGIN_DATA={quoted_data}; {make}{command}"


class ShellCommandHookAction(Struct, frozen=True, kw_only=True):
    """Command that gets the event as JSON on its standard input."""

    command: str
    args: tuple[str, ...] | None = None
    """Arguments of the program `command`, which then runs without a shell; None for a shell command."""
    shell: Literal["sh", "powershell"] = "sh"

    @property
    def shown_command(self) -> str:
        """The command as its author wrote it, with its arguments."""
        written = _PLUGIN_VARIABLES.sub("", self.command, count=1)
        return written if self.args is None else " ".join((written, *self.args))


class ModelPromptHookAction(Struct, frozen=True, kw_only=True):
    """Question to a small model, which answers whether the event may happen."""

    prompt: str
    """The text; `$ARGUMENTS` stands for the event as JSON."""
    model: str = ""
    """Name of the model; empty for the small one of the agent's provider."""
    continues_on_block: bool = False
    """True if an agent whose event is blocked continues its turn."""
    can_read: bool = False
    """True if the model may read and search files before it answers."""


class McpToolHookAction(Struct, frozen=True, kw_only=True):
    """Tool of an MCP server; its text is the answer."""

    server: str
    tool: str
    input: Mapping[str, Any] = {}
    """Input; `${tool_input.x}` in a text stands for that field of the event."""


class HttpPostHookAction(Struct, frozen=True, kw_only=True):
    """URL that the event is posted to."""

    url: str
    headers: Mapping[str, str] = {}


class PythonCallbackHookAction(Struct, frozen=True, kw_only=True):
    """Function of the program that opened the session; it may be async."""

    function: Callable[[dict[str, Any]], Any]


HookAction: TypeAlias = (
    ShellCommandHookAction
    | HttpPostHookAction
    | ModelPromptHookAction
    | McpToolHookAction
    | PythonCallbackHookAction
)


class HttpHookLimits(Struct, frozen=True, kw_only=True):
    """Limits of settings files on hooks of type http. Every list must permit a URL or a variable."""

    url_lists: tuple[tuple[str, ...], ...] = ()
    """Patterns with `*` for URLs, one list for each file that has one."""
    variable_lists: tuple[tuple[str, ...], ...] = ()
    """Variables that headers may contain, one list for each file that has one."""


class Hook(CheckedStruct, frozen=True, kw_only=True):
    """A configured hook: its event, its matcher and its action."""

    event: HookEvent
    """Event on which it runs."""
    matcher: str = ""
    """Name, names separated by `|`, a regular expression, or `*`; empty matches everything."""
    action: HookAction
    """What runs: a command, a URL, a prompt, an MCP tool or a function."""
    seconds: float = DEFAULT_HOOK_SECONDS
    """Timeout."""
    blocks_on_failure: bool = False
    """True if a failure or timeout counts as a block."""
    background: bool = False
    """True if nobody waits for it: it cannot decide anything, and its output is delivered later."""
    rewakes: bool = False
    """True if its exit status 2, in the background, wakes the agent."""
    condition: str = ""
    """Permission rule that a call must match for the hook to run; empty matches every call."""
    can_allow: bool = True
    """False if it may match more calls than its author intended; it can then only deny or ask."""
    origin: str
    """Location of its configuration."""

    @property
    def name(self) -> str:
        """Short description of the action."""
        match self.action:
            case ShellCommandHookAction() as action:
                return " ".join(action.shown_command.split())
            case HttpPostHookAction(url=url):
                return url
            case ModelPromptHookAction(prompt=prompt):
                return " ".join(prompt.split())
            case McpToolHookAction(server=server, tool=tool):
                return f"{server}: {tool}"
            case PythonCallbackHookAction(function=function):
                return getattr(function, "__qualname__", None) or type(function).__name__


class HookDecision(CheckedStruct, frozen=True, kw_only=True):
    """Decision of hooks about an event."""

    blocked: str | None = None
    """Reason to block the event."""
    decision: RuleBehavior | None = None
    """Decision about a call, used instead of the mode's. Deny rules still apply."""
    decision_reason: str = ""
    """Reason for the decision, which the model reads."""
    updated_input: dict[str, Any] | None = None
    """Input that replaces the input of a call."""
    context: str = ""
    """Additional context for the model."""
    stop: str | None = None
    """Reason to stop the agent."""
    message: str = ""
    """Message for the user."""
    suppressed: bool = False
    """True if its output must not be shown."""
    output: str = ""
    """Its output, if that is the answer."""
    updated_output: str | None = None
    """Text that replaces the result of a call."""
    permission_updates: tuple[PermissionSuggestion, ...] = ()
    """Permission changes that come with an allowed request."""
    retry: bool = False
    """True if the model may make a denied call again."""
    initial_message: str = ""
    """First message of the session, as if the user had sent it."""
    session_title: str = ""
    """Name of the session."""

    @property
    def refusal(self) -> str | None:
        """Reason to refuse a call; None if it is not refused."""
        if self.blocked is None and self.decision == "deny":
            return self.decision_reason or "a hook denied it"
        return self.blocked


NO_DECISION = HookDecision()


class BackgroundHookNotice(Struct, frozen=True, kw_only=True):
    """Output of a background hook for the agent whose event it ran on."""

    agent: AgentId
    event: HookEvent
    hook: str
    origin: str
    text: str
    wakes: bool
    """True if it wakes the agent; else it is delivered with an item that does."""


class HookServices(Protocol):
    """Services of a session that some hooks use. Both methods raise `ShoalError`."""

    async def ask_model(self, prompt: str, model: str, *, agent: AgentId, can_read: bool) -> str:
        """Return the answer of a model to a hook's prompt; its cost is the agent's.

        With `can_read` the model may read and search files first.
        """
        ...

    async def call_mcp_tool(self, action: McpToolHookAction, *, agent: AgentId, seconds: float) -> str:
        """Return the text of the tool's answer, which may take that many seconds."""
        ...


_Value = TypeVar("_Value")
_STRENGTH: tuple[RuleBehavior, ...] = ("deny", "ask", "allow")


def merge_hook_decisions(decisions: Sequence[HookDecision]) -> HookDecision:
    """Merge decisions: the strictest permission, the first of each refusal, all contexts."""
    if len(decisions) == 1:
        return decisions[0]
    strictest = next(
        (each for strength in _STRENGTH for each in decisions if each.decision == strength), NO_DECISION
    )
    return HookDecision(
        blocked=_first_not_none(each.blocked for each in decisions),
        decision=strictest.decision,
        decision_reason=strictest.decision_reason,
        updated_input=_first_not_none(each.updated_input for each in decisions),
        context="\n\n".join(each.context for each in decisions if each.context),
        stop=_first_not_none(each.stop for each in decisions),
        message="\n".join(each.message for each in decisions if each.message),
        suppressed=any(each.suppressed for each in decisions),
        output=_first_not_none(each.output or None for each in decisions) or "",
        updated_output=_first_not_none(each.updated_output for each in decisions),
        permission_updates=tuple(update for each in decisions for update in each.permission_updates),
        retry=any(each.retry for each in decisions),
        initial_message="\n\n".join(each.initial_message for each in decisions if each.initial_message),
        session_title=_first_not_none(each.session_title or None for each in decisions) or "",
    )


def _first_not_none(values: Iterable[_Value | None]) -> _Value | None:
    return next((value for value in values if value is not None), None)


class HookDispatcher(Protocol):
    """Runs the hooks of one agent."""

    def has_hooks_for(self, event: HookEvent) -> bool:
        """Return True if any hook handles the event. Called before every tool call, so it is cheap."""
        ...

    async def run_hooks(self, event: HookEvent, fields: Mapping[str, Any]) -> HookDecision:
        """Run all matching hooks concurrently. A failed hook is reported to the user."""
        ...


class NullHookDispatcher:
    def has_hooks_for(self, event: HookEvent) -> bool:
        return False

    async def run_hooks(self, event: HookEvent, fields: Mapping[str, Any]) -> HookDecision:
        return NO_DECISION


NO_HOOKS = NullHookDispatcher()
