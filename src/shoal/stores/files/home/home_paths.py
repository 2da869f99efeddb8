"""Paths in the home directory, and creation of private files and directories."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from pathlib import Path
from typing import BinaryIO

from shoal.core.errors import StateFileError
from shoal.core.ids import AgentId, SessionId, slugify_project_path

_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,159}")
"""A member id consists of two names of up to 64 characters, with a separator."""


def get_project_state_directory(home: Path, cwd: str) -> Path:
    name = slugify_project_path(cwd)
    if len(name) > 200:
        # A file name has at most 255 bytes.
        name = f"{name[:200]}-{hashlib.sha256(cwd.encode(errors='surrogateescape')).hexdigest()[:12]}"
    return home / "projects" / name


def get_transcript_path(home: Path, cwd: str, session: SessionId) -> Path:
    return get_project_state_directory(home, cwd) / f"{check_safe_file_name(session, home)}.jsonl"


def get_subagent_transcripts_directory(transcript: Path) -> Path:
    """Return the directory of a session's sub-agent transcripts."""
    return transcript.with_suffix("") / "subagents"


def get_subagent_transcript_path(directory: Path, agent: AgentId) -> Path:
    """Return the transcript path; `directory` comes from `get_subagent_transcripts_directory`."""
    return directory / f"agent-{check_safe_file_name(agent, directory)}.jsonl"


def get_run_directory(home: Path, session: SessionId) -> Path:
    """Return a run's directory: `journal.jsonl`, `control.sock`, `lock`, `questions/` and `results/`."""
    return home / "shoal" / "runs" / check_safe_file_name(session, home)


def get_process_records_directory(home: Path) -> Path:
    """Return the directory in which guardians list the programs that they run."""
    return home / "shoal" / "guardians"


def get_journal_path(home: Path, session: SessionId) -> Path:
    return get_run_directory(home, session) / "journal.jsonl"


def check_safe_file_name(name: str, home: Path) -> str:
    """Return the name if it is a safe file name, else raise; identifiers come from the command line too."""
    if not is_safe_file_name(name):
        raise StateFileError(f"{name!r} is not a valid session or agent name.", path=home)
    return name


def to_possible_session_id(text: str) -> SessionId:
    """Return the id of a session; for text that is none, as other programs write it, one that none has."""
    return SessionId(text if is_safe_file_name(text) else to_safe_file_name(text))


def is_safe_file_name(name: str) -> bool:
    return _SAFE_NAME.fullmatch(name) is not None and ".." not in name


def to_safe_file_name(name: str) -> str:
    """Return a file name for any text: unchanged if it is safe, else cleaned and with a hash suffix."""
    cleaned = re.sub(r"[^A-Za-z0-9._@-]", "-", name).lstrip(".-")[:100]
    if cleaned and cleaned == name:
        return cleaned
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{cleaned or 'unnamed'}-{digest}"


def make_private_directory(directory: Path, *, durable: bool = False) -> None:
    """Create the directory and its missing parents, accessible only to this user."""
    try:
        if directory.is_dir():
            return
        if not directory.parent.exists():
            make_private_directory(directory.parent, durable=durable)
        directory.mkdir(mode=0o700, exist_ok=True)
        if durable:
            sync_directory(directory.parent)
    except OSError as error:
        raise build_write_error(directory, error) from error


def build_write_error(path: Path, error: OSError) -> StateFileError:
    return StateFileError(
        f"Cannot write {path}: {error.strerror or error}. Make it writable, or choose another home with "
        "SHOAL_HOME=DIRECTORY.",
        path=path,
    )


def write_all_bytes(fd: int, content: bytes) -> None:
    """Write in one call. After a partial write, write the rest: its error tells why."""
    written = os.write(fd, content)
    while written < len(content):
        written += os.write(fd, content[written:])


def sync_file_data(fd: int) -> None:
    """Wait until the content of the file is on the disk. macOS has no fdatasync."""
    getattr(os, "fdatasync", os.fsync)(fd)


def sync_directory(path: Path) -> None:
    """Wait until the names of the files in the directory are on the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_file_atomically(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Create or replace the file atomically: a reader sees the old content or the new, never a part.

    With `durable` the file is on the disk when this returns.
    """
    temporary = _write_temporary_file(path, content, durable=durable)
    try:
        temporary.replace(path)
        if durable:
            sync_directory(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise build_write_error(path, error) from error


def create_or_replace_private_file(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Create a file that nobody reads before this returns, without a temporary file."""
    if durable:
        # A power failure must not leave an empty file under this name.
        write_file_atomically(path, content, durable=True)
        return
    try:
        fd = open_private_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC)
    except FileExistsError:
        write_file_atomically(path, content)
        return
    except OSError as error:
        raise build_write_error(path, error) from error
    try:
        write_all_bytes(fd, content)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise build_write_error(path, error) from error
    finally:
        os.close(fd)


def open_state_file(path: Path) -> BinaryIO:
    """Open one of Shoal's files for reading; raises OSError for anything except a regular file.

    A symbolic link could lead anywhere, and a pipe would look like an empty file.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode):
        os.close(fd)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        raise OSError(errno.EINVAL, "Not a regular file", str(path))
    return os.fdopen(fd, "rb")


def read_state_file(path: Path) -> bytes:
    """Read one of Shoal's files, as `open_state_file` opens it."""
    with open_state_file(path) as file:
        return file.read()


def open_private_file(path: Path, flags: int, *, durable: bool = False) -> int:
    """Open a file accessible only to this user; create missing parent directories, follow no link."""
    flags |= os.O_NOFOLLOW
    try:
        fd = os.open(path, flags, 0o600)
    except FileNotFoundError:
        make_private_directory(path.parent, durable=durable)
        fd = os.open(path, flags, 0o600)
    if durable and flags & os.O_CREAT:
        sync_directory(path.parent)
    return fd


def create_file_atomically(path: Path, content: bytes, *, durable: bool = False) -> bool:
    """Create the file atomically; return False without a change if it exists."""
    temporary = _write_temporary_file(path, content, durable=durable)
    try:
        path.hardlink_to(temporary)
        if durable:
            sync_directory(path.parent)
    except FileExistsError:
        return False
    except OSError as error:
        raise build_write_error(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)
    return True


def _write_temporary_file(path: Path, content: bytes, *, durable: bool) -> Path:
    make_private_directory(path.parent, durable=durable)
    # A leading dot and no known suffix: directory listings do not take it for a data file.
    temporary = path.with_name(f".{path.name[:200]}.tmp.{os.urandom(4).hex()}")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise build_write_error(path, error) from error
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(content)
            if durable:
                file.flush()
                sync_file_data(file.fileno())
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise build_write_error(path, error) from error
    return temporary
