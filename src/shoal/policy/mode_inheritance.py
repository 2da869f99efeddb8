"""Permission modes of child agents: no more permissive than the parent's, unless the user configured it."""

from __future__ import annotations

from shoal.core.errors import SettingsError
from shoal.core.permissions.permission_changes import (
    PERMISSION_MODES,
    PermissionMode,
    suggest_permission_mode,
)

_MODE_WIDTH: dict[PermissionMode, int] = {
    "plan": 0,
    "dontAsk": 1,
    "default": 2,
    "bubble": 2,
    "acceptEdits": 3,
    "delegate": 3,
    "bypassPermissions": 4,
}


def is_wider_permission_mode(mode: PermissionMode, than: PermissionMode) -> bool:
    return _MODE_WIDTH[mode] > _MODE_WIDTH[than]


def narrow_child_permission_mode(
    parent: PermissionMode,
    requested: PermissionMode | None,
    *,
    person_configured: bool = False,
    can_bypass: bool = False,
) -> PermissionMode:
    """Return the mode of a child whose definition or call requests `requested`.

    `person_configured` means that the request comes from the user's own configuration, which may widen the
    mode. `can_bypass` means that the user enabled bypassing permissions; without it nothing bypasses them.
    """
    requested_mode = parent if requested is None else requested
    if requested_mode == "bypassPermissions" and not can_bypass:
        requested_mode = parent
    return (
        requested_mode if person_configured or _MODE_WIDTH[requested_mode] <= _MODE_WIDTH[parent] else parent
    )


def get_fork_permission_mode(parent: PermissionMode) -> PermissionMode:
    """Return the mode of a fork: it asks where its parent asks and is restricted as tightly."""
    return "bubble" if _MODE_WIDTH[parent] >= _MODE_WIDTH["bubble"] else parent


def check_requested_permission_mode(requested: PermissionMode, *, can_bypass: bool) -> PermissionMode:
    """Return the requested mode for a running session. Raises `SettingsError` if it is not allowed."""
    if requested not in PERMISSION_MODES:
        raise SettingsError(f"mode: unknown value {requested!r}.{suggest_permission_mode(str(requested))}")
    if requested == "bypassPermissions" and not can_bypass:
        raise SettingsError(
            "Permissions cannot be skipped: this session was not started that way. Start it with "
            '--dangerously-skip-permissions, or set permissions.defaultMode to "bypassPermissions" in '
            "your own settings."
        )
    return requested
