"""A directory of an agent's own, which its file tools reach without asking."""

from __future__ import annotations

from msgspec import Struct

from shoal.core.decisions import Deny
from shoal.core.filenames import shown
from shoal.policy.protected import protected


class Memory(Struct, frozen=True, kw_only=True):
    directory: str
    """Its real path: where a link leads out of it, nothing is allowed for it."""
    only: tuple[str, ...] = ()
    """Tools that the agent has for this directory alone."""

    def holds(self, real: str) -> bool:
        return f"{real}/".startswith(f"{self.directory}/")

    def is_writable(self, real: str) -> bool:
        """Not for what programs obey or keep keys in, which a memory has no use for."""
        return self.holds(real) and not protected(real, len(self.directory))

    def refusal(self, tool: str, real: str) -> Deny | None:
        if tool not in self.only or self.holds(real):
            return None
        return Deny(f"this agent has {tool} for its memory alone, in {shown(self.directory)}.")
