"""Judges one simple command by its words: read-only or not, files it writes, programs it runs."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.policy.shell import programs
from shoal.policy.shell.git import git, names_flag
from shoal.policy.shell.known import (
    COPIERS,
    HELPFUL,
    OUTPUT_FLAGS,
    PROGRAM_FLAGS,
    SHORT_VERSION,
    VERSIONED,
    WRITERS,
)
from shoal.policy.shell.options import Reader, Verdict, harmless, judged, unproven
from shoal.policy.shell.table import readers
from shoal.policy.shell.words import Word


def verdict_on(name: str, words: Sequence[Word], *, moved: bool) -> Verdict:
    """Return the verdict on a command, from its name and the words after it."""
    if _about_itself(name, words):
        return harmless(f"{name} only tells of itself")
    if name == "git":
        return _with_output(name, words, git(words, moved=moved))
    if (doubt := _runs_program(name, words)) is not None:
        return unproven(doubt, doubt=doubt)
    if (judge := programs.JUDGES.get(name)) is not None:
        return _with_output(name, words, judge(words))
    if name in WRITERS:
        return _writer(name, words)
    reader = readers().get(name)
    if reader is None:
        return _with_output(name, words, unproven(f"{name} is not known to only read"))
    if name == "kubectl":
        return programs.kubectl(words, reader)
    return _with_output(name, words, judged(name, words, reader))


def _about_itself(name: str, words: Sequence[Word]) -> bool:
    value = words[0].value if len(words) == 1 else None
    if value == "--help":
        return name in HELPFUL
    return name in VERSIONED and value is not None and value in ("--version", SHORT_VERSION.get(name))


def _runs_program(name: str, words: Sequence[Word]) -> str | None:
    flags = PROGRAM_FLAGS.get(name)
    if not flags:
        return None
    for word in words:
        value = word.value if word.value is not None else word.prefix
        if value == "--":
            break
        if value and names_flag(value, flags):
            return f"{name} {value} may run another program"
    return None


def _writer(name: str, words: Sequence[Word]) -> Verdict:
    """Judge a writer: `tee` only writes its files, which are judged; the others remove or replace."""
    verdict = judged(name, words, Reader(flags=WRITERS[name]))
    if not verdict.read_only:
        return unproven(verdict.why, reads=_copied(name, words), writes=(Word(None),))
    named = verdict.reads
    return Verdict(
        read_only=name == "tee", why=f"{name} writes files", reads=_copied(name, named), writes=named
    )


def _copied(name: str, words: Sequence[Word]) -> tuple[Word, ...]:
    """Return the words whose files can be read under another name afterwards."""
    if name not in COPIERS:
        return ()
    return tuple(word for word in words if word.value is None or not word.may_be_flag)


def _with_output(name: str, words: Sequence[Word], verdict: Verdict) -> Verdict:
    if name == "dd":
        return unproven("dd writes files", reads=_operand("if=", words), writes=_operand("of=", words))
    flags = OUTPUT_FLAGS.get(name)
    if flags is None or verdict.read_only:
        return verdict
    writes: list[Word] = []
    for at, word in enumerate(words):
        value = word.value
        if value is None or not names_flag(value, flags):
            continue
        if "=" in value:
            writes.append(Word(value.partition("=")[2]))
        else:
            writes.append(words[at + 1] if at + 1 < len(words) and value in flags else Word(None))
    return unproven(verdict.why, reads=verdict.reads, writes=tuple(writes), doubt=verdict.doubt)


def _operand(key: str, words: Sequence[Word]) -> tuple[Word, ...]:
    """Return the value of an operand such as `of=x`; an unknown word may be that operand."""
    named = [word for word in words if (word.value or key).startswith(key)]
    return tuple(word if word.value is None else Word(word.value.removeprefix(key)) for word in named)
