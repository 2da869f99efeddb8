"""Model that switches to a fallback when the primary does not answer."""

from __future__ import annotations

from shoal.core.errors import Transient
from shoal.core.ports import Model
from shoal.core.requests import Delta, Hear, Reply, Request, Retrying
from shoal.core.usage import ModelCard

FAILURES = 2
"""Failures of one request before it goes to the fallback."""


class _Enough(Exception):
    """The primary model has failed often enough."""


class FallbackModel:
    """Switches once and stays: building up a second cache costs more than it saves."""

    def __init__(self, first: Model, other: Model) -> None:
        self._first = first
        self._other = other
        self._changed = False

    @property
    def card(self) -> ModelCard:
        return self._other.card if self._changed else self._first.card

    async def reply(self, request: Request, hear: Hear) -> Reply:
        async def hear_failures(delta: Delta) -> None:
            await hear(delta)
            if isinstance(delta, Retrying) and delta.attempt >= FAILURES:
                raise _Enough

        if not self._changed:
            try:
                return await self._first.reply(request, hear_failures)
            except (_Enough, Transient):
                self._changed = True
        return await self._other.reply(request, hear)

    async def aclose(self) -> None:
        await self._first.aclose()
        await self._other.aclose()
