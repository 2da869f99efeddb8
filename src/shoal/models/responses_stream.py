"""Assembles replies from events of the Responses API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shoal.core.messages import ContentBlock, Message, Text, Thinking, ToolUse
from shoal.core.requests import Reply, StopReason, TextDelta, ThinkingDelta, ToolInputDelta
from shoal.core.usage import Usage
from shoal.models.assembly import Assembly
from shoal.models.chat_stream import call_ids
from shoal.models.faults import SENSELESS, Asked, stream_error
from shoal.models.json_text import count_of, text_of
from shoal.models.messages_stream import tool_input
from shoal.models.reasoning import Sealed, seal

_TEXTS = ("response.output_text.delta", "response.refusal.delta")
_THOUGHTS = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
_ENDS = ("response.completed", "response.incomplete")
_BETWEEN = "\n\n"
"""Separates the paragraphs of a summary, which arrive as separate parts."""


class ResponseAssembly(Assembly):
    def __init__(self, asked: Asked, history: Sequence[Message]) -> None:
        super().__init__(asked)
        self._history = history
        self._items: dict[int, Mapping[str, Any]] = {}
        """Items as announced, then as completed."""
        self._sizes: dict[int, int] = {}
        self._response: Mapping[str, Any] = {}

    def _take(self, event: Mapping[str, Any]) -> None:
        kind = event.get("type") or ("error" if "error" in event else "")
        if kind in _TEXTS:
            self.heard.append(TextDelta(text_of(event["delta"])))
        elif kind in _THOUGHTS:
            self.heard.append(ThinkingDelta(text_of(event["delta"])))
        elif kind == "response.reasoning_summary_part.added" and event.get("summary_index"):
            self.heard.append(ThinkingDelta(_BETWEEN))
        elif kind == "response.function_call_arguments.delta":
            self._grow_call(event["output_index"], event["delta"])
        elif kind in ("response.output_item.added", "response.output_item.done"):
            self._items[event["output_index"]] = event["item"]
            if kind.endswith("added") and event["item"].get("type") == "function_call":
                self._grow_call(event["output_index"], "")
        elif kind in _ENDS:
            self._response = event["response"]
            self.done = True
        elif kind == "response.failed":
            raise stream_error(self._asked, event["response"].get("error") or "It failed and said nothing.")
        elif kind == "error":
            raise stream_error(self._asked, event.get("error") or _error_in(event))

    def _grow_call(self, index: int, more: str) -> None:
        self._sizes[index] = self._sizes.get(index, 0) + len(more)
        self.heard.append(ToolInputDelta(name=text_of(self._items[index]["name"]), size=self._sizes[index]))

    def reply(self) -> Reply:
        """Raises a `ModelError` for an invalid response."""
        try:
            return self._reply()
        except SENSELESS as error:
            what = f"a response that makes no sense: {str(self._response)[:200]}"
            raise self._asked.senseless(what, error) from error

    def _reply(self) -> Reply:
        # The last event repeats all items; servers that omit them have sent each one before.
        items = self._response.get("output") or [self._items[index] for index in sorted(self._items)]
        content = self._content(items)
        usage = self._response.get("usage")
        return Reply(
            message=Message(role="assistant", content=tuple(content)),
            usage=_usage_from(usage or {}),
            stop_reason=self._stop_reason(items, content),
            model=text_of(self._response.get("model")) or self._asked.model,
            id=text_of(self._response.get("id")),
            counted=bool(usage),
        )

    def _content(self, items: Sequence[Mapping[str, Any]]) -> list[ContentBlock]:
        content: list[ContentBlock] = []
        calls = [item for item in items if item.get("type") == "function_call"]
        ids = call_ids([text_of(item.get("call_id")) for item in calls], self._history)
        for item in items:
            match item.get("type"):
                case "reasoning":
                    content += _thought(item)
                case "message":
                    text = "".join(_said(part) for part in item.get("content") or ())
                    content += [Text(text=text)] if text else []
                case "function_call":
                    cut = item is calls[-1] and item.get("status") == "incomplete"
                    given = tool_input(item.get("arguments") or "", cut=cut)
                    content.append(ToolUse(id=next(ids), name=text_of(item["name"]), input=given))
                case _:
                    pass  # output of the provider's own tools
        return content

    def _stop_reason(self, items: Sequence[Mapping[str, Any]], content: Sequence[ContentBlock]) -> StopReason:
        why = (self._response.get("incomplete_details") or {}).get("reason")
        if why == "content_filter" or _is_refused(items):
            return "refusal"
        if why == "max_output_tokens" or self._response.get("status") == "incomplete":
            return "max_tokens"
        return "tool_use" if any(isinstance(block, ToolUse) for block in content) else "end_turn"


def _thought(item: Mapping[str, Any]) -> list[Thinking]:
    parts = item.get("summary") or item.get("content") or ()
    words = _BETWEEN.join(part.get("text") or "" for part in parts)
    sealed = item.get("encrypted_content")
    if not words and not sealed:
        return []
    signature = seal(Sealed(item.get("id") or "", sealed)) if sealed else ""
    return [Thinking(thinking=words, signature=signature)]


def _said(part: Mapping[str, Any]) -> str:
    return part.get("text") or part.get("refusal") or ""


def _is_refused(items: Sequence[Mapping[str, Any]]) -> bool:
    parts = (part for item in items if item.get("type") == "message" for part in item.get("content") or ())
    return any(part.get("type") == "refusal" for part in parts)


def _error_in(event: Mapping[str, Any]) -> dict[str, Any]:
    return {key: event[key] for key in ("code", "message", "param") if event.get(key) is not None}


def _usage_from(raw: Mapping[str, Any]) -> Usage:
    """Parse the usage; reasoning tokens are included in the output."""
    details = raw.get("input_tokens_details") or {}
    read, written = count_of(details.get("cached_tokens")), count_of(details.get("cache_write_tokens"))
    return Usage(
        input_tokens=max(0, count_of(raw.get("input_tokens")) - read - written),
        output_tokens=count_of(raw.get("output_tokens")),
        cache_creation_input_tokens=written,
        cache_read_input_tokens=read,
    )
