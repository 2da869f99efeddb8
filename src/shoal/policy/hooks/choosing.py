"""Selection of the hooks that run for an event."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from shoal.core.hooks import MATCHED, Called, Command, Hook, HookEvent, Post

_NAMES = re.compile(r"[\w-]+(\|[\w-]+)*")


def chosen(hooks: Iterable[Hook], event: HookEvent, fields: Mapping[str, Any]) -> tuple[Hook, ...]:
    """Return the matching hooks in order.

    Of hooks that do exactly the same, only the first is kept, or one that blocks on failure if there is one.
    """
    field = MATCHED.get(event)
    value = None if field is None else str(fields.get(field, ""))
    found: dict[object, Hook] = {}
    for hook in hooks:
        if value is not None and not fits(hook.matcher, value):
            continue
        known = found.setdefault(deed := _deed(hook), hook)
        if hook.blocks_on_failure and not known.blocks_on_failure:
            found[deed] = hook
    return tuple(found.values())


@lru_cache(maxsize=1024)
def fits(matcher: str, value: str) -> bool:
    """Match names as a whole, so `Edit` does not match `NotebookEdit`; expressions match anywhere."""
    if matcher in ("", "*"):
        return True
    if _NAMES.fullmatch(matcher):
        return value in matcher.split("|")
    return re.search(matcher, value) is not None


def _deed(hook: Hook) -> object:
    match hook.does:
        case Command(command=command):
            # A background hook must not replace a hook that decides.
            return ("command", command, hook.background, hook.rewakes)
        case Post(url=url, headers=headers):
            return ("http", url, tuple(sorted(headers.items())))
        case Called(function=function):
            return ("called", id(function))
