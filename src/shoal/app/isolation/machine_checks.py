"""Checks of the machine: home and disk, programs, optional extras, terminal."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

from shoal.app.settings.settings import Settings
from shoal.core.errors import SettingsError

DiagnosticState: TypeAlias = Literal["ok", "none", "warn", "bad"]
"""`none` means that something optional is absent."""

NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "9p", "ceph", "glusterfs", "lustre"}
)
FUSE_NETWORK_FILE_SYSTEMS = frozenset({"fuse.sshfs", "fuse.s3fs", "fuse.rclone"})
LOW_SPACE_BYTES, NO_SPACE_BYTES = 500 << 20, 20 << 20

PROGRAMS = (
    ("git", "git", "worktrees and the project's git state"),
    ("rg", "ripgrep", "fast searches"),
    ("tmux", "tmux", "agents in panes"),
    ("bwrap", "bubblewrap", "shell commands in a sandbox"),
)
EXTRAS = (
    ("tui", "textual", "the full screen"),
    ("web", "starlette", "the web view"),
    ("pdf", "pypdf", "the text of PDF files"),
    ("images", "PIL", "scaling large images down"),
    ("mcp", "mcp", "MCP servers"),
    ("otel", "opentelemetry.exporter.otlp.proto.http", "telemetry"),
)
_INSTALLERS = (
    ("apt-get", "sudo apt-get install {}"),
    ("dnf", "sudo dnf install {}"),
    ("pacman", "sudo pacman -S {}"),
    ("apk", "sudo apk add {}"),
    ("brew", "brew install {}"),
)


class DoctorDiagnostic(Struct, frozen=True, kw_only=True):
    area: str
    name: str
    state: DiagnosticState
    value: str
    advice: str = ""
    """Command or action; empty if nothing needs to be done."""


def check_shoal_and_python_versions(shoal: str) -> Iterator[DoctorDiagnostic]:
    yield DoctorDiagnostic(area="program", name="shoal", state="ok", value=shoal)
    is_supported = sys.version_info >= (3, 11)
    yield DoctorDiagnostic(
        area="program",
        name="python",
        state="ok" if is_supported else "bad",
        value=f"{platform.python_version()} ({sys.executable})",
        advice="" if is_supported else "Install Python 3.11 or newer.",
    )
    yield DoctorDiagnostic(
        area="program", name="system", state="ok", value=f"{platform.system()} {platform.release()}"
    )


def check_home_directory(home: Path, source: str) -> Iterator[DoctorDiagnostic]:
    problem = _find_write_problem(home)
    yield DoctorDiagnostic(
        area="home",
        name="directory",
        state="bad" if problem else "ok",
        value=f"{home} (from {source}){f': {problem}' if problem else ''}",
        advice="Make it writable, or choose another one with SHOAL_HOME=DIRECTORY." if problem else "",
    )
    kind = detect_file_system(home)
    is_network = kind in NETWORK_FILE_SYSTEMS | FUSE_NETWORK_FILE_SYSTEMS
    yield DoctorDiagnostic(
        area="home",
        name="file system",
        state="warn" if is_network else "ok",
        value=kind or "type unknown",
        advice=(
            "Locks and file notifications are unreliable on network file systems. Set SHOAL_HOME to a "
            "local directory."
        )
        if is_network
        else "",
    )
    yield _check_free_space(home)


def _find_write_problem(home: Path) -> str:
    """Return why the home cannot be written, by trying: permission bits mean little for root."""
    directory = _find_existing_parent(home)
    if not directory.is_dir():
        return f"{directory} is not a directory"
    try:
        with tempfile.TemporaryFile(dir=directory) as probe:
            probe.write(b"x")
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _find_existing_parent(path: Path) -> Path:
    """Return the path, or its nearest existing parent."""
    return next((parent for parent in (path, *path.parents) if parent.exists()), Path("/"))


def _check_free_space(home: Path) -> DoctorDiagnostic:
    free = shutil.disk_usage(_find_existing_parent(home)).free
    state: DiagnosticState = "bad" if free < NO_SPACE_BYTES else "warn" if free < LOW_SPACE_BYTES else "ok"
    return DoctorDiagnostic(
        area="home",
        name="free space",
        state=state,
        value=f"{free / (1 << 30):.1f} GB",
        advice="" if state == "ok" else "Free some space: a run stops if it cannot write its transcript.",
    )


def detect_file_system(path: Path, mounts: str | None = None) -> str:
    """Return the type of the file system that holds the path; empty if unknown."""
    if mounts is None:
        try:
            mounts = Path("/proc/self/mounts").read_text("utf-8", "replace")
        except OSError:
            return ""
    real_path = path.resolve()
    best_depth, kind = -1, ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        mount_point = fields[1].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
        # The later of two mounts on one point hides the earlier.
        if real_path.is_relative_to(mount_point) and len(Path(mount_point).parts) >= best_depth:
            best_depth, kind = len(Path(mount_point).parts), fields[2]
    return kind


def check_external_programs(path: str | None = None) -> Iterator[DoctorDiagnostic]:
    install_command = next((text for name, text in _INSTALLERS if shutil.which(name)), "install {}")
    for name, package, purpose in PROGRAMS:
        location = shutil.which(name, path=path)
        yield DoctorDiagnostic(
            area="programs",
            name=name,
            state="ok" if location else "warn",
            value=location or f"not found; needed for {purpose}",
            advice="" if location else install_command.format(package),
        )


def check_optional_extras() -> Iterator[DoctorDiagnostic]:
    for extra, module, purpose in EXTRAS:
        is_installed = _is_importable(module)
        yield DoctorDiagnostic(
            area="programs",
            name=f"shoal[{extra}]",
            state="ok" if is_installed else "warn",
            value="installed" if is_installed else f"not installed; needed for {purpose}",
            advice="" if is_installed else f"pip install 'shoal[{extra}]'",
        )


def _is_importable(module: str) -> bool:
    from importlib.util import find_spec

    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False


def check_terminal(env: Mapping[str, str]) -> Iterator[DoctorDiagnostic]:
    if not sys.stdout.isatty():
        yield DoctorDiagnostic(
            area="terminal", name="output", state="ok", value="not a terminal; Shoal prints plain lines"
        )
        return
    size = shutil.get_terminal_size()
    colours = "no colors (NO_COLOR)" if env.get("NO_COLOR") else "colors"
    kind = env.get("TERM", "")
    is_dumb = kind in ("", "dumb")
    yield DoctorDiagnostic(
        area="terminal",
        name="output",
        state="warn" if is_dumb else "ok",
        value=f"{kind or 'TERM is not set'}, {size.columns}×{size.lines}, {colours}",
        advice="Set TERM to the type of your terminal, such as xterm-256color." if is_dumb else "",
    )
    # In the full-screen UI another object replaces standard output.
    encoding_name = getattr(sys.stdout, "encoding", None) or getattr(sys.__stdout__, "encoding", None) or ""
    encoding = encoding_name.lower().replace("-", "")
    yield DoctorDiagnostic(
        area="terminal",
        name="encoding",
        state="ok" if encoding == "utf8" else "warn",
        value=encoding_name or "unknown",
        advice="" if encoding == "utf8" else "Use a UTF-8 locale, such as LANG=C.UTF-8.",
    )


CONTAINER_FILES = (Path("/.dockerenv"), Path("/run/.containerenv"))
"""Files that container engines put into each container."""


def check_permission_bypass(settings: Settings, *, container_files: Sequence[Path] = CONTAINER_FILES) -> None:
    """Raise `SettingsError` if permissions may not be skipped: by a setting, or as root on a host."""
    if settings.permissions.bypass_ban is not None:
        raise SettingsError(
            f"Permissions cannot be skipped: {settings.permissions.bypass_ban} sets "
            "permissions.disableBypassPermissionsMode. Start in another permission mode, or change that file."
        )
    environ = settings.environ
    is_contained = (
        any(path.exists() for path in container_files)
        or bool(environ.get("container"))
        or environ.get("IS_SANDBOX") == "1"
        or settings.own.sandbox.enabled is True
    )
    if os.geteuid() == 0 and not is_contained:
        raise SettingsError(
            "Permissions cannot be skipped as root outside a container: a command could destroy the machine. "
            "Start as another user, in a container, or with shoal.sandbox.enabled set to true. Set "
            "IS_SANDBOX=1 if this machine is a sandbox."
        )
