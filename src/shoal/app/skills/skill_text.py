"""Text of a skill or command: arguments, embedded shell commands and embedded files."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

_ARGUMENT = re.compile(r"\$ARGUMENTS(?:\[(\d{1,2})\])?(?!\w)|\$(\d{1,2})(?!\w)|\$\{(CLAUDE_SKILL_DIR)\}")
_EMBEDDED = re.compile(r"(?<!\S)!`([^`\n]+)`|(?<!\S)@((?:[\w.~/+-]|\$\d|\$ARGUMENTS)+)")

SkillTextPartKind: TypeAlias = Literal["text", "command", "file"]


class SkillTextPart(Struct, frozen=True):
    kind: SkillTextPartKind
    text: str
    """Plain text, a shell command, or a path."""


def split_skill_body(
    body: str, arguments: str, variables: Mapping[str, str], *, with_files: bool
) -> Iterator[SkillTextPart]:
    """Split the body into text, commands and files, in order.

    Arguments are filled in after the split, so only commands and files of the author run or are read.
    `variables` are the values of `${NAME}`. Arguments that the body does not use are appended.
    """
    uses_arguments = any(match[3] is None for match in _ARGUMENT.finditer(body))
    position = 0
    for match in _EMBEDDED.finditer(body):
        kind: SkillTextPartKind = "file" if match[1] is None else "command"
        if kind == "file" and not with_files:
            continue
        yield SkillTextPart(
            "text", fill_skill_arguments(body[position : match.start()], arguments, variables)
        )
        path = (match[2] or "").rstrip(".")
        position = match.end() - len(match[2] or "") + len(path)
        yield SkillTextPart(kind, fill_skill_arguments(match[1] or path, arguments, variables))
    yield SkillTextPart("text", fill_skill_arguments(body[position:], arguments, variables))
    if arguments and not uses_arguments:
        yield SkillTextPart("text", f"\n\nARGUMENTS: {arguments}")


def fill_skill_arguments(text: str, arguments: str, variables: Mapping[str, str]) -> str:
    """Fill in arguments: `$ARGUMENTS` is all of them, `$1` and `$ARGUMENTS[0]` the first word."""
    words = _split_arguments(arguments)

    def fill_placeholder_match(match: re.Match[str]) -> str:
        if match[3] is not None:
            return variables.get(match[3], match[0])
        if match[1] is None and match[2] is None:
            return arguments
        index = int(match[1]) if match[1] is not None else int(match[2]) - 1
        return words[index] if 0 <= index < len(words) else ""

    return _ARGUMENT.sub(fill_placeholder_match, text)


def _split_arguments(arguments: str) -> list[str]:
    try:
        return shlex.split(arguments)
    except ValueError:  # an unbalanced quotation mark, as in "don't"
        return arguments.split()
