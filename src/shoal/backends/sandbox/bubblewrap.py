"""Sandbox with bubblewrap: a command gets its own mounts and process namespace."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec.structs import replace

from shoal.backends.sandbox.placeholders import is_placeholder
from shoal.backends.sandbox.sandbox_driver import resolve_existing_paths
from shoal.core.permissions.sandbox import SandboxPolicy
from shoal.core.ports import ProcessLaunchSpec

# Sockets of other programs are under /run, and a read-only mount does not prevent connecting to them.
# These paths must stay visible: name resolution, and the programs of NixOS.
_VISIBLE_RUN_PATHS = (
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager/resolv.conf",
    "/run/nscd",
    "/run/current-system",
    "/run/booted-system",
    "/run/opengl-driver",
)
_BASE_MOUNTS = ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/run")
_NAMESPACES = ("--unshare-pid", "--unshare-ipc", "--die-with-parent")
# Root keeps what builds and tests need, and nothing that leads out: no mounting, tracing, raw devices.
_ROOT_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID")
# Settings of the whole machine that root could change.
_ROOT_CONTROLS = ("/proc/sys", "/proc/sysrq-trigger", "/proc/mtrr", "/proc/acpi", "/proc/scsi")
_EMPTY_FILE = str(Path(__file__).with_name("nothing"))
_PROBE_TIMEOUT = 5.0
_NO_NAMESPACES = (
    "this machine does not let programs create namespaces. Allow it on the host (sysctl "
    "kernel.unprivileged_userns_clone=1, or kernel.apparmor_restrict_unprivileged_userns=0); for a "
    "container, use a security profile that permits it"
)
_NO_PROC = "this container does not let programs mount /proc. Use a security profile that permits it"

PathAccess: TypeAlias = Literal["hidden", "writable", "shown", "kept", "pinned"]


class BubblewrapSandboxDriver:
    """`path` is where programs are looked up, like $PATH."""

    name = "bubblewrap"
    limits = ""
    ends_all_processes = True
    blocks_sockets = True
    hides_denied_files = True
    needs_placeholders = True

    def __init__(self, path: str) -> None:
        self._path = path

    def explain_unavailable(self) -> str | None:
        return _probe_bubblewrap(self._path)[1]

    def find_unsupported_policy_part(self, policy: SandboxPolicy) -> str | None:
        return None

    def wrap_launch(self, launch: ProcessLaunchSpec, policy: SandboxPolicy) -> ProcessLaunchSpec:
        import shutil

        program = shutil.which("bwrap", path=self._path) or "bwrap"
        env = _probe_bubblewrap(self._path)[0]
        argv = [
            program,
            *_BASE_MOUNTS,
            *_iter_run_directory_mounts(),
            *_iter_privilege_arguments(),
            *_NAMESPACES,
        ]
        if not policy.network:
            argv.append("--unshare-net")
        argv += build_mount_arguments(policy)
        # TERM is for the command, which may have something to finish. Bubblewrap itself would end at once,
        # and everything inside with it.
        outer_prefix, inner_prefix = (
            ([env, "--ignore-signal=TERM"], [env, "--default-signal=TERM"]) if env else ([], [])
        )
        return replace(launch, argv=(*outer_prefix, *argv, "--", *inner_prefix, *launch.argv))


def build_mount_arguments(policy: SandboxPolicy) -> list[str]:
    """Build the mount arguments, outer paths first, so that inner ones take effect."""
    views = _map_path_access(policy)
    arguments: list[str] = []
    closed: list[str] = []
    for path in sorted(views, key=lambda path: len(path.parts)):
        name = str(path)
        match views[path]:
            case "writable" if path.is_relative_to("/dev"):
                arguments += ("--dev-bind", name, name)
            case "writable" | "pinned":
                arguments += ("--bind", name, name)
            case "kept" | "shown":
                arguments += ("--ro-bind", name, name)
            case "hidden" if path.is_dir():
                arguments += ("--tmpfs", name)
                closed += ("--remount-ro", name)
            case "hidden":
                arguments += ("--ro-bind", _EMPTY_FILE, name)
    for path, shown in policy.replaced_directories.items():
        arguments += ("--ro-bind", str(shown), str(path))
    return arguments + closed


def _map_path_access(policy: SandboxPolicy) -> dict[Path, PathAccess]:
    writable = resolve_existing_paths(policy.writable)
    views: dict[Path, PathAccess] = {}
    for path in resolve_existing_paths(policy.read_only):
        views[path] = "kept"
    for path in resolve_existing_paths(policy.readable):
        views[path] = "shown"
    for path in writable:
        views[path] = "writable"
    for path in resolve_existing_paths(path for path in policy.uncreatable if is_placeholder(path)):
        views[path] = "kept"
    for path in resolve_existing_paths((*policy.always_read_only, *policy.sealed_repositories)):
        views[path] = "kept"
    for path in resolve_existing_paths((*policy.hidden, *policy.hidden_if_possible, *policy.hidden_sockets)):
        views[path] = "hidden"
    for is_unwanted in (_is_inside_hidden_path, _is_redundant_mount):
        views = {path: access for path, access in views.items() if not is_unwanted(path, access, views)}
    for path in [path for path, seen in views.items() if seen in ("kept", "hidden")]:
        for pinned in _iter_pinned_parents(path, views):
            views[pinned] = "pinned"
    return views


def _is_inside_hidden_path(path: Path, access: PathAccess, views: dict[Path, PathAccess]) -> bool:
    """Return True for a protected path in a hidden directory. A mount would show what is hidden."""
    if access not in ("kept", "hidden"):
        return False
    outer = (views[parent] for parent in path.parents if parent in views and views[parent] != "kept")
    return next(outer, None) == "hidden"


def _is_redundant_mount(path: Path, access: PathAccess, views: dict[Path, PathAccess]) -> bool:
    """Return True for a writable file in a writable directory. A mount would keep git from replacing it."""
    if access != "writable" or not path.is_file():
        return False
    return next((views[parent] for parent in path.parents if parent in views), None) == "writable"


def _iter_pinned_parents(path: Path, views: dict[Path, PathAccess]) -> Iterator[Path]:
    """Yield the directories between a path and the writable one around it.

    Unless each is a separate mount, a command could rename it and create another in its place.
    """
    parents: list[Path] = []
    for parent in path.parents:
        access = views.get(parent)
        if access in ("writable", "pinned"):
            yield from parents
            return
        if access is not None:
            return
        parents.append(parent)


def _iter_run_directory_mounts() -> Iterator[str]:
    for path in _VISIBLE_RUN_PATHS:
        if os.path.exists(path):  # noqa: PTH110 - once per command
            yield from ("--ro-bind", path, path)


def _iter_privilege_arguments() -> Iterator[str]:
    if os.geteuid() == 0:
        yield from ("--cap-drop", "ALL")
        for name in _ROOT_CAPABILITIES:
            yield from ("--cap-add", f"CAP_{name}")
        for path in _ROOT_CONTROLS:
            yield from ("--ro-bind-try", path, path)


@cache
def _probe_bubblewrap(path: str) -> tuple[str | None, str | None]:
    """Return the `env` program that can pass on signals, if any, and why bubblewrap does not work, if so."""
    import shutil

    program, env = shutil.which("bwrap", path=path), shutil.which("env", path=path)
    if program is None:
        return None, "the program bwrap is not installed (package bubblewrap)"
    base = [program, *_BASE_MOUNTS, *_iter_privilege_arguments(), *_NAMESPACES, "--unshare-net", "--"]
    if env is not None and _run_bubblewrap_probe([*base, env, "--default-signal=TERM", "true"], path) is None:
        return env, None
    problem = _run_bubblewrap_probe([*base, shutil.which("true", path=path) or "true"], path)
    return None, problem


def _run_bubblewrap_probe(argv: list[str], path: str) -> str | None:
    import subprocess

    try:
        result = subprocess.run(
            argv,
            env={"PATH": path},
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_PROBE_TIMEOUT,
            check=False,
            cwd="/",
        )
    except subprocess.TimeoutExpired:
        return f"bwrap did not finish within {_PROBE_TIMEOUT:g} s"
    except OSError as error:
        return f"cannot run bwrap: {error.strerror}"
    return (
        None
        if result.returncode == 0
        else explain_bubblewrap_error(result.stderr.decode(errors="replace").strip())
    )


def explain_bubblewrap_error(said: str) -> str:
    """Return bubblewrap's error message with an explanation for the user."""
    said = said.removeprefix("bwrap: ").splitlines()[0] if said else "it ended without a message"
    lower = said.lower()
    if "mount proc" in lower:
        return f"bwrap reported “{said}”: {_NO_PROC}"
    if "namespace" in lower or "uid map" in lower or "operation not permitted" in lower:
        return f"bwrap reported “{said}”: {_NO_NAMESPACES}"
    return f"bwrap reported “{said}”"
