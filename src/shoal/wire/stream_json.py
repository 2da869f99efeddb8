"""Output lines of the stream-json protocol: events, requests and responses, one JSON object per line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from shoal.core.events import EndReason, MessageAdded
from shoal.core.messages import ContentBlock, Thinking
from shoal.core.usage import Usage

Subtype: TypeAlias = Literal[
    "success",
    "error_max_turns",
    "error_max_budget_usd",
    "error_max_structured_output_retries",
    "error_during_execution",
]

State: TypeAlias = Literal["running", "requires_action", "idle"]

SPOKEN = "2.1.248"
"""Version of the original whose protocol this is. The public SDK warns if no version is sent."""

_SUBTYPES: dict[EndReason, Subtype] = {
    "done": "success",
    # For an API failure the program succeeds and the answer fails: readers look at `is_error`.
    "model_error": "success",
    "max_turns": "error_max_turns",
    "budget": "error_max_budget_usd",
    "no_output": "error_max_structured_output_retries",
}


class Line(Struct, frozen=True, kw_only=True):
    """Base of all output lines; `type` comes first on every line."""


class Init(Line, frozen=True, kw_only=True, tag_field="type", tag="system"):
    subtype: Literal["init"] = "init"
    cwd: str
    session_id: str
    tools: Sequence[str]
    mcp_servers: Sequence[Mapping[str, str]] = ()
    model: str
    permission_mode: str = msgspec.field(name="permissionMode")
    slash_commands: Sequence[str] = ()
    api_key_source: str = msgspec.field(name="apiKeySource", default="none")
    agents: Sequence[str] = ()
    skills: Sequence[str] = ()
    plugins: Sequence[Mapping[str, str]] = ()
    output_style: str = "default"
    shoal_version: str
    claude_code_version: str = SPOKEN
    uuid: str


class StateChanged(Line, frozen=True, kw_only=True, tag_field="type", tag="system"):
    """The state of the session changed; sent only to a program that uses stream-json input."""

    subtype: Literal["session_state_changed"] = "session_state_changed"
    state: State
    session_id: str
    uuid: str
    sdk_host_only: bool | msgspec.UnsetType = msgspec.UNSET
    """True if the line is meant for the program's SDK, not for the program."""


class CompactBoundary(Line, frozen=True, kw_only=True, tag_field="type", tag="system"):
    subtype: Literal["compact_boundary"] = "compact_boundary"
    compact_metadata: Mapping[str, Any]
    session_id: str
    uuid: str


class BudgetWarning(Line, frozen=True, kw_only=True, tag_field="type", tag="system"):
    """A percentage of a limit is spent; `whose` is a type or an agent, empty for the whole run."""

    subtype: Literal["budget_warning"] = "budget_warning"
    limit: str
    percent: int
    spent: float
    of: float
    whose: str
    session_id: str
    uuid: str


class HookResponse(Line, frozen=True, kw_only=True, tag_field="type", tag="system"):
    """A hook ran, with its outcome."""

    subtype: Literal["hook_response"] = "hook_response"
    hook_event: str
    hook_name: str
    outcome: str
    output: str
    duration_ms: int
    session_id: str
    uuid: str


class AssistantLine(Line, frozen=True, kw_only=True, tag_field="type", tag="assistant"):
    message: Mapping[str, Any]
    parent_tool_use_id: str | None = None
    session_id: str
    uuid: str


class UserLine(Line, frozen=True, kw_only=True, tag_field="type", tag="user"):
    message: Mapping[str, Any]
    parent_tool_use_id: str | None = None
    session_id: str
    uuid: str


class StreamEvent(Line, frozen=True, kw_only=True, tag_field="type", tag="stream_event"):
    """A delta of an answer as an event of the Messages API."""

    event: Mapping[str, Any]
    parent_tool_use_id: str | None = None
    session_id: str
    uuid: str


class ModelSpent(Struct, frozen=True, kw_only=True, rename="camel"):
    input_tokens: int
    output_tokens: int
    cache_read_input_tokens: int
    cache_creation_input_tokens: int
    web_search_requests: int = 0
    cost_usd: float = msgspec.field(name="costUSD")


class Denial(Struct, frozen=True, kw_only=True):
    tool_name: str
    tool_use_id: str
    tool_input: Mapping[str, Any]


class Result(Line, frozen=True, kw_only=True, tag_field="type", tag="result"):
    subtype: Subtype
    is_error: bool
    duration_ms: int
    duration_api_ms: int
    num_turns: int
    result: str
    structured_output: Any = msgspec.UNSET
    stop_reason: str | None = None
    session_id: str
    total_cost_usd: float | None
    usage: Usage
    model_usage: Mapping[str, ModelSpent] = msgspec.field(name="modelUsage")
    permission_denials: Sequence[Denial]
    api_error_status: int | None = None
    errors: Sequence[str] = ()
    uuid: str


def subtype_of(reason: EndReason) -> Subtype:
    return _SUBTYPES.get(reason, "error_during_execution")


def model_usage(spent: Mapping[str, tuple[Usage, float]]) -> dict[str, ModelSpent]:
    return {
        model: ModelSpent(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cache_read_input_tokens=usage.cache_read_input_tokens,
            cache_creation_input_tokens=usage.cache_creation_input_tokens,
            cost_usd=usd,
        )
        for model, (usage, usd) in spent.items()
    }


def tool_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return the tool names that readers of this protocol expect."""
    return tuple("Task" if name == "Agent" else name for name in names)


def message_line(added: MessageAdded, session: str, *, parent: str | None = None) -> AssistantLine | UserLine:
    """Build the line for a message that entered the conversation, with its transcript id.

    `parent` is the call that started the agent of this conversation.
    """
    content = [_block(block) for block in added.message.content]
    if added.message.role == "user":
        said = {"role": "user", "content": content}
        return UserLine(message=said, parent_tool_use_id=parent, session_id=session, uuid=added.entry)
    message = {
        "id": added.message_id,
        "type": "message",
        "role": "assistant",
        "model": added.model,
        "content": content,
        "stop_reason": added.stop_reason or None,
        "stop_sequence": None,
        "usage": added.usage or Usage(),
    }
    return AssistantLine(message=message, parent_tool_use_id=parent, session_id=session, uuid=added.entry)


def answered(request_id: str, response: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Build the success response to a control request; the id is inside `response`."""
    inner = {"subtype": "success", "request_id": request_id, "response": dict(response or {})}
    return {"type": "control_response", "response": inner}


def refused(request_id: str, error: str) -> dict[str, Any]:
    inner = {"subtype": "error", "request_id": request_id, "error": error}
    return {"type": "control_response", "response": inner}


def asked(
    request_id: str,
    tool: str,
    call: str,
    given: Mapping[str, Any],
    *,
    suggested: Sequence[Any] = (),
    agent: str | None = None,
) -> dict[str, Any]:
    """Build the request for permission to run a tool, with suggested rules that would avoid the question.

    `agent` is the agent that asks, if it is not the lead.
    """
    request = {"subtype": "can_use_tool", "tool_name": tool, "input": given, "tool_use_id": call}
    if agent is not None:
        request["agent_id"] = agent
    if suggested:
        request["permission_suggestions"] = suggested
    return request_of(request_id, request)


def request_of(request_id: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """Build a control request to the program."""
    return {"type": "control_request", "request_id": request_id, "request": dict(request)}


def cancelled(request_id: str) -> dict[str, Any]:
    """Build the cancellation of a control request that needs no answer any more."""
    return {"type": "control_cancel_request", "request_id": request_id}


def _block(block: ContentBlock) -> Any:
    raw = msgspec.to_builtins(block)
    if isinstance(block, Thinking):
        # Omitted elsewhere when empty, but readers of this protocol index into it.
        raw["signature"] = block.signature
    return raw
