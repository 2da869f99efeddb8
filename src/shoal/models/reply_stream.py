"""Turns the bytes of a stream into deltas, merged per chunk and kind rather than per token."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from shoal.core.errors import BadReply
from shoal.core.model_requests import (
    DeltaListener,
    StreamDelta,
    TextDelta,
    ThinkingDelta,
    ToolInputProgressDelta,
)
from shoal.models.model_errors import ModelRequestTarget
from shoal.models.provider_json import decode_json
from shoal.models.reply_assembler import ReplyAssembler
from shoal.models.sse_parser import SseEventTooLongError, SseParser

_REPLY_LIMIT = 64 << 20
"""Bytes of a stream; a longer reply is a runaway."""


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

    async def feed(self, chunk: bytes) -> bool:
        """Return True if the answer is complete; b"" means that no more bytes will come."""
        if not chunk:
            return self._assembler.is_complete_without_end_mark()
        for data in self._parse_sse_events(chunk):
            if data == b"[DONE]":
                self._assembler.done = True
            elif (event := _try_decode_json(data)) is not None:
                self._assembler.add_stream_event(event)
            if self._assembler.done:
                break
        if self._assembler.deltas:
            deltas, self._assembler.deltas = self._assembler.deltas, []
            for delta in merge_stream_deltas(deltas):
                await self._on_delta(delta)
        return self._assembler.done

    def _parse_sse_events(self, chunk: bytes) -> list[bytes]:
        self._size += len(chunk)
        what = f"an answer of more than {_REPLY_LIMIT >> 20} MB"
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
        case TextDelta():
            return TextDelta("".join(d.text for d in run if isinstance(d, TextDelta)))
        case ThinkingDelta():
            return ThinkingDelta("".join(d.text for d in run if isinstance(d, ThinkingDelta)))
        case ToolInputProgressDelta():
            return run[-1]
        case _:
            return run[-1]
