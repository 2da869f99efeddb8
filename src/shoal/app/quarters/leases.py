"""Leases on files: what an agent has changed is its own until it ends, where settings want that."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from shoal.core.errors import SettingsError, WorkspaceError
from shoal.core.filenames import shown
from shoal.core.ids import AgentId
from shoal.policy.patterns import BadPattern, path_expression


class Leases:
    """`patterns` are as in permission rules. The lead takes none: it outlives every agent."""

    def __init__(self, patterns: Sequence[str]) -> None:
        """Raises `SettingsError` for a pattern that cannot be."""
        self._patterns = tuple(patterns)
        self._holders: dict[Path, AgentId] = {}
        self._expression = cache(self._compiled)
        self._expression("/")

    def take(self, agent: AgentId, path: Path, root: Path) -> None:
        """The agent has changed the file."""
        if self._patterns and self._expression(str(root)).fullmatch(str(path)) is not None:
            self._holders.setdefault(path, agent)

    def guard(self, agent: AgentId) -> Callable[[Path], None]:
        """Refuses, with `WorkspaceError`, a write of this agent to what another one holds."""

        def refuse(path: Path) -> None:
            holder = self._holders.get(path, agent)
            if holder != agent:
                raise WorkspaceError(
                    f"{shown(path)} is being changed by agent {holder}, which has it until it ends. "
                    "Nothing was written. Wait for its end, or tell it with SendMessage what to change."
                )

        return refuse

    def release(self, agent: AgentId) -> None:
        for path in [path for path, holder in self._holders.items() if holder == agent]:
            del self._holders[path]

    def _compiled(self, root: str) -> re.Pattern[str]:
        expressions = []
        for pattern in self._patterns:
            try:
                expressions.append(f"(?:{path_expression(pattern, root)})")
            except BadPattern as problem:
                raise SettingsError(f'The setting "file_leases" has {pattern!r}: {problem}.') from problem
        return re.compile("|".join(expressions), re.DOTALL)
