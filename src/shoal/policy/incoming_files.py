"""Files that a git command may add to the working directory, from the commits that it names."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from shoal.policy.command_rules import skip_git_flags
from shoal.policy.shell.command_analysis import SimpleShellCommand

_TREE_READERS = frozenset(
    {"merge", "rebase", "cherry-pick", "revert", "read-tree", "reset", "checkout", "switch"}
)
_TREE_WRITERS = _TREE_READERS | {"restore", "stash", "checkout-index"}
"""Commands that write tracked files to the working directory."""
_REPOSITORY_FLAG = re.compile(
    r"--(?:git-dir|work-tree|namespace)\b.*|(?:.*=)?core\.worktree\b.*", re.DOTALL | re.IGNORECASE
)
"""Flags with which git takes files from another repository, or writes them to another directory."""
_REPOSITORY_VARIABLE = re.compile(
    r"\bGIT_(?:DIR|WORK_TREE|COMMON_DIR|INDEX_FILE|NAMESPACE|(?:ALTERNATE_)?OBJECT_DIRECTOR(?:Y|IES))="
)
"""Variables of a command with the same effect."""
_VALUELESS_MERGE_FLAG = ("checkout", "switch", "read-tree")
"""Commands whose flag `-m` has no value."""
_UNKNOWN_SOURCES = frozenset(
    {"pull", "bisect", "submodule", "fast-import", "filter-branch", "filter-repo", "replay", "am", "apply"}
)
"""Commands that take files from elsewhere, or from commits that they choose."""
_STARTED_COMMITS = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD", "ORIG_HEAD")
"""Commits that `--continue` and `--abort` use."""
_SOURCE_FLAG = re.compile(r"(?:-s|--source)=?(.*)", re.DOTALL)
_VALUED_FLAG = re.compile(
    r"-[mXsbBcC]|--(?:strategy|strategy-option|onto|message|file|into-name|orphan|create)"
)
_RANGE = re.compile(r"\.\.\.?")
_ENVIRONMENT = {
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
}
"""Git must not fetch missing objects: that would run a program that the repository names."""
_TIMEOUT_SECONDS = 5.0


def list_incoming_files(
    part: SimpleShellCommand, variables: Mapping[str, str], directory: str
) -> tuple[str, ...] | None:
    """Return the paths in the commits that a git command takes files from; None if it may take any."""
    words = part.words or part.argv or ()
    leading_flags = _list_leading_flags(words)
    is_elsewhere = any(map(_chooses_repository, leading_flags)) or _REPOSITORY_VARIABLE.search(part.text)
    if is_elsewhere and not _TREE_WRITERS.isdisjoint(words):
        return None
    revisions = _list_revisions(words)
    if not revisions:
        return None if revisions is None else ()
    top = _find_repository_top(directory)
    if top is None or any(word is None or "=" in word for word in leading_flags):
        return None
    found: list[str] = []
    for alternatives in revisions:
        names = next(filter(None, (_list_tree(top, each, variables) for each in alternatives)), None)
        if names is None and not any(os.path.lexists(f"{directory}/{each}") for each in alternatives):
            return None
        found.extend(f"{top}/{name}" for name in names or ())
    return tuple(found)


def _list_leading_flags(words: Sequence[str | None]) -> tuple[str | None, ...]:
    """Return the flags before the subcommand, which may choose another repository."""
    rest = skip_git_flags(tuple(words))
    return tuple(words[1 : len(words) - len(rest) + 1])


def _chooses_repository(flag: str | None) -> bool:
    return flag is None or _REPOSITORY_FLAG.fullmatch(flag) is not None


def _list_revisions(words: Sequence[str | None]) -> list[tuple[str, ...]] | None:
    """Return the commits that a command takes files from, each with other ways to read its name."""
    subcommand, *rest = (*skip_git_flags(tuple(words))[1:], None)[:-1] or (None,)
    if subcommand is None or subcommand in _UNKNOWN_SOURCES or None in rest:
        return None
    known = [word for word in rest if word is not None]
    if subcommand == "stash":
        return _list_stash_revisions(known)
    if subcommand == "restore":
        return [(value,) for value in _list_source_values(known)]
    if subcommand not in _TREE_READERS:
        return []
    operands = _list_operands(
        [word for word in known if word != "-m" or subcommand not in _VALUELESS_MERGE_FLAG]
    )
    if subcommand in ("merge", "rebase", "cherry-pick", "revert") and not operands:
        return [(*_STARTED_COMMITS, "@{upstream}")]
    if subcommand in ("checkout", "switch", "reset"):
        operands = (
            operands[:1] if not any(word[:2] in ("-b", "-B", "-c", "-C") for word in known) else operands
        )
    revisions: list[tuple[str, ...]] = []
    for operand in operands:
        for end in filter(None, _RANGE.split(operand)):
            name = "@{-1}" if end == "-" else end
            revisions.append((name, f"origin/{name}"))
            if subcommand == "revert":
                revisions.append((f"{name}~1",))
    return revisions


def _list_stash_revisions(words: Sequence[str]) -> list[tuple[str, ...]] | None:
    operands = [word for word in words if not word.startswith("-")]
    if not operands or operands[0] not in ("pop", "apply", "branch"):
        return []
    name = next((word for word in operands[1:] if "stash" in word or word.isdigit()), "stash@{0}")
    commit = f"stash@{{{name}}}" if name.isdigit() else name
    # The third parent has the files that git did not track.
    return [(commit,), (f"{commit}^3", commit)]


def _list_source_values(words: Sequence[str]) -> list[str]:
    found: list[str] = []
    for index, word in enumerate(words):
        match = _SOURCE_FLAG.fullmatch(word)
        if match is not None:
            found.append(match[1] or "".join(words[index + 1 : index + 2]))
    return found


def _list_operands(words: Sequence[str]) -> list[str]:
    """Return the words that may be commits: those before `--`, and the values of flags."""
    end = words.index("--") if "--" in words else len(words)
    operands = [word for word in words[:end] if not word.startswith("-") or word == "-"]
    after_flags = {
        words[index + 1]
        for index, word in enumerate(words[:end])
        if _VALUED_FLAG.fullmatch(word) and word != "--onto" and index + 1 < end
    }
    return [word for word in operands if word not in after_flags]


def _find_repository_top(directory: str) -> str | None:
    for top in (Path(directory), *Path(directory).parents):
        if (top / ".git").exists():
            return str(top)
    return None


def _list_tree(top: str, revision: str, variables: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the files of a commit, or None if git does not know it."""
    try:
        listed = subprocess.run(
            [
                "git",
                "-C",
                top,
                "ls-tree",
                "-r",
                "-z",
                "--name-only",
                "--full-tree",
                "--end-of-options",
                revision,
            ],
            capture_output=True,
            env=_build_environment(variables),
            stdin=subprocess.DEVNULL,
            timeout=_TIMEOUT_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return tuple(os.fsdecode(name) for name in listed.stdout.split(b"\0") if name)


def _build_environment(variables: Mapping[str, str]) -> dict[str, str]:
    own = {name: value for name, value in variables.items() if not name.startswith("GIT_")}
    return {**own, **_ENVIRONMENT}
