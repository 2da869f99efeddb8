"""Checks of the options that a program passes. A wrong value is refused and never reinterpreted."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from shoal.app.options import Options
from shoal.core.agents.agent_definitions import EFFORT_LEVELS
from shoal.core.budgets.shared_budget import SharedBudget
from shoal.core.budgets.usage import ModelCard
from shoal.core.errors import InvalidName, SettingsError
from shoal.core.names import parse_safe_name
from shoal.core.permissions.permission_changes import REQUESTED_PERMISSION_MODES, suggest_permission_mode
from shoal.core.text.encodable_text import find_encoding_problem
from shoal.core.text.json_schema import find_schema_problem
from shoal.core.text.name_suggestions import suggest_name
from shoal.core.tool_names import DUPLICATE_TOOL_ADVICE, find_duplicate_tool_name
from shoal.wire.settings_codec import TeammateMode

_TEXT_LISTS = (
    "allowed_tools",
    "disallowed_tools",
    "available_tools",
    "betas",
    "channels",
    "setting_sources",
    "skills",
)
_PATH_LISTS = ("add_dirs", "plugin_dirs")
_TEXTS = (
    "name", "team", "system_prompt", "append_system_prompt", "fallback_model", "resume", "session_id",
    "settings", "trace", "title", "debug_filter", "effort", "agent",
)  # fmt: skip
_FLAGS = (
    "skip_permissions", "coordinator", "assistant", "strict_mcp_config", "continue_last", "fork", "attended",
    "persist", "debug", "bare", "slash_commands", "allow_bypass",
)  # fmt: skip
_COUNTS = {"thinking_tokens": 0, "max_turns": 1, "max_total_tokens": 1, "max_agents": 0, "seed": 0}
"""Minimum of each integer option."""
_AMOUNTS = ("max_budget_usd", "deadline")
_CHOICES: Mapping[str, Sequence[str]] = {
    "mode": REQUESTED_PERMISSION_MODES,
    "effort": EFFORT_LEVELS,
    "setup": ("init", "maintenance"),
    "teammate_mode": get_args(TeammateMode),
}
_SETTING_SOURCES = ("user", "project", "local")
_RULE_LISTS = ("allowed_tools", "disallowed_tools", "available_tools")
_SCHEMA_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
_TRACE_PARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
_MODEL_ADVICE = "Pass a name, or an object with card, generate_reply and aclose."
_OPTIONAL = frozenset(name for name in Options.__struct_fields__ if getattr(Options(), name) is None)


def check_options(options: Options) -> None:
    """Raise `SettingsError` with what is expected for the first option that has a wrong value."""
    problem = next(_iter_option_problems(options), None)
    if problem is not None:
        raise SettingsError(f"shoal.open: {problem}")


def _iter_option_problems(options: Options) -> Iterator[str]:
    yield from _check_types(options)
    yield from _check_numbers(options)
    yield from _check_store(options)
    yield from _check_program_options(options)
    yield from _check_model(options.model)
    yield from _check_output_schema(options.output_schema)
    yield from _check_encodings(options)
    yield from _check_texts(options)
    for name, choices in _CHOICES.items():
        if (value := getattr(options, name)) is not None:
            yield from _check_choice(name, value, choices)
    for source in options.setting_sources or ():
        yield from _check_choice("setting_sources", source, _SETTING_SOURCES)
    if options.fork and options.resume is None and not options.continue_last:
        yield "fork: it needs a session to copy. Add resume=ID or continue_last=True."


def _check_types(options: Options) -> Iterator[str]:
    for name in _TEXT_LISTS:
        yield from _check_list(options, name, (str,), "strings")
    for name in _PATH_LISTS:
        yield from _check_list(options, name, (str, Path), "paths")
    yield from _check_list(options, "mcp_config", (str, Mapping), "strings and mappings")
    yield from _check_tools(options)
    for name in _TEXTS:
        yield from _check_type(options, name, str, "a text")
    for name in _FLAGS:
        yield from _check_type(options, name, bool, "True or False")
    yield from _check_type(options, "hooks", Mapping, "a mapping of events to lists of hooks")


def _check_encodings(options: Options) -> Iterator[str]:
    """Check that texts whose types are right can be stored and sent."""
    for name in _TEXTS:
        if problem := find_encoding_problem(getattr(options, name) or ""):
            yield f"{name} {problem}"
    for name in ("betas", "channels", "skills", "mcp_config"):
        for each in getattr(options, name) or ():
            is_path = name == "mcp_config"
            if isinstance(each, str) and (problem := find_encoding_problem(each, is_system_text=is_path)):
                yield f"{name}: {each!r:.80} {problem}"
    for name in ("settings", "agents"):
        text = getattr(options, name)
        if isinstance(text, str) and (problem := find_encoding_problem(text, is_system_text=True)):
            yield f"{name} {problem}"


def _check_texts(options: Options) -> Iterator[str]:
    """Check texts whose types are right."""
    for name in _RULE_LISTS:
        if any(not each.strip() for each in getattr(options, name) or ()):
            yield f"{name}: an entry is empty. Write the name of a tool, or leave the entry out."
    if options.settings is not None and not options.settings.strip():
        yield "settings is empty. Pass a mapping, JSON or the path of a file, or leave it out."
    if options.trace and not _TRACE_PARENT.fullmatch(options.trace):
        yield f"trace: expected a traceparent such as 00-TRACE-SPAN-01, got {_describe(options.trace)}."
    if not options.name.strip():
        yield "name is empty. Write a name, or leave it out."
    else:
        yield from _check_name("name", options.name)
    if options.team is not None:
        yield from _check_name("team", options.team)


def _check_name(option: str, name: str) -> Iterator[str]:
    try:
        parse_safe_name(name)
    except InvalidName as error:
        yield f"{option}: {error}"


def _check_list(options: Options, name: str, items: tuple[type, ...], description: str) -> Iterator[str]:
    value = getattr(options, name)
    if value is None and name in _OPTIONAL:
        return
    # A text is a sequence too, and would be read letter by letter.
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        advice = f" Write {name}=[{value!r}]." if isinstance(value, str | Path) else ""
        yield f"{name}: expected a list of {description}, got {_describe(value)}.{advice}"
        return
    for index, each in enumerate(value):
        if not isinstance(each, items):
            yield f"{name}[{index}]: expected a list of {description}, but found {_describe(each)}."


def _check_tools(options: Options) -> Iterator[str]:
    yield from _check_list(options, "tools", (object,), "tools")
    for index, tool in enumerate(options.tools):
        if not hasattr(tool, "schema") or not hasattr(tool, "run"):
            yield f"tools[{index}]: expected a tool, got {_describe(tool)}. Make one with @shoal.tool."
            return
    if (name := find_duplicate_tool_name(options.tools)) is not None:
        yield f"tools: two tools have the name {name!r}. {DUPLICATE_TOOL_ADVICE}"


def _check_store(options: Options) -> Iterator[str]:
    store = options.store
    if store is None:
        return
    if store == "":
        yield "store is empty. Pass a store or its address, or leave it out."
    if isinstance(store, type):
        yield f"store: expected a store, got the class {store.__name__}. Write store={store.__name__}(...)."
    elif not isinstance(store, str | Path) and not hasattr(store, "create_session"):
        yield f"store: expected a store or its address, got {_describe(store)}."
    if not options.persist:
        yield "store: persist=False stores nothing, so it cannot be combined with a store. Leave one out."


def _check_program_options(options: Options) -> Iterator[str]:
    budget: Any = options.budget
    if budget is not None and not isinstance(budget, SharedBudget):
        yield f"budget: expected a shoal.Budget, got {_describe(budget)}. Write shoal.Budget(usd=…)."
    handler: Any = options.on_question
    if handler is not None and not callable(handler):
        yield f"on_question: expected a function, got {_describe(handler)}."
    yield from find_environ_problems(options.environ)
    clock: Any = options.clock
    for name in ("now", "monotonic", "sleep", "deadline"):
        if not hasattr(clock, name):
            yield f"clock: expected a shoal.Clock, but {_describe(clock)} has no {name}."


def find_environ_problems(environ: Any) -> Iterator[str]:
    """Yield why `environ` cannot be the environment of a session."""
    if environ is None:
        return
    if not (
        isinstance(environ, Mapping)
        and all(isinstance(name, str) and isinstance(value, str) for name, value in environ.items())
    ):
        yield "environ: expected a mapping of strings to strings."
        return
    for name, value in environ.items():
        if not name or "=" in name or find_encoding_problem(name, is_system_text=True):
            yield (
                f"environ: {name!r} is not a name of a variable: a name is not empty, and contains neither = "
                "nor a NUL byte."
            )
        elif problem := find_encoding_problem(value, is_system_text=True):
            yield f"environ: the value of {name} {problem}"


def _check_model(model: Any) -> Iterator[str]:
    if model is None or isinstance(model, str):
        return
    if isinstance(model, type):
        yield f"model: expected a model, got the class {model.__name__}. Write model={model.__name__}(...)."
        return
    for name in ("card", "generate_reply", "aclose"):
        if not hasattr(model, name):
            yield f"model: {_describe(model)} has no {name}. {_MODEL_ADVICE}"
    if not isinstance(model.card, ModelCard):
        yield f"model: its card must be a shoal.ModelCard, got {_describe(model.card)}."
    for name in ("generate_reply", "aclose"):
        function = getattr(model, name)
        if not callable(function) or (
            inspect.ismethod(function) and not inspect.iscoroutinefunction(function)
        ):
            yield f"model: its {name} must be an async function, got {_describe(function)}."


def _check_output_schema(schema: Any) -> Iterator[str]:
    if schema is None:
        return
    if not isinstance(schema, Mapping):
        yield (
            f"output_schema: expected a JSON Schema as a mapping, got {_describe(schema)}. For a Python "
            "type, use output=."
        )
        return
    kinds = schema.get("type", ())
    for kind in (kinds,) if not isinstance(kinds, list | tuple) else kinds:
        if not isinstance(kind, str) or kind not in _SCHEMA_TYPES:
            yield from _check_choice("output_schema.type", kind, _SCHEMA_TYPES)
            return
    if problem := find_schema_problem(schema):
        yield f"output_schema: {problem}."


def _check_type(options: Options, name: str, expected: type[Any], description: str) -> Iterator[str]:
    value = getattr(options, name)
    if not isinstance(value, expected) and not (value is None and name in _OPTIONAL):
        yield f"{name}: expected {description}, got {_describe(value)}."


def _check_numbers(options: Options) -> Iterator[str]:
    for name, minimum in _COUNTS.items():
        yield from _check_count(options, name, minimum)
    for name in _AMOUNTS:
        yield from _check_amount(options, name)


def _check_count(options: Options, name: str, minimum: int) -> Iterator[str]:
    value = getattr(options, name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < minimum):
        yield f"{name}: expected an integer of at least {minimum}, got {_describe(value)}."


def _check_amount(options: Options, name: str) -> Iterator[str]:
    value = getattr(options, name)
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or value <= 0:
        yield f"{name}: expected a number greater than 0, got {_describe(value)}."


def _check_choice(name: str, value: Any, choices: Collection[str]) -> Iterator[str]:
    if value not in choices:
        suggest = suggest_permission_mode if name == "mode" else suggest_name
        yield f"{name}: unknown value {value!r}.{suggest(str(value), choices)}"


def _describe(value: object) -> str:
    return repr(value)[:80]
