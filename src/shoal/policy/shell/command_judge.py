"""Judges one simple command by its words: read-only or not, files it writes, programs it runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, lru_cache

from msgspec.structs import replace

from shoal.policy.policy_texts import format_shell_reason
from shoal.policy.shell import program_judges
from shoal.policy.shell.git_judge import is_flag_word, judge_git_command
from shoal.policy.shell.known_commands import (
    COPYING_COMMANDS,
    HELP_COMMANDS,
    LINK_FOLLOWING_FLAGS,
    NPM_SETTINGS,
    OUTPUT_FLAGS,
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
    is_bare_flag,
    judge_readonly_usage,
)
from shoal.policy.shell.shell_words import ShellWord

_READING_MORE = frozenset({"npm", *LINK_FOLLOWING_FLAGS})
"""Programs that read files not named by any operand."""
_SEDS = frozenset({"sed", "gsed"})
_COMMAND_WORDS: dict[str, re.Pattern[str]] = {
    **dict.fromkeys(
        "vim vi nvim view ex gvim vimdiff rvim emacs".split(),  # noqa: SIM905
        re.compile(r"\+(?!\d*(?::\d+)?$|/[^|]*$)|--remote-(?:send|expr)", re.DOTALL),
    ),
    **dict.fromkeys(("less", "more", "most"), re.compile(r"\+(?!\d*[GgFp%]?$|/[^!|]*$)", re.DOTALL)),
    **dict.fromkeys(("ed", "red"), re.compile("!")),
}
"""Words of editors and viewers that are commands for them."""
_IN_PLACE_FLAGS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_SEDS, ("-i", "--in-place")),
    "yq": ("-i", "--inplace"),
    **dict.fromkeys(("perl", "ruby", "clang-format"), ("-i",)),
    **dict.fromkeys(("gawk", "awk"), ("-i", "--include")),
    "gofmt": ("-w",),
    "prettier": ("-w", "--write"),
}
"""Flags with which a command changes its operands."""
_BACKUP_PATH = re.compile(r"-[A-Za-z0]*i[^=]*[*/].*|--in[a-z-]*=.*[*/].*", re.DOTALL)
"""Flag for changes in place whose backup copies may be anywhere."""
_SED_SCRIPT_FLAGS = ("-e", "-f", "--expression", "--file")
_OPERAND_CHANGERS = frozenset(
    """
    sponge dos2unix unix2dos shred ed ex patch mkfifo mknod gzip
    gunzip bzip2 bunzip2 xz unxz zstd unzstd lz4 strip rename fallocate unlink script sqlite3
    """.split()  # noqa: SIM905 - easier to read and extend as one text
)
"""Commands that change all their operands."""
_LAST_OPERAND_WRITERS = frozenset(
    """
    install rsync scp split csplit xxd uniq link ffmpeg convert magick pdftotext objcopy
    """.split()  # noqa: SIM905 - easier to read and extend as one text
)
"""Commands that write their last operand if they have several."""
_ARCHIVE_MAKERS = frozenset({"zip", "ar"})
_TARS = frozenset({"tar", "bsdtar", "gtar"})
_TAR_CREATION = re.compile(r"-?[A-Za-z]*[cruA][A-Za-z]*|--(?:cre|app|upd|cat).*")
_TAR_FILE = re.compile(r"-?[A-Za-z]*f|--file")
_CHECKOUTS = frozenset({"checkout", "restore"})


def judge_shell_command(name: str, words: Sequence[ShellWord], *, moved: bool) -> ReadOnlyCommandVerdict:
    """Return the verdict on a command, from its name and the words after it."""
    if _is_help_or_version_call(name, words):
        return build_readonly_verdict(f"{name} only prints information about itself")
    if name == "git":
        return _add_output_files_to_verdict(name, words, judge_git_command(words, moved=moved))
    if (doubt := _find_program_running_flag(name, words)) is not None:
        return _add_output_files_to_verdict(
            name, words, ReadOnlyCommandVerdict(read_only=False, why=doubt, doubt=doubt)
        )
    if (judge := program_judges.PROGRAM_JUDGES.get(name)) is not None:
        return _add_followed_links(name, words, _add_output_files_to_verdict(name, words, judge(words)))
    if name in WRITING_COMMANDS:
        return _judge_file_writing_command(name, words)
    reader = load_readonly_command_table().get(name)
    if reader is None:
        return _add_output_files_to_verdict(
            name, words, build_not_proven_readonly_verdict("unknown_program", name=name)
        )
    if (table_judge := program_judges.TABLE_JUDGES.get(name)) is not None:
        return table_judge(words, reader)
    verdict = _add_output_files_to_verdict(name, words, judge_readonly_usage(name, words, reader))
    return _add_other_reads(name, words, verdict) if name in _READING_MORE else verdict


@lru_cache(maxsize=1_000)
def is_plain_git_flag(subcommand: str, flag: str) -> bool:
    """Return True if a subcommand of git with this flag, which takes no value, reads no file that is named.

    Several of these flags do no more than each of them.
    """
    usage = load_readonly_command_table()["git"].subs.get(subcommand)
    if usage is None or usage.subs or not usage.alone or not is_bare_flag(flag, usage):
        return False
    verdict = judge_shell_command("git", (ShellWord(subcommand), ShellWord(flag)), moved=False)
    return _is_reading_nothing(verdict)


@cache
def takes_git_names(subcommand: str) -> bool:
    """Return True if a subcommand of git without flags only reads, whatever names follow it."""
    usage = load_readonly_command_table()["git"].subs.get(subcommand)
    if usage is None or usage.subs or not usage.alone or usage.needs or usage.operands != "text":
        return False
    names = (ShellWord(subcommand), ShellWord("name"), ShellWord("other/name"))
    return all(
        _is_reading_nothing(judge_shell_command("git", names[:count], moved=False)) for count in (1, 2, 3)
    )


def _is_reading_nothing(verdict: ReadOnlyCommandVerdict) -> bool:
    return verdict.read_only and not (
        verdict.reads or verdict.writes or verdict.doubt or verdict.follows_links
    )


@cache
def is_plain_reader(name: str) -> bool:
    """Return True if a command whose words are no flags only reads the files that they name."""
    usage = load_readonly_command_table().get(name)
    if usage is None or usage.operands != "paths" or usage.subs or usage.needs or not usage.alone:
        return False
    judged = (program_judges.PROGRAM_JUDGES, program_judges.TABLE_JUDGES, WRITING_COMMANDS, _READING_MORE)
    return not any(name in names for names in (*judged, SHORT_VERSION_FLAGS)) and name != "git"


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
    flags, command = PROGRAM_FLAGS.get(name), _COMMAND_WORDS.get(name)
    if not flags and command is None:
        return None
    for word in words:
        value = word.value if word.value is not None else word.prefix
        if value == "--":
            break
        if (value and flags and is_flag_word(value, flags)) or (command is not None and command.match(value)):
            return format_shell_reason("runs_program", name=name, flag=value)
    return None


def _judge_file_writing_command(name: str, words: Sequence[ShellWord]) -> ReadOnlyCommandVerdict:
    """Judge a writer: `tee` only writes its files, which are judged; the others remove or replace."""
    verdict = judge_readonly_usage(name, words, ReadOnlyCommandUsageSpec(flags=WRITING_COMMANDS[name]))
    if not verdict.read_only:
        return ReadOnlyCommandVerdict(
            read_only=False,
            why=verdict.why,
            reads=_select_copied_files(name, words),
            writes=(ShellWord(None),),
        )
    files = verdict.reads
    return ReadOnlyCommandVerdict(
        read_only=name == "tee",
        why=format_shell_reason("writes_files", name=name),
        reads=_select_copied_files(name, files),
        writes=files,
    )


def _select_copied_files(name: str, words: Sequence[ShellWord]) -> tuple[ShellWord, ...]:
    """Return the words whose files can be read under another name afterward."""
    if name not in COPYING_COMMANDS:
        return ()
    return tuple(word for word in words if word.value is None or not word.may_be_flag)


def _add_output_files_to_verdict(
    name: str, words: Sequence[ShellWord], verdict: ReadOnlyCommandVerdict
) -> ReadOnlyCommandVerdict:
    if verdict.read_only:
        return verdict
    reads = _find_key_value_operands("if=", words) if name == "dd" else ()
    writes = _find_changed_files(name, words)
    if not reads and not writes:
        return verdict
    return replace(verdict, reads=(*verdict.reads, *reads), writes=(*verdict.writes, *writes))


def _find_changed_files(name: str, words: Sequence[ShellWord]) -> tuple[ShellWord, ...]:
    """Return the files that a command which is not read-only changes, as far as its words name them."""
    if name == "dd":
        return _find_key_value_operands("of=", words)
    flags = OUTPUT_FLAGS.get(name)
    writes = [] if flags is None else _find_flag_files(flags, words, is_exact=name == "go")
    operands = [word for word in words if not word.may_be_flag]
    in_place = _IN_PLACE_FLAGS.get(name)
    if in_place is not None and _has_flag(in_place, words):
        has_script = name in _SEDS and not _has_flag(_SED_SCRIPT_FLAGS, words)
        if name in _SEDS:
            operands = _leave_out_sed_scripts(words)
        writes += operands[1:] if has_script else operands
        writes += _find_backup_files(words)
    elif name in _OPERAND_CHANGERS:
        writes += operands
    elif name in _LAST_OPERAND_WRITERS:
        # The input may be the first operand, as in `xxd -r - file`.
        writes += [word for word in words if word.value == "-" or not word.may_be_flag][1:][-1:]
    elif name == "find" and any(word.value == "-delete" for word in words):
        writes += _list_find_start_paths(words)
    elif name == "git":
        writes += _find_checked_out_files(operands)
    elif name in _TARS:
        writes += _find_created_archive(words)
    elif name in _ARCHIVE_MAKERS:
        writes += operands[name == "ar" :][:1]
    return tuple(writes)


def _find_backup_files(words: Sequence[ShellWord]) -> list[ShellWord]:
    """Return an unknown file if copies of the changed files may go elsewhere, as with `-i'old/*'`."""
    return [ShellWord(None)] if any(_BACKUP_PATH.fullmatch(word.value or "") for word in words) else []


def _leave_out_sed_scripts(words: Sequence[ShellWord]) -> list[ShellWord]:
    """Return the operands of sed without the scripts that follow `-e`."""
    flags = [None, *(word.value for word in words)]
    return [
        word
        for word, previous in zip(words, flags, strict=False)
        if not word.may_be_flag and (previous not in ("-e", "--expression") or word.value is None)
    ]


def _find_key_value_operands(key: str, words: Sequence[ShellWord]) -> tuple[ShellWord, ...]:
    """Return the value of an operand such as `of=x`; an unknown word may be that operand."""
    matches = [word for word in words if (word.value or key).startswith(key)]
    return tuple(word if word.value is None else ShellWord(word.value.removeprefix(key)) for word in matches)


def _find_flag_files(
    flags: tuple[str, ...], words: Sequence[ShellWord], *, is_exact: bool
) -> list[ShellWord]:
    """Return the values of flags; with `is_exact`, letters are not combined, as in `-count` of go."""
    writes: list[ShellWord] = []
    for index, word in enumerate(words):
        value = word.value
        if value is None or not is_flag_word(value, flags):
            continue
        if is_exact and value.partition("=")[0] not in flags:
            continue
        if "=" in value:
            writes.append(ShellWord(value.partition("=")[2]))
        else:
            writes.append(words[index + 1] if index + 1 < len(words) and value in flags else ShellWord(None))
    return writes


def _find_created_archive(words: Sequence[ShellWord]) -> list[ShellWord]:
    """Return the archive that tar creates or extends."""
    values = [word.value or "" for word in words]
    is_creation = any(
        _TAR_CREATION.fullmatch(value) for value in values[:1] + [v for v in values[1:] if v[:1] == "-"]
    )
    if not is_creation:
        return []
    found = [ShellWord(value.partition("=")[2]) for value in values if value.startswith("--file=")]
    for index, value in enumerate(values[:-1]):
        if _TAR_FILE.fullmatch(value) and (index == 0 or value[:1] == "-"):
            found.append(words[index + 1])
    return found


def _has_flag(flags: tuple[str, ...], words: Sequence[ShellWord]) -> bool:
    return any(is_flag_word(word.value or word.prefix, flags) for word in words)


def _find_checked_out_files(operands: Sequence[ShellWord]) -> Sequence[ShellWord]:
    """Return the operands of git that may be files it replaces, or a directory that it fills."""
    values = [word.value for word in operands]
    if not _CHECKOUTS.isdisjoint(values[:1]):
        return [word for word in operands[1:] if word.value is not None]
    if values[:1] in (["init"], ["init-db"]):
        return operands[1:2]
    if values[:1] == ["mailinfo"]:
        return operands[1:3]
    if values[:2] in (["worktree", "add"], ["bundle", "create"]):
        return operands[2:3]
    return (
        operands[2:3]
        if values[:1] == ["clone"]
        else operands[3:4]
        if values[:2] == ["submodule", "add"]
        else ()
    )


def _list_find_start_paths(words: Sequence[ShellWord]) -> list[ShellWord]:
    """Return the directories below which `find -delete` removes files."""
    paths: list[ShellWord] = []
    for word in words:
        if word.may_be_flag or word.value in ("(", ")", "!", ","):
            break
        paths.append(word)
    return paths or [ShellWord(".")]
