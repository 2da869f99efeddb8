"""Library API: open a session, or run one prompt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar, overload

from shoal.app.agents.argument_checks import check_callback, check_prompt
from shoal.app.library.library_session import LibrarySession
from shoal.app.library.session_options import SessionOptions, build_session_options
from shoal.core.events import Event
from shoal.core.keyword_checks import check_keywords

if TYPE_CHECKING:
    from typing import Unpack

    from shoal.app.agents.result import Result
    from shoal.app.session.turn import Turn

OutputT = TypeVar("OutputT")


@overload
def open(  # noqa: A001 - used as shoal.open
    *, output: None = None, **options: Unpack[SessionOptions]
) -> LibrarySession[None]: ...
@overload
def open(  # noqa: A001 - used as shoal.open
    *, output: type[OutputT], **options: Unpack[SessionOptions]
) -> LibrarySession[OutputT]: ...
@check_keywords("shoal.open()", SessionOptions)
def open(  # noqa: A001 - used as shoal.open
    *, output: type[Any] | None = None, **options: Unpack[SessionOptions]
) -> LibrarySession[Any]:
    """Return a session to enter with `async with`. `output` is the type of the lead's answers."""
    built, agents = build_session_options("shoal.open()", options, output)
    return LibrarySession(built, agents)


@overload
async def run(
    prompt: str,
    *,
    output: None = None,
    on_event: Callable[[Event], object] | None = None,
    **options: Unpack[SessionOptions],
) -> Result[None]: ...
@overload
async def run(
    prompt: str,
    *,
    output: type[OutputT],
    on_event: Callable[[Event], object] | None = None,
    **options: Unpack[SessionOptions],
) -> Result[OutputT]: ...
@check_keywords("shoal.run()", SessionOptions)
async def run(
    prompt: str,
    *,
    output: type[Any] | None = None,
    on_event: Callable[[Event], object] | None = None,
    **options: Unpack[SessionOptions],
) -> Result[Any]:
    """Run one prompt and return its result; `on_event` is called with each event.

    The result is that of the last turn, after all reports from background agents were handled. Raises
    `RunFailed` unless the work was completed.
    """
    return await _run_prompt("shoal.run()", prompt, output, on_event, options)


async def _run_prompt(
    function: str,
    prompt: str,
    output: type[Any] | None,
    on_event: Callable[[Event], object] | None,
    options: SessionOptions,
) -> Result[Any]:
    """Run a prompt for a function of this module, which errors name."""
    built, agents = build_session_options(function, options, output)
    check_prompt(function, prompt, is_required=True)
    if on_event is not None:
        check_callback(function, "on_event", on_event)
    session: LibrarySession[Any] = LibrarySession(built, agents, opened_by=function.removesuffix("()"))
    async with session:
        turn: Turn[Any] | None = session.run(prompt)
        while turn is not None:
            async for event in turn:
                if on_event is not None:
                    on_event(event)
            result = await turn.wait()
            turn = await session.next_turn() if result.ok else None
    result.raise_if_failed()
    return result


@overload
def run_sync(
    prompt: str,
    *,
    output: None = None,
    on_event: Callable[[Event], object] | None = None,
    **options: Unpack[SessionOptions],
) -> Result[None]: ...
@overload
def run_sync(
    prompt: str,
    *,
    output: type[OutputT],
    on_event: Callable[[Event], object] | None = None,
    **options: Unpack[SessionOptions],
) -> Result[OutputT]: ...
@check_keywords("shoal.run_sync()", SessionOptions)
def run_sync(
    prompt: str,
    *,
    output: type[Any] | None = None,
    on_event: Callable[[Event], object] | None = None,
    **options: Unpack[SessionOptions],
) -> Result[Any]:
    """Run one prompt like `run`, from code without asyncio.

    If an event loop is already running in this thread, as in a notebook, the prompt runs in another thread.
    """

    def run_to_end() -> Result[Any]:
        return asyncio.run(_run_prompt("shoal.run_sync()", prompt, output, on_event, options))

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return run_to_end()
    return _call_in_thread(run_to_end)


def _call_in_thread(function: Callable[[], Result[Any]]) -> Result[Any]:
    """Call a function in another thread and wait for it; its exception is raised here."""
    results: list[Result[Any]] = []
    errors: list[BaseException] = []

    def call_function() -> None:
        try:
            results.append(function())
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            errors.append(error)

    thread = Thread(target=call_function, name="shoal run_sync")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
