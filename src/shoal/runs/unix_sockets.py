"""Private Unix sockets at paths of any length; stale sockets of dead runs are removed."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from shoal.core.errors import StateFileError

_MAX_PATH_BYTES = 103
"""Maximum length in bytes of a socket path that every system accepts."""


@contextmanager
def _shorten_socket_path(path: Path) -> Iterator[str]:
    """Provide a short enough name for the path while the block runs."""
    if len(os.fsencode(path)) <= _MAX_PATH_BYTES:
        yield str(path)
        return
    if not Path("/proc/self/fd").is_dir():
        raise StateFileError(
            f"{path} is too long for a socket on this system. Choose a home directory with a shorter path: "
            f"SHOAL_HOME=DIRECTORY.",
            path=path,
        )
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def open_unix_listener(path: Path) -> socket.socket:
    """Open a listening socket for this user only; raises `StateFileError` if another run has it."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.settimeout(0)
    try:
        # Linux gives the file the mode of the open socket: others can never connect, not even briefly.
        os.fchmod(listener.fileno(), 0o600)
        with _shorten_socket_path(path) as name:
            _remove_stale_socket(path, name)
            listener.bind(name)
        path.chmod(0o600)
        listener.listen(16)
    except OSError as error:
        listener.close()
        raise StateFileError(
            f"Cannot create the socket {path}: {error.strerror or error}.", path=path
        ) from error
    except StateFileError:
        listener.close()
        raise
    return listener


def connect_unix_socket(path: Path) -> socket.socket:
    """Connect without waiting. Raises OSError if nobody listens, `BlockingIOError` if the backlog is full."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(0)
    try:
        with _shorten_socket_path(path) as name:
            connection.connect(name)
    except BaseException:
        connection.close()
        raise
    return connection


def _remove_stale_socket(path: Path, name: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0)
        try:
            probe.connect(name)
        except FileNotFoundError:
            return
        except BlockingIOError:
            pass  # its backlog is full, so somebody listens
        except OSError:
            with suppress(FileNotFoundError):
                path.unlink()
            return
    raise StateFileError(f"Another process is already listening on {path}.", path=path)
