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
SHARED_DEVICES = ("/dev/pts", "/dev/shm")  # noqa: S108 - whose content is a process's own

libc = ctypes.CDLL(None, use_errno=True)


class LandlockRulesetAttr(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class LandlockPathBeneathAttr(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("fd", ctypes.c_int32))


def call_syscall(number: int, *arguments: object) -> int:
    result = int(libc.syscall(number, *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def get_landlock_version() -> int:
    """Return the Landlock version of the kernel; raises OSError if it has none."""
    return call_syscall(CREATE, None, 0, 1)


def get_landlock_rights(offered: int) -> int:
    rights = ALL_OF_FIRST
    for min_version, right in ((2, REFER), (3, TRUNCATE), (5, DEVICE_CONTROL)):
        if offered >= min_version:
            rights |= right
    return rights


def add_landlock_path_rule(ruleset: int, path: str, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return  # gone meanwhile, or not accessible
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= ON_FILES
        attributes = LandlockPathBeneathAttr(rights, fd)
        call_syscall(ADD, ruleset, BENEATH, ctypes.byref(attributes), 0)
    finally:
        os.close(fd)


def list_readable_paths(path: str, hidden: list[str]) -> list[str]:
    """Return paths that together cover everything under `path` except what is hidden."""
    if path in hidden:
        return []
    prefix = path.rstrip("/") + "/"
    if not any(each.startswith(prefix) for each in hidden):
        return [path]
    try:
        with os.scandir(path) as entries:
            names = [prefix + entry.name for entry in entries if not entry.is_symlink()]
    except OSError:
        return []
    return [place for name in names for place in list_readable_paths(name, hidden)]


def confine_process_with_landlock(writable: list[str], hidden: list[str]) -> None:
    version = get_landlock_version()
    rights = get_landlock_rights(version)
    attributes = LandlockRulesetAttr(rights, 0, SCOPES if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = call_syscall(CREATE, ctypes.byref(attributes), size, 0)
    add_landlock_path_rule(ruleset, "/", READ_DIR)
    for path in list_readable_paths("/", [*hidden, "/dev"]):
        add_landlock_path_rule(ruleset, path, EXECUTE | READ_FILE)
    for path in DEVICES:
        add_landlock_path_rule(ruleset, path, (WRITE_FILE | READ_FILE | DEVICE_CONTROL | TRUNCATE) & rights)
    for path in (*SHARED_DEVICES, *writable):
        add_landlock_path_rule(ruleset, path, rights & ~MAKE_DEVICES)
    libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    call_syscall(RESTRICT, ruleset, 0)
    os.close(ruleset)
    if os.geteuid() == 0:
        for capability in range(64):
            if capability not in KEPT_CAPABILITIES:
                libc.prctl(DROP_CAPABILITY, capability, 0, 0, 0)


def split_counted_words(words: list[str]) -> tuple[list[str], list[str]]:
    """Split off as many words as the first one specifies; return them and the rest."""
    end = 1 + int(words[0])
    return words[1:end], words[end:]


def exec_confined(words: list[str], env: Mapping[str, str]) -> NoReturn:
    """Drop rights and execute the command, both given by the words."""
    try:
        writable, remaining = split_counted_words(words)
        hidden, command = split_counted_words(remaining)
        confine_process_with_landlock(writable, hidden)
        libc.prctl(DEATH_SIGNAL, KILL, 0, 0, 0)
        # Python ignores these two, and a command would inherit that.
        libc.signal(PIPE_BROKEN, None)
        libc.signal(FILE_TOO_LARGE, None)
        os.execve(command[0], command, env)  # noqa: S606 - the command is the point
    except (OSError, ValueError, IndexError) as error:
        os.write(2, f"Cannot create the sandbox: {error}\n".encode())
    os._exit(126)


if __name__ == "__main__":
    exec_confined(sys.argv[1:], os.environ)
