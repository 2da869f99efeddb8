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

from shoal.core.errors import ReplayMismatch, SettingsError, StoreError
from shoal.core.messages import Text, Thinking, ToolUse
from shoal.core.ports import Model
from shoal.core.requests import (
    Delta,
    Hear,
    Reply,
    Request,
    Sent,
    TextDelta,
    ThinkingDelta,
    ToolInputDelta,
    unheard,
)
from shoal.core.usage import ModelCard
from shoal.models.stand_ins import NONE, StandIns

_canonical = msgspec.json.Encoder(order="deterministic").encode
# Replies keep their key order, so that a replayed run writes the same bytes as the recorded one.
_encode = msgspec.json.Encoder().encode


class Exchange(Struct, frozen=True, kw_only=True):
    """One line of a recording."""

    hash: str
    card: ModelCard
    request: msgspec.Raw
    reply: msgspec.Raw
    heard: tuple[int, ...] = ()
    """Number of characters of each text delta."""


def canonical(request: Request) -> bytes:
    """Encode a request as deterministic JSON: equal requests give equal bytes."""
    asked: dict[str, Any] = {
        "system": request.system,
        "tools": request.tools,
        "messages": request.messages,
    }
    if request.max_tokens is not None:
        asked["max_tokens"] = request.max_tokens
    if request.thinking_tokens:
        asked["thinking_tokens"] = request.thinking_tokens
    if request.temperature is not None:
        asked["temperature"] = request.temperature
    return _canonical(asked)


def _hash(asked: bytes) -> str:
    return hashlib.sha256(asked).hexdigest()[:32]


class RecordingModel:
    """Appends every complete exchange of another model to a file, which may exist."""

    def __init__(self, inner: Model, path: Path, stand_ins: StandIns = NONE) -> None:
        self._inner = inner
        self._path = path
        self._stand_ins = stand_ins
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            raise StoreError(
                f"The recording {path} cannot be written: {error.strerror}.", path=path
            ) from error

    @property
    def card(self) -> ModelCard:
        return self._inner.card

    async def reply(self, request: Request, hear: Hear = unheard) -> Reply:
        # Encoded before the answer, because the caller's list of messages may grow meanwhile.
        asked = self._stand_ins.hide(canonical(request))
        heard: list[int] = []

        async def listen(delta: Delta) -> None:
            match delta:
                case TextDelta() if delta.text:
                    heard.append(len(delta.text))
                case Sent():
                    # A new attempt starts: deltas of an earlier one do not count.
                    heard.clear()
            await hear(delta)

        reply = await self._inner.reply(request, listen)
        line = Exchange(
            hash=_hash(asked),
            card=self._inner.card,
            request=msgspec.Raw(asked),
            reply=msgspec.Raw(self._stand_ins.hide(_encode(reply))),
            heard=tuple(heard),
        )
        self._append(_encode(line) + b"\n")
        return reply

    def _append(self, line: bytes) -> None:
        try:
            written = os.write(self._file, line)
        except OSError as error:
            why = error.strerror
        else:
            if written == len(line):
                return
            why = "the disk is full"
        raise StoreError(f"The recording {self._path} cannot be written: {why}.", path=self._path)

    async def aclose(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        await self._inner.aclose()


class ReplayModel:
    """Replays the recorded reply to the same request; equal requests are answered in recorded order."""

    def __init__(self, path: Path, stand_ins: StandIns = NONE) -> None:
        self._path = path
        self._stand_ins = stand_ins
        self._recorded = read_recording(path)
        self._waiting: dict[str, deque[Exchange]] = {}
        for exchange in self._recorded:
            self._waiting.setdefault(exchange.hash, deque()).append(exchange)

    @property
    def card(self) -> ModelCard:
        return self._recorded[0].card

    async def reply(self, request: Request, hear: Hear = unheard) -> Reply:
        asked = self._stand_ins.hide(canonical(request))
        waiting = self._waiting.get(_hash(asked))
        if not waiting:
            raise self._mismatch(asked, known=waiting is not None)
        exchange = waiting.popleft()
        reply = msgspec.json.decode(self._stand_ins.show(bytes(exchange.reply)), type=Reply)
        await hear(Sent())
        if hear is not unheard:
            for delta in _deltas(reply, exchange.heard):
                await hear(delta)
        return reply

    async def aclose(self) -> None:
        """Do nothing: no resource is open."""

    def _mismatch(self, asked: bytes, *, known: bool) -> ReplayMismatch:
        from shoal.models.replay_difference import difference

        left = [exchange for waiting in self._waiting.values() for exchange in waiting]
        if known:
            why = f"The recording {self._path} answered this request as often as it was recorded."
        elif not left:
            why = f"The recording {self._path} is used up: all {len(self._recorded)} replies were played."
        else:
            why = (
                f"The recording {self._path} has no reply to this request. "
                f"It differs from the nearest recorded one:\n"
                + difference(msgspec.json.decode(asked), [msgspec.json.decode(e.request) for e in left])
            )
        return ReplayMismatch(why, provider="replay", model=self.card.id)


def read_recording(path: Path) -> list[Exchange]:
    """Return all exchanges; raises `SettingsError` with the file and the line."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SettingsError(f"The recording {path} cannot be read: {error.strerror}.", path=path) from error
    decoder, replies = msgspec.json.Decoder(Exchange), msgspec.json.Decoder(Reply)
    exchanges = []
    for number, line in enumerate(content.splitlines(), 1):
        try:
            exchange = decoder.decode(line)
            replies.decode(exchange.reply)
            exchanges.append(exchange)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise SettingsError(
                f"The recording {path} is broken in line {number}: {error}. Record the run again, or delete "
                "that line if the run was cut while recording.",
                path=path,
                line=number,
            ) from error
    if not exchanges:
        raise SettingsError(f"The recording {path} is empty.", path=path)
    return exchanges


def _deltas(reply: Reply, heard: Sequence[int]) -> Iterator[Delta]:
    """Yield the deltas of a reply, split as they were when recorded."""
    sizes = iter(heard)
    for block in reply.message.content:
        match block:
            case Thinking():
                yield ThinkingDelta(block.thinking)
            case ToolUse():
                yield ToolInputDelta(block.name, len(msgspec.json.encode(block.input)))
            case Text():
                start = 0
                while start < len(block.text):
                    end = start + (next(sizes, 0) or len(block.text))
                    yield TextDelta(block.text[start:end])
                    start = end
