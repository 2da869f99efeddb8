"""Reasons to ask before commands that use files of the project: git and npm settings, Python modules."""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from shoal.core.errors import WorkspaceError
from shoal.core.text.filenames import escape_filename
from shoal.policy.policy_texts import format_policy_notice
from shoal.policy.repository_programs import find_repository_program, has_repository
from shoal.policy.shell.command_analysis import SimpleShellCommand
from shoal.policy.shell.known_commands import NPM_SETTINGS

ResolvePath: TypeAlias = Callable[[str], tuple[str, bool]]
"""Returns the real path, and True for a directory. Raises `WorkspaceError`."""
CheckoutJudge: TypeAlias = Callable[[SimpleShellCommand, ResolvePath, str], str | None]
"""Returns why a command needs approval in the project with this root, or None."""

_PLAIN_WRITERS = frozenset({"touch", "mkdir", "tee", "rm", "rmdir", "truncate"})
_PYTHON_MODULE = re.compile(r"\.(?:py[a-z]*|so)$|[*?\[]|\(unknown\)", re.IGNORECASE)
_REPOSITORY_MARK = re.compile(r"(?:^|/)(?:HEAD|\.git|\.npmrc)$|[*?\[]|\(unknown\)", re.IGNORECASE)

_HARMLESS_NPM_SETTING = re.compile(
    r"(?:@[^:=]+:)?registry|//[^=]*|access|always-auth|audit(?:-level)?|auto-install-peers|color|dedupe-[a-z-]+"
    r"|depth|engine-strict|fetch-[a-z-]+|force|foreground-scripts|fund|(?:public-|shamefully-)?hoist(?:-pattern)?"
    r"|ignore-scripts|include|init-(?:author-[a-z]+|license|version)|install-(?:links|strategy)"
    r"|legacy-peer-deps|link-workspace-packages|lockfile|lockfile-version|loglevel|maxsockets|message"
    r"|node-linker|omit|package-lock|prefer-[a-z-]+|progress|resolution-mode|save(?:-[a-z-]+)?"
    r"|strict-(?:peer-dep[a-z]*|ssl)|tag(?:-version-prefix)?|unicode|update-notifier|workspaces(?:-update)?"
)
"""Settings that name no program and no place to write to."""
_RUST_PROXIES = frozenset({"cargo", "rustc"})
"""Programs that rustup installs; it runs those of the toolchain that a file names."""
_TOOLCHAIN_FILES = ("rust-toolchain", "rust-toolchain.toml")
_GO_FILES = ("go.mod", "go.work")
_GO_DOWNLOAD = re.compile(rb"^\s*(?:require|toolchain|tool)\b", re.MULTILINE)
"""Lines that name modules, or a toolchain other than the installed one."""
_GO_TOOLCHAIN = re.compile(rb"^\s*toolchain\b", re.MULTILINE)
_UV_FILES = (".venv", "uv.toml", ".python-version", ".python-versions", "pyproject.toml")
_MAX_SETTINGS_BYTES = 100_000
_PYTHON_MODULES = (("-m", "json.tool"), ("-m", "pip"))
"""Words with which Python runs one of its own modules, and imports others from the working directory."""
_PIP_MODULES = frozenset({"pip", "setuptools", "pkg_resources", "_distutils_hack", "wheel", "keyring"})


def get_checkout_judge(words: tuple[str | None, ...]) -> CheckoutJudge | None:
    """Return the function that judges a command that uses files of the project; None for other commands."""
    name = words[0]
    if name is None:
        return None
    if name.endswith("git"):
        return _judge_git
    if name == "npm":
        return _judge_npm
    if name in _RUST_PROXIES:
        return _judge_rust
    if name == "go":
        return _judge_go
    if name == "uv":
        return _judge_uv
    return _judge_python_module if words[1:3] in _PYTHON_MODULES else None


def may_write_settings(part: SimpleShellCommand) -> bool:
    """Return True if a command may create what makes a directory a repository."""
    is_plain = not part.changes or (bool(part.words) and part.words[0] in _PLAIN_WRITERS)
    return any(not is_plain or _REPOSITORY_MARK.search(path) for path in part.writes)


def may_write_python_module(part: SimpleShellCommand) -> bool:
    """Return True if a command may create a file that Python imports."""
    is_plain = not part.changes or (bool(part.words) and part.words[0] in _PLAIN_WRITERS)
    return any(not is_plain or _PYTHON_MODULE.search(path) for path in part.writes)


def runs_python_module(part: SimpleShellCommand) -> bool:
    return part.words[1:3] in _PYTHON_MODULES


def may_obey_new_settings(part: SimpleShellCommand, root: str) -> bool:
    """Return True if files that other commands of the line write may become settings of this command."""
    if not part.read_only or not part.words or get_checkout_judge(part.words) is None:
        return False
    return part.places != ("",) or "-C" in part.words or not has_repository(root)


def _judge_git(part: SimpleShellCommand, resolve: ResolvePath, root: str) -> str | None:
    if "find" in part.via:
        return format_policy_notice("found_repositories")
    if part.reads and (objection := _find_nested_repository(part, resolve, root)):
        return objection
    program = find_repository_program(root, part.words)
    return program and format_policy_notice("git_would_run", program=program)


def _find_nested_repository(part: SimpleShellCommand, resolve: ResolvePath, root: str) -> str | None:
    """Return why a git command that runs in another directory of the project needs approval."""
    for path in part.reads:
        directory, end, rest = path.rpartition("/.git")
        if not end or rest:
            continue
        try:
            real, _ = resolve(directory)
        except WorkspaceError as error:
            return str(error)
        while len(real) > len(root):
            if os.path.lexists(f"{real}/.git") or os.path.lexists(f"{real}/HEAD"):
                return format_policy_notice("nested_repository", path=escape_filename(directory))
            real = real.rpartition("/")[0]
    return None


def _judge_npm(part: SimpleShellCommand, resolve: ResolvePath, root: str) -> str | None:
    """Return why npm needs approval: settings of the project tell it what to run or where to write."""
    for path in part.reads:
        directory, end, rest = f"/{path}".rpartition(f"/{NPM_SETTINGS}")
        if not end or rest:
            continue
        try:
            real, _ = resolve(directory[1:] or ".")
        except WorkspaceError as error:
            return str(error)
        if found := _find_npm_setting(real, root):
            return format_policy_notice("npm_would_use", setting=found)
    return None


def _judge_rust(part: SimpleShellCommand, resolve: ResolvePath, root: str) -> str | None:
    """Return why cargo and rustc need approval: a file names the toolchain, which may be in the project."""
    try:
        found = next(_iter_files_above(part, resolve, _TOOLCHAIN_FILES), None)
    except WorkspaceError as error:
        return str(error)
    return found and format_policy_notice("toolchain_file", path=escape_filename(found))


def _judge_go(part: SimpleShellCommand, resolve: ResolvePath, root: str) -> str | None:
    """Return why go needs approval: its files name modules and a toolchain, which it downloads."""
    try:
        for path in _iter_files_above(part, resolve, _GO_FILES):
            sign = _GO_TOOLCHAIN if part.words[1:2] in (("version",), ("env",)) else _GO_DOWNLOAD
            if sign.search(_read_settings(path)):
                return format_policy_notice("go_downloads", path=escape_filename(path))
    except WorkspaceError as error:
        return str(error)
    except OSError as error:
        return format_policy_notice("go_downloads", path=error.strerror)
    return None


def _judge_uv(part: SimpleShellCommand, resolve: ResolvePath, root: str) -> str | None:
    """Return why uv needs approval: it starts the Python of the project, or obeys its settings."""
    if part.words[1:2] not in (("python",), ("pip",)):
        return None
    try:
        for path in _iter_files_above(part, resolve, _UV_FILES):
            if not path.endswith("pyproject.toml") or _may_have_uv_settings(_read_settings(path)):
                return format_policy_notice("uv_environment", path=escape_filename(path))
    except WorkspaceError as error:
        return str(error)
    except OSError as error:
        return format_policy_notice("uv_environment", path=error.strerror)
    return None


def _may_have_uv_settings(text: bytes) -> bool:
    """Return False if a `pyproject.toml` certainly has no table `tool.uv`, however it is written."""
    if len(text) >= _MAX_SETTINGS_BYTES:
        return True
    try:
        return "uv" in tomllib.loads(text.decode()).get("tool", {})
    except (ValueError, TypeError):
        return True


def _iter_files_above(part: SimpleShellCommand, resolve: ResolvePath, names: Sequence[str]) -> Iterator[str]:
    """Yield the existing files with such names where a command that only reads runs, and above."""
    for place in part.places if part.read_only else ():
        real, _ = resolve(place or ".")
        for directory in (Path(real), *Path(real).parents):
            yield from (str(directory / name) for name in names if os.path.lexists(directory / name))


def _read_settings(path: str) -> bytes:
    with Path(path).open("rb") as opened:
        return opened.read(_MAX_SETTINGS_BYTES)


def _judge_python_module(part: SimpleShellCommand, resolve: ResolvePath, root: str) -> str | None:
    """Return why python needs approval: it imports a file of the project instead of its own module."""
    for path in part.reads:
        try:
            real, is_directory = resolve(path)
            names = [each.name for each in Path(real).iterdir()] if is_directory else []
        except (WorkspaceError, OSError) as error:
            return str(error)
        for name in names:
            is_module = "." in name or os.path.lexists(f"{real}/{name}/__init__.py")
            module = name.partition(".")[0]
            if is_module and (module in sys.stdlib_module_names or module in _PIP_MODULES):
                return format_policy_notice("project_module", name=escape_filename(name))
    return None


def _find_npm_setting(directory: str, root: str) -> str | None:
    """Return the first setting, with its file, that may be harmful in a directory of a project, or None."""
    place = directory
    while True:
        if found := _find_harmful_npm_setting(Path(place, NPM_SETTINGS)):
            return found
        if place == root or "/" not in place[1:]:
            return None
        place = place.rpartition("/")[0]


def _find_harmful_npm_setting(file: Path) -> str | None:
    try:
        with file.open("rb") as opened:
            content = opened.read(_MAX_SETTINGS_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        return format_policy_notice(
            "unreadable_settings", path=escape_filename(str(file)), error=error.strerror
        )
    if len(content) > _MAX_SETTINGS_BYTES:
        return format_policy_notice("long_settings", path=escape_filename(str(file)))
    for line in content.decode("utf-8", "replace").splitlines():
        name = line.partition("=")[0].strip().removesuffix("[]").strip("'\"")
        if name and name[0] not in "#;" and not _HARMLESS_NPM_SETTING.fullmatch(name):
            return format_policy_notice(
                "npm_setting", name=repr(escape_filename(name[:40])), path=escape_filename(str(file))
            )
    return None
