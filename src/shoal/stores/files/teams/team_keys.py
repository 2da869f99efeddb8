"""Signing keys of teams for mail: one file each in `shoal/keys`, readable only by this user."""

from __future__ import annotations

import os
from pathlib import Path

from shoal.core.errors import StateFileError
from shoal.core.names import TeamName
from shoal.core.teams.mail_signatures import KEY_SIZE
from shoal.stores.files.access.directory_handle import DirectoryHandle
from shoal.stores.files.access.problem_reporter import ProblemReporter, ignore_problem
from shoal.stores.files.home.home_directories import (
    open_existing_home_subdirectory,
    open_or_create_home_subdirectory,
)

_KEY_DIRECTORY = ("shoal", "keys")


def load_or_create_team_mail_key(
    home: Path, team: TeamName, report_problem: ProblemReporter = ignore_problem
) -> bytes:
    """Return the key of the team; create it if missing. If two are created at once, the first one wins.

    A damaged key is set aside and replaced.
    """
    with open_or_create_home_subdirectory(home, *_KEY_DIRECTORY, durable=True) as keys:
        if (reason := _find_key_damage(keys, team)) is not None:
            aside = keys.set_entry_aside(team, f"{team}.damaged")
            report_problem(
                f"The signing key {keys.path / team} is damaged: {reason}. It was renamed to {aside}, and a "
                "new key is used. Mail that was signed with the old key is refused."
            )
        key = keys.read_file(team)
        if key is None:
            _create_team_mail_key(keys, team)
            key = keys.read_file(team)
        _remove_temporary_keys(keys, team)
    if key is None or len(key) != KEY_SIZE:
        path = home.joinpath(*_KEY_DIRECTORY, team)
        raise StateFileError(f"{path} could not be created.", path=path)
    return key


def _find_key_damage(keys: DirectoryHandle, team: TeamName) -> str | None:
    if (kind := keys.describe_irregular_entry(team)) is not None:
        return f"it is {kind}"
    key = keys.read_file(team)
    if key is None:
        return None
    if len(key) != KEY_SIZE:
        return f"it does not have {KEY_SIZE} bytes"
    return None if any(key) else "it has only NUL bytes"


def remove_team_mail_key(home: Path, team: TeamName) -> None:
    """Remove the key, and temporary files of a process that died while it created the key."""
    keys = open_existing_home_subdirectory(home, *_KEY_DIRECTORY, durable=True)
    if keys is None:
        return
    with keys:
        keys.remove_file(team)
        _remove_temporary_keys(keys, team)


def _remove_temporary_keys(keys: DirectoryHandle, team: TeamName) -> None:
    """Remove temporary keys; a process that is creating a key finds the existing one."""
    for name in keys.list_names():
        if name.startswith(_build_temporary_key_prefix(team)):
            keys.remove_temporary_file(name)


def _create_team_mail_key(keys: DirectoryHandle, team: TeamName) -> None:
    """Create the key atomically and durably: a partial key after a power failure would reject all mail."""
    temporary = f"{_build_temporary_key_prefix(team)}{os.urandom(4).hex()}"
    keys.write_file(temporary, os.urandom(KEY_SIZE))
    try:
        keys.add_hard_link(temporary, team)
    except StateFileError:
        # Removed by another process, which has created a key.
        if keys.read_file(team) is None:
            raise
    finally:
        keys.remove_temporary_file(temporary)


def _build_temporary_key_prefix(team: TeamName) -> str:
    return f".{team}.tmp."
