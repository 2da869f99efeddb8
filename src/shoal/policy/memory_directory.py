"""An agent's memory directory, which its file tools access without asking."""

from __future__ import annotations

from msgspec import Struct

from shoal.core.permissions.permission_decisions import DenyDecision
from shoal.core.text.filenames import escape_filename
from shoal.policy.policy_texts import format_policy_notice
from shoal.policy.protected_files import is_protected_path


class AgentMemoryDirectory(Struct, frozen=True, kw_only=True):
    directory: str
    """Real path; a link that leads out of the directory gives no access."""
    only: tuple[str, ...] = ()
    """Tools that the agent may use only in this directory."""

    def is_inside(self, real: str) -> bool:
        return f"{real}/".startswith(f"{self.directory}/")

    def is_writable(self, real: str) -> bool:
        """Return True if the path is inside and is not a protected file, which a memory never needs."""
        return self.is_inside(real) and not is_protected_path(real, len(self.directory))

    def check_memory_only_tool(self, tool: str, real: str) -> DenyDecision | None:
        if tool not in self.only or self.is_inside(real):
            return None
        return DenyDecision(
            format_policy_notice("memory_only", tool=tool, directory=escape_filename(self.directory))
        )
