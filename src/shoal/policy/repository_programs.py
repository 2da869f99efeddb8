"""Programs that a repository's own configuration makes git run, even for commands that only read.

A checkout can come with its configuration, for example from an archive. What the user configured for all
repositories is not checked.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from functools import lru_cache

from msgspec import Struct

from shoal.policy.policy_texts import format_policy_notice

# The section is not looked at: a line that continues a value looks like the start of another section.
_SETTING = re.compile(
    rb"(?:^|\])[ \t\r]*(fsmonitor|external|command|textconv|clean|smudge|process|program|defaultkeycommand"
    rb"|hookspath|path|sshcommand|gitproxy|uploadpack|vcs|allow|helper|askpass|promisor|partialclone"
    rb"|worktreeconfig|worktree|cmd|viewer|browser)"
    rb"[ \t\r]*(?:=[ \t\r]*([^\n]*))?$",
    re.IGNORECASE | re.MULTILINE,
)
_BOOLEAN = re.compile(rb"(?:true|false|yes|no|on|off|[01])?[ \t\r]*", re.IGNORECASE)
_WORK_TREE = re.compile(rb"^[ \t]*worktree[ \t]*=[ \t]*([^\n]*)$", re.IGNORECASE | re.MULTILINE)
_LFS_FILTER = re.compile(rb"\"?git-lfs (?:clean|smudge|filter-process)[-%f a-z]*\"?[ \t\r]*")
_FILTERS = frozenset({"clean", "smudge", "process"})
_TRANSPORTS = frozenset({"sshcommand", "gitproxy", "uploadpack", "vcs", "allow", "helper", "askpass"})
"""Settings that have an effect only if git contacts a remote."""
_VIEWERS = frozenset({"cmd", "viewer", "browser"})
"""Settings that have an effect only if git shows its manual."""
_PARTIAL_CLONES = frozenset({"promisor", "partialclone"})
"""Settings that make git contact a remote for missing objects."""
_HOOK = "post-index-change"
"""The only hook that read-only commands run."""
_INDEX_READERS = frozenset(
    {"status", "diff", "diff-index", "diff-files", "describe", "add", "submodule", "stash"}
)
"""Commands that compare the index with the files, and refresh it."""
_GITLINK = b"\0\0\xe0\0"
"""Mode of a submodule in the index."""
_MAX_CONFIG_BYTES = 1_000_000
_MAX_SUBMODULES = 200


class _RepositorySettings(Struct, frozen=True):
    program: str = ""
    """First setting that names a program, or an empty string."""
    transport: str = ""
    viewer: str = ""
    hooks_path: str = ""
    has_worktree_settings: bool = False


def find_repository_program(root: str, words: Sequence[str | None]) -> str | None:
    """Return what a git command would run from the configuration of the repository around `root`, or None."""
    directory = _find_git_directory(root)
    if directory is None:
        return None
    try:
        if outside := _find_outside_part(root, directory):
            return outside
        settings, common = _load_repository_settings(directory)
        if settings.program or (settings.transport and "remote" in words):
            return settings.program or settings.transport
        if settings.viewer and "help" in words:
            return settings.viewer
        if not _INDEX_READERS.isdisjoint(words) and (hook := _find_hook(root, common, settings)):
            return hook
        # Any command that shows changes may look into submodules: `diff.submodule` decides.
        return _find_submodule_program(root, directory)
    except OSError as error:
        return format_policy_notice("unknown_git_program", error=error.strerror)


def has_repository(root: str) -> bool:
    return _find_git_directory_here(root) is not None


def find_repository_config_files(root: str) -> tuple[str, ...]:
    """Return the files with the configuration of the repository around `root`, whether they exist or not."""
    directory = _find_git_directory(root)
    if directory is None:
        return ()
    try:
        _, common = _load_repository_settings(directory)
    except OSError:
        return ()
    return f"{common}/config", f"{directory}/config.worktree"


def _find_outside_part(root: str, directory: str) -> str | None:
    """Return what a git command would use of another repository, which its own files name, or None."""
    found = os.lstat(directory)
    own = directory
    if not stat.S_ISDIR(found.st_mode):
        own = os.path.realpath(directory) if stat.S_ISLNK(found.st_mode) else _follow_git_file(directory)
        if not _is_inside(own, root) and not _is_linked_back(own, directory):
            return format_policy_notice("outer_repository")
        found = os.stat(own)  # noqa: PTH116 - as above
    common = _find_common_directory(own)
    if common != own and not _is_inside(common, root) and not _is_linked_back(own, directory):
        return format_policy_notice("outer_repository")
    for place in {own, common}:
        changed = found if place == own else os.stat(place)  # noqa: PTH116 - as above
        if (link := _find_link_in_repository(place, changed.st_ctime_ns, changed.st_ino)) is not None:
            return link
    for name in ("alternates", "http-alternates"):
        if os.access(f"{common}/objects/info/{name}", os.F_OK) and not _has_inner_alternates(
            common, root, name
        ):
            return format_policy_notice("outer_objects")
    return None


def _is_inside(path: str, root: str) -> bool:
    return f"{os.path.realpath(path)}/".startswith(f"{os.path.realpath(root)}/")


def _is_linked_back(directory: str, git_file: str) -> bool:
    """Return True if a worktree or submodule belongs to a repository: both name each other."""
    tree = os.path.realpath(git_file.rpartition("/")[0])
    try:
        with open(f"{directory}/gitdir", "rb") as file:  # noqa: PTH123 - for every git command
            target = os.fsdecode(file.read(4096)).strip()
        return os.path.realpath(os.path.join(directory, target)) == f"{tree}/.git"  # noqa: PTH118
    except FileNotFoundError:
        pass
    try:
        with open(f"{directory}/config", "rb") as file:  # noqa: PTH123 - as above
            match = _WORK_TREE.search(file.read(_MAX_CONFIG_BYTES))
    except OSError:
        return False
    if match is None:
        return False
    target = os.fsdecode(match[1]).strip().strip('"')
    return os.path.realpath(os.path.join(directory, target)) == tree  # noqa: PTH118


@lru_cache(maxsize=64)
def _find_link_in_repository(directory: str, changed: int, inode: int) -> str | None:
    """Return a reason if a file or directory of a repository is a link out of it."""
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_symlink() and not _is_inside(entry.path, directory):
                return format_policy_notice("outer_entry", name=entry.name)
    objects = f"{directory}/objects"
    return format_policy_notice("outer_objects") if not _is_inside(objects, directory) else None


def _has_inner_alternates(common: str, root: str, name: str) -> bool:
    with open(f"{common}/objects/info/{name}", "rb") as file:  # noqa: PTH123 - as above
        lines = [os.fsdecode(line).strip() for line in file.read(_MAX_CONFIG_BYTES).splitlines()]
    paths = [os.path.join(common, "objects", line) for line in lines if line and line[0] != "#"]  # noqa: PTH118
    return name == "alternates" and all(_is_inside(path, root) for path in paths)


def _load_repository_settings(directory: str) -> tuple[_RepositorySettings, str]:
    """Return the settings of a repository and the directory that its worktrees share."""
    try:
        common = _find_common_directory(directory)
        return _load_settings(f"{common}/config", directory)
    except NotADirectoryError:
        # A file that names the directory, as in worktrees and submodules.
        return _load_repository_settings(_follow_git_file(directory))
    except FileNotFoundError:
        return _RepositorySettings(), common


def _load_settings(path: str, directory: str) -> tuple[_RepositorySettings, str]:
    found = os.stat(path)  # noqa: PTH116 - for every git command
    # Unlike the time of the last write, the time of the last change cannot be set back.
    settings = _parse_settings_file(path, found.st_ctime_ns, found.st_ino, found.st_size)
    if settings.has_worktree_settings and os.access(f"{directory}/config.worktree", os.F_OK):
        own, _ = _load_settings(f"{directory}/config.worktree", "")
        settings = _RepositorySettings(
            settings.program or own.program,
            settings.transport or own.transport,
            settings.viewer or own.viewer,
            own.hooks_path or settings.hooks_path,
        )
    return settings, path.rpartition("/")[0]


def _find_hook(tree: str, common: str, settings: _RepositorySettings) -> str | None:
    hooks = os.path.join(tree, settings.hooks_path) if settings.hooks_path else f"{common}/hooks"  # noqa: PTH118
    return format_policy_notice("git_hook", name=_HOOK) if os.access(f"{hooks}/{_HOOK}", os.X_OK) else None


def _find_submodule_program(root: str, directory: str) -> str | None:
    # Git looks into submodules to see if they changed.
    index = f"{directory}/index"
    try:
        found = os.stat(index)  # noqa: PTH116 - for every git command
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        return _find_submodule_program(root, _follow_git_file(directory))
    if not _may_have_submodules(index, found.st_ctime_ns, found.st_ino, found.st_size):
        return None
    for tree in _list_repositories_below(root):
        settings, common = _load_repository_settings(f"{tree}/.git")
        if program := settings.program or _find_hook(tree, common, settings):
            return format_policy_notice("submodule_program", program=program)
    return None


def _find_git_directory(root: str) -> str | None:
    return _find_git_directory_here(root) or _find_outer_git_directory(root.rpartition("/")[0])


@lru_cache(maxsize=64)
def _find_outer_git_directory(directory: str) -> str | None:
    """Find the repository around the project; an agent cannot create one there without asking."""
    while directory:
        if found := _find_git_directory_here(directory):
            return found
        directory = directory.rpartition("/")[0]
    return None


def _find_git_directory_here(directory: str) -> str | None:
    path = f"{directory}/.git"
    if os.access(path, os.F_OK):
        return path
    # A bare repository.
    return directory if os.access(f"{directory}/HEAD", os.F_OK) else None


def _follow_git_file(path: str) -> str:
    """Return the directory that a file `.git` names."""
    with open(path, "rb") as file:  # noqa: PTH123 - for every git command
        target = os.fsdecode(file.read(4096)).removeprefix("gitdir:").strip()
    return os.path.normpath(os.path.join(path.rpartition("/")[0], target))  # noqa: PTH118


def _find_common_directory(directory: str) -> str:
    """Return the directory with the configuration, which worktrees share."""
    try:
        with open(f"{directory}/commondir", "rb") as file:  # noqa: PTH123 - for every git command
            target = os.fsdecode(file.read(4096)).strip()
    except FileNotFoundError:
        return directory
    return os.path.normpath(os.path.join(directory, target))  # noqa: PTH118


@lru_cache(maxsize=256)
def _parse_settings_file(path: str, changed: int, inode: int, size: int) -> _RepositorySettings:
    if size > _MAX_CONFIG_BYTES:
        return _RepositorySettings(format_policy_notice("long_configuration"))
    with open(path, "rb") as file:  # noqa: PTH123 - as above
        content = file.read(_MAX_CONFIG_BYTES + 1)
    program = transport = viewer = hooks_path = ""
    is_partial = has_worktree_settings = False
    for match in _SETTING.finditer(content):
        name, value = match[1].decode().lower(), match[2] or b""
        is_partial = is_partial or name in _PARTIAL_CLONES
        has_worktree_settings = has_worktree_settings or name == "worktreeconfig"
        if name in _PARTIAL_CLONES or name == "worktreeconfig":
            continue
        if name in _TRANSPORTS:
            transport = transport or format_policy_notice("configured_program", name=name)
        elif name in _VIEWERS:
            viewer = viewer or format_policy_notice("configured_program", name=name)
        elif name == "worktree":
            program = program or _find_other_tree(path, value)
        elif name == "hookspath":
            hooks_path = os.fsdecode(value).strip().strip('"')
        elif not (
            (name == "fsmonitor" and _BOOLEAN.fullmatch(value))
            or (name in _FILTERS and _LFS_FILTER.fullmatch(value))
        ):
            program = program or (
                format_policy_notice("other_settings")
                if name == "path"
                else format_policy_notice("configured_program", name=name)
            )
    return _RepositorySettings(
        program or (transport if is_partial else ""), transport, viewer, hooks_path, has_worktree_settings
    )


def _find_other_tree(config: str, value: bytes) -> str:
    """Return what `core.worktree` makes git do if it leads out of the tree around the configuration."""
    target = os.fsdecode(value).strip().strip('"')
    directory = config.rpartition("/")[0]
    tree = config.partition("/.git/")[0] if "/.git/" in config else directory
    real = os.path.realpath(os.path.join(directory, target))  # noqa: PTH118
    if "\\" not in target and f"{real}/".startswith(f"{os.path.realpath(tree)}/"):
        return ""
    return format_policy_notice("outer_files")


@lru_cache(maxsize=64)
def _may_have_submodules(index: str, changed: int, inode: int, size: int) -> bool:
    with open(index, "rb") as file:  # noqa: PTH123 - as above
        return _GITLINK in file.read()


def _list_repositories_below(root: str) -> list[str]:
    found: list[str] = []
    for directory, names, files in os.walk(root):
        if directory != root and (".git" in names or ".git" in files):
            found.append(directory)
        names[:] = [name for name in names if name not in (".git", "node_modules", ".venv")]
        if len(found) > _MAX_SUBMODULES:
            break
    return found
