"""How far a child's authority reaches: never further than its parent's, unless a person says so."""

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
    """The mode of a child whose definition or call asks for `definition`.

    `person_configured` says that this wish comes from a person's own configuration, which may widen;
    `may_skip` that the person enabled skipping permissions, without which nothing skips them.
    """
    wished = parent if definition is None else definition
    if wished == "bypassPermissions" and not may_skip:
        wished = parent
    return wished if person_configured or _WIDTH[wished] <= _WIDTH[parent] else parent


def forked(parent: Mode) -> Mode:
    """A fork asks where its parent asks, and is held as tightly."""
    return "bubble" if _WIDTH[parent] >= _WIDTH["bubble"] else parent


def checked_mode(wished: Mode, *, may_skip: bool) -> Mode:
    """The mode a running session is asked to change to."""
    if wished == "bypassPermissions" and not may_skip:
        raise SettingsError(
            "Permissions cannot be skipped in this session: it was not started so. Start it with "
            '--dangerously-skip-permissions, or set permissions.defaultMode to "bypassPermissions" in '
            "your own settings."
        )
    return wished
