"""Permission modes of child agents: never wider than the parent's, unless the user configured it."""

from __future__ import annotations

from shoal.core.errors import SettingsError
from shoal.core.permissions import Mode

_WIDTH: dict[Mode, int] = {
    "plan": 0,
    "dontAsk": 1,
    "default": 2,
    "bubble": 2,
    "acceptEdits": 3,
    "delegate": 3,
    "bypassPermissions": 4,
}


def is_wider(mode: Mode, than: Mode) -> bool:
    return _WIDTH[mode] > _WIDTH[than]


def narrowed(
    parent: Mode, definition: Mode | None, *, person_configured: bool = False, may_skip: bool = False
) -> Mode:
    """Return the mode of a child whose definition or call requests `requested`.

    `person_configured` means that the request comes from the user's own configuration, which may widen the
    mode. `can_bypass` means that the user enabled bypassing permissions; without it nothing bypasses them.
    """
    wished = parent if definition is None else definition
    if wished == "bypassPermissions" and not may_skip:
        wished = parent
    return wished if person_configured or _WIDTH[wished] <= _WIDTH[parent] else parent


def forked(parent: Mode) -> Mode:
    """Return the mode of a fork: it asks where its parent asks and is restricted as tightly."""
    return "bubble" if _WIDTH[parent] >= _WIDTH["bubble"] else parent


def checked_mode(wished: Mode, *, may_skip: bool) -> Mode:
    """Return the requested mode for a running session. Raises `SettingsError` if it is not allowed."""
    if wished == "bypassPermissions" and not may_skip:
        raise SettingsError(
            "Permissions cannot be skipped in this session: it was not started so. Start it with "
            '--dangerously-skip-permissions, or set permissions.defaultMode to "bypassPermissions" in '
            "your own settings."
        )
    return wished
