"""Stored provider keys, in `shoal/credentials.json` of the home, readable only by this user."""

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
    """Return the variables of each provider; raise `StoreError` without any content of the file."""
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
        # The error text could contain a key.
        told = f"{path} cannot be understood. Remove it, and set providers up again: shoal setup"
        raise StoreError(told, path=path) from None


def store_credentials(home: Path, provider: str, variables: Mapping[str, str] | None) -> None:
    """Replace the stored variables of the provider; None removes them. Raises `StoreError`."""
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
