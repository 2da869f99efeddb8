"""Sandbox with bubblewrap: a command gets its own mounts and process namespace."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec.structs import replace

from shoal.backends.sandbox.kind import existing
from shoal.core.ports import Launch
from shoal.core.sandbox import Confines

# Sockets of other programs are under /run, and a read-only mount does not prevent connecting to them.
# These paths must stay visible: name resolution, and the programs of NixOS.
_RUN = (
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager/resolv.conf",
    "/run/nscd",
    "/run/current-system",
    "/run/booted-system",
    "/run/opengl-driver",
)
_BASE = ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/run")
_SPACES = ("--unshare-pid", "--unshare-ipc", "--die-with-parent")
# Root keeps what builds and tests need, and nothing that leads out: no mounting, tracing, raw devices.
_ROOTS_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID")
# Settings of the whole machine that root could change.
_ROOTS_SWITCHES = ("/proc/sys", "/proc/sysrq-trigger", "/proc/mtrr", "/proc/acpi", "/proc/scsi")
_NOTHING = str(Path(__file__).with_name("nothing"))
_PATIENCE = 5.0
_NO_NAMESPACES = (
    "this machine does not let programs make namespaces of their own. On the host itself allow it (sysctl "
    "kernel.unprivileged_userns_clone=1, or kernel.apparmor_restrict_unprivileged_userns=0); in a container, "
    "run the container with a security profile that permits it"
)
_NO_PROC = "this container does not let programs mount /proc: its own security profile has to permit it"

Seen: TypeAlias = Literal["hidden", "writable", "shown", "kept", "pinned"]


class Bubblewrap:
    """`path` is where programs are looked up, like $PATH."""

    name = "bubblewrap"
    limits = ""
    ends_all = True
    closes_doors = True

    def __init__(self, path: str) -> None:
        self._path = path

    def trouble(self) -> str | None:
        return _tried(self._path)[1]

    def lack(self, confines: Confines) -> str | None:
        return None

    def wrap(self, launch: Launch, confines: Confines) -> Launch:
        program = shutil.which("bwrap", path=self._path) or "bwrap"
        env = _tried(self._path)[0]
        words = [program, *_BASE, *_run_mounts(), *_privileges(), *_SPACES]
        if not confines.network:
            words.append("--unshare-net")
        words += mounts(confines)
        # TERM is for the command, which may have something to finish. Bubblewrap itself would end at once,
        # and everything inside with it.
        before, after = ([env, "--ignore-signal=TERM"], [env, "--default-signal=TERM"]) if env else ([], [])
        return replace(launch, argv=(*before, *words, "--", *after, *launch.argv))


def mounts(confines: Confines) -> list[str]:
    """Build the mount arguments, outer paths first, so that inner ones take effect."""
    views = _views(confines)
    words: list[str] = []
    closed: list[str] = []
    for path in sorted(views, key=lambda path: len(path.parts)):
        name = str(path)
        match views[path]:
            case "writable" if path.is_relative_to("/dev"):
                words += ("--dev-bind", name, name)
            case "writable" | "pinned":
                words += ("--bind", name, name)
            case "kept" | "shown":
                words += ("--ro-bind", name, name)
            case "hidden" if path.is_dir():
                words += ("--tmpfs", name)
                closed += ("--remount-ro", name)
            case "hidden":
                words += ("--ro-bind", _NOTHING, name)
    return words + closed


def _views(confines: Confines) -> dict[Path, Seen]:
    writable = existing(confines.writable)
    views: dict[Path, Seen] = {}
    for path in existing(confines.kept):
        views[path] = "kept"
    for path in existing(confines.shown):
        views[path] = "shown"
    for path in writable:
        views[path] = "writable"
    for path in existing(confines.sealed):
        views[path] = "kept"
    for path in existing((*confines.hidden, *confines.withheld, *confines.doors)):
        views[path] = "hidden"
    for path in [path for path, seen in views.items() if seen in ("kept", "hidden")]:
        for pin in _pins(path, views):
            views[pin] = "pinned"
    return views


def _pins(path: Path, views: dict[Path, Seen]) -> Iterator[Path]:
    """Yield the directories between a path and the writable one around it.

    Unless each is a separate mount, a command could rename it and create another in its place.
    """
    between: list[Path] = []
    for parent in path.parents:
        seen = views.get(parent)
        if seen in ("writable", "pinned"):
            yield from between
            return
        if seen is not None:
            return
        between.append(parent)


def _run_mounts() -> Iterator[str]:
    for path in _RUN:
        if os.path.exists(path):  # noqa: PTH110 - once per command
            yield from ("--ro-bind", path, path)


def _privileges() -> Iterator[str]:
    if os.geteuid() == 0:
        yield from ("--cap-drop", "ALL")
        for name in _ROOTS_CAPABILITIES:
            yield from ("--cap-add", f"CAP_{name}")
        for path in _ROOTS_SWITCHES:
            yield from ("--ro-bind-try", path, path)


@cache
def _tried(path: str) -> tuple[str | None, str | None]:
    """Return the `env` program that can pass on signals, if any, and why bubblewrap does not work, if so."""
    program, env = shutil.which("bwrap", path=path), shutil.which("env", path=path)
    if program is None:
        return None, "the program bwrap is not installed (package bubblewrap)"
    base = [program, *_BASE, *_privileges(), *_SPACES, "--unshare-net", "--"]
    if env is not None and _run([*base, env, "--default-signal=TERM", "true"]) is None:
        return env, None
    why = _run([*base, shutil.which("true", path=path) or "true"])
    return None, why


def _run(words: list[str]) -> str | None:
    import subprocess

    try:
        ran = subprocess.run(
            words, capture_output=True, stdin=subprocess.DEVNULL, timeout=_PATIENCE, check=False, cwd="/"
        )
    except subprocess.TimeoutExpired:
        return f"bwrap did not end within {_PATIENCE:g} s"
    except OSError as error:
        return f"bwrap cannot be run: {error.strerror}"
    return None if ran.returncode == 0 else explained(ran.stderr.decode(errors="replace").strip())


def explained(said: str) -> str:
    """Return bubblewrap's error message with an explanation for the user."""
    said = said.removeprefix("bwrap: ").splitlines()[0] if said else "it ended without a word"
    lower = said.lower()
    if "mount proc" in lower:
        return f"bwrap says “{said}”: {_NO_PROC}"
    if "namespace" in lower or "uid map" in lower or "operation not permitted" in lower:
        return f"bwrap says “{said}”: {_NO_NAMESPACES}"
    return f"bwrap says “{said}”"
