"""Errors for wrong keywords of the public API: the nearest name, and the keywords that exist."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable, Collection, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct, StructMeta
from msgspec.structs import fields

from shoal.core.text.name_suggestions import find_similar_names

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
ClassT = TypeVar("ClassT", bound=type)
_LISTED_NAMES = 12
"""Maximum number of keywords that an error lists although it names the nearest one."""
_NEVER_SUGGESTED = frozenset({"skip_permissions", "allow_bypass"})
"""Options that switch checks off: a misspelling must not lead to them."""
_KEYWORDS_OF_OTHER_NAMES = {
    "permission_mode": "mode",
    "permissions": "mode",
    "permission": "mode",
    "env": "environ",
    "environment": "environ",
    "working_directory": "cwd",
    "working_dir": "cwd",
    "workdir": "cwd",
    "directory": "cwd",
    "system": "system_prompt",
    "instructions": "system_prompt",
    "append_prompt": "append_system_prompt",
    "budget_usd": "max_budget_usd",
    "max_budget": "max_budget_usd",
    "max_cost": "max_budget_usd",
    "max_cost_usd": "max_budget_usd",
    "max_tokens": "max_total_tokens",
    "max_steps": "max_turns",
    "max_iterations": "max_turns",
    "max_thinking_tokens": "thinking_tokens",
    "timeout": "deadline",
    "can_use_tool": "on_question",
    "mcp_servers": "mcp_config",
    "continue_conversation": "continue_last",
    "fork_session": "fork",
    "session": "resume",
    "plugins": "plugin_dirs",
    "subagents": "agents",
    "schema": "output_schema",
    "output_format": "output_schema",
    "output_type": "output",
    "response_format": "output",
    "result_type": "output",
}
"""Names that other libraries, flags and other functions have for a keyword."""


def check_keywords(label: str, *options: type) -> Callable[[FunctionT], FunctionT]:
    """Let a function raise a `TypeError` that names the nearest keyword and, if they are few, all keywords.

    `label` is the call as a program writes it. `options` are the TypedDicts of its `**` parameter, for which
    Python accepts any name.
    """

    def decorate(function: FunctionT) -> FunctionT:
        known: dict[str, Any] = {}
        for each in options:
            known |= each.__annotations__
        code = function.__code__
        accepted = {*known, *code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]}

        @wraps(function)
        def call_checked(*args: Any, **keywords: Any) -> Any:
            if options and not accepted.issuperset(keywords):
                raise TypeError(_describe_wrong_call(label, function, known, args, keywords))
            try:
                return function(*args, **keywords)
            except TypeError as error:
                trace = error.__traceback__
                if trace is not None and trace.tb_next is not None:
                    raise  # from the body: the arguments fit
                problem = _describe_wrong_call(label, function, known, args, keywords)
                raise TypeError(problem or str(error)) from None

        checked: Any = call_checked
        if inspect.iscoroutinefunction(function):
            if sys.version_info >= (3, 12):
                inspect.markcoroutinefunction(checked)
            else:
                checked._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]
        return checked  # type: ignore[no-any-return]

    return decorate


def check_method_keywords(label: str, *names: str) -> Callable[[ClassT], ClassT]:
    """Check the keywords of methods that a class inherits; `label` is how programs name an instance."""

    def decorate(checked: ClassT) -> ClassT:
        for name in names:
            setattr(checked, name, check_keywords(f"{label}.{name}()")(getattr(checked, name)))
        return checked

    return decorate


class _CheckedStructMeta(StructMeta):
    """Metaclass of `CheckedStruct`."""

    if not TYPE_CHECKING:  # type checkers read the fields instead

        def __call__(cls, *args: Any, **keywords: Any) -> Any:  # noqa: N805 - a metaclass
            try:
                return StructMeta.__call__(cls, *args, **keywords)
            except TypeError as error:
                names = {each.name: each.required for each in fields(cls)}
                missing = [name for name, required in names.items() if required and name not in keywords]
                positional = {} if args else None
                label = f"shoal.{cls.__name__}()"
                problem = _describe_keywords(label, names, missing, keywords, positional)
                raise TypeError(problem or f"{label}: {error}") from None


class CheckedStruct(Struct, metaclass=_CheckedStructMeta, frozen=True, kw_only=True):
    """Struct that programs construct. A wrong keyword gets an error with the nearest name.

    The check costs a microsecond, so types that are constructed for every message are plain structs.
    """


def _describe_wrong_call(
    label: str,
    function: Callable[..., Any],
    options: Mapping[str, Any],
    args: tuple[Any, ...],
    keywords: Mapping[str, Any],
) -> str:
    """Return what is wrong with the arguments; empty if Python's own message is as good."""
    parameters = list(inspect.signature(function).parameters.values())
    if parameters and parameters[0].name in ("self", "cls"):
        parameters, args = parameters[1:], args[1:]
    positional = [each for each in parameters if each.kind == inspect.Parameter.POSITIONAL_OR_KEYWORD]
    by_keyword = [each for each in parameters if each.kind == inspect.Parameter.KEYWORD_ONLY]
    free = [*positional[len(args) :], *by_keyword]
    missing = [
        each.name for each in free if each.default is inspect.Parameter.empty and each.name not in keywords
    ]
    too_many = (
        {each.name: each for each in positional}
        if len(args) > len(positional) and not any(each.kind == each.VAR_POSITIONAL for each in parameters)
        else None
    )
    known = {each.name: each for each in (*positional, *by_keyword)} | dict(options)
    return _describe_keywords(label, known, missing, keywords, too_many)


def _describe_keywords(
    label: str,
    known: Mapping[str, Any],
    missing: Collection[str],
    given: Collection[str],
    positional: Mapping[str, Any] | None,
) -> str:
    """`positional` are the parameters without a keyword, if too many of them were given."""
    for name in given:
        if name not in known:
            close = _find_meant_keywords(name, known)
            suggestion = f" Did you mean {' or '.join(close)}?" if close else ""
            listing = "" if close and len(known) > _LISTED_NAMES else f" It takes {_list_keywords(known)}."
            return f"{label} got an unknown option {name!r}.{suggestion}{listing}"
    if positional is not None:
        limit = f"only {', '.join(positional)}" if positional else "nothing"
        others = {name: each for name, each in known.items() if name not in positional}
        listing = _list_keywords(dict(list(others.items())[:_LISTED_NAMES]))
        return f"{label} takes {limit} without a keyword. Its keywords: {listing}."
    if missing:
        return f"{label} needs {', '.join(f'{name}=' for name in missing)}."
    return ""


def _find_meant_keywords(name: str, known: Collection[str]) -> list[str]:
    meant = _KEYWORDS_OF_OTHER_NAMES.get(name.lower())
    if meant is not None and meant in known:
        return [meant]
    return find_similar_names(name, [each for each in known if each not in _NEVER_SUGGESTED])


def _list_keywords(known: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}=" for name in known)
