"""Retries and rate limits: agents that use one model back off together and return a few at a time."""

from __future__ import annotations

import asyncio
from collections import deque

from msgspec import Struct

from shoal.core.budgets.usage import ModelCard
from shoal.core.clock import Clock
from shoal.core.conversation.model_requests import (
    DeltaListener,
    ModelAttemptStartedDelta,
    ModelReply,
    ModelRequest,
    ModelRetryScheduledDelta,
    StreamDelta,
)
from shoal.core.errors import ModelError, RateLimited, StreamCut, StreamStalled, TransientModelError
from shoal.core.ids import JitterSource
from shoal.core.ports import Model


class ModelRetryPolicy(Struct, frozen=True, kw_only=True):
    """Retry timing in seconds."""

    first_delay: float = 1.0
    """The pause after a first failure; each further failure doubles it."""
    max_delay: float = 60.0
    max_outage: float = 15 * 60.0
    """A request that has failed for longer than this fails permanently."""


class ModelRequestSlot:
    """Permission to send one request, and the wave it belongs to: a failure ends a wave."""

    __slots__ = ("is_answered", "wave")

    def __init__(self, wave: int) -> None:
        self.wave = wave
        self.is_answered = False


class RateLimiter:
    """State of one model's health, shared by all agents that use it.

    After a failure nobody sends until the pause is over; then one request goes, and each one that the
    provider starts to answer admits two more. Nobody waits for a pause that the provider asks for and that is
    longer than the policy allows: requests meanwhile fail with the reason.
    """

    def __init__(self, clock: Clock, rng: JitterSource, policy: ModelRetryPolicy | None = None) -> None:
        self._clock = clock
        self._random = rng
        self.policy = policy or ModelRetryPolicy()
        self._paused_until = 0.0
        self._pause_error: TransientModelError | None = None
        """The failure that carried the provider's last requested pause."""
        self._failures = 0
        self._wave = 0
        self._unanswered = 0
        """Requests of this wave; those from before the last failure may continue, and do not count."""
        self._max_unanswered: int | None = None
        """Limit on unanswered requests; None until the first failure."""
        self._queue: deque[asyncio.Future[ModelRequestSlot]] = deque()

    async def acquire(self) -> ModelRequestSlot:
        """Wait until a request may be sent; `release` must follow. Raises the error behind a long pause."""
        slot = await self._wait_in_queue() if self._queue or not self._has_free_slot() else self._open_slot()
        try:
            while (pause := self.get_remaining_pause()) > 0:
                self._raise_for_long_pause(pause)
                await self._clock.sleep(pause)
        except BaseException:
            self.release(slot)
            raise
        if slot.wave != self._wave:  # another failure came while this one slept
            slot.wave = self._wave
            self._unanswered += 1
        return slot

    def _open_slot(self) -> ModelRequestSlot:
        self._unanswered += 1
        return ModelRequestSlot(self._wave)

    async def _wait_in_queue(self) -> ModelRequestSlot:
        waiter: asyncio.Future[ModelRequestSlot] = asyncio.get_running_loop().create_future()
        self._queue.append(waiter)
        try:
            return await waiter
        except BaseException:
            # Admitted at the moment of being canceled: the slot goes to the next in the queue. A place that
            # was only canceled is skipped.
            if waiter.done() and not waiter.cancelled():
                self.release(waiter.result())
            raise

    def release(self, slot: ModelRequestSlot) -> None:
        if slot.wave == self._wave and not slot.is_answered:
            self._unanswered -= 1
        self._wake_waiters()

    def report_answer_started(self, slot: ModelRequestSlot) -> None:
        """Record that the provider started to answer."""
        if slot.is_answered or slot.wave != self._wave:
            return
        slot.is_answered = True
        self._unanswered -= 1
        self._failures = 0
        if self._max_unanswered is not None:
            self._max_unanswered += 1
            self._wake_waiters()

    def report_failure(self, slot: ModelRequestSlot, error: TransientModelError) -> None:
        """Record a failure; requests of the same wave that fail together count as one."""
        now = self._clock.monotonic()
        if slot.wave == self._wave:
            self._failures += 1
            self._paused_until = max(self._paused_until, now + self.compute_backoff(self._failures))
            # A rate limit or one broken stream is not an outage: half as many requests may go.
            is_mild = isinstance(error, RateLimited | StreamCut | StreamStalled)
            self._max_unanswered = max(1, self._unanswered // 2) if is_mild else 1
            self._unanswered = 0
            self._wave += 1
        if error.retry_after is not None:
            self._pause_error = error
            self._paused_until = max(self._paused_until, now + self._add_jitter(error.retry_after))

    def _raise_for_long_pause(self, pause: float) -> None:
        failure = self._pause_error
        if failure is not None and pause > self.policy.max_outage:
            raise type(failure)(
                f"{failure} (the provider asked for a pause; {pause:,.0f} s are left)",
                provider=failure.provider,
                model=failure.model,
                status=failure.status,
                retry_after=pause,
            )

    def get_remaining_pause(self) -> float:
        """Return the seconds for which nobody sends."""
        return max(0.0, self._paused_until - self._clock.monotonic())

    def compute_backoff(self, failures: int) -> float:
        """Return the seconds to wait after so many failures in a row."""
        backoff = self.policy.first_delay * 2.0 ** min(failures - 1, 30)
        return self._add_jitter(min(self.policy.max_delay, backoff))

    def _add_jitter(self, seconds: float) -> float:
        # Only ever longer, so that a pause the provider asked for is respected.
        return seconds * (1 + self._random.random() / 4)

    def _has_free_slot(self) -> bool:
        return self._max_unanswered is None or self._unanswered < self._max_unanswered

    def _wake_waiters(self) -> None:
        while self._queue and self._has_free_slot():
            waiter = self._queue.popleft()
            if not waiter.done():
                waiter.set_result(self._open_slot())


class RateLimiterRegistry:
    """One rate limiter for each model that a process uses."""

    def __init__(self, clock: Clock, rng: JitterSource, policy: ModelRetryPolicy | None = None) -> None:
        self._clock = clock
        self._random = rng
        self._policy = policy
        self._limiters: dict[tuple[str, ...], RateLimiter] = {}

    def get_limiter(self, provider: str, model: str, *, base_url: str = "") -> RateLimiter:
        key = (provider, base_url, model)
        if key not in self._limiters:
            self._limiters[key] = RateLimiter(self._clock, self._random, self._policy)
        return self._limiters[key]


class RetryingModel:
    """Retries requests from the start until the model answers or its outage lasts too long.

    `max_retries` also limits the number of retries.
    """

    def __init__(
        self, inner: Model, limiter: RateLimiter, clock: Clock, *, max_retries: int | None = None
    ) -> None:
        self._max_retries = max_retries
        self._inner = inner
        self._limiter = limiter
        self._clock = clock

    @property
    def card(self) -> ModelCard:
        return self._inner.card

    async def generate_reply(self, request: ModelRequest, on_delta: DeltaListener) -> ModelReply:
        failures = 0
        retry_deadline = float("inf")
        failure: TransientModelError | None = None
        while True:
            try:
                return await self._attempt_request(request, on_delta, failure, retry_deadline)
            except TransientModelError as error:
                failure = error
            failures += 1
            now = self._clock.monotonic()
            retry_deadline = min(retry_deadline, now + self._limiter.policy.max_outage)
            delay = max(self._limiter.get_remaining_pause(), self._limiter.compute_backoff(failures))
            is_last = self._max_retries is not None and failures > self._max_retries
            if is_last or now + delay > retry_deadline:
                raise failure
            await on_delta(
                ModelRetryScheduledDelta(
                    reason=str(failure),
                    delay=delay,
                    attempt=failures,
                    billed=failure.billed,
                    status=failure.status,
                )
            )
            await self._clock.sleep(delay)

    async def _attempt_request(
        self,
        request: ModelRequest,
        on_delta: DeltaListener,
        failure: TransientModelError | None,
        retry_deadline: float,
    ) -> ModelReply:
        slot = await self._acquire_slot_before_deadline(failure, retry_deadline)

        async def forward_delta_and_report_answer(delta: StreamDelta) -> None:
            if not slot.is_answered and not isinstance(delta, ModelAttemptStartedDelta):
                self._limiter.report_answer_started(slot)
            await on_delta(delta)

        try:
            reply = await self._inner.generate_reply(request, forward_delta_and_report_answer)
        except TransientModelError as error:
            self._limiter.report_failure(slot, error)
            raise
        except ModelError:
            self._limiter.report_answer_started(slot)  # a refusal is an answer: the provider is up
            raise
        else:
            self._limiter.report_answer_started(slot)
            return reply
        finally:
            self._limiter.release(slot)

    async def _acquire_slot_before_deadline(
        self, failure: TransientModelError | None, retry_deadline: float
    ) -> ModelRequestSlot:
        if failure is None:
            return await self._limiter.acquire()
        try:
            async with self._clock.deadline(retry_deadline - self._clock.monotonic()):
                return await self._limiter.acquire()
        except TimeoutError:
            raise failure from None

    async def aclose(self) -> None:
        await self._inner.aclose()
