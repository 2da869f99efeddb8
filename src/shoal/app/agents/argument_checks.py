"""Checks of the arguments that a program passes to the functions of a session."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from shoal.core.text.encodable_text import find_encoding_problem

_SPAWN = "session.spawn()"
_MAX_SECONDS = 31_536_000
"""A year, as in the scripts of models."""


def check_text(function: str, name: str, value: Any) -> None:
    """Raise `TypeError` or `ValueError` unless the argument is a text that is not empty."""
    if not isinstance(value, str):
        raise TypeError(f"{function}: {name}: expected a string, got {describe_value(value)}.")
    if not value.strip():
        raise ValueError(f"{function}: {name} is empty.")
    if problem := find_encoding_problem(value):
        raise ValueError(f"{function}: {name} {problem}")


def check_prompt(function: str, prompt: Any, *, is_required: bool = False) -> None:
    """Raise `TypeError` or `ValueError` unless a turn can start with the prompt.

    Unless it is required, a turn without a prompt handles the queued items.
    """
    # A message and the invocation of a command are structs.
    if isinstance(prompt, Struct) or (prompt is None and not is_required):
        return
    if not isinstance(prompt, str):
        raise TypeError(
            f"{function}: prompt: expected a string or a shoal.Message, got {describe_value(prompt)}."
        )
    if not prompt.strip():
        raise ValueError(f"{function}: the prompt is empty. Tell the agent what to do.")
    if problem := find_encoding_problem(prompt):
        raise ValueError(f"{function}: the prompt {problem}")


def check_prompts(function: str, prompts: Any) -> Iterator[str]:
    """Return an iterator of the prompts, which may be endless. Raises `TypeError`."""
    if isinstance(prompts, str | bytes) or not isinstance(prompts, Iterable):
        raise TypeError(
            f"{function}: prompts: expected a list of strings, got {describe_value(prompts)}. "
            "Write prompts=[...]."
        )
    return iter(prompts)


def check_function(function: str, name: str, value: Any) -> None:
    """Raise `TypeError` unless the argument can be called."""
    if not callable(value):
        raise TypeError(f"{function}: {name}: expected a function, got {describe_value(value)}.")


def check_callback(function: str, name: str, value: Any) -> None:
    """Raise `TypeError` unless the argument is a function that is not async: nobody would await it."""
    check_function(function, name, value)
    called = value if inspect.isroutine(value) else getattr(value, "__call__", value)  # noqa: B004
    if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
        raise TypeError(
            f"{function}: {name}: expected a plain function, got the async function "
            f"{describe_value(value)}. Write `def`, and start async work in it with a task."
        )


def check_count(function: str, name: str, count: Any) -> None:
    """Raise `ValueError` unless the argument is a whole number of at least 1."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ValueError(
            f"{function}: {name}: expected an integer of at least 1, got {describe_value(count)}."
        )


def check_seconds(function: str, name: str, value: Any, *, minimum: float = 0) -> None:
    """Raise `TypeError` or `ValueError` unless the argument is a length of time between the limits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{function}: {name}: expected a number of seconds, got {describe_value(value)}.")
    if not minimum <= value <= _MAX_SECONDS:
        raise ValueError(
            f"{function}: {name}: expected a number of seconds from {minimum:g} to {_MAX_SECONDS:,}, got "
            f"{describe_value(value)}."
        )


@contextmanager
def name_function_in_errors(function: str) -> Iterator[None]:
    """Let errors about arguments name this function, which passes them to `session.spawn`."""
    try:
        yield
    except (TypeError, ValueError) as error:
        message = str(error)
        if message.startswith(_SPAWN):
            raise type(error)(function + message.removeprefix(_SPAWN)) from None
        raise


def describe_value(value: object) -> str:
    return repr(value)[:80]
