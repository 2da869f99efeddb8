"""Sandbox of macOS: a profile for `sandbox-exec`, in which the last matching rule wins."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from msgspec.structs import replace

from shoal.backends.sandbox.kind import existing
from shoal.core.ports import Launch
from shoal.core.sandbox import Confines

PROGRAM = "/usr/bin/sandbox-exec"
_DEVICES = (
    "/dev/null",
    "/dev/zero",
    "/dev/tty",
    "/dev/dtracehelper",
    "/dev/fd",
    "/dev/stdout",
    "/dev/stderr",
)
_PATIENCE = 5.0


class Seatbelt:
    name = "sandbox-exec"
    limits = "sandbox-exec gives a command no process space of its own."
    ends_all = False
    closes_doors = True

    def trouble(self) -> str | None:
        return _tried()

    def lack(self, confines: Confines) -> str | None:
        return None

    def wrap(self, launch: Launch, confines: Confines) -> Launch:
        return replace(launch, argv=(PROGRAM, "-p", profile(confines), *launch.argv))


def profile(confines: Confines) -> str:
    """Build the profile, inner paths after outer ones, so that they take effect."""
    lines = [
        "(version 1)",
        "(allow default)",
        "(deny file-write*)",
        f"(allow file-write* {' '.join(f'(literal {_quoted(device)})' for device in _DEVICES)})",
        '(allow file-write* (regex #"^/dev/ttys[0-9]+$"))',
        # A command may signal only its own processes, although it sees the pids of others.
        "(deny signal)",
        "(allow signal (target same-sandbox))",
    ]
    if not confines.network:
        lines += ("(deny network*)",)
    for path, rules in sorted(_rules(confines).items(), key=lambda each: len(each[0].parts)):
        lines += (f"({rule} (subpath {_quoted(str(path))}))" for rule in rules)
    return "\n".join(lines)


def _rules(confines: Confines) -> dict[Path, tuple[str, ...]]:
    """Return the rules for each path; a later list wins over an earlier one for the same path."""
    rules: dict[Path, tuple[str, ...]] = {}
    _enter(rules, confines.kept, "deny file-write*")
    _enter(rules, confines.shown, "allow file-read*")
    _enter(rules, confines.writable, "allow file-write*", "allow file-read*")
    _enter(rules, confines.sealed, "deny file-write*")
    for hidden in (confines.hidden, confines.withheld, confines.doors):
        _enter(rules, hidden, "deny file-read*", "deny file-write*", "deny network-outbound")
    return rules


def _enter(rules: dict[Path, tuple[str, ...]], paths: Iterable[Path], *words: str) -> None:
    for path in existing(paths):
        rules[path] = words


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@cache
def _tried() -> str | None:
    if not os.access(PROGRAM, os.X_OK):
        return f"there is no {PROGRAM}, which is a part of macOS"
    import subprocess

    try:
        ran = subprocess.run(
            [PROGRAM, "-p", "(version 1)(allow default)", "/usr/bin/true"],
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"sandbox-exec cannot be tried: {error}"
    return (
        None if ran.returncode == 0 else f"sandbox-exec says: {ran.stderr.decode(errors='replace').strip()}"
    )
