"""Files that a shell command may change without naming them as its output, for rules that forbid changes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from shoal.policy.shell.command_analysis import SimpleShellCommand
from shoal.policy.shell.known_commands import INTERPRETERS, WRITING_COMMANDS
from shoal.policy.unreadable_files import WORKING_DIRECTORY, get_program_name
from shoal.policy.wildcards import GLOB

OPERAND_CHANGERS = frozenset(
    """
    chmod chown chgrp chattr setfacl setfattr black isort autopep8 yapf ruff prettier eslint biome gofmt
    goimports rustfmt clang-format shfmt dos2unix unix2dos rename prename shred sponge ed ex vi vim nvim nano
    emacs csplit split mktemp flock zip gzip bzip2 xz zstd gunzip bunzip2 unxz indent sed perl awk gawk mawk
    busybox toybox
    find npx pnpx bunx uvx patch tar bsdtar unzip cpio 7z curl wget env
    """.split()  # noqa: SIM905 - a list to be read and extended
)
"""Programs that may change the files and directories named in their arguments."""
_UNPACKERS = {
    **dict.fromkeys(("tar", "bsdtar", "gtar"), re.compile(r"-{0,2}[A-Za-z]*x[A-Za-z]*|--ex.*|--get")),
    "cpio": re.compile(r"-[A-Za-z]*i[A-Za-z]*|--ex.*"),
    "7z": re.compile("[xe]"),
}
_GIT_TREE_CHANGERS = frozenset(
    """
    am apply checkout-index clean merge-file mv read-tree reset restore rm stash
    """.split()  # noqa: SIM905 - a list to be read and extended
)
_GIT_DIRECTORY_MAKERS = frozenset({"clone", "init", "worktree"})
_HARMLESS_STASH = frozenset({"list", "show", "drop", "clear", "create", "store"})
_PATH_PART = re.compile(r"[\w./~@%+*?-]+")


def iter_possible_changed_paths(part: SimpleShellCommand) -> Iterator[str]:
    """Yield words, and parts of words, that may be paths it changes."""
    words = part.words or part.argv or ()
    name = get_program_name(words) if words else ""
    is_code_runner = name in INTERPRETERS or name.startswith("python")
    if not (name in OPERAND_CHANGERS or is_code_runner or _is_git_change(name, words)):
        return
    # A script that an interpreter runs may change anything; only code in the words is looked at.
    for word in words[1:]:
        if word is None:
            continue
        if is_code_runner and name not in OPERAND_CHANGERS and " " not in word and "(" not in word:
            continue
        yield word
        for token in _PATH_PART.findall(word):
            if token != word and not GLOB.search(token):
                yield token
            # As in the commands `wFILE` of sed and `-CDIRECTORY` of tar.
            attached = token[1:] if token[:1] in ("w", "W") else token.lstrip("-")[1:]
            if not GLOB.search(attached):
                yield attached


def list_changed_directories(part: SimpleShellCommand) -> tuple[str, ...]:
    """Return the directories in which a command may change files that it does not name."""
    words = part.words or part.argv or ()
    name = get_program_name(words) if words else ""
    if name in ("patch", "unzip"):
        return (WORKING_DIRECTORY,)
    if name in ("rsync", "cp") and len(words) > 2:
        return (words[-1] or WORKING_DIRECTORY,)
    if (flags := _UNPACKERS.get(name)) is not None:
        return (WORKING_DIRECTORY,) if any(flags.fullmatch(word or "") for word in words[1:]) else ()
    return ()


def changes_git_tree(part: SimpleShellCommand) -> bool:
    """Return True if a git command may change any tracked file."""
    words = part.words or part.argv or ()
    return bool(words) and _is_git_change(get_program_name(words), words)


def has_unknown_target(part: SimpleShellCommand) -> bool:
    """Return True if a command changes files whose names are known only at run time."""
    words = part.words or part.argv or ()
    name = get_program_name(words) if words else ""
    return None in words and (name in WRITING_COMMANDS or name in OPERAND_CHANGERS)


def _is_git_change(name: str, words: tuple[str | None, ...]) -> bool:
    if name != "git":
        return False
    known = [word for word in words[1:] if word is not None]
    if "stash" in known and not _HARMLESS_STASH.isdisjoint(known):
        return False
    if "checkout" in known:
        # Without a path it changes to another commit, as merge, pull and switch do.
        return "." in known or "--" in known or "-p" in known
    return not (_GIT_TREE_CHANGERS | _GIT_DIRECTORY_MAKERS).isdisjoint(known[:4])
