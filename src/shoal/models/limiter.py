"""Retries and rate limits: agents that use one model back off together and return a few at a time."""

from __future__ import annotations

import asyncio
import random
from collections import deque

from msgspec import Struct

from shoal.core.clock import Clock
from shoal.core.errors import ModelError, RateLimited, StreamCut, StreamStalled, Transient
from shoal.core.ports import Model
from shoal.core.requests import Delta, Hear, Reply, Request, Retrying, Sent
from shoal.core.usage import ModelCard


class Patience(Struct, frozen=True, kw_only=True):
    """Retry timing in seconds."""

    first: float = 1.0
    """The pause after a first failure; each further failure doubles it."""
    longest: float = 60.0
    outage: float = 15 * 60.0
    """A request that has failed for longer than this fails permanently."""


class Turn:
    """Permission to send one request, and the wave it belongs to: a failure ends a wave."""

    __slots__ = ("answered", "wave")

    def __init__(self, wave: int) -> None:
        self.wave = wave
        self.answered = False


class Limiter:
    """State of one model's health, shared by all agents that use it.

    After a failure nobody sends until the pause is over; then one request goes, and each one that the
    provider starts to answer admits two more. Nobody waits for a pause that the provider asks for and that is
    longer than the policy allows: requests meanwhile fail with the reason.
    """

    def __init__(self, clock: Clock, rng: random.Random, patience: Patience | None = None) -> None:
        self._clock = clock
        self._random = rng
        self.patience = patience or Patience()
        self._paused_until = 0.0
        self._asked_for: Transient | None = None
        """The failure that carried the provider's last requested pause."""
        self._failures = 0
        self._wave = 0
        self._unanswered = 0
        """Requests of this wave; those from before the last failure may go on, and do not count."""
        self._room: int | None = None
        """Limit of unanswered requests; None until the first failure."""
        self._queue: deque[asyncio.Future[Turn]] = deque()

    async def enter(self) -> Turn:
        """Wait until a request may be sent; `release` must follow. Raises the error behind a long pause."""
        turn = await self._queued() if self._queue or not self._has_room() else self._begun()
        try:
            while (pause := self.pause()) > 0:
                self._refuse_to_wait(pause)
                await self._clock.sleep(pause)
        except BaseException:
            self.leave(turn)
            raise
        if turn.wave != self._wave:  # another failure came while this one slept
            turn.wave = self._wave
            self._unanswered += 1
        return turn

    def _begun(self) -> Turn:
        self._unanswered += 1
        return Turn(self._wave)

    async def _queued(self) -> Turn:
        place: asyncio.Future[Turn] = asyncio.get_running_loop().create_future()
        self._queue.append(place)
        try:
            return await place
        except BaseException:
            # Admitted at the moment of being cancelled: the slot goes to the next in the queue. A place that
            # was only cancelled is skipped.
            if place.done() and not place.cancelled():
                self.leave(place.result())
            raise

    def leave(self, turn: Turn) -> None:
        if turn.wave == self._wave and not turn.answered:
            self._unanswered -= 1
        self._call_up()

    def answering(self, turn: Turn) -> None:
        """Record that the provider started to answer."""
        if turn.answered or turn.wave != self._wave:
            return
        turn.answered = True
        self._unanswered -= 1
        self._failures = 0
        if self._room is not None:
            self._room += 1
            self._call_up()

    def failed(self, turn: Turn, error: Transient) -> None:
        """Record a failure; requests of the same wave that fail together count as one."""
        now = self._clock.monotonic()
        if turn.wave == self._wave:
            self._failures += 1
            self._paused_until = max(self._paused_until, now + self.backoff(self._failures))
            # A rate limit or one broken stream is not an outage: half as many requests may go.
            mild = isinstance(error, RateLimited | StreamCut | StreamStalled)
            self._room = max(1, self._unanswered // 2) if mild else 1
            self._unanswered = 0
            self._wave += 1
        if error.retry_after is not None:
            self._asked_for = error
            self._paused_until = max(self._paused_until, now + self._stretched(error.retry_after))

    def _refuse_to_wait(self, pause: float) -> None:
        failure = self._asked_for
        if failure is not None and pause > self.patience.outage:
            raise type(failure)(
                f"{failure} (it asked for a pause, of which {pause:,.0f} s are left)",
                provider=failure.provider,
                model=failure.model,
                status=failure.status,
                retry_after=pause,
            )

    def pause(self) -> float:
        """Return the seconds for which nobody sends."""
        return max(0.0, self._paused_until - self._clock.monotonic())

    def backoff(self, failures: int) -> float:
        """Return the seconds to wait after so many failures in a row."""
        doubled = self.patience.first * 2.0 ** min(failures - 1, 30)
        return self._stretched(min(self.patience.longest, doubled))

    def _stretched(self, seconds: float) -> float:
        # Only ever longer, so that a pause the provider asked for is respected.
        return seconds * (1 + self._random.random() / 4)

    def _has_room(self) -> bool:
        return self._room is None or self._unanswered < self._room

    def _call_up(self) -> None:
        while self._queue and self._has_room():
            place = self._queue.popleft()
            if not place.done():
                place.set_result(self._begun())


class Limiters:
    """One rate limiter for each model that a process uses."""

    def __init__(self, clock: Clock, rng: random.Random, patience: Patience | None = None) -> None:
        self._clock = clock
        self._random = rng
        self._patience = patience
        self._limiters: dict[tuple[str, ...], Limiter] = {}

    def of(self, provider: str, model: str, *, base_url: str = "") -> Limiter:
        key = (provider, base_url, model)
        if key not in self._limiters:
            self._limiters[key] = Limiter(self._clock, self._random, self._patience)
        return self._limiters[key]


class PatientModel:
    """Retries requests from the start until the model answers or its outage lasts too long."""

    def __init__(self, inner: Model, limiter: Limiter, clock: Clock) -> None:
        self._inner = inner
        self._limiter = limiter
        self._clock = clock

    @property
    def card(self) -> ModelCard:
        return self._inner.card

    async def reply(self, request: Request, hear: Hear) -> Reply:
        failures = 0
        gives_up_at = float("inf")
        failure: Transient | None = None
        while True:
            try:
                return await self._attempt(request, hear, failure, gives_up_at)
            except Transient as error:
                failure = error
            failures += 1
            now = self._clock.monotonic()
            gives_up_at = min(gives_up_at, now + self._limiter.patience.outage)
            delay = max(self._limiter.pause(), self._limiter.backoff(failures))
            if now + delay > gives_up_at:
                raise failure
            await hear(Retrying(reason=str(failure), delay=delay, attempt=failures, billed=failure.billed))
            await self._clock.sleep(delay)

    async def _attempt(
        self, request: Request, hear: Hear, failure: Transient | None, gives_up_at: float
    ) -> Reply:
        turn = await self._turn(failure, gives_up_at)

        async def hear_and_tell(delta: Delta) -> None:
            if not turn.answered and not isinstance(delta, Sent):
                self._limiter.answering(turn)
            await hear(delta)

        try:
            reply = await self._inner.reply(request, hear_and_tell)
        except Transient as error:
            self._limiter.failed(turn, error)
            raise
        except ModelError:
            self._limiter.answering(turn)  # a refusal is an answer: the provider is up
            raise
        else:
            self._limiter.answering(turn)
            return reply
        finally:
            self._limiter.leave(turn)

    async def _turn(self, failure: Transient | None, gives_up_at: float) -> Turn:
        if failure is None:
            return await self._limiter.enter()
        try:
            async with self._clock.deadline(gives_up_at - self._clock.monotonic()):
                return await self._limiter.enter()
        except TimeoutError:
            raise failure from None

    async def aclose(self) -> None:
        await self._inner.aclose()
