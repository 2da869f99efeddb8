"""Text of a skill: its arguments and variables, and the commands and files that the text embeds."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from shoal.core.text.lazy_patterns import compile_on_first_use

_PLACEHOLDER = r"\$ARGUMENTS(?:\[(\d{1,2})\])?(?!\w)|\$(\d{1,2})(?!\w)|\$\{(CLAUDE_\w+)\}"
_EMBEDDED = compile_on_first_use(
    r"(?<!\S)!`([^`\n]+)`"
    r"|(?<!\S)@((?:[\w.~/+-]|\$\d|\$ARGUMENTS)+)"
    r"|(?m:^)[ \t]*```![ \t\r]*\n((?:(?![ \t]*```)[^\n]*\n)+)[ \t]*```[ \t\r]*(?m:$)"
)
"""An inline command, a file, or a fenced block of commands."""

SkillTextPartKind: TypeAlias = Literal["text", "command", "file"]


class SkillTextPart(Struct, frozen=True):
    kind: SkillTextPartKind
    text: str
    """Plain text, a shell command, or a path."""


class SkillTextValues(Struct, frozen=True, kw_only=True):
    """Values for the placeholders in the text of a skill."""

    arguments: str = ""
    names: Sequence[str] = ()
    """Names of the arguments in order, for `$name`."""
    variables: Mapping[str, str] = {}
    """Values of `${NAME}`."""

    def uses_arguments(self, body: str) -> bool:
        return any(match[3] is None for match in self._compile_placeholder().finditer(body))

    def fill(self, text: str) -> str:
        """Fill in the placeholders: `$ARGUMENTS` is all arguments, `$0` and `$ARGUMENTS[0]` the first."""
        words = _split_arguments(self.arguments)

        def fill_placeholder(match: re.Match[str]) -> str:
            if match[3] is not None:
                return self.variables.get(match[3], match[0])
            number = match[1] or match[2]
            if number is None and match[4] is None:
                return self.arguments
            index = self.names.index(match[4]) if number is None else int(number)
            return words[index] if index < len(words) else ""

        return self._compile_placeholder().sub(fill_placeholder, text)

    def _compile_placeholder(self) -> re.Pattern[str]:
        names = "|".join(map(re.escape, sorted(self.names, key=len, reverse=True)))
        # A group that never matches keeps the numbers of the groups.
        return re.compile(rf"{_PLACEHOLDER}|\$({names or '(?!)'})(?!\w)")


def split_skill_body(body: str, values: SkillTextValues, *, with_files: bool) -> Iterator[SkillTextPart]:
    """Split the body into text, commands and files, in order.

    Placeholders are filled in after the split, so only commands and files of the author run or are read.
    Arguments that the body does not use are appended.
    """
    position = 0
    for match in _EMBEDDED.finditer(body):
        command = match[1] or (match[3] or "").strip()
        kind: SkillTextPartKind = "command" if match[2] is None else "file"
        if not command and (kind == "command" or not with_files):
            continue
        yield SkillTextPart("text", values.fill(body[position : match.start()]))
        path = (match[2] or "").rstrip(".")
        position = match.end() - len(match[2] or "") + len(path)
        yield SkillTextPart(kind, values.fill(command or path))
    yield SkillTextPart("text", values.fill(body[position:]))
    if values.arguments and not values.uses_arguments(body):
        yield SkillTextPart("text", f"\n\nARGUMENTS: {values.arguments}")


def fill_rule_directories(rule: str, variables: Mapping[str, str]) -> str:
    """Fill the directories into an entry of `allowed-tools`; a path rule writes an absolute path as `//`."""
    is_command = rule.startswith("Bash(")
    for name in ("CLAUDE_SKILL_DIR", "CLAUDE_PROJECT_DIR"):
        directory = variables[name]
        if not is_command:
            rule = rule.replace(f"(${{{name}}}", f"(/{directory}")
        rule = rule.replace(f"${{{name}}}", directory)
    return rule


def _split_arguments(arguments: str) -> list[str]:
    try:
        return shlex.split(arguments)
    except ValueError:  # an unbalanced quotation mark, as in "don't"
        return arguments.split()
