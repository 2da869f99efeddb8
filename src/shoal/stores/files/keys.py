"""Signing keys of teams for mail: one file each in `shoal/keys`, readable only by this user."""

from __future__ import annotations

import os
from pathlib import Path

from shoal.core.errors import StoreError
from shoal.core.names import TeamName
from shoal.core.signing import KEY_SIZE
from shoal.stores.files.below_home import found_inside, inside
from shoal.stores.files.handles import Directory

_PLACE = ("shoal", "keys")


def team_key(home: Path, team: TeamName) -> bytes:
    """Return the key of the team; create it if missing. Of two created at once the first wins."""
    with inside(home, *_PLACE) as keys:
        key = keys.read(team)
        if key is None:
            _make(keys, team)
            key = keys.read(team)
        _clear(keys, team)
    if key is None or len(key) != KEY_SIZE:
        path = home.joinpath(*_PLACE, team)
        raise StoreError(
            f"{path} is no key of {KEY_SIZE} bytes. Remove it: a new one is made, and mail signed with the "
            "old one is refused.",
            path=path,
        )
    return key


def remove_key(home: Path, team: TeamName) -> None:
    """Remove the key, and temporary files of a process that died while it created the key."""
    keys = found_inside(home, *_PLACE)
    if keys is None:
        return
    with keys:
        keys.remove(team)
        _clear(keys, team)


def _clear(keys: Directory, team: TeamName) -> None:
    """Remove temporary keys; a process that is creating a key finds the existing one."""
    for name in keys.names():
        if name.startswith(_beginning(team)):
            keys.remove(name)


def _make(keys: Directory, team: TeamName) -> None:
    """Create the key atomically and durably: a partial key after a power cut would reject all mail."""
    temporary = f"{_beginning(team)}{os.urandom(4).hex()}"
    keys.write(temporary, os.urandom(KEY_SIZE), durable=True)
    try:
        keys.link(temporary, team)
    except StoreError:
        # Removed by another process, which has created a key.
        if keys.read(team) is None:
            raise
    finally:
        keys.remove(temporary)


def _beginning(team: TeamName) -> str:
    return f".{team}.tmp."
