"""Open directories: what is inside is named relative to them, and no link is followed on the way."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from shoal.core.errors import StoreError
from shoal.stores.files.places import make_private, unwritable, write_all
from shoal.stores.files.renaming import exchange
from shoal.stores.files.sharing import is_open_here_alone

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Not blocking: a pipe put where a file should be must not stop the reader.
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CHUNK = 1 << 20


class Directory:
    """A directory by its handle. `path` is for messages and watches only; nothing is opened by it."""

    __slots__ = ("fd", "path")

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self.fd = fd

    @classmethod
    def root(cls, path: Path) -> Directory:
        """The one place where a whole path is trusted, links and all: the person chose the home."""
        make_private(path)
        try:
            return cls(path, os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        except OSError as error:
            raise unwritable(path, error) from error

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            with suppress(OSError):
                os.close(fd)

    def __enter__(self) -> Directory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def gone(self) -> bool:
        """Somebody removed it: what is made in it now would be lost."""
        return self.fd < 0 or os.fstat(self.fd).st_nlink == 0

    def within(self, *names: str) -> Directory:
        """The directory some steps down; what is missing is made, for this user alone."""
        found = self._below(names, make=True)
        if found is None:
            raise StoreError(f"{self.path.joinpath(*names)} was removed while it was made.", path=self.path)
        return found

    def existing(self, *names: str) -> Directory | None:
        return self._below(names, make=False)

    def _below(self, names: tuple[str, ...], *, make: bool) -> Directory | None:
        here = Directory(self.path, os.dup(self.fd))
        for name in names:
            try:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(_plain(name), 0o700, dir_fd=here.fd)
                fd = os.open(_plain(name), _DIRECTORY, dir_fd=here.fd)
            except FileNotFoundError:
                here.close()
                return None
            except OSError as error:
                here.close()
                raise refused(here.path / name, error) from error
            here.close()
            here = Directory(here.path / name, fd)
        return here

    def open(self, name: str, flags: int) -> int:
        """The file's descriptor. Raises FileNotFoundError where it is not to be made and is not there;
        anything but a plain file is refused."""
        try:
            fd = os.open(_plain(name), flags | _FILE, 0o600, dir_fd=self.fd)
        except FileNotFoundError:
            if flags & os.O_CREAT:
                raise StoreError(f"{self.path} was removed meanwhile.", path=self.path) from None
            raise
        except OSError as error:
            raise refused(self.path / name, error) from error
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise StoreError(f"{self.path / name} is not a plain file. Remove it.", path=self.path / name)
        return fd

    def read(self, name: str) -> bytes | None:
        """All of the file, or None where there is none."""
        try:
            fd = self.open(name, os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            return read_from(fd, 0)
        finally:
            os.close(fd)

    def write(self, name: str, content: bytes, *, durable: bool = False) -> None:
        """In place: for files that nobody reads before they are moved to where they belong."""
        fd = self.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self._fill(fd, name, content, durable=durable)

    def write_again(self, name: str, content: bytes, *, durable: bool = False) -> None:
        """As `write`, into the file that is there if nobody else has it open under any name, else a new one.

        A new file for each change makes ext4 look for a number among thousands of those just given back:
        0.8 ms at a few hundred changes in a second, where writing again takes 0.02.
        """
        fd = self._unshared(name)
        if fd is None:
            self.remove(name)
            self.write(name, content, durable=durable)
        else:
            self._fill(fd, name, content, durable=durable)

    def overwrite(self, name: str, content: bytes, *, durable: bool = False) -> None:
        """In place, for a file that is always as long as before, and so short that it is written in one piece
        or not at all, whenever its writer is killed."""
        self._fill(self.open(name, os.O_WRONLY | os.O_CREAT), name, content, durable=durable)

    def _fill(self, fd: int, name: str, content: bytes, *, durable: bool) -> None:
        try:
            write_all(fd, content)
            # Shortened only afterwards: a file cut to nothing is written out by ext4 as soon as it is closed.
            os.ftruncate(fd, len(content))
            if durable:
                os.fdatasync(fd)
        except OSError as error:
            raise unwritable(self.path / name, error) from error
        finally:
            os.close(fd)

    def _unshared(self, name: str) -> int | None:
        """The file, open for writing, if it is there and nobody but us can see what is done to it."""
        try:
            fd = os.open(_plain(name), os.O_WRONLY | _FILE, dir_fd=self.fd)
        except OSError:
            return None
        if os.fstat(fd).st_nlink == 1 and is_open_here_alone(fd):
            return fd
        os.close(fd)
        return None

    def move(self, name: str, to: Directory, new_name: str) -> None:
        """Put the file there in one step, in the place of what was there."""
        try:
            os.rename(_plain(name), _plain(new_name), src_dir_fd=self.fd, dst_dir_fd=to.fd)
        except OSError as error:
            raise unwritable(to.path / new_name, error) from error

    def swap(self, name: str, to: Directory, other: str) -> None:
        """As `move`, but cheaper where the system can: the two change places, and the old file stays here.

        To rename over a file makes ext4 write the new one out at once, which costs 10 to 50 times as much
        and protects from power loss only. Who wants that protection writes durably.
        """
        try:
            if exchange(self.fd, _plain(name), to.fd, _plain(other)):
                return
        except FileNotFoundError:
            pass
        except OSError as error:
            raise unwritable(to.path / other, error) from error
        self.move(name, to, other)

    def replace(self, name: str, content: bytes) -> None:
        """A reader sees the old content or the new, never a part."""
        temporary = self._written_beside(name, content)
        try:
            self.move(temporary, self, name)
        except StoreError:
            self._discard(temporary)
            raise

    def link(self, name: str, new_name: str) -> bool:
        """A second name for the file; False where that name is taken."""
        try:
            os.link(
                _plain(name), _plain(new_name), src_dir_fd=self.fd, dst_dir_fd=self.fd, follow_symlinks=False
            )
        except FileExistsError:
            return False
        except OSError as error:
            raise unwritable(self.path / new_name, error) from error
        return True

    def keep_copy(self, name: str, wanted: str) -> str:
        """A second name for the file that nothing else has: the wanted one, or with a number behind it."""
        free, number = wanted, 1
        while not self.link(name, free):
            number += 1
            free = f"{wanted}-{number}"
        return free

    def create(self, name: str, content: bytes) -> bool:
        """As `replace`, but False and no change where the file exists: the first one stands."""
        temporary = self._written_beside(name, content)
        try:
            return self.link(temporary, name)
        finally:
            self._discard(temporary)

    def _written_beside(self, name: str, content: bytes) -> str:
        """The name of a file with this content that nobody knows of yet."""
        temporary = f".{name[:200]}.tmp.{os.urandom(4).hex()}"
        try:
            self.write(temporary, content)
        except StoreError:
            # A disk that is full must not be filled with what did not fit.
            self._discard(temporary)
            raise
        return temporary

    def _discard(self, temporary: str) -> None:
        with suppress(StoreError):
            self.remove(temporary)

    def remove(self, name: str) -> bool:
        try:
            os.unlink(_plain(name), dir_fd=self.fd)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise unwritable(self.path / name, error) from error
        return True

    def remove_tree(self, name: str, *, go_on: Callable[[], bool] = lambda: True) -> bool:
        """Whether it is gone with all below it: what could not be removed, or had to wait, is still there.

        A link is removed, and never followed. `go_on` is asked before each file.
        """
        try:
            return _removed(_plain(name), self.fd, go_on)
        except (RecursionError, OSError):  # deeper than anything that is ours, or more handles than there are
            return False

    def names(self) -> list[str]:
        return os.listdir(self.fd)  # noqa: PTH208 - a path has no handle

    def is_directory(self, name: str) -> bool:
        """A link to one is none."""
        status = self.status(name)
        return status is not None and stat.S_ISDIR(status.st_mode)

    def status(self, name: str) -> os.stat_result | None:
        """Of the name itself, not of what a link points to."""
        try:
            return os.stat(_plain(name), dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return None


def refused(path: Path, error: OSError) -> StoreError:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return StoreError(f"{path} is a link or no directory, and is not followed. Remove it.", path=path)
    return unwritable(path, error)


def _removed(name: str, above: int, go_on: Callable[[], bool]) -> bool:
    try:
        fd = os.open(name, _DIRECTORY, dir_fd=above)
    except FileNotFoundError:
        return True
    except OSError:  # a file or a link, or a directory that cannot be read
        return go_on() and _done(os.unlink, name, above)
    try:
        # All of them, though one may have failed.
        below = [_removed(each, fd, go_on) for each in os.listdir(fd)]  # noqa: PTH208 - a path has no handle
    finally:
        os.close(fd)
    return all(below) and go_on() and _done(os.rmdir, name, above)


def _done(act: Callable[..., None], name: str, above: int) -> bool:
    try:
        act(name, dir_fd=above)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def read_from(fd: int, offset: int) -> bytes:
    """Everything from the offset on."""
    parts = []
    while part := os.pread(fd, _CHUNK, offset):
        parts.append(part)
        offset += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _plain(name: str) -> str:
    """Names are checked long before; this is the wall behind that."""
    if "/" in name or "\0" in name or name in ("", ".", ".."):
        raise StoreError(f"{name[:80]!r} is not the name of a file.", path=Path())
    return name
