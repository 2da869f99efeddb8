"""Records a model's requests and replies and plays them back, to test a run without a model.

A recording is a JSONL file, one line per exchange: `hash` of the request, `request` (system, tools, messages
and the settings that are not defaults), `reply`, `card`, and `heard`, the sizes of the text deltas. Values
that differ between two runs of one job are recorded as placeholders.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from shoal.core.budgets.usage import ModelCard
from shoal.core.conversation.messages import TextBlock, ThinkingBlock, ToolUseBlock
from shoal.core.conversation.model_requests import (
    DeltaListener,
    ModelAttemptStartedDelta,
    ModelReply,
    ModelRequest,
    StreamDelta,
    TextDelta,
    ThinkingDelta,
    ToolInputProgressDelta,
    ignore_stream_delta,
)
from shoal.core.errors import ReplayMismatch, SettingsError, StateFileError
from shoal.core.keyword_checks import check_keywords
from shoal.core.ports import Model
from shoal.models.placeholders import NO_PLACEHOLDERS, RecordingPlaceholderReplacer

_encode_deterministic = msgspec.json.Encoder(order="deterministic").encode
# Replies keep their key order, so that a replayed run writes the same bytes as the recorded one.
_encode = msgspec.json.Encoder().encode


class RecordedModelExchange(Struct, frozen=True, kw_only=True):
    """One line of a recording."""

    hash: str
    card: ModelCard
    request: msgspec.Raw
    reply: msgspec.Raw
    heard: tuple[int, ...] = ()
    """Number of characters of each text delta."""


def encode_canonical_request(request: ModelRequest) -> bytes:
    """Encode a request as deterministic JSON: equal requests give equal bytes."""
    fields: dict[str, Any] = {
        "system": request.system,
        "tools": request.tools,
        "messages": request.messages,
    }
    if request.max_tokens is not None:
        fields["max_tokens"] = request.max_tokens
    if request.thinking_tokens:
        fields["thinking_tokens"] = request.thinking_tokens
    if request.temperature is not None:
        fields["temperature"] = request.temperature
    return _encode_deterministic(fields)


def _hash_encoded_request(encoded: bytes) -> str:
    return hashlib.sha256(encoded).hexdigest()[:32]


class RecordingModel:
    """Appends every complete exchange of another model to a file, which may exist."""

    def __init__(
        self, inner: Model, path: Path, placeholders: RecordingPlaceholderReplacer = NO_PLACEHOLDERS
    ) -> None:
        self._inner = inner
        self._path = path
        self._placeholders = placeholders
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            raise StateFileError(
                f"Cannot write the recording {path}: {error.strerror}.", path=path
            ) from error

    @property
    def card(self) -> ModelCard:
        return self._inner.card

    async def generate_reply(
        self, request: ModelRequest, on_delta: DeltaListener = ignore_stream_delta
    ) -> ModelReply:
        # Encoded before the answer, because the caller's list of messages may grow meanwhile.
        encoded = self._placeholders.hide_values(encode_canonical_request(request))
        delta_sizes: list[int] = []

        async def record_and_forward_delta(delta: StreamDelta) -> None:
            match delta:
                case TextDelta() if delta.text:
                    delta_sizes.append(len(delta.text))
                case ModelAttemptStartedDelta():
                    # A new attempt starts: deltas of an earlier one do not count.
                    delta_sizes.clear()
            await on_delta(delta)

        reply = await self._inner.generate_reply(request, record_and_forward_delta)
        exchange = RecordedModelExchange(
            hash=_hash_encoded_request(encoded),
            card=self._inner.card,
            request=msgspec.Raw(encoded),
            reply=msgspec.Raw(self._placeholders.hide_values(_encode(reply))),
            heard=tuple(delta_sizes),
        )
        self._append_recording_line(_encode(exchange) + b"\n")
        return reply

    def _append_recording_line(self, line: bytes) -> None:
        try:
            written = os.write(self._file, line)
        except OSError as error:
            reason = error.strerror
        else:
            if written == len(line):
                return
            reason = "the disk is full"
        raise StateFileError(f"Cannot write the recording {self._path}: {reason}.", path=self._path)

    async def aclose(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        await self._inner.aclose()


class ReplayModel:
    """Replays the recorded reply to the same request; equal requests are answered in recorded order."""

    @check_keywords("shoal.ReplayModel()")
    def __init__(
        self,
        path: str | os.PathLike[str],
        placeholders: RecordingPlaceholderReplacer = NO_PLACEHOLDERS,
    ) -> None:
        """`path` is the file of the recording. Raises `SettingsError` if it cannot be read."""
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"shoal.ReplayModel(): path: expected a path, got {path!r:.80}.")
        self._path = Path(path)
        self._placeholders = placeholders
        self._exchanges = read_model_recording(self._path)
        self._unplayed: dict[str, deque[RecordedModelExchange]] = {}
        for exchange in self._exchanges:
            self._unplayed.setdefault(exchange.hash, deque()).append(exchange)

    @property
    def card(self) -> ModelCard:
        """Name, limits and prices of the recorded model."""
        return self._exchanges[0].card

    async def generate_reply(
        self, request: ModelRequest, on_delta: DeltaListener = ignore_stream_delta
    ) -> ModelReply:
        encoded = self._placeholders.hide_values(encode_canonical_request(request))
        exchanges = self._unplayed.get(_hash_encoded_request(encoded))
        if not exchanges:
            raise self._build_mismatch_error(encoded, was_recorded=exchanges is not None)
        exchange = exchanges.popleft()
        reply = msgspec.json.decode(self._placeholders.restore_values(bytes(exchange.reply)), type=ModelReply)
        await on_delta(ModelAttemptStartedDelta())
        if on_delta is not ignore_stream_delta:
            for delta in _split_reply_into_deltas(reply, exchange.heard):
                await on_delta(delta)
        return reply

    async def aclose(self) -> None:
        """Do nothing: no resource is open."""

    def _build_mismatch_error(self, encoded: bytes, *, was_recorded: bool) -> ReplayMismatch:
        from shoal.models.request_diff import diff_with_nearest_recorded_request

        remaining = [exchange for exchanges in self._unplayed.values() for exchange in exchanges]
        if was_recorded:
            message = f"The recording {self._path} has no more replies to this request."
        elif not remaining:
            message = f"The recording {self._path} has no more replies: all {len(self._exchanges)} were used."
        else:
            message = (
                f"The recording {self._path} has no reply to this request. It differs from the closest "
                "recorded one:\n"
                + diff_with_nearest_recorded_request(
                    msgspec.json.decode(encoded), [msgspec.json.decode(e.request) for e in remaining]
                )
            )
        return ReplayMismatch(message, provider="replay", model=self.card.id)


def read_model_recording(path: Path) -> list[RecordedModelExchange]:
    """Return all exchanges; raises `SettingsError` with the file and the line."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SettingsError(f"Cannot read the recording {path}: {error.strerror}.", path=path) from error
    decoder, reply_decoder = msgspec.json.Decoder(RecordedModelExchange), msgspec.json.Decoder(ModelReply)
    exchanges = []
    for number, line in enumerate(content.splitlines(), 1):
        try:
            exchange = decoder.decode(line)
            reply_decoder.decode(exchange.reply)
            exchanges.append(exchange)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise SettingsError(
                f"Line {number} of the recording {path} is not valid: {error}. Record the run again, or "
                "delete that line if the recording was interrupted.",
                path=path,
                line=number,
            ) from error
    if not exchanges:
        raise SettingsError(f"The recording {path} is empty.", path=path)
    return exchanges


def _split_reply_into_deltas(reply: ModelReply, delta_sizes: Sequence[int]) -> Iterator[StreamDelta]:
    """Yield the deltas of a reply, split as they were when recorded."""
    sizes = iter(delta_sizes)
    for block in reply.message.content:
        match block:
            case ThinkingBlock():
                yield ThinkingDelta(block.thinking)
            case ToolUseBlock():
                yield ToolInputProgressDelta(block.name, len(msgspec.json.encode(block.input)))
            case TextBlock():
                start = 0
                while start < len(block.text):
                    end = start + (next(sizes, 0) or len(block.text))
                    yield TextDelta(block.text[start:end])
                    start = end
