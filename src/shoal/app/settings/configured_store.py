"""The only place that chooses the store of a session, a command or a program; all others get a store."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.stores.store_choice import is_postgres_address, open_store

if TYPE_CHECKING:
    from shoal.app.settings.settings import Settings
    from shoal.core.store import Store


def open_configured_store(
    settings: Settings, given: Store | Path | str | None = None, *, read_only: bool = False
) -> Store:
    """Open the given store, or else that of the settings and environment, or else the files of the home."""
    place = given or settings.own.store or settings.home
    return open_store(place, home=settings.home, durable=settings.own.durable, read_only=read_only)


def open_home_store(
    home: Path,
    given: Store | Path | str | None = None,
    *,
    cwd: Path | None = None,
    environ: Mapping[str, str] | None = None,
    read_only: bool = False,
) -> Store:
    """Open the store of a home for a command or a program that needs no other setting.

    Changes of files are flushed to the disk. `cwd` and `environ` are those of the process by default.
    """
    place = given or _find_configured_place(home, cwd, environ) or home
    return open_store(place, home=home, durable=True, read_only=read_only)


def open_given_store(place: Store | Path, *, durable: bool = False) -> Store:
    """Return a store object, or open the files of a directory, whatever is configured."""
    return open_store(place, durable=durable)


def find_store_address(home: Path, given: str | None = None) -> str | None:
    """Return the address of the given or configured database; None if the state is in files."""
    place = given or _find_configured_place(home, None, None)
    return place if place is not None and is_postgres_address(place) else None


def _find_configured_place(home: Path, cwd: Path | None, environ: Mapping[str, str] | None) -> str | None:
    from shoal.app.settings.settings import load_settings
    from shoal.app.settings.settings_files import list_settings_files

    cwd = Path.cwd() if cwd is None else cwd
    if not (os.environ if environ is None else environ).get("SHOAL_STORE"):
        # Loading settings takes long, and most homes name no store.
        files = [path for path, _ in list_settings_files(home, cwd, None)]
        if not any(map(_may_name_store, files)):
            return None
    return load_settings(cwd=cwd, environ=environ).own.store


def _may_name_store(path: Path) -> bool:
    try:
        return b'"store"' in path.read_bytes()
    except OSError:
        return False
