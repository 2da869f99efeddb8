"""Hooks: what a person's own programs are told of while agents work, and what they may say about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, get_args

from msgspec import Struct

from shoal.core.ids import AgentId
from shoal.core.permissions import Behavior

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
]
EVENTS: tuple[HookEvent, ...] = get_args(HookEvent)
MATCHED: Mapping[HookEvent, str] = {
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
}
"""The field that a matcher is about; of the other events every hook is run."""
TOLD_ONLY: frozenset[HookEvent] = frozenset(
    {"SubagentStart", "SessionStart", "SessionEnd", "Notification", "WorktreeRemove"}
)
"""They happen whatever a hook says: to block them does nothing but tell the person."""
DECIDED: frozenset[HookEvent] = frozenset(
    {"PreToolUse", "PermissionRequest", "TaskCreated", "TaskCompleted", "PreCompact", "WorktreeCreate"}
)
"""Hooks are asked about them before they happen: an answer that nobody waits for comes too late."""
STOPPING: frozenset[HookEvent] = frozenset({"Stop", "SubagentStop", "TeammateIdle"})
"""They come again each time that an agent was sent back."""
IN_A_ROW = 8
"""How often hooks may send an agent back to work that would stop, before it stops all the same."""
USUAL_SECONDS = 60.0
LONGEST_SECONDS = 24 * 3600.0
PARTING_SECONDS = 5.0
"""For a hook at the end of a session, where nobody said more."""


class Command(Struct, frozen=True, kw_only=True):
    """A line for the shell, which gets the event as JSON on its standard input."""

    command: str


class Post(Struct, frozen=True, kw_only=True):
    """An address that the event is sent to."""

    url: str
    headers: Mapping[str, str] = {}


class Called(Struct, frozen=True, kw_only=True):
    """A function of the program that opened the session; it may be async."""

    function: Callable[[dict[str, Any]], Any]


Doer: TypeAlias = Command | Post | Called


class Hook(Struct, frozen=True, kw_only=True):
    event: HookEvent
    matcher: str = ""
    """A name, names with `|` between them, a regular expression, or `*`; nothing is everything."""
    does: Doer
    seconds: float = USUAL_SECONDS
    blocks_on_failure: bool = False
    """Whether one that fails or takes too long counts as one that blocks."""
    background: bool = False
    """Whether nobody waits for it: it decides nothing, and what it tells comes later."""
    rewakes: bool = False
    """Whether its exit status 2, in the background, wakes the agent."""
    origin: str
    """Where it is configured."""

    @property
    def name(self) -> str:
        match self.does:
            case Command(command=command):
                return " ".join(command.split())
            case Post(url=url):
                return url
            case Called(function=function):
                return getattr(function, "__qualname__", None) or type(function).__name__


class Verdict(Struct, frozen=True, kw_only=True):
    """What hooks say of an event."""

    blocked: str | None = None
    """Why it must not be."""
    decision: Behavior | None = None
    """About a call, in place of the mode: what rules forbid stays forbidden."""
    decision_reason: str = ""
    updated_input: dict[str, Any] | None = None
    context: str = ""
    """What the model is to know besides."""
    stop: str | None = None
    """Why the agent is to stop here."""
    message: str = ""
    """For the person."""
    suppressed: bool = False
    """Whether what it wrote is to be shown to nobody."""
    output: str = ""
    """What it wrote, where that is its answer."""

    @property
    def refusal(self) -> str | None:
        """Why a call must not be made."""
        if self.blocked is None and self.decision == "deny":
            return self.decision_reason or "a hook denied it"
        return self.blocked


UNMOVED = Verdict()


class HookWord(Struct, frozen=True, kw_only=True):
    """What a hook that nobody waited for has to tell the agent whose event it was."""

    agent: AgentId
    event: HookEvent
    hook: str
    origin: str
    text: str
    wakes: bool
    """Whether the agent is to start because of it; else it comes with what starts it."""


class HookNews(Protocol):
    """Whoever brings such words to agents."""

    def told(self, word: HookWord) -> None: ...


class Unheard:
    def told(self, word: HookWord) -> None: ...


_Value = TypeVar("_Value")
_STRENGTH: tuple[Behavior, ...] = ("deny", "ask", "allow")


def merged(verdicts: Sequence[Verdict]) -> Verdict:
    """What several hooks say together: the strictest decision, the first of each refusal, all contexts."""
    if len(verdicts) == 1:
        return verdicts[0]
    strictest = next(
        (each for strength in _STRENGTH for each in verdicts if each.decision == strength), UNMOVED
    )
    return Verdict(
        blocked=_first(each.blocked for each in verdicts),
        decision=strictest.decision,
        decision_reason=strictest.decision_reason,
        updated_input=_first(each.updated_input for each in verdicts),
        context="\n\n".join(each.context for each in verdicts if each.context),
        stop=_first(each.stop for each in verdicts),
        message="\n".join(each.message for each in verdicts if each.message),
        suppressed=any(each.suppressed for each in verdicts),
        output=_first(each.output or None for each in verdicts) or "",
    )


def _first(values: Iterable[_Value | None]) -> _Value | None:
    return next((value for value in values if value is not None), None)


class Hooks(Protocol):
    """The hooks of one agent."""

    def wants(self, event: HookEvent) -> bool:
        """Whether anybody is to be told of such an event. Asked before every call, so it is cheap."""
        ...

    async def run(self, event: HookEvent, fields: Mapping[str, Any]) -> Verdict:
        """Tell all whom it concerns, side by side. A hook that fails is named to the person."""
        ...


class NoHooks:
    def wants(self, event: HookEvent) -> bool:
        return False

    async def run(self, event: HookEvent, fields: Mapping[str, Any]) -> Verdict:
        return UNMOVED


NO_HOOKS = NoHooks()
