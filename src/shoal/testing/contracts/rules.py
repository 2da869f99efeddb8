"""Registry of contract rules, and what several of them need."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Protocol, TypeAlias, TypeVar

PATIENCE = 20.0
"""Seconds after which a wait counts as endless."""
PROMPT = 3.0
"""Seconds within which a waiter is woken even on a busy machine: by an event, not by polling."""
_QUIET = 0.1

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Doors(Protocol[T_co]):
    """Opens one more handle to the same store."""

    def __call__(self) -> AbstractAsyncContextManager[T_co]: ...


Body: TypeAlias = Callable[[Any], Coroutine[Any, Any, None]]


class Rule:
    """One rule; `spec` holds the ids of the specification that it covers."""

    def __init__(self, body: Body, spec: tuple[str, ...]) -> None:
        self._body = body
        self.spec = spec
        self.__name__ = body.__name__
        self.__doc__ = body.__doc__

    async def __call__(self, doors: Doors[Any]) -> None:
        async with asyncio.timeout(PATIENCE):
            await self._body(doors)

    def __repr__(self) -> str:
        return f"<rule: {self.__name__.replace('_', ' ')}>"


class Rules:
    def __init__(self) -> None:
        self._rules: list[Rule] = []

    def shows(self, *spec: str) -> Callable[[Body], Body]:
        def keep(body: Body) -> Body:
            self._rules.append(Rule(body, spec))
            return body

        return keep

    def all(self) -> tuple[Rule, ...]:
        return tuple(self._rules)


@asynccontextmanager
async def opened(doors: Doors[T], count: int) -> AsyncIterator[list[T]]:
    """Open several handles at the same time."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(doors()) for _ in range(count)]


async def together(*calls: Awaitable[T]) -> list[T]:
    """Run all calls at the same time; the first failure fails all."""

    async def outcome(call: Awaitable[T]) -> T:
        return await call

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(outcome(call)) for call in calls]
    return [task.result() for task in tasks]


async def still_waiting(*tasks: asyncio.Task[Any]) -> set[asyncio.Task[Any]]:
    """Return the tasks that have not ended after a short wait."""
    _, waiting = await asyncio.wait(tasks, timeout=_QUIET)
    return waiting


async def refused(call: Awaitable[object], *kinds: type[Exception]) -> str:
    """Return the message of the expected exception; anything else breaks the rule."""
    try:
        outcome = await call
    except kinds as error:
        return str(error)
    raise AssertionError(f"{' or '.join(kind.__name__ for kind in kinds)} expected, but it gave {outcome!r}")
