"""Debug log of a session: one line per event, for troubleshooting."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from shoal.core.clock import Clock, format_iso_time
from shoal.core.events import Event
from shoal.core.ids import SessionId
from shoal.core.text.redaction import KEY_SHAPE_REDACTOR, SecretRedactor
from shoal.stores.files.home.home_paths import (
    build_write_error,
    check_safe_file_name,
    make_private_directory,
    open_private_file,
)
from shoal.wire.json_codec import encode_json


class DebugLog:
    """Log in `debug/{session}.txt`, with a link `debug/latest`. Failed writes are ignored."""

    def __init__(
        self, directory: Path, session: SessionId, clock: Clock, secrets: SecretRedactor = KEY_SHAPE_REDACTOR
    ) -> None:
        self._secrets = secrets
        make_private_directory(directory)
        self.path = directory / f"{check_safe_file_name(session, directory)}.txt"
        self._clock = clock
        try:
            fd = open_private_file(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
        except OSError as error:
            raise build_write_error(self.path, error) from error
        self._file = os.fdopen(fd, "ab", buffering=0)
        with suppress(OSError):  # a file system without locks
            # Tells the cleanup of old logs that this one is in use.
            fcntl.flock(self._file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        os.fchmod(fd, 0o600)
        latest_link = directory / "latest"
        with suppress(OSError):
            latest_link.unlink(missing_ok=True)
            latest_link.symlink_to(self.path.name)

    def write_event(self, event: Event) -> None:
        line = (
            format_iso_time(self._clock.now()).encode()
            + b" "
            + self._secrets.redact_bytes(encode_json(event))
            + b"\n"
        )
        with suppress(OSError):
            self._file.write(line)

    def write_text(self, text: str) -> None:
        """Write the text of a failure on separate lines."""
        timestamp = format_iso_time(self._clock.now()).encode() + b"\n"
        with suppress(OSError):
            self._file.write(timestamp + self._secrets.redact_bytes(text.encode("utf-8", "replace")) + b"\n")

    def close(self) -> None:
        self._file.close()
