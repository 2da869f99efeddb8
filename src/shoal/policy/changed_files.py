"""Files that a shell command may change without naming them as its output, for rules that forbid changes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

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
    am apply bisect checkout-index cherry-pick clean fast-import filter-branch filter-repo merge merge-file
    mktree mv pull read-tree rebase replay reset restore revert rm sparse-checkout stash submodule switch
    update-index
    """.split()  # noqa: SIM905 - a list to be read and extended
)
_GIT_DIRECTORY_MAKERS = frozenset({"clone", "init", "worktree"})
_HARMLESS_STASH = frozenset({"list", "show", "drop", "clear", "create", "store"})
_NEW_BRANCH = re.compile(r"-[bcC]|--create|--orphan")
_READING_WORDS: dict[str, frozenset[str]] = {
    "submodule": frozenset({"status", "summary", "init", "sync", "absorbgitdirs"}),
    "bisect": frozenset({"log", "view", "visualize", "terms"}),
    "sparse-checkout": frozenset({"list", "check-rules"}),
}
"""Words of git commands with which they leave the files as they are."""
_FLAG = re.compile(r"(--?[A-Za-z][\w.-]*)(?:=(.*))?", re.DOTALL)
_FLAG_WORD = re.compile(r"[-_.]")
_VALUE_PART = re.compile(r"[=:,;]")
_OUTPUT_WORD = re.compile(
    r"out.*|junit.*|reports?|log.*|dump.*|save.*|export.*|write.*|dest.*|results?|html|xml|json|csv|sarif|lcov"
    r"|(?:base)?(?:tmp|temp).*|cache.*|target|record.*|artifacts?|emit|trace|snapshots?|downloads?|pidfile|db|o|O"
)
"""Words in the names of flags that name files to write."""
_INPUT_WORD = re.compile(
    r"env.*|key.*|cert.*|ca.*|identity|in|input.*|infile|conf.*|cfg|settings?|kubeconfig|from|include|exclude"
    r"|ignore.*|filter|load|so?u?rce?|read|secrets?|credentials?|pass.*|user|netrc|file|rc.*|script|select|test.*"
    r"|project|manifest|package|path|cwd|chdir|root.*|workspace|git|work|ref|init|context|schema|data|body"
    r"|template|require.*|constraint|format|pattern|glob|grep|message|title|patch|allow|deny|skip|match|with"
    r"|without|no|not|only|name|prune|mount|bind|type|attr|diff|cov"
)
"""Words in the names of flags that name files to read or to leave out."""
_OUTPUT_LETTERS = ("-o", "-O")
_OTHER_OUTPUT_LETTERS = ("-d", "-D", "-w", "-t", "-P")
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


def iter_output_paths(part: SimpleShellCommand, *, has_wide_names: bool) -> Iterator[str]:
    """Yield the values of flags that may name files to write, of any program.

    With `has_wide_names`, these are all flags that are not known to name an input.
    """
    words = part.words or part.argv or ()
    letters = _OUTPUT_LETTERS + (_OTHER_OUTPUT_LETTERS if has_wide_names else ())
    for index, word in enumerate(words[1:], 1):
        if word is None or word[:1] != "-":
            continue
        next_word = words[index + 1] if index + 1 < len(words) else None
        if word[:2] in letters and (word == word[:2] or "/" in word or "." in word):
            value = word[2:] or next_word
        elif (match := _FLAG.fullmatch(word)) is not None and len(match[1]) > 2:
            is_output = _is_output_flag(match[1], has_wide_names=has_wide_names)
            value = (match[2] if match[2] is not None else next_word) if is_output else None
        else:
            continue
        if value and value[:1] != "-":
            yield value
            if _VALUE_PART.search(value):
                yield from filter(None, _VALUE_PART.split(value))


def _is_output_flag(name: str, *, has_wide_names: bool) -> bool:
    parts = _FLAG_WORD.split(name.lstrip("-").lower())
    if any(map(_OUTPUT_WORD.fullmatch, parts)):
        return True
    return has_wide_names and not any(map(_INPUT_WORD.fullmatch, parts))


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
    if "checkout" in known[:4] or "switch" in known[:4]:
        return not _is_new_branch(known)
    for subcommand, reading_words in _READING_WORDS.items():
        if subcommand in known[:4] and not reading_words.isdisjoint(known):
            return False
    return not (_GIT_TREE_CHANGERS | _GIT_DIRECTORY_MAKERS).isdisjoint(known[:4])


def _is_new_branch(words: Sequence[str]) -> bool:
    """Return True if `checkout` or `switch` only starts a branch at the current commit."""
    operands = [word for word in words if not word.startswith("-")]
    return any(map(_NEW_BRANCH.fullmatch, words)) and len(operands) == 2
