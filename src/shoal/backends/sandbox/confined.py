"""Run as `python -I -S -E landlock_exec.py N WRITABLE… M HIDDEN… COMMAND…`: drops rights, executes COMMAND.

The guardian does the same in a child, where no other interpreter has to start. N real paths may be written, M
must not be read. It imports little besides built-in modules, so that it starts fast. Landlock rights only add
up: to hide a directory, all its siblings are allowed instead.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing would take a third of the startup time
    from collections.abc import Mapping
    from typing import NoReturn

CREATE, ADD, RESTRICT = 444, 445, 446
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REFER, TRUNCATE, DEVICE_CONTROL = 1 << 13, 1 << 14, 1 << 15
MAKE_DEVICES = 1 << 6 | 1 << 11
ALL_OF_FIRST = (1 << 13) - 1
SCOPES = 0b11
ON_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | DEVICE_CONTROL
NO_NEW_PRIVILEGES, DEATH_SIGNAL, DROP_CAPABILITY = 38, 1, 24
# For root: chown, dac_override, fowner, fsetid, kill, setgid, setuid. No mounting, tracing, raw devices.
KEPT_CAPABILITIES = (0, 1, 3, 4, 5, 6, 7)
KILL, PIPE_BROKEN, FILE_TOO_LARGE = 9, 13, 25
BENEATH = 1
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx")
LENT = ("/dev/pts", "/dev/shm")  # noqa: S108 - whose content is a process's own

libc = ctypes.CDLL(None, use_errno=True)


class RulesetAttr(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class PathAttr(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("fd", ctypes.c_int32))


def called(number: int, *arguments: object) -> int:
    result = int(libc.syscall(number, *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def version() -> int:
    """Return the Landlock version of the kernel; raises OSError if it has none."""
    return called(CREATE, None, 0, 1)


def handled(offered: int) -> int:
    rights = ALL_OF_FIRST
    for since, right in ((2, REFER), (3, TRUNCATE), (5, DEVICE_CONTROL)):
        if offered >= since:
            rights |= right
    return rights


def allow(ruleset: int, path: str, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return  # gone meanwhile, or not accessible
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= ON_FILES
        attributes = PathAttr(rights, fd)
        called(ADD, ruleset, BENEATH, ctypes.byref(attributes), 0)
    finally:
        os.close(fd)


def readable(path: str, hidden: list[str]) -> list[str]:
    """Return paths that together cover everything under `path` except what is hidden."""
    if path in hidden:
        return []
    within = path.rstrip("/") + "/"
    if not any(each.startswith(within) for each in hidden):
        return [path]
    try:
        with os.scandir(path) as entries:
            names = [within + entry.name for entry in entries if not entry.is_symlink()]
    except OSError:
        return []
    return [place for name in names for place in readable(name, hidden)]


def confine(writable: list[str], hidden: list[str]) -> None:
    offered = version()
    rights = handled(offered)
    attributes = RulesetAttr(rights, 0, SCOPES if offered >= 6 else 0)
    size = 24 if offered >= 6 else 16 if offered >= 4 else 8
    ruleset = called(CREATE, ctypes.byref(attributes), size, 0)
    allow(ruleset, "/", READ_DIR)
    for path in readable("/", [*hidden, "/dev"]):
        allow(ruleset, path, EXECUTE | READ_FILE)
    for path in DEVICES:
        allow(ruleset, path, (WRITE_FILE | READ_FILE | DEVICE_CONTROL | TRUNCATE) & rights)
    for path in (*LENT, *writable):
        allow(ruleset, path, rights & ~MAKE_DEVICES)
    libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    called(RESTRICT, ruleset, 0)
    os.close(ruleset)
    if os.geteuid() == 0:
        for capability in range(64):
            if capability not in KEPT_CAPABILITIES:
                libc.prctl(DROP_CAPABILITY, capability, 0, 0, 0)


def counted(words: list[str]) -> tuple[list[str], list[str]]:
    """Split off as many words as the first one says; return them and the rest."""
    end = 1 + int(words[0])
    return words[1:end], words[end:]


def become(words: list[str], env: Mapping[str, str]) -> NoReturn:
    """Drop rights and execute the command, both given by the words."""
    try:
        writable, rest = counted(words)
        hidden, command = counted(rest)
        confine(writable, hidden)
        libc.prctl(DEATH_SIGNAL, KILL, 0, 0, 0)
        # Python ignores these two, and a command would inherit that.
        libc.signal(PIPE_BROKEN, None)
        libc.signal(FILE_TOO_LARGE, None)
        os.execve(command[0], command, env)  # noqa: S606 - the command is the point
    except (OSError, ValueError, IndexError) as error:
        os.write(2, f"The sandbox could not be made: {error}\n".encode())
    os._exit(126)


if __name__ == "__main__":
    become(sys.argv[1:], os.environ)
