"""Model that switches to a fallback when the primary does not answer."""

from __future__ import annotations

from shoal.core.budgets.usage import ModelCard
from shoal.core.conversation.model_requests import (
    DeltaListener,
    ModelReply,
    ModelRequest,
    ModelRetryScheduledDelta,
    StreamDelta,
)
from shoal.core.errors import TransientModelError
from shoal.core.ports import Model

MAX_FAILURES = 2
"""Failures of one request before it goes to the fallback."""


class _PrimaryModelFailureLimitReached(Exception):
    """The primary model has failed often enough."""


class ModelWithFallback:
    """Switches once and stays: building up a second cache costs more than it saves."""

    def __init__(self, primary: Model, fallback: Model) -> None:
        self._primary = primary
        self._fallback = fallback
        self._switched = False

    @property
    def card(self) -> ModelCard:
        return self._fallback.card if self._switched else self._primary.card

    async def generate_reply(self, request: ModelRequest, on_delta: DeltaListener) -> ModelReply:
        async def forward_delta_until_limit(delta: StreamDelta) -> None:
            if isinstance(delta, ModelRetryScheduledDelta) and delta.attempt >= MAX_FAILURES:
                # Before the listener reserves for the next attempt, which the fallback answers.
                self._switched = True
                await on_delta(delta)
                raise _PrimaryModelFailureLimitReached
            await on_delta(delta)

        if not self._switched:
            try:
                return await self._primary.generate_reply(request, forward_delta_until_limit)
            except _PrimaryModelFailureLimitReached:
                pass
            except TransientModelError as error:
                self._switched = True
                # The primary reports no retry after its last failure.
                await on_delta(
                    ModelRetryScheduledDelta(
                        reason=str(error), delay=0.0, attempt=1, billed=error.billed, status=error.status
                    )
                )
        return await self._fallback.generate_reply(request, on_delta)

    async def aclose(self) -> None:
        await self._primary.aclose()
        await self._fallback.aclose()
