"""Output lines of the stream-json protocol: events, requests and responses, one JSON object per line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from shoal.core.budgets.usage import Usage
from shoal.core.conversation.messages import ContentBlock, ThinkingBlock, ToolUseBlock
from shoal.core.events import MessageAdded, TurnEndReason
from shoal.wire.json_codec import encode_json, flatten_groups

ResultSubtype: TypeAlias = Literal[
    "success",
    "error_max_turns",
    "error_max_budget_usd",
    "error_max_structured_output_retries",
    "error_during_execution",
]

SessionState: TypeAlias = Literal["running", "requires_action", "idle"]

PROTOCOL_VERSION = "2.1.248"
"""Version of the program whose protocol this is. The public SDK warns if no version is sent."""

_SUBTYPES: dict[TurnEndReason, ResultSubtype] = {
    "done": "success",
    # For an API failure the program succeeds and the answer fails: readers look at `is_error`.
    "model_error": "success",
    "max_turns": "error_max_turns",
    "budget": "error_max_budget_usd",
    "no_output": "error_max_structured_output_retries",
}
DeltaKind: TypeAlias = Literal["text", "thinking"]
_EMPTY_BLOCKS: dict[DeltaKind, dict[str, Any]] = {
    "text": {"type": "text", "text": ""},
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
}


class PartialMessageEncoder:
    """Encodes one agent's answer as an ordered stream of events, for deltas of any provider.

    Tool calls are sent completely at the end: until then the answer may still be discarded.
    """

    def __init__(self) -> None:
        self._is_started = False
        self._open_kind: DeltaKind | None = None
        self._index = -1
        self._model = ""

    def start_request(self, model: str) -> tuple[()]:
        """Remember the model that is asked; an answer that was never completed is discarded."""
        self._model = model
        return self.discard_partial_message()

    def encode_delta(self, kind: DeltaKind, text: str, reply: str = "") -> Iterable[dict[str, Any]]:
        """Encode a part of an answer; `reply` is its id, if it is known."""
        yield from self._start_message(self._model, reply, Usage())
        if self._open_kind != kind:
            yield from self._close_block()
            self._open_kind = kind
            yield self._open_block(_EMPTY_BLOCKS[kind])
        yield self._build_block_delta({"type": f"{kind}_delta", kind: text})

    def discard_partial_message(self) -> tuple[()]:
        """Discard the state of an answer that was never completed."""
        self._is_started, self._open_kind, self._index = False, None, -1
        return ()

    def encode_message_end(self, added: MessageAdded) -> Iterable[dict[str, Any]]:
        usage = added.usage or Usage()
        yield from self._start_message(added.model, added.message_id, usage)
        yield from self._close_block()
        for block in added.message.content:
            if isinstance(block, ToolUseBlock):
                yield self._open_block({"type": "tool_use", "id": block.id, "name": block.name, "input": {}})
                yield self._build_block_delta(
                    {"type": "input_json_delta", "partial_json": encode_json(block.input).decode()}
                )
                yield {"type": "content_block_stop", "index": self._index}
        yield {
            "type": "message_delta",
            "delta": {"stop_reason": added.stop_reason or None, "stop_sequence": None},
            "usage": _encode_usage(usage, usage.output_tokens),
        }
        yield {"type": "message_stop"}
        self.discard_partial_message()

    def _start_message(self, model: str, identity: str, usage: Usage) -> Iterator[dict[str, Any]]:
        if not self._is_started:
            self._is_started = True
            message: dict[str, Any] = {
                "id": identity,
                "type": "message",
                "role": "assistant",
                "model": model,
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                # The input is counted at the end, unless nothing was streamed before.
                "usage": _encode_usage(usage, 0),
            }
            yield {"type": "message_start", "message": message}

    def _close_block(self) -> Iterator[dict[str, Any]]:
        if self._open_kind is not None:
            self._open_kind = None
            yield {"type": "content_block_stop", "index": self._index}

    def _open_block(self, block: dict[str, Any]) -> dict[str, Any]:
        self._index += 1
        return {"type": "content_block_start", "index": self._index, "content_block": block}

    def _build_block_delta(self, delta: dict[str, Any]) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": self._index, "delta": delta}


def _encode_usage(usage: Usage, output_tokens: int) -> dict[str, int]:
    return {
        "input_tokens": usage.input_tokens,
        "cache_creation_input_tokens": usage.cache_creation_input_tokens,
        "cache_read_input_tokens": usage.cache_read_input_tokens,
        "output_tokens": output_tokens,
    }


class OutputStreamLine(Struct, frozen=True, kw_only=True):
    """Base of all output lines; `type` comes first on every line."""


class SessionInitStreamLine(OutputStreamLine, frozen=True, kw_only=True, tag_field="type", tag="system"):
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
    claude_code_version: str = PROTOCOL_VERSION
    uuid: str


class SessionStateStreamLine(OutputStreamLine, frozen=True, kw_only=True, tag_field="type", tag="system"):
    """The state of the session changed; sent only to a program that uses stream-json input."""

    subtype: Literal["session_state_changed"] = "session_state_changed"
    state: SessionState
    session_id: str
    uuid: str
    sdk_host_only: bool | msgspec.UnsetType = msgspec.UNSET
    """True if the line is meant for the program's SDK, not for the program."""


class CompactBoundaryStreamLine(OutputStreamLine, frozen=True, kw_only=True, tag_field="type", tag="system"):
    subtype: Literal["compact_boundary"] = "compact_boundary"
    compact_metadata: Mapping[str, Any]
    session_id: str
    uuid: str


class BudgetWarningStreamLine(OutputStreamLine, frozen=True, kw_only=True, tag_field="type", tag="system"):
    """A percentage of a limit is spent; `whose` is a type or an agent, empty for the whole run."""

    subtype: Literal["budget_warning"] = "budget_warning"
    limit: str
    percent: int
    spent: float
    of: float
    whose: str
    session_id: str
    uuid: str


class HookOutcomeStreamLine(OutputStreamLine, frozen=True, kw_only=True, tag_field="type", tag="system"):
    """A hook ran, with its outcome."""

    subtype: Literal["hook_response"] = "hook_response"
    hook_event: str
    hook_name: str
    outcome: str
    output: str
    duration_ms: int
    session_id: str
    uuid: str


class AssistantMessageStreamLine(
    OutputStreamLine, frozen=True, kw_only=True, tag_field="type", tag="assistant"
):
    message: Mapping[str, Any]
    parent_tool_use_id: str | None = None
    session_id: str
    uuid: str


class UserMessageStreamLine(OutputStreamLine, frozen=True, kw_only=True, tag_field="type", tag="user"):
    message: Mapping[str, Any]
    parent_tool_use_id: str | None = None
    session_id: str
    uuid: str
    timestamp: str | msgspec.UnsetType = msgspec.UNSET
    tool_use_result: Any = msgspec.UNSET
    """Structured data of a tool's result, or its text."""
    is_replay: bool | msgspec.UnsetType = msgspec.field(name="isReplay", default=msgspec.UNSET)
    """True for a message that the program sent itself."""


class ApiRetryStreamLine(OutputStreamLine, frozen=True, kw_only=True, tag_field="type", tag="system"):
    """A request to the model failed and is sent again after a pause."""

    subtype: Literal["api_retry"] = "api_retry"
    attempt: int
    max_retries: int | None
    retry_delay_ms: int
    error_status: int | None = None
    error: str
    session_id: str
    uuid: str


class PartialMessageStreamLine(
    OutputStreamLine, frozen=True, kw_only=True, tag_field="type", tag="stream_event"
):
    """A delta of an answer as an event of the Messages API."""

    event: Mapping[str, Any]
    parent_tool_use_id: str | None = None
    session_id: str
    uuid: str


class ModelUsageTotals(Struct, frozen=True, kw_only=True, rename="camel"):
    input_tokens: int
    output_tokens: int
    cache_read_input_tokens: int
    cache_creation_input_tokens: int
    web_search_requests: int = 0
    cost_usd: float = msgspec.field(name="costUSD")


class RunResultPermissionDenial(Struct, frozen=True, kw_only=True):
    tool_name: str
    tool_use_id: str
    tool_input: Mapping[str, Any]


class RunResultWork(Struct, frozen=True, kw_only=True):
    duration_ms: int = 0
    duration_api_ms: int = 0
    num_turns: int = 0


class RunResultSpending(Struct, frozen=True, kw_only=True):
    total_cost_usd: float | None = 0.0
    usage: Usage = Usage()
    model_usage: Mapping[str, ModelUsageTotals] = msgspec.field(name="modelUsage", default_factory=dict)


class RunResultStreamLine(OutputStreamLine, frozen=True, kw_only=True, tag_field="type", tag="result"):
    """The result of a run; `encode_stream_line` puts the fields of its groups on the line itself."""

    subtype: ResultSubtype
    is_error: bool
    work: RunResultWork = RunResultWork()
    result: str
    structured_output: Any = msgspec.UNSET
    stop_reason: str | None = None
    session_id: str
    spending: RunResultSpending = RunResultSpending()
    permission_denials: Sequence[RunResultPermissionDenial]
    api_error_status: int | None = None
    errors: Sequence[str] = ()
    uuid: str


def encode_stream_line(line: object) -> bytes:
    if isinstance(line, RunResultStreamLine):
        return encode_json(flatten_groups(line, "work", "spending"))
    return encode_json(line)


def get_result_subtype(reason: TurnEndReason) -> ResultSubtype:
    return _SUBTYPES.get(reason, "error_during_execution")


def build_model_usage_totals(spent: Mapping[str, tuple[Usage, float]]) -> dict[str, ModelUsageTotals]:
    return {
        model: ModelUsageTotals(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cache_read_input_tokens=usage.cache_read_input_tokens,
            cache_creation_input_tokens=usage.cache_creation_input_tokens,
            cost_usd=usd,
        )
        for model, (usage, usd) in spent.items()
    }


def to_protocol_tool_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return the tool names that readers of this protocol expect."""
    return tuple("Task" if name == "Agent" else name for name in names)


def build_stream_message_line(
    added: MessageAdded,
    session: str,
    *,
    parent: str | None = None,
    timestamp: str = "",
    tool_use_result: Any = msgspec.UNSET,
) -> AssistantMessageStreamLine | UserMessageStreamLine:
    """Build the line for a message that entered the conversation, with its transcript id.

    `parent` is the call that started the agent of this conversation.
    """
    content = [_encode_content_block(block) for block in added.message.content]
    if added.message.role == "user":
        api_message = {"role": "user", "content": content}
        return UserMessageStreamLine(
            message=api_message,
            parent_tool_use_id=parent,
            session_id=session,
            uuid=added.entry,
            timestamp=timestamp or msgspec.UNSET,
            tool_use_result=tool_use_result,
        )
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
    return AssistantMessageStreamLine(
        message=message, parent_tool_use_id=parent, session_id=session, uuid=added.entry
    )


def build_control_success_response(
    request_id: str, response: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Build the success response to a control request; the id is inside `response`."""
    body = {"subtype": "success", "request_id": request_id, "response": dict(response or {})}
    return {"type": "control_response", "response": body}


def build_control_error_response(request_id: str, error: str) -> dict[str, Any]:
    body = {"subtype": "error", "request_id": request_id, "error": error}
    return {"type": "control_response", "response": body}


def build_permission_request(
    request_id: str,
    tool: str,
    call: str,
    tool_input: Mapping[str, Any],
    *,
    suggestions: Sequence[Any] = (),
    agent: str | None = None,
) -> dict[str, Any]:
    """Build the request for permission to run a tool, with suggested rules that would avoid the question.

    `agent` is the agent that asks, if it is not the lead.
    """
    request = {"subtype": "can_use_tool", "tool_name": tool, "input": tool_input, "tool_use_id": call}
    if agent is not None:
        request["agent_id"] = agent
    if suggestions:
        request["permission_suggestions"] = suggestions
    return build_control_request(request_id, request)


def build_control_request(request_id: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """Build a control request to the program."""
    return {"type": "control_request", "request_id": request_id, "request": dict(request)}


def build_control_cancel_request(request_id: str) -> dict[str, Any]:
    """Build the cancellation of a control request that no longer needs an answer."""
    return {"type": "control_cancel_request", "request_id": request_id}


def _encode_content_block(block: ContentBlock) -> Any:
    raw = msgspec.to_builtins(block)
    if isinstance(block, ThinkingBlock):
        # Omitted elsewhere when empty, but readers of this protocol index into it.
        raw["signature"] = block.signature
    return raw
