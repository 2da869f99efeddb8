"""Registry of contract rules, and what several of them need."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Protocol, TypeAlias, TypeVar

HANG_SECONDS = 20.0
"""Seconds after which a wait counts as endless."""
WAKE_SECONDS = 3.0
"""Seconds within which a waiter is woken even on a busy machine: by an event, not by polling."""
_QUIET = 0.1

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class StoreOpener(Protocol[T_co]):
    """Opens one more handle to the same store."""

    def __call__(self) -> AbstractAsyncContextManager[T_co]: ...


RuleBody: TypeAlias = Callable[[Any], Coroutine[Any, Any, None]]


class ContractRule:
    """One rule; `spec` holds the ids of the specification that it covers."""

    def __init__(self, body: RuleBody, spec: tuple[str, ...]) -> None:
        self._body = body
        self.spec = spec
        self.__name__ = body.__name__
        self.__doc__ = body.__doc__

    async def __call__(self, open_store: StoreOpener[Any]) -> None:
        async with asyncio.timeout(HANG_SECONDS):
            await self._body(open_store)

    def __repr__(self) -> str:
        return f"<rule: {self.__name__.replace('_', ' ')}>"


class ContractRules:
    def __init__(self) -> None:
        self._rules: list[ContractRule] = []

    def add_rule(self, *spec: str) -> Callable[[RuleBody], RuleBody]:
        def register_rule(body: RuleBody) -> RuleBody:
            self._rules.append(ContractRule(body, spec))
            return body

        return register_rule

    def list_rules(self) -> tuple[ContractRule, ...]:
        return tuple(self._rules)


@asynccontextmanager
async def open_store_handles(open_store: StoreOpener[T], count: int) -> AsyncIterator[list[T]]:
    """Open several handles at the same time."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(open_store()) for _ in range(count)]


async def run_calls_concurrently(*calls: Awaitable[T]) -> list[T]:
    """Run all calls at the same time; the first failure fails all."""

    async def await_call(call: Awaitable[T]) -> T:
        return await call

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(await_call(call)) for call in calls]
    return [task.result() for task in tasks]


async def list_unfinished_asyncio_tasks(*tasks: asyncio.Task[Any]) -> set[asyncio.Task[Any]]:
    """Return the tasks that have not ended after a short wait."""
    _, waiting = await asyncio.wait(tasks, timeout=_QUIET)
    return waiting


async def expect_refusal(call: Awaitable[object], *kinds: type[Exception]) -> str:
    """Return the message of the expected exception; anything else breaks the rule."""
    try:
        outcome = await call
    except kinds as error:
        return str(error)
    raise AssertionError(f"expected {' or '.join(kind.__name__ for kind in kinds)}, but got {outcome!r}")


def expect_raised(call: Callable[[], object], *kinds: type[Exception]) -> str:
    """Return the message of the exception that a synchronous call must raise."""
    try:
        outcome = call()
    except kinds as error:
        return str(error)
    raise AssertionError(f"{' or '.join(kind.__name__ for kind in kinds)} expected, but got {outcome!r}")
