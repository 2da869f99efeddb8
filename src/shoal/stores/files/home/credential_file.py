"""Stored provider keys, in `shoal/credentials.json` of the home, readable only by this user."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from shoal.core.errors import StateFileError
from shoal.stores.files.home.home_paths import (
    build_write_error,
    read_state_file,
    write_file_atomically,
)
from shoal.stores.files.locks.flocks import lock_file_for_update
from shoal.wire.json_codec import decode_json


def get_credentials_path(home: Path) -> Path:
    return home / "shoal" / "credentials.json"


def load_provider_credentials(home: Path) -> dict[str, dict[str, str]]:
    """Return the variables of each provider; raise `StateFileError` without any content of the file."""
    path = get_credentials_path(home)
    try:
        content = read_state_file(path)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise StateFileError(f"Cannot read {path}: {error.strerror}.", path=path) from error
    try:
        return msgspec.convert(decode_json(content), dict[str, dict[str, str]])
    except (ValueError, msgspec.ValidationError):
        # The error text could contain a key.
        message = f"{path} is not valid. Remove it, and set up the providers again: shoal setup"
        raise StateFileError(message, path=path) from None


def store_provider_credentials(home: Path, provider: str, variables: Mapping[str, str] | None) -> None:
    """Replace the stored variables of the provider; None removes them. Raises `StateFileError`."""
    path = get_credentials_path(home)
    with lock_file_for_update(path):
        credentials: dict[str, Any] = load_provider_credentials(home)
        credentials.pop(provider, None)
        if variables is not None:
            credentials[provider] = dict(variables)
        if credentials:
            content = msgspec.json.format(msgspec.json.encode(credentials)) + b"\n"
            write_file_atomically(path, content, durable=True)
            return
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise build_write_error(path, error) from error
