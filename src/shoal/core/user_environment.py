"""Home directory, variables and temporary directory of the user that a session works for."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping

from msgspec import Struct

_TEMPORARY_VARIABLES = ("TMPDIR", "TEMP", "TMP")
_TEMPORARY_DIRECTORIES = ("/tmp", "/var/tmp", "/usr/tmp")  # noqa: S108 - where Python looks, too


class UserEnvironment(Struct, frozen=True):
    """A session's own environment, so that sessions of several users can share a process."""

    variables: Mapping[str, str]
    home: str
    """Directory that `~` means."""

    def expand_home(self, path: str) -> str:
        """Return the path with `~` or `~name` at its start replaced; an unknown name stays as it is."""
        if path == "~" or path.startswith("~/"):
            return self.home.rstrip("/") + path[1:] or "/"
        # The user database knows the others: this reads no variable.
        return os.path.expanduser(path) if path.startswith("~") else path  # noqa: PTH111 - of any text

    @property
    def temporary_directory(self) -> str:
        """Directory for temporary files, chosen in the same order as by Python's `tempfile`."""
        named = (self.variables.get(name) for name in _TEMPORARY_VARIABLES)
        candidates = [os.path.abspath(each) for each in named if each]  # noqa: PTH100 - of any text
        for directory in (*candidates, *_TEMPORARY_DIRECTORIES):
            if os.path.isdir(directory) and os.access(directory, os.W_OK | os.X_OK):  # noqa: PTH112
                return directory
        return os.getcwd()  # noqa: PTH109 - the last choice of `tempfile`, too


def get_user_environment(variables: Mapping[str, str] | None = None) -> UserEnvironment:
    """Return the environment of a user with these variables; without them, that of the process."""
    if variables is None:
        variables = os.environ
    home = variables.get("HOME")
    return UserEnvironment(variables, (find_account_home() or "/") if home is None else home)


def find_account_home() -> str | None:
    """Return the home directory in the user database; None for a user that is not in it."""
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return None
