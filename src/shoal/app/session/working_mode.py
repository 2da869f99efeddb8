"""Permission mode to which an approved plan returns."""

from __future__ import annotations

from shoal.core.permissions import PermissionMode


class LastWorkingPermissionModeTracker:
    """Mode in which the agent last worked; modes that a person only cycles through do not count."""

    def __init__(self) -> None:
        self._mode: PermissionMode | None = None
        self._replies = -1

    def resolve_mode_before_plan(self, now: PermissionMode, replies: int) -> PermissionMode | None:
        """Return the mode to restore after a plan; None if only plan mode was used.

        `replies` is the number of model replies so far.
        """
        if replies != self._replies:
            self._replies = replies
            self._mode = self._mode if now == "plan" else now
        # Leaving bypassPermissions does not imply that it is wanted again.
        return "default" if self._mode == "bypassPermissions" != now else self._mode
