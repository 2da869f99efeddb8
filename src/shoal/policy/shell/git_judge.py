"""Judges git command lines: global flags, subcommands, and ways to run other programs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from shoal.policy.policy_texts import format_shell_reason
from shoal.policy.shell.known_commands import SECRET_NAME
from shoal.policy.shell.readonly_table import load_readonly_command_table
from shoal.policy.shell.readonly_usage import (
    ReadOnlyCommandVerdict,
    build_not_proven_readonly_verdict,
    build_readonly_verdict,
    judge_readonly_usage,
)
from shoal.policy.shell.shell_words import ShellWord

_DIRECTORY = re.compile(r"(?!.*\.\.)[A-Za-z0-9_.][A-Za-z0-9_./-]*")
_PLAIN_FLAGS = frozenset(
    {"--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs", "--no-replace-objects"}
)
_REDIRECTING_FLAGS = (
    "-C",
    "--git-dir",
    "--work-tree",
    "--namespace",
    "--exec-path",
    "--config-env",
    "-c",
    "--attr-source",
)
_PROGRAM_FLAGS: dict[str, tuple[str, ...]] = {
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
    "send-pack": ("--receive-pack", "--exec"),
    "archive": ("--exec",),
    "fetch-pack": ("--upload-pack", "--exec"),
    "log": ("--ext-diff",),
    "diff": ("--ext-diff",),
    "show": ("--ext-diff",),
}
_SETTING_LISTS = ("--l", "--get-r", "--get-u", "list")
_SECRET_SETTING = re.compile(r"header|insteadof|credential|proxy", re.IGNORECASE)
"""Names of settings of git whose values may contain a password."""
_SIGNATURE_FORMAT = re.compile(r"^-.*(?:%[-+ ]?G|%\(\*?signature)")
"""Formats that show signatures, which another program checks."""
_RUNNING_SUBCOMMANDS = frozenset(
    {"filter-branch", "for-each-repo", "instaweb", "send-email", "daemon", "shell", "hook", "web--browse"}
)
_RUNNING_WORDS: dict[str, tuple[str, ...]] = {
    "bisect": ("run", "visualize", "view"),
    "submodule": ("foreach",),
}


def judge_git_command(words: Sequence[ShellWord], *, moved: bool) -> ReadOnlyCommandVerdict:
    """Judge the words after `git`; `moved` means that a `cd` came before, so another repository may apply."""
    index = 0
    while index < len(words) and words[index].value in _PLAIN_FLAGS:
        index += 1
    rest = words[index:]
    directory = ""
    while len(rest) > 1 and rest[0].value == "-C" and _DIRECTORY.fullmatch(rest[1].value or ""):
        directory = f"{directory}{rest[1].value}/"
        rest = rest[2:]
    if doubt := _find_git_doubt(rest):
        return ReadOnlyCommandVerdict(read_only=False, why=doubt, doubt=doubt)
    if [word.value for word in rest[:2]] == ["remote", "show"] and not all(map(_is_plain_name, rest[2:])):
        return build_not_proven_readonly_verdict("git_remote")
    if _is_setting_query(rest):
        return build_readonly_verdict("git config only shows a setting")
    if rest and rest[0].value == "config" and _may_show_user_settings(rest[1:]):
        return build_not_proven_readonly_verdict("git_user_settings")
    if any(_SIGNATURE_FORMAT.search(word.value or "") for word in rest[1:]):
        return build_not_proven_readonly_verdict("git_signature")
    verdict = judge_readonly_usage("git", rest, load_readonly_command_table()["git"])
    if not directory and not moved:
        return verdict
    # Git obeys the settings of the repository it is in; another one may be there.
    return replace(verdict, reads=(*verdict.reads, ShellWord(f"{directory}.git")))


def _may_show_user_settings(words: Sequence[ShellWord]) -> bool:
    """Return True for settings that are not limited to the repository, or that may contain a secret."""
    values = [word.value for word in words]
    if "--local" in values or "--worktree" in values:
        return False
    is_list = any(value is None or value.startswith(_SETTING_LISTS) or value == "-l" for value in values)
    return is_list or any(
        SECRET_NAME.search(value or "") or _SECRET_SETTING.search(value or "") for value in values
    )


def _is_setting_query(words: Sequence[ShellWord]) -> bool:
    if len(words) != 2 or words[0].value != "config":
        return False
    values = [word.value for word in words]
    name = values[1] or ""
    is_plain = re.fullmatch(r"[a-z]+\.[A-Za-z.]+", name) is not None
    return is_plain and not SECRET_NAME.search(name) and not _SECRET_SETTING.search(name)


def _is_plain_name(word: ShellWord) -> bool:
    return word.value is not None and word.value.replace("-", "").replace("_", "").isalnum()


def _find_git_doubt(words: Sequence[ShellWord]) -> str:
    if not words:
        return ""
    first = words[0].value
    if first is None:
        return format_shell_reason("git_unknown")
    if first.startswith("-"):
        return format_shell_reason("git_flag", flag=first) if first.startswith(_REDIRECTING_FLAGS) else ""
    if (
        first == "config"
        and not _is_setting_query(words)
        and not judge_readonly_usage("git", words, load_readonly_command_table()["git"]).read_only
    ):
        return format_shell_reason("git_config")
    if first in _RUNNING_SUBCOMMANDS or any(
        word.value in _RUNNING_WORDS.get(first, ()) for word in words[1:]
    ):
        return format_shell_reason("git_programs", command=first)
    flags = _PROGRAM_FLAGS.get(first, ())
    for word in words[1:]:
        value = word.value if word.value is not None else word.prefix
        if value.startswith(("ext::", "fd::")) or is_flag_word(value, flags):
            return format_shell_reason("git_program", command=first, word=value)
    return ""


def is_flag_word(value: str, flags: Sequence[str]) -> bool:
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
