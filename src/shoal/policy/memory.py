"""An agent's memory directory, which its file tools access without asking."""

from __future__ import annotations

from msgspec import Struct

from shoal.core.decisions import Deny
from shoal.core.filenames import shown
from shoal.policy.protected import protected


class Memory(Struct, frozen=True, kw_only=True):
    directory: str
    """Real path; a link that leads out of it gains no access."""
    only: tuple[str, ...] = ()
    """Tools that the agent may use only in this directory."""

    def holds(self, real: str) -> bool:
        return f"{real}/".startswith(f"{self.directory}/")

    def is_writable(self, real: str) -> bool:
        """Return True if the path is inside and is not a protected file, which a memory never needs."""
        return self.holds(real) and not protected(real, len(self.directory))

    def refusal(self, tool: str, real: str) -> Deny | None:
        if tool not in self.only or self.holds(real):
            return None
        return Deny(f"this agent has {tool} for its memory alone, in {shown(self.directory)}.")
