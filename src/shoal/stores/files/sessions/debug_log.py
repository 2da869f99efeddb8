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

_NAME_PARTS = {"api": "model", "hooks": "hook", "tools": "tool", "permissions": "permission"}
"""Parts of event names for words that people know from another program."""


def _find_name_part(word: str) -> str:
    return _NAME_PARTS.get(word, word)


class DebugLog:
    """Log in `debug/{session}.txt`, or at `path`, with a link `debug/latest`. Failed writes are ignored.

    `event_filter` selects events by words of their names, separated by commas; `!word` excludes events.
    """

    def __init__(
        self,
        directory: Path,
        session: SessionId,
        clock: Clock,
        secrets: SecretRedactor = KEY_SHAPE_REDACTOR,
        *,
        path: Path | None = None,
        event_filter: str = "",
    ) -> None:
        self._secrets = secrets
        words = [word.strip().lower() for word in event_filter.split(",") if word.strip()]
        self._included = tuple(_find_name_part(word) for word in words if not word.startswith("!"))
        self._excluded = tuple(_find_name_part(word[1:]) for word in words if word.startswith("!"))
        make_private_directory(directory)
        self.path = path or directory / f"{check_safe_file_name(session, directory)}.txt"
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
            latest_link.symlink_to(self.path.name if path is None else self.path.absolute())

    def write_event(self, event: Event) -> None:
        name = type(event).__name__.lower()
        is_included = not self._included or any(word in name for word in self._included)
        if not is_included or any(word in name for word in self._excluded):
            return
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
