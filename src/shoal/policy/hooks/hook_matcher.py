"""Selection of the hooks that run for an event."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from shoal.core.extensions.hooks import (
    MATCHER_FIELDS,
    Hook,
    HookEvent,
    HttpPostHookAction,
    PythonCallbackHookAction,
    ShellCommandHookAction,
)

_NAMES = re.compile(r"[\w-]+(\|[\w-]+)*")


def select_matching_hooks(
    hooks: Iterable[Hook], event: HookEvent, fields: Mapping[str, Any]
) -> tuple[Hook, ...]:
    """Return the matching hooks in order.

    Of hooks that do exactly the same, only the first is kept, or one that blocks on failure if there is one.
    """
    field = MATCHER_FIELDS.get(event)
    value = None if field is None else str(fields.get(field, ""))
    found: dict[object, Hook] = {}
    for hook in hooks:
        if value is not None and not is_hook_matcher_match(hook.matcher, value):
            continue
        earlier = found.setdefault(action_key := _get_hook_action_key(hook), hook)
        if hook.blocks_on_failure and not earlier.blocks_on_failure:
            found[action_key] = hook
    return tuple(found.values())


@lru_cache(maxsize=1024)
def is_hook_matcher_match(matcher: str, value: str) -> bool:
    """Match names as a whole, so `Edit` does not match `NotebookEdit`; expressions match anywhere."""
    if matcher in ("", "*"):
        return True
    if _NAMES.fullmatch(matcher):
        return value in matcher.split("|")
    return re.search(matcher, value) is not None


def _get_hook_action_key(hook: Hook) -> object:
    match hook.action:
        case ShellCommandHookAction(command=command):
            # A background hook must not replace a hook that decides.
            return ("command", command, hook.background, hook.rewakes)
        case HttpPostHookAction(url=url, headers=headers):
            return ("http", url, tuple(sorted(headers.items())))
        case PythonCallbackHookAction(function=function):
            return ("called", id(function))
