"""Keys of providers that a person gave us, in `shoal/credentials.json` of the home, for this user alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from shoal.core.errors import StoreError
from shoal.stores.files.flocks import changing
from shoal.stores.files.places import unwritable, write_whole
from shoal.wire.content import load


def credentials_path(home: Path) -> Path:
    return home / "shoal" / "credentials.json"


def stored_credentials(home: Path) -> dict[str, dict[str, str]]:
    """For each provider the variables that reach it. Raises `StoreError`, which holds nothing of the file."""
    path = credentials_path(home)
    try:
        content = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}.", path=path) from error
    try:
        return msgspec.convert(load(content), dict[str, dict[str, str]])
    except (ValueError, msgspec.ValidationError):
        # Its words may be those of a key.
        told = f"{path} cannot be understood. Remove it, and set providers up again: shoal setup"
        raise StoreError(told, path=path) from None


def store_credentials(home: Path, provider: str, variables: Mapping[str, str] | None) -> None:
    """In place of what was stored for the provider; None forgets it. Raises `StoreError`."""
    path = credentials_path(home)
    with changing(path):
        kept: dict[str, Any] = stored_credentials(home)
        kept.pop(provider, None)
        if variables is not None:
            kept[provider] = dict(variables)
        if kept:
            write_whole(path, msgspec.json.format(msgspec.json.encode(kept)) + b"\n")
            return
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise unwritable(path, error) from error
