"""Judges git command lines: global flags, subcommands, and ways to run other programs."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.policy.shell.options import Verdict, judged, unproven
from shoal.policy.shell.table import readers
from shoal.policy.shell.words import Word

_PLAIN = frozenset({"--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs", "--no-replace-objects"})
_ELSEWHERE = (
    "-C",
    "--git-dir",
    "--work-tree",
    "--namespace",
    "--exec-path",
    "--config-env",
    "-c",
    "--attr-source",
)
_RUNS: dict[str, tuple[str, ...]] = {
    "rebase": ("-x", "--exec"),
    "difftool": ("-x", "--extcmd", "-t", "--tool"),
    "mergetool": ("-t", "--tool"),
    "grep": ("-O", "--open-files-in-pager"),
    "clone": ("-c", "--config", "-u", "--upload-pack", "--template"),
    "init": ("--template",),
    "fetch": ("--upload-pack",),
    "pull": ("--upload-pack",),
    "ls-remote": ("--upload-pack", "--exec"),
    "push": ("--receive-pack", "--exec"),
    "archive": ("--exec",),
    "fetch-pack": ("--upload-pack", "--exec"),
    "log": ("--ext-diff",),
    "diff": ("--ext-diff",),
    "show": ("--ext-diff",),
}
_RUNNERS = frozenset({"filter-branch", "instaweb", "send-email", "daemon", "shell", "hook", "web--browse"})
_RUNNING_WORDS: dict[str, tuple[str, ...]] = {
    "bisect": ("run", "visualize", "view"),
    "submodule": ("foreach",),
}


def git(words: Sequence[Word], *, moved: bool) -> Verdict:
    """Judge the words after `git`; `moved` means that a `cd` came before, so another repository may apply."""
    at = 0
    while at < len(words) and words[at].value in _PLAIN:
        at += 1
    rest = words[at:]
    if doubt := _doubt(rest):
        return unproven(doubt, doubt=doubt)
    if moved:
        return unproven("git obeys the settings of the directory it is in")
    if [word.value for word in rest[:2]] == ["remote", "show"] and not all(map(_is_plain_name, rest[2:])):
        return unproven("git remote show asks the address it is given")
    return judged("git", rest, readers()["git"])


def _is_plain_name(word: Word) -> bool:
    return word.value is not None and word.value.replace("-", "").replace("_", "").isalnum()


def _doubt(words: Sequence[Word]) -> str:
    if not words:
        return ""
    first = words[0].value
    if first is None:
        return "the git command is only known when it runs"
    if first.startswith("-"):
        return f"git {first} sets what else git obeys" if first.startswith(_ELSEWHERE) else ""
    if first == "config" and not judged("git", words, readers()["git"]).read_only:
        return "git config sets what git runs later"
    if first in _RUNNERS or any(word.value in _RUNNING_WORDS.get(first, ()) for word in words[1:]):
        return f"git {first} runs other programs"
    flags = _RUNS.get(first, ())
    for word in words[1:]:
        value = word.value if word.value is not None else word.prefix
        if value.startswith(("ext::", "fd::")) or names_flag(value, flags):
            return f"git {first} {value} runs another program"
    return ""


def names_flag(value: str, flags: Sequence[str]) -> bool:
    """Return True if a word is one of these flags: combined with others, with a value, or abbreviated."""
    if not flags or value[:1] != "-" or value in ("-", "--"):
        return False
    if value.startswith("--"):
        name = value.partition("=")[0]
        return any(flag.startswith(name) for flag in flags if flag.startswith("--"))
    for flag in flags:
        if flag.startswith("--"):
            continue
        if value.startswith(flag) or (len(flag) == 2 and flag[1] in value[1:].partition("=")[0]):
            return True
    return False
