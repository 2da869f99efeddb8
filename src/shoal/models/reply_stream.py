"""Turns the bytes of a stream into deltas, merged per chunk and kind rather than per token."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from shoal.core.conversation.model_requests import (
    DeltaListener,
    StreamDelta,
    TextDelta,
    ThinkingDelta,
    ToolInputProgressDelta,
)
from shoal.core.errors import BadReply
from shoal.models.model_errors import ModelRequestTarget
from shoal.models.provider_json import decode_json
from shoal.models.reply_assembler import ReplyAssembler

_REPLY_LIMIT = 64 << 20
"""Maximum number of bytes in a stream; a longer reply has run away."""


_KEEP_ALIVE_TYPES = ("ping", "keepalive")
_MAX_KINDS = 10_000
_KIND_FIELDS = ("type", "index", "output_index", "content_index", "summary_index")
"""Fields that tell the events of a reply apart; events of one kind with the same values are one series."""


class SseEventTooLongError(Exception):
    """A line or an event exceeds the limit."""


class SseParser:
    """Takes raw bytes and returns the data of complete events. Event names are ignored.

    Comments, unknown fields and lines without a field are skipped. An event that is not ended by a blank line
    when the stream ends is not an event.
    """

    __slots__ = ("_data", "_limit", "_rest", "_size")

    def __init__(self, *, limit: int = 32 << 20) -> None:
        self._limit = limit
        self._rest = bytearray()
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        end = chunk.rfind(b"\n") + 1
        if not end:
            self._buffer_incomplete_line(chunk)
            return []
        if self._rest:
            self._rest += chunk[:end]
            lines = bytes(self._rest).split(b"\n")
            self._rest.clear()
        else:
            lines = chunk[:end].split(b"\n")
        lines.pop()
        if end < len(chunk):
            self._buffer_incomplete_line(chunk[end:])
        return self._parse_lines(lines)

    def _buffer_incomplete_line(self, part: bytes) -> None:
        self._rest += part
        if len(self._rest) > self._limit:
            raise SseEventTooLongError(f"a line of more than {self._limit >> 20} MB")

    def _parse_lines(self, lines: list[bytes]) -> list[bytes]:
        events: list[bytes] = []
        for raw in lines:
            line = raw.removesuffix(b"\r")
            if not line:
                if self._data:
                    events.append(b"\n".join(self._data))
                self._data, self._size = [], 0
                continue
            field, _, value = line.removeprefix(b"\xef\xbb\xbf").partition(b":")
            if field == b"data":
                self._size += len(value)
                if self._size > self._limit:
                    raise SseEventTooLongError(f"an event of more than {self._limit >> 20} MB")
                self._data.append(value.removeprefix(b" "))
        return events


class ReplyStreamReader:
    """Consumes the bytes of one answer from an endpoint."""

    def __init__(
        self, target: ModelRequestTarget, assembler: ReplyAssembler, on_delta: DeltaListener
    ) -> None:
        self._target = target
        self._assembler = assembler
        self._on_delta = on_delta
        self._parser = SseParser()
        self._size = 0
        self._event_count = 0
        self._seen_kinds: set[tuple[object, ...]] = set()
        self._last_tool_progress = ToolInputProgressDelta(name="", size=-1)

    def count_events(self) -> int:
        """Return the number of events so far, without keep-alive messages."""
        return self._event_count

    def _is_keep_alive(self, event: Any, deltas: list[StreamDelta]) -> bool:
        """Return True if the event adds nothing to the reply: some servers repeat empty events as pings."""
        for delta in deltas:
            if isinstance(delta, TextDelta | ThinkingDelta):
                if delta.text:
                    return False
            elif isinstance(delta, ToolInputProgressDelta) and delta != self._last_tool_progress:
                self._last_tool_progress = delta
                return False
        if not isinstance(event, dict) or event.get("type") in _KEEP_ALIVE_TYPES:
            return True
        # The first of its kind starts or ends a part of the reply.
        kind = tuple(str(event.get(name)) for name in _KIND_FIELDS)
        if kind in self._seen_kinds or len(self._seen_kinds) >= _MAX_KINDS:
            return True
        self._seen_kinds.add(kind)
        return False

    async def feed(self, chunk: bytes) -> bool:
        """Return True if the answer is complete; b"" means that no more bytes will come."""
        if not chunk:
            return self._assembler.is_complete_without_end_mark()
        for data in self._parse_sse_events(chunk):
            if data == b"[DONE]":
                self._assembler.mark_done()
            elif (event := _try_decode_json(data)) is not None:
                known = len(self._assembler.deltas)
                self._assembler.add_stream_event(event)
                self._event_count += not self._is_keep_alive(event, self._assembler.deltas[known:])
            if self._assembler.done:
                break
        if self._assembler.deltas:
            for delta in merge_stream_deltas(self._assembler.take_deltas()):
                await self._on_delta(delta)
        return self._assembler.done

    def _parse_sse_events(self, chunk: bytes) -> list[bytes]:
        self._size += len(chunk)
        what = f"a response of more than {_REPLY_LIMIT >> 20} MB"
        try:
            if self._size <= _REPLY_LIMIT:
                return self._parser.feed(chunk)
        except SseEventTooLongError as error:
            what = str(error)
        raise self._target.build_error(BadReply, f"{self._target.provider} sent {what}.")


def _try_decode_json(data: bytes) -> Any:
    """Decode JSON, or return None: proxies insert lines between those of the provider."""
    try:
        return decode_json(data)
    except ValueError:
        return None


def merge_stream_deltas(deltas: Iterable[StreamDelta]) -> list[StreamDelta]:
    """Merge adjacent deltas of one kind, in order."""
    runs: list[list[StreamDelta]] = []
    for delta in deltas:
        if runs and type(runs[-1][0]) is type(delta):
            runs[-1].append(delta)
        else:
            runs.append([delta])
    return [_join_same_kind_deltas(run) for run in runs]


def _join_same_kind_deltas(run: list[StreamDelta]) -> StreamDelta:
    if len(run) == 1:
        return run[0]
    match run[0]:
        case TextDelta(reply=reply):
            return TextDelta("".join(d.text for d in run if isinstance(d, TextDelta)), reply)
        case ThinkingDelta(reply=reply):
            return ThinkingDelta("".join(d.text for d in run if isinstance(d, ThinkingDelta)), reply)
        case ToolInputProgressDelta():
            return run[-1]
        case _:
            return run[-1]
