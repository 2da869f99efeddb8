"""Permission modes that Shift+Tab cycles through."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.core.permissions import Mode

_ROUND: tuple[Mode, ...] = ("default", "acceptEdits", "plan")


class ModeRound:
    """Cycles through the modes. Another mode, such as that of the settings, becomes the last of the cycle."""

    def __init__(self) -> None:
        self._own: Mode | None = None

    def after(self, now: Mode, *, may_skip: bool = False) -> Mode:
        known = (*_ROUND, "bypassPermissions") if may_skip else _ROUND
        if now not in known:
            self._own = now
        modes = known if self._own is None or self._own in known else (*known, self._own)
        return modes[(modes.index(now) + 1) % len(modes)]
