"""Regular expressions that are compiled when they are first used.

A start imports many modules whose expressions only few sessions need; compiling them all takes 15 ms.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


class _LazyPattern:
    def __init__(self, source: str | bytes, flags: int) -> None:
        self._source, self._flags = source, flags

    def __getattr__(self, name: str) -> Any:
        # Called only for names that are not set yet: the next use finds the method of the compiled pattern.
        value = getattr(re.compile(self._source, self._flags), name)
        setattr(self, name, value)
        return value


def compile_on_first_use(source: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a pattern whose methods can be called; functions such as `re.sub` do not accept it."""
    return cast("re.Pattern[AnyStr]", _LazyPattern(source, flags))
