"""Permission modes that Shift+Tab cycles through."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.core.permissions.permission_changes import PermissionMode

_CYCLE: tuple[PermissionMode, ...] = ("default", "acceptEdits", "plan")


class PermissionModeCycle:
    """Cycles through the modes. Another mode, such as that of the settings, becomes the last of the cycle."""

    def __init__(self) -> None:
        self._extra_mode: PermissionMode | None = None

    def next_mode(self, now: PermissionMode, *, may_skip: bool = False) -> PermissionMode:
        available_modes = (*_CYCLE, "bypassPermissions") if may_skip else _CYCLE
        if now not in available_modes:
            self._extra_mode = now
        modes = (
            available_modes
            if self._extra_mode is None or self._extra_mode in available_modes
            else (*available_modes, self._extra_mode)
        )
        return modes[(modes.index(now) + 1) % len(modes)]
