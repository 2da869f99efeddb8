"""Turns the bytes of a stream into deltas, merged per chunk and kind rather than per token."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from shoal.core.errors import BadReply
from shoal.core.requests import Delta, Hear, TextDelta, ThinkingDelta, ToolInputDelta
from shoal.models.assembly import Assembly
from shoal.models.faults import Asked
from shoal.models.json_text import decoded
from shoal.models.sse import Events, TooLong

_REPLY_LIMIT = 64 << 20
"""Bytes of a stream; a longer reply is a runaway."""


class Listening:
    """Consumes the bytes of one answer from an endpoint."""

    def __init__(self, asked: Asked, assembly: Assembly, hear: Hear) -> None:
        self._asked = asked
        self._assembly = assembly
        self._hear = hear
        self._events = Events()
        self._size = 0

    async def take(self, chunk: bytes) -> bool:
        """Return True if the answer is complete; b"" means that no more bytes will come."""
        if not chunk:
            return self._assembly.ended()
        for data in self._events_in(chunk):
            if data == b"[DONE]":
                self._assembly.done = True
            elif (event := _json(data)) is not None:
                self._assembly.take(event)
            if self._assembly.done:
                break
        if self._assembly.heard:
            heard, self._assembly.heard = self._assembly.heard, []
            for delta in gathered(heard):
                await self._hear(delta)
        return self._assembly.done

    def _events_in(self, chunk: bytes) -> list[bytes]:
        self._size += len(chunk)
        what = f"an answer of more than {_REPLY_LIMIT >> 20} MB"
        try:
            if self._size <= _REPLY_LIMIT:
                return self._events.feed(chunk)
        except TooLong as error:
            what = str(error)
        raise self._asked.fault(BadReply, f"{self._asked.provider} sent {what}.")


def _json(data: bytes) -> Any:
    """Decode JSON, or return None: proxies insert lines between those of the provider."""
    try:
        return decoded(data)
    except ValueError:
        return None


def gathered(deltas: Iterable[Delta]) -> list[Delta]:
    """Merge adjacent deltas of one kind, in order."""
    runs: list[list[Delta]] = []
    for delta in deltas:
        if runs and type(runs[-1][0]) is type(delta):
            runs[-1].append(delta)
        else:
            runs.append([delta])
    return [_joined(run) for run in runs]


def _joined(run: list[Delta]) -> Delta:
    if len(run) == 1:
        return run[0]
    match run[0]:
        case TextDelta():
            return TextDelta("".join(d.text for d in run if isinstance(d, TextDelta)))
        case ThinkingDelta():
            return ThinkingDelta("".join(d.text for d in run if isinstance(d, ThinkingDelta)))
        case ToolInputDelta():
            return run[-1]
        case _:
            return run[-1]
