"""Trust decisions about project settings, in `shoal/trust.json` of the home."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from shoal.core.errors import StoreError
from shoal.stores.files.flocks import changing
from shoal.stores.files.places import write_whole
from shoal.wire.trust import Said, said_in, with_said, without


class TrustFile:
    """Trust file, read without a lock because it is replaced atomically; changed under a lock."""

    def __init__(self, home: Path) -> None:
        self.path = home / "shoal" / "trust.json"

    def said(self, project: Path, file: str) -> Said | None:
        """Return the decision on a file, or None; raise `StoreError` if the trust file is invalid."""
        try:
            return said_in(self._content(), _key(project), file)
        except ValueError as error:
            raise self._broken(error) from error

    def say(self, project: Path, said: Mapping[str, Said | None]) -> None:
        """Store decisions on files of a project, None to remove one. Raises `StoreError`."""
        with changing(self.path):
            try:
                content = with_said(self._content(), _key(project), said)
            except ValueError as error:
                raise self._broken(error) from error
            write_whole(self.path, content)

    def forget(self, project: Path) -> None:
        """Remove every decision on a project. Raises `StoreError`."""
        with changing(self.path):
            try:
                content = without(self._content(), _key(project))
            except ValueError as error:
                raise self._broken(error) from error
            write_whole(self.path, content)

    def _content(self) -> bytes:
        try:
            return self.path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return b""
        except OSError as error:
            raise StoreError(f"{self.path} cannot be read: {error.strerror}.", path=self.path) from error

    def _broken(self, error: ValueError) -> StoreError:
        told = f"{self.path} cannot be understood ({error}). Repair it, or remove it to trust anew."
        return StoreError(told, path=self.path)


def _key(project: Path) -> str:
    """Return the real path; a path that is not valid text is stored as hex bytes."""
    real = os.path.realpath(project)
    try:
        real.encode()
    except UnicodeEncodeError:
        return f"bytes:{os.fsencode(real).hex()}"
    return real
