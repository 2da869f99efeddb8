"""Assembles replies from chunks of Chat Completions and compatible servers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shoal.core.messages import ContentBlock, Message, Text, Thinking, ToolUse
from shoal.core.requests import Reply, StopReason, TextDelta, ThinkingDelta, ToolInputDelta
from shoal.core.usage import Usage
from shoal.models.assembly import Assembly
from shoal.models.faults import Asked, stream_error
from shoal.models.json_text import count_of, encoded, text_of
from shoal.models.messages_stream import tool_input

_STOPS: Mapping[str, StopReason] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
_SHORT_ID = 8
"""Shorter ids are counters that restart with every reply."""


class _Call:
    """A tool call that is still being streamed."""

    __slots__ = ("arguments", "id", "index", "name", "size")

    def __init__(self, index: int) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []
        self.size = 0


class ChatAssembly(Assembly):
    def __init__(self, asked: Asked, history: Sequence[Message]) -> None:
        super().__init__(asked)
        self._history = history
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._calls: list[_Call] = []
        self._open: dict[int, _Call] = {}
        """The call that is being streamed at each index."""
        self._usage: Mapping[str, Any] | None = None
        self._counted = Usage()
        self._finish: str | None = None
        self._refused = False
        self._id = ""
        self._model = ""

    def ended(self) -> bool:
        """Return True if the reply is complete without an end mark, which some servers omit."""
        return self.done or (self._finish is not None and self._usage is not None)

    def _take(self, event: Mapping[str, Any]) -> None:
        if event.get("error"):
            raise stream_error(self._asked, event["error"])
        self._id = self._id or text_of(event.get("id"))
        self._model = text_of(event.get("model")) or self._model
        # Counts are cumulative if a server repeats them.
        if usage := event.get("usage"):
            self._usage, self._counted = usage, _usage_from(usage)
        for choice in event.get("choices") or ():
            if choice.get("index"):
                continue
            self._finish = text_of(choice.get("finish_reason")) or self._finish
            self._grow(choice.get("delta") or choice.get("message") or {})

    def _grow(self, delta: Mapping[str, Any]) -> None:
        if thought := delta.get("reasoning_content") or delta.get("reasoning"):
            self._thinking.append(_text_in(thought))
            self.heard.append(ThinkingDelta(self._thinking[-1]))
        if refusal := delta.get("refusal"):
            self._refused = True
            self._text.append(_text_in(refusal))
            self.heard.append(TextDelta(self._text[-1]))
        if content := delta.get("content"):
            self._text.append(_text_in(content))
            self.heard.append(TextDelta(self._text[-1]))
        for part in delta.get("tool_calls") or ():
            self._grow_call(part)

    def _grow_call(self, part: Mapping[str, Any]) -> None:
        function = part.get("function") or {}
        call = self._call(part, text_of(function.get("name")))
        call.id = text_of(part.get("id")) or call.id
        call.name = text_of(function.get("name")) or call.name
        arguments = function.get("arguments") or ""
        if not isinstance(arguments, str):  # some servers send the object itself
            arguments = encoded(arguments).decode()
        call.arguments.append(arguments)
        call.size += len(arguments)
        self.heard.append(ToolInputDelta(name=call.name, size=call.size))

    def _call(self, part: Mapping[str, Any], name: str) -> _Call:
        """Return the call that the part continues, or a new one."""
        index, call_id = part.get("index"), text_of(part.get("id"))
        if isinstance(index, int):
            known = self._open.get(index)
            # Some servers give every call the same index, others give every part of a call another id.
            if known is not None and not (name and call_id and call_id != known.id and known.size):
                return known
        else:
            # Without an index, a new id starts a new call; everything else belongs to the last one.
            index = max(self._open, default=-1)
            known = self._open.get(index)
            if known is not None and (not call_id or call_id == known.id):
                return known
            index += 1
        self._open[index] = call = _Call(index)
        self._calls.append(call)
        return call

    def reply(self) -> Reply:
        calls = sorted(self._calls, key=lambda call: call.index)
        content: list[ContentBlock] = []
        if thought := "".join(self._thinking):
            content.append(Thinking(thinking=thought))
        if text := "".join(self._text):
            content.append(Text(text=text))
        ids = call_ids([call.id for call in calls], self._history)
        for call, call_id in zip(calls, ids, strict=True):
            cut = self._finish == "length" and call is calls[-1]
            raw = "".join(call.arguments)
            content.append(ToolUse(id=call_id, name=call.name, input=tool_input(raw, cut=cut)))
        return Reply(
            message=Message(role="assistant", content=tuple(content)),
            usage=self._counted,
            stop_reason=self._stop_reason(calls),
            model=self._model or self._asked.model,
            id=self._id,
            counted=bool(self._usage),
        )

    def _stop_reason(self, calls: Sequence[_Call]) -> StopReason:
        if self._refused:
            return "refusal"
        stop = _STOPS.get(self._finish or "stop", "end_turn")
        return "tool_use" if calls and stop == "end_turn" else stop


def call_ids(given: Sequence[str], history: Sequence[Message]) -> Iterator[str]:
    """Yield the calls' ids; missing or duplicate ones are replaced by the next free number."""
    used: set[str] = set()
    if any(len(call_id) < _SHORT_ID for call_id in given):
        used = {use.id for message in history for use in message.tool_uses}
    number = len(used)
    for call_id in given:
        chosen = call_id
        while not chosen or chosen in used:
            chosen = f"call_{number:05d}"
            number += 1
        used.add(chosen)
        yield chosen


def _text_in(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or "" for part in content)


def _usage_from(raw: Mapping[str, Any]) -> Usage:
    details = raw.get("prompt_tokens_details") or {}
    read = count_of(details.get("cached_tokens") or raw.get("prompt_cache_hit_tokens"))
    written = count_of(details.get("cache_write_tokens"))
    prompt = count_of(raw.get("prompt_tokens"))
    return Usage(
        input_tokens=max(0, prompt - read - written),
        output_tokens=count_of(raw.get("completion_tokens")),
        cache_creation_input_tokens=written,
        cache_read_input_tokens=read,
    )
