"""Debug log of a session: one line per event, for troubleshooting."""

from __future__ import annotations

import fcntl
from contextlib import suppress
from pathlib import Path

from shoal.core.clock import Clock, iso
from shoal.core.events import Event
from shoal.core.ids import SessionId
from shoal.core.secrets import SHAPES_ALONE, Secrets
from shoal.stores.files.places import checked, make_private, unwritable
from shoal.wire.content import dump


class DebugLog:
    """Log in `debug/{session}.txt`, with a link `debug/latest`. Failed writes are ignored."""

    def __init__(
        self, directory: Path, session: SessionId, clock: Clock, secrets: Secrets = SHAPES_ALONE
    ) -> None:
        self._secrets = secrets
        make_private(directory)
        self.path = directory / f"{checked(session, directory)}.txt"
        self._clock = clock
        try:
            self._file = self.path.open("ab", buffering=0)
        except OSError as error:
            raise unwritable(self.path, error) from error
        with suppress(OSError):  # a file system without locks
            # Tells the cleanup of old logs that this one is in use.
            fcntl.flock(self._file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        self.path.chmod(0o600)
        latest = directory / "latest"
        with suppress(OSError):
            latest.unlink(missing_ok=True)
            latest.symlink_to(self.path.name)

    def note(self, event: Event) -> None:
        line = iso(self._clock.now()).encode() + b" " + self._secrets.redacted_bytes(dump(event)) + b"\n"
        with suppress(OSError):
            self._file.write(line)

    def keep(self, text: str) -> None:
        """Write the text of a failure on separate lines."""
        head = iso(self._clock.now()).encode() + b"\n"
        with suppress(OSError):
            self._file.write(head + self._secrets.redacted_bytes(text.encode("utf-8", "replace")) + b"\n")

    def close(self) -> None:
        self._file.close()
