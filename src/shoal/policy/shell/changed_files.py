"""Files that a command changes beyond its redirections: in place, as its last operand, or in a directory."""

from __future__ import annotations

import re
from collections.abc import Sequence

from shoal.policy.shell.git_judge import is_flag_word
from shoal.policy.shell.known_commands import OUTPUT_FLAGS
from shoal.policy.shell.shell_words import ShellWord

_SEDS = frozenset({"sed", "gsed"})
_IN_PLACE_FLAGS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_SEDS, ("-i", "--in-place")),
    "yq": ("-i", "--inplace"),
    **dict.fromkeys(("perl", "ruby", "clang-format"), ("-i",)),
    **dict.fromkeys(("gawk", "awk"), ("-i", "--include")),
    "gofmt": ("-w",),
    "prettier": ("-w", "--write"),
}
"""Flags with which a command changes its operands."""
_SED_SCRIPT_FLAGS = ("-e", "-f", "--expression", "--file")
_OPERAND_CHANGERS = frozenset(
    """
    sponge dos2unix unix2dos shred ed ex patch mkfifo mknod gzip
    gunzip bzip2 bunzip2 xz unxz zstd unzstd lz4 strip rename fallocate unlink script sqlite3
    """.split()  # noqa: SIM905 - a list to be read and extended
)
"""Commands that change all their operands."""
_LAST_OPERAND_WRITERS = frozenset(
    """
    install rsync scp split csplit xxd uniq link ffmpeg convert magick pdftotext objcopy
    """.split()  # noqa: SIM905 - a list to be read and extended
)
"""Commands that write their last operand if they have several."""
_ARCHIVE_MAKERS = frozenset({"zip", "ar"})
_TARS = frozenset({"tar", "bsdtar", "gtar"})
_TAR_CREATION = re.compile(r"-?[A-Za-z]*[cruA][A-Za-z]*|--(?:cre|app|upd|cat).*")
_TAR_FILE = re.compile(r"-?[A-Za-z]*f|--file")
_CHECKOUTS = frozenset({"checkout", "restore"})


def find_changed_files(name: str, words: Sequence[ShellWord]) -> tuple[ShellWord, ...]:
    """Return the files that a command which is not read-only changes, as far as its words name them."""
    if name == "dd":
        return find_key_value_operands("of=", words)
    flags = OUTPUT_FLAGS.get(name)
    writes = [] if flags is None else _find_flag_files(flags, words)
    operands = [word for word in words if not word.may_be_flag]
    in_place = _IN_PLACE_FLAGS.get(name)
    if in_place is not None and _has_flag(in_place, words):
        has_script = name in _SEDS and not _has_flag(_SED_SCRIPT_FLAGS, words)
        writes += operands[1:] if has_script else operands
    elif name in _OPERAND_CHANGERS:
        writes += operands
    elif name in _LAST_OPERAND_WRITERS:
        writes += operands[1:][-1:]
    elif name == "git":
        writes += _find_checked_out_files(operands)
    elif name in _TARS:
        writes += _find_created_archive(words)
    elif name in _ARCHIVE_MAKERS:
        writes += operands[name == "ar" :][:1]
    return tuple(writes)


def find_key_value_operands(key: str, words: Sequence[ShellWord]) -> tuple[ShellWord, ...]:
    """Return the value of an operand such as `of=x`; an unknown word may be that operand."""
    matches = [word for word in words if (word.value or key).startswith(key)]
    return tuple(word if word.value is None else ShellWord(word.value.removeprefix(key)) for word in matches)


def _find_flag_files(flags: tuple[str, ...], words: Sequence[ShellWord]) -> list[ShellWord]:
    writes: list[ShellWord] = []
    for index, word in enumerate(words):
        value = word.value
        if value is None or not is_flag_word(value, flags):
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
    return operands[2:3] if values[:1] == ["clone"] else ()
