"""Definition of a program's team, stored with its run so that another process can resume the team."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from shoal.core.errors import SettingsError, StateFileError
from shoal.core.store import SessionStore, Store
from shoal.stores.files.home.home_paths import read_state_file, write_file_atomically
from shoal.stores.store_choice import get_shared_address, to_shared_store
from shoal.wire.team_definition_codec import (
    STORED_OPTION_TYPES,
    StoredTeamDefinition,
    encode_team_definition,
    parse_team_definition,
)

FILE_NAME = "team.json"
_PROGRAM_OPTIONS = ("model", "tools", "hooks", "on_question", "budget", "environ", "settings", "mcp_config")
"""Options that are program objects or may contain secrets; they must be passed again on resume."""


def select_stored_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the options that can be stored, and the names of those that only the program has."""
    stored: dict[str, Any] = {}
    for name in STORED_OPTION_TYPES:
        value = options.get(name)
        if value is not None and not _is_program_object(name, value):
            stored[name] = msgspec.to_builtins(value, enc_hook=str)
    required = tuple(
        name for name in _PROGRAM_OPTIONS if options.get(name) is not None and name not in stored
    )
    return stored, required


def _is_program_object(name: str, value: Any) -> bool:
    if name == "settings":
        return isinstance(value, Mapping) or str(value).lstrip().startswith("{")
    return name == "model" and not isinstance(value, str)


def write_team_definition(store: Store, session: SessionStore, definition: StoredTeamDefinition) -> None:
    """Write the definition to a file, and to a database so that other machines can read it."""
    content = encode_team_definition(definition)
    # Without it, a resumed team would not know that hooks or permissions of the program are missing.
    write_file_atomically(session.directory / FILE_NAME, content, durable=True)
    if get_shared_address(store) is not None:
        session.open_results().save_result(FILE_NAME, content)


def read_team_definition(store: Store, session: SessionStore) -> StoredTeamDefinition | None:
    """Read the definition; None if there is none. Raises `StateFileError` if it cannot be read."""
    path = session.directory / FILE_NAME
    try:
        content = _read_definition_file(path)
        if content is None and get_shared_address(store) is not None:
            content = to_shared_store(store).read_result(session.session, FILE_NAME)
        return None if content is None else parse_team_definition(content)
    except (OSError, ValueError) as error:
        raise StateFileError(f"Cannot read {path}: {error}.", path=path) from error


def _read_definition_file(path: Path) -> bytes | None:
    try:
        return read_state_file(path)
    except FileNotFoundError:
        return None


def refuse_missing_program_options(definition: StoredTeamDefinition, given: Mapping[str, Any]) -> None:
    """Raise `SettingsError` if an object of the program is missing: without it the team could do more."""
    missing = [name for name in definition.required if name not in given]
    if missing:
        names = ", ".join(f"{name}=" for name in missing)
        raise SettingsError(
            f"shoal.Team.resume({definition.team!r}): the team was opened with {names}, which cannot be "
            f"stored. Pass {names} again."
        )
