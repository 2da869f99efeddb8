"""Names that Python has on Linux and not on macOS, and their removal from this process and its children."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path

SITE_DIRECTORY = Path(__file__).with_name("linux_names_removed")
"""Directory whose `sitecustomize` removes the names in every Python process that has it on its path."""

LINUX_ONLY_NAMES = {
    "os": (
        *(
            "fdatasync",
            "memfd_create",
            "MFD_CLOEXEC",
            "pidfd_open",
            "eventfd",
            "eventfd_read",
            "eventfd_write",
        ),
        *("O_PATH", "O_TMPFILE", "O_NOATIME", "O_DIRECT", "O_RSYNC", "pipe2", "splice", "copy_file_range"),
        *(
            "posix_fadvise",
            "posix_fallocate",
            "sched_getaffinity",
            "sched_setaffinity",
            "getresuid",
            "setresuid",
        ),
        *("getxattr", "setxattr", "listxattr", "removexattr", "getrandom"),
    ),
    "fcntl": (
        "F_SETLEASE",
        "F_GETLEASE",
        "F_NOTIFY",
        "F_ADD_SEALS",
        "F_SETPIPE_SZ",
        "F_OFD_SETLK",
        "F_OFD_GETLK",
    ),
    "signal": ("SIGSTKFLT", "SIGPWR", "SIGPOLL", "sigwaitinfo", "sigtimedwait", "pidfd_send_signal"),
    "socket": (
        "SO_PEERCRED",
        "SO_PASSCRED",
        "SOCK_CLOEXEC",
        "SOCK_NONBLOCK",
        "MSG_CMSG_CLOEXEC",
        "MSG_NOSIGNAL",
    ),
    "resource": ("prlimit", "RLIMIT_SIGPENDING", "RLIMIT_RTPRIO"),
}


def _copy_no_attributes(*_arguments: object, **_named: object) -> None:
    """Replace `shutil._copyxattr` as on systems without extended attributes."""


def remove_linux_only_names() -> None:
    """Remove the names, once the standard library has chosen what it uses for itself."""
    for user in ("asyncio", "multiprocessing.connection", "shutil", "subprocess", "tempfile", "uuid"):
        importlib.import_module(user)
    sysconfig.get_config_vars()  # read once, from a module that is named for the platform
    for module, names in LINUX_ONLY_NAMES.items():
        for name in names:
            vars(importlib.import_module(module)).pop(name, None)
    # These have chosen already, and look for the names again when they copy or create a file.
    vars(shutil)["_copyxattr"] = _copy_no_attributes
    vars(tempfile)["_O_TMPFILE_WORKS"] = False
    # Not darwin: the standard library would look for modules that only macOS has.
    sys.platform = "posix"


def pytest_configure() -> None:
    """With `-p linux_only_names`, tests and the programs they start run without the names."""
    os.environ["TESTS_PYTHONPATH"] = str(SITE_DIRECTORY)
    # A session passes this path on to the processes of its members.
    sys.path.append(str(SITE_DIRECTORY))
    remove_linux_only_names()
