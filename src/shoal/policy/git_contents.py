"""Files whose contents a git command shows or copies, and the files that git tracks."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from shoal.policy.shell.simple_commands import SimpleShellCommand
from shoal.policy.unreadable_files import get_program_name


class GitContents(Struct, frozen=True):
    """Contents that a git command prints or copies.

    `paths` are the files and directories that it is limited to; without any, it may show every file of the
    history. `operands` may be paths or revisions. With `is_current`, the contents are those of the index and
    the working directory if none of the operands is a revision.
    """

    paths: tuple[str, ...] = ()
    operands: tuple[str, ...] = ()
    is_current: bool = False


_GIT_COPYING_SUBCOMMANDS = frozenset(
    """
    archive bundle checkout-index clone difftool fast-export format-patch merge-tree range-diff
    send-email unpack-file rerere request-pull filter-branch mergetool replace gui citool
    """.split()  # noqa: SIM905 - easier to read and extend as one text
)
_GIT_FILLING_SUBCOMMANDS = frozenset({"checkout", "restore", "read-tree", "reset", "switch", "stash"})
"""Subcommands that copy tracked files to another directory if it is given as the work tree."""
_GIT_LOGS = frozenset({"log", "whatchanged", "reflog", "stash", "rev-list"})
_GIT_PATCH = re.compile(
    r"-(?![SGnlO0-9-])[A-Za-z]*[puUcmLW].*|--(?:pa$|pat|un|cc|dd|bi|reme|diff-m|wo|color-w|fun|ext-|textc).*"
)
_GIT_SUMMARY = re.compile(r"-[sq]|--(?:no-pa|stat|shortst|numst|dirst|summ|name-|raw|quiet|compact).*")
_SHOWING_STASH = frozenset({"show", "list", None})
_GIT_CHOSEN_HUNKS = re.compile(r"-(?!m)[a-z]*p.*|--pat.*")
_STASH_OF_UNTRACKED_FILES = re.compile(r"-(?!m)[a-z]*[ua].*|--(?:inc|al).*")
"""Flags of `git stash` that copy files which git does not track, such as a denied one."""
_GIT_OTHER_PATCHES: dict[str, re.Pattern[str]] = {
    "add": re.compile(r"-[a-zA-Z]*[pie]|--(?:pa|int|ed).*"),
    "commit": re.compile(r"-(?![mFCct])[a-z]*[vp]|--(?:verb|pat|int).*"),
    "status": re.compile(r"-[a-z]*v|--verb.*"),
    **dict.fromkeys(("checkout", "restore", "reset"), re.compile(r"-[a-z]*p|--pat.*")),
    **dict.fromkeys(("rebase", "am"), re.compile(r"--show-c.*")),
}
_GIT_VALUED = frozenset(
    {"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--config-env"}
)


def find_git_contents(part: SimpleShellCommand) -> GitContents | None:
    """Return the contents that a git command shows, or None if it shows none."""
    words = part.words or part.argv or ("",)
    if get_program_name(words) != "git":
        return None
    rest = list(words[1:])
    is_elsewhere = False
    while rest and (rest[0] is None or rest[0].startswith("-")):
        flag = rest.pop(0)
        is_elsewhere = is_elsewhere or flag is None or flag.startswith(tuple(_GIT_VALUED))
        if flag in _GIT_VALUED:
            rest = rest[1:]
    if is_elsewhere and rest and rest[0] in _GIT_FILLING_SUBCOMMANDS and _has_work_tree(words):
        return GitContents()
    if rest and rest[0] == "stash":
        if any(_STASH_OF_UNTRACKED_FILES.fullmatch(word or "") for word in rest[1:]):
            return GitContents()
        if not _shows_stash(rest[1:]):
            return None
    if not rest or not (shown := _find_shown_contents(rest[0] or "", rest[1:])):
        return None
    return GitContents() if is_elsewhere else shown


def _shows_stash(words: Sequence[str | None]) -> bool:
    """Return False if a stash of tracked files is only stored, applied or removed."""
    return not _SHOWING_STASH.isdisjoint(words) or any(
        word is not None and _GIT_CHOSEN_HUNKS.fullmatch(word) for word in words
    )


def _has_work_tree(words: Sequence[str | None]) -> bool:
    return any(
        word is None or word.startswith("--work-tree") or "core.worktree" in word.lower() for word in words
    )


def _find_shown_contents(subcommand: str, words: list[str | None]) -> GitContents | None:
    end = words.index("--") if "--" in words else len(words)
    flags = [word for word in words[:end] if word is not None and word.startswith("-")]
    operands = tuple(word or "" for word in words[:end] if word is None or not word.startswith("-"))
    found = GitContents(paths=tuple(word or "" for word in words[end + 1 :]), operands=operands)
    if subcommand in ("stash", "reflog"):
        # Their first word is no path, even if a file has that name; a stash is not limited to paths.
        found = GitContents() if subcommand == "stash" else replace(found, operands=operands[1:])
    if any(flag.startswith("--fu") for flag in flags):
        # With --full-diff the paths choose commits, whose whole changes are shown.
        found = GitContents()
    if subcommand == "cat-file":
        return _find_object_contents(flags, operands)
    if subcommand in _GIT_COPYING_SUBCOMMANDS or (subcommand == "worktree" and "add" in operands):
        # Operands name the target, which limits nothing, even if it exists.
        return GitContents()
    if (other := _GIT_OTHER_PATCHES.get(subcommand)) is not None:
        return found if any(other.fullmatch(word or "-p") for word in words[:end]) else None
    patches = [flag for flag in flags if _GIT_PATCH.fullmatch(flag)]
    if subcommand in ("diff", "show"):
        if not patches and any(map(_GIT_SUMMARY.fullmatch, flags)):
            return None
        if subcommand == "show" and operands and all(":" in word[1:] for word in operands):
            return GitContents(paths=tuple(word.rpartition(":")[2] for word in operands))
        is_current = subcommand == "diff" and not any(flag.startswith(("--ca", "--sta")) for flag in flags)
        return replace(found, is_current=is_current)
    if patches and all(flag.startswith("-L") for flag in patches):
        # The file is in the same word or in the next one.
        ranges = [word for word in (*patches, *operands) if ":" in word]
        return GitContents(paths=tuple(each.rpartition(":")[2] for each in ranges))
    is_log = subcommand in _GIT_LOGS or subcommand.startswith("diff-")
    return found if is_log and (patches or None in words) else None


def _find_object_contents(flags: list[str], operands: tuple[str, ...]) -> GitContents | None:
    if not {"-t", "-s", "-e"}.isdisjoint(flags):
        return None
    named = tuple(word.partition(":")[2] for word in operands)
    is_named = bool(named) and all(named) and not any(flag.startswith("--b") for flag in flags)
    return GitContents(paths=named) if is_named else GitContents()


@lru_cache(maxsize=4)
def _read_tracked_files(index: str, stamp: tuple[int, int]) -> tuple[str, ...] | None:
    """Return the names in git's index, or None if its format is not understood; `stamp` is for the cache."""
    data = Path(index).read_bytes()
    magic, version, count = struct.unpack(">4sLL", data[:12])
    if magic != b"DIRC" or version not in (2, 3, 4) or b"link" in data[-200:]:
        return None
    names: list[str] = []
    name, position = b"", 12
    for _ in range(count):
        flags = struct.unpack(">H", data[position + 60 : position + 62])[0]
        start = position + (64 if flags & 0x4000 else 62)
        if version == 4:
            removed, start = _read_index_number(data, start)
            end = data.index(b"\0", start)
            name = name[: len(name) - removed] + data[start:end]
            position = end + 1
        else:
            end = data.index(b"\0", start)
            name = data[start:end]
            position += (end - position + 8) // 8 * 8
        names.append(os.fsdecode(name))
    return tuple(names)


def _read_index_number(data: bytes, position: int) -> tuple[int, int]:
    """Return a number of the index in its variable length, and the position after it."""
    number = data[position] & 0x7F
    while data[position] & 0x80:
        position += 1
        number = ((number + 1) << 7) | (data[position] & 0x7F)
    return number, position + 1


def list_tracked_files(directory: str) -> tuple[str, ...] | None:
    """Return the absolute paths that git tracks around a directory, or None if that is not known."""
    for top in (Path(directory), *Path(directory).parents):
        repository = top / ".git"
        try:
            if repository.is_file():
                repository = top / repository.read_text(encoding="utf-8").removeprefix("gitdir:").strip()
            if not repository.is_dir():
                continue
            found = (repository / "index").stat()
            names = _read_tracked_files(str(repository / "index"), (found.st_mtime_ns, found.st_size))
        except (OSError, ValueError, IndexError, struct.error):
            return None
        return None if names is None else tuple(f"{top}/{name}" for name in names)
    return None
