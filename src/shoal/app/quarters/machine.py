"""Checks of the machine: home and disk, programs, optional extras, terminal."""

from __future__ import annotations

import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

State: TypeAlias = Literal["ok", "none", "warn", "bad"]
"""`none` is for something absent that is optional."""

NETWORKED = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "9p", "ceph", "glusterfs", "lustre"})
NETWORKED_BY_FUSE = frozenset({"fuse.sshfs", "fuse.s3fs", "fuse.rclone"})
LITTLE_ROOM, NO_ROOM = 500 << 20, 20 << 20

PROGRAMS = (
    ("git", "git", "worktrees and the state of the project"),
    ("rg", "ripgrep", "fast searches"),
    ("tmux", "tmux", "agents in panes"),
    ("bwrap", "bubblewrap", "shell commands in a sandbox"),
)
EXTRAS = (
    ("tui", "textual", "the full screen"),
    ("web", "starlette", "the web view"),
    ("pdf", "pypdf", "the text of PDF files"),
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


class Fact(Struct, frozen=True, kw_only=True):
    area: str
    name: str
    state: State
    value: str
    advice: str = ""
    """Command or action; empty if nothing needs to be done."""


def versions(shoal: str) -> Iterator[Fact]:
    yield Fact(area="program", name="shoal", state="ok", value=shoal)
    new_enough = sys.version_info >= (3, 11)
    yield Fact(
        area="program",
        name="python",
        state="ok" if new_enough else "bad",
        value=f"{platform.python_version()} ({sys.executable})",
        advice="" if new_enough else "Install Python 3.11 or newer.",
    )
    yield Fact(area="program", name="system", state="ok", value=f"{platform.system()} {platform.release()}")


def home_facts(home: Path, source: str) -> Iterator[Fact]:
    problem = _unwritable(home)
    yield Fact(
        area="home",
        name="directory",
        state="bad" if problem else "ok",
        value=f"{home} (from {source}){f': {problem}' if problem else ''}",
        advice="Make it writable, or choose another with SHOAL_HOME=DIRECTORY." if problem else "",
    )
    kind = file_system(home)
    networked = kind in NETWORKED | NETWORKED_BY_FUSE
    yield Fact(
        area="home",
        name="file system",
        state="warn" if networked else "ok",
        value=kind or "kind not known",
        advice="Locks and file notices are unreliable on network file systems: set SHOAL_HOME to a local "
        "directory."
        if networked
        else "",
    )
    yield _room(home)


def _unwritable(home: Path) -> str:
    """Return why the home cannot be written, by trying: permission bits mean little for root."""
    place = _existing(home)
    if not place.is_dir():
        return f"{place} is not a directory"
    try:
        with tempfile.TemporaryFile(dir=place) as probe:
            probe.write(b"x")
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _existing(path: Path) -> Path:
    """Return the path, or its nearest existing parent."""
    return next((place for place in (path, *path.parents) if place.exists()), Path("/"))


def _room(home: Path) -> Fact:
    free = shutil.disk_usage(_existing(home)).free
    state: State = "bad" if free < NO_ROOM else "warn" if free < LITTLE_ROOM else "ok"
    return Fact(
        area="home",
        name="free space",
        state=state,
        value=f"{free / (1 << 30):.1f} GB",
        advice="" if state == "ok" else "Make room: a transcript that cannot be written stops the run.",
    )


def file_system(path: Path, mounts: str | None = None) -> str:
    """Return the type of the file system that holds the path; empty if unknown."""
    if mounts is None:
        try:
            mounts = Path("/proc/self/mounts").read_text("utf-8", "replace")
        except OSError:
            return ""
    real = path.resolve()
    best, kind = -1, ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = fields[1].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
        # The later of two mounts on one point hides the earlier.
        if real.is_relative_to(point) and len(Path(point).parts) >= best:
            best, kind = len(Path(point).parts), fields[2]
    return kind


def programs(path: str | None = None) -> Iterator[Fact]:
    install = next((text for name, text in _INSTALLERS if shutil.which(name)), "install {}")
    for name, package, purpose in PROGRAMS:
        found = shutil.which(name, path=path)
        yield Fact(
            area="programs",
            name=name,
            state="ok" if found else "warn",
            value=found or f"not found; used for {purpose}",
            advice="" if found else install.format(package),
        )


def extras() -> Iterator[Fact]:
    for extra, module, purpose in EXTRAS:
        found = _is_there(module)
        yield Fact(
            area="programs",
            name=f"shoal[{extra}]",
            state="ok" if found else "warn",
            value="installed" if found else f"not installed; used for {purpose}",
            advice="" if found else f"pip install 'shoal[{extra}]'",
        )


def _is_there(module: str) -> bool:
    from importlib.util import find_spec

    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False


def terminal(env: Mapping[str, str]) -> Iterator[Fact]:
    if not sys.stdout.isatty():
        yield Fact(area="terminal", name="output", state="ok", value="not a terminal: plain lines")
        return
    size = shutil.get_terminal_size()
    colours = "no colours (NO_COLOR)" if env.get("NO_COLOR") else "colours"
    kind = env.get("TERM", "")
    dumb = kind in ("", "dumb")
    yield Fact(
        area="terminal",
        name="output",
        state="warn" if dumb else "ok",
        value=f"{kind or 'TERM is not set'}, {size.columns}×{size.lines}, {colours}",
        advice="Set TERM to what your terminal is, such as xterm-256color." if dumb else "",
    )
    # In the full-screen UI another object replaces standard output.
    named = getattr(sys.stdout, "encoding", None) or getattr(sys.__stdout__, "encoding", None) or ""
    encoding = named.lower().replace("-", "")
    yield Fact(
        area="terminal",
        name="encoding",
        state="ok" if encoding == "utf8" else "warn",
        value=named or "not known",
        advice="" if encoding == "utf8" else "Use a UTF-8 locale, such as LANG=C.UTF-8.",
    )
