"""Leases on files: if settings enable it, a file changed by an agent is reserved for it until it ends."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from shoal.core.errors import SettingsError, WorkspaceError
from shoal.core.filenames import escape_filename
from shoal.core.ids import AgentId
from shoal.policy.path_patterns import InvalidPathPatternError, convert_path_pattern_to_regex


class AgentFileWriteLeases:
    """Leases by path. `patterns` are as in permission rules. The lead takes none: it outlives all agents."""

    def __init__(self, patterns: Sequence[str]) -> None:
        """Raises `SettingsError` for an invalid pattern."""
        self._patterns = tuple(patterns)
        self._holders: dict[Path, AgentId] = {}
        self._expression = cache(self._compile_patterns)
        self._expression("/")

    def acquire(self, agent: AgentId, path: Path, root: Path) -> None:
        """Reserve a file that the agent has changed."""
        if self._patterns and self._expression(str(root)).fullmatch(str(path)) is not None:
            self._holders.setdefault(path, agent)

    def create_write_guard(self, agent: AgentId) -> Callable[[Path], None]:
        """Return a check that raises `WorkspaceError` if this agent writes to a file another one holds."""

        def refuse_write_to_leased_file(path: Path) -> None:
            holder = self._holders.get(path, agent)
            if holder != agent:
                raise WorkspaceError(
                    f"{escape_filename(path)} is being changed by agent {holder}, "
                    "which has it until it ends. "
                    "Nothing was written. Wait for its end, or tell it with SendMessage what to change."
                )

        return refuse_write_to_leased_file

    def release_agent_leases(self, agent: AgentId) -> None:
        for path in [path for path, holder in self._holders.items() if holder == agent]:
            del self._holders[path]

    def _compile_patterns(self, root: str) -> re.Pattern[str]:
        expressions = []
        for pattern in self._patterns:
            try:
                expressions.append(f"(?:{convert_path_pattern_to_regex(pattern, root)})")
            except InvalidPathPatternError as error:
                raise SettingsError(f'The setting "file_leases" has {pattern!r}: {error}.') from error
        return re.compile("|".join(expressions), re.DOTALL)
