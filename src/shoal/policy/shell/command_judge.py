"""Judges one simple command by its words: read-only or not, files it writes, programs it runs."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from shoal.policy.shell import program_judges
from shoal.policy.shell.changed_files import find_changed_files, find_key_value_operands
from shoal.policy.shell.git_judge import is_flag_word, judge_git_command
from shoal.policy.shell.known_commands import (
    COPYING_COMMANDS,
    HELP_COMMANDS,
    LINK_FOLLOWING_FLAGS,
    NPM_SETTINGS,
    PROGRAM_FLAGS,
    SHORT_VERSION_FLAGS,
    VERSION_COMMANDS,
    WRITING_COMMANDS,
)
from shoal.policy.shell.readonly_table import load_readonly_command_table
from shoal.policy.shell.readonly_usage import (
    ReadOnlyCommandUsageSpec,
    ReadOnlyCommandVerdict,
    build_not_proven_readonly_verdict,
    build_readonly_verdict,
    judge_readonly_usage,
)
from shoal.policy.shell.shell_words import ShellWord

_READING_MORE = frozenset({"npm", *LINK_FOLLOWING_FLAGS})
"""Programs that read files that no operand names."""


def judge_shell_command(name: str, words: Sequence[ShellWord], *, moved: bool) -> ReadOnlyCommandVerdict:
    """Return the verdict on a command, from its name and the words after it."""
    if _is_help_or_version_call(name, words):
        return build_readonly_verdict(f"{name} only prints information about itself")
    if name == "git":
        return _add_output_files_to_verdict(name, words, judge_git_command(words, moved=moved))
    if (doubt := _find_program_running_flag(name, words)) is not None:
        return _add_output_files_to_verdict(
            name, words, build_not_proven_readonly_verdict(doubt, doubt=doubt)
        )
    if (judge := program_judges.PROGRAM_JUDGES.get(name)) is not None:
        return _add_followed_links(name, words, _add_output_files_to_verdict(name, words, judge(words)))
    if name in WRITING_COMMANDS:
        return _judge_file_writing_command(name, words)
    reader = load_readonly_command_table().get(name)
    if reader is None:
        return _add_output_files_to_verdict(
            name, words, build_not_proven_readonly_verdict(f"Shoal cannot tell whether {name} is read-only")
        )
    if name == "kubectl":
        return program_judges.judge_kubectl(words, reader)
    verdict = _add_output_files_to_verdict(name, words, judge_readonly_usage(name, words, reader))
    return _add_other_reads(name, words, verdict) if name in _READING_MORE else verdict


def _add_other_reads(
    name: str, words: Sequence[ShellWord], verdict: ReadOnlyCommandVerdict
) -> ReadOnlyCommandVerdict:
    if name == "npm":
        # Its settings may name other directories to write to, so the engine looks at them.
        return replace(verdict, reads=(*verdict.reads, ShellWord(NPM_SETTINGS)))
    return _add_followed_links(name, words, verdict)


def _add_followed_links(
    name: str, words: Sequence[ShellWord], verdict: ReadOnlyCommandVerdict
) -> ReadOnlyCommandVerdict:
    """Mark a verdict on a command that reads below its directories through links."""
    pattern = LINK_FOLLOWING_FLAGS.get(name)
    if pattern is None:
        return verdict
    for word in words:
        if pattern.match(word.value or word.prefix):
            return replace(verdict, follows_links=True, reads=verdict.reads or (ShellWord("."),))
    return verdict


def _is_help_or_version_call(name: str, words: Sequence[ShellWord]) -> bool:
    value = words[0].value if len(words) == 1 else None
    if value == "--help":
        return name in HELP_COMMANDS
    return (
        name in VERSION_COMMANDS
        and value is not None
        and value in ("--version", SHORT_VERSION_FLAGS.get(name))
    )


def _find_program_running_flag(name: str, words: Sequence[ShellWord]) -> str | None:
    flags = PROGRAM_FLAGS.get(name)
    if not flags:
        return None
    for word in words:
        value = word.value if word.value is not None else word.prefix
        if value == "--":
            break
        if value and is_flag_word(value, flags):
            return f"{name} {value} may run another program"
    return None


def _judge_file_writing_command(name: str, words: Sequence[ShellWord]) -> ReadOnlyCommandVerdict:
    """Judge a writer: `tee` only writes its files, which are judged; the others remove or replace."""
    verdict = judge_readonly_usage(name, words, ReadOnlyCommandUsageSpec(flags=WRITING_COMMANDS[name]))
    if not verdict.read_only:
        return build_not_proven_readonly_verdict(
            verdict.why, reads=_select_copied_files(name, words), writes=(ShellWord(None),)
        )
    files = verdict.reads
    return ReadOnlyCommandVerdict(
        read_only=name == "tee",
        why=f"{name} writes files",
        reads=_select_copied_files(name, files),
        writes=files,
    )


def _select_copied_files(name: str, words: Sequence[ShellWord]) -> tuple[ShellWord, ...]:
    """Return the words whose files can be read under another name afterwards."""
    if name not in COPYING_COMMANDS:
        return ()
    return tuple(word for word in words if word.value is None or not word.may_be_flag)


def _add_output_files_to_verdict(
    name: str, words: Sequence[ShellWord], verdict: ReadOnlyCommandVerdict
) -> ReadOnlyCommandVerdict:
    if verdict.read_only:
        return verdict
    reads = find_key_value_operands("if=", words) if name == "dd" else ()
    writes = find_changed_files(name, words)
    if not reads and not writes:
        return verdict
    return replace(verdict, reads=(*verdict.reads, *reads), writes=(*verdict.writes, *writes))
