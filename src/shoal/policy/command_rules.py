"""Rules about shell commands, matched against the simple commands that a command line runs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from fnmatch import fnmatchcase
from itertools import accumulate
from operator import or_
from typing import Literal, TypeAlias

from shoal.policy.permission_rules import ToolPermissionRule
from shoal.policy.shell.command_analysis import ShellCommandAnalysis, SimpleShellCommand

RuleMatch: TypeAlias = Literal["yes", "maybe", "no"]

TRANSPARENT_WRAPPERS = frozenset(
    {"time", "nohup", "nice", "ionice", "timeout", "command", "stdbuf", "setsid", "builtin"}
)
"""Wrappers that do not change what a command does; a rule about the command also covers it under them."""
_STAR = re.compile(r"(?<!\\)\*")


class ShellCommandRule:
    """Rule such as `Bash(git log:*)` or `Bash(git log *)` (first words) or `Bash(make test)` (whole command).

    A `*` inside a word matches any characters, a word `*` matches any number of words; `\\*` is a literal
    star.
    """

    def __init__(self, rule: ToolPermissionRule) -> None:
        pattern = rule.pattern or ""
        self.rule = rule
        self._is_prefix = pattern.endswith(":*")
        if self._is_prefix:
            pattern = pattern[:-2]
        self.text = pattern.replace("\\*", "*")
        self.has_wildcards = _STAR.search(pattern) is not None
        self._words = _split_rule_words(pattern if self.has_wildcards else self.text)
        if self._is_prefix:
            self._words = (*self._words, "*")
        self.first = self._words[0] if self._words else ""
        self._path_end = f"/{self.first}"

    def is_exact_command(self, command: str) -> bool:
        """Return True if the rule is exactly this command line, so the user has seen it in full."""
        return not self._is_prefix and not self.has_wildcards and self.text.strip() == command.strip()

    def covers_command(self, part: SimpleShellCommand) -> bool:
        """Return True if the rule certainly allows this simple command."""
        if part.argv is None or not (self.has_wildcards or part.via or part.argv[:1] == self._words[:1]):
            return False
        if all(wrapper in TRANSPARENT_WRAPPERS for wrapper in part.via) and self._is_match_for_words(
            part.argv
        ):
            return True
        # A rule about `find` or `env` allows these programs, but not the commands that they run.
        names_command = len(self._words) - self._is_prefix > len(part.via)
        return bool(part.via) and names_command and self._is_match_for_words((*part.via, *part.argv))

    def match_as_forbidding_rule(self, part: SimpleShellCommand) -> RuleMatch:
        """Return how a forbidding rule matches this simple command, under any path or wrapper."""
        if part.argv and not self.has_wildcards and not part.via:
            name = part.argv[0]
            if name != self.first and not name.endswith(self._path_end):
                return "no"
        if self.first in part.via and (len(self._words) == 1 or self._words[1:] == ("*",)):
            return "yes"
        known_words: tuple[str | None, ...] = part.argv if part.argv is not None else part.words
        if not known_words:
            return "no" if part.argv is not None or not part.text else "maybe"
        if None not in known_words:
            words = tuple(word for word in known_words if word is not None)
            return (
                "yes"
                if self._is_match_for_words(words)
                or self._is_match_for_words((_get_program_base_name(words[0]), *words[1:]))
                else "no"
            )
        return self._match_partly_known_words(known_words)

    def may_match_unparsed_command(self, command: str) -> bool:
        """Return True if the rule may match a command that could not be parsed."""
        return not self.first or "*" in self.first or self.first in command

    def _match_partly_known_words(self, known_words: tuple[str | None, ...]) -> RuleMatch:
        for index, (pattern_word, word) in enumerate(zip(self._words, known_words, strict=False)):
            if pattern_word == "*" and index == len(self._words) - 1:
                return "yes"
            # An unknown word may expand to no word or to several, so nothing after it is certain either.
            if word is None or pattern_word == "*":
                return "maybe"
            if not self._is_pattern_word_match(pattern_word, word) and not self._is_pattern_word_match(
                pattern_word, _get_program_base_name(word)
            ):
                return "no"
        return "maybe"

    def _is_pattern_word_match(self, pattern_word: str, word: str) -> bool:
        return (
            fnmatchcase(word, _escape_all_but_star(pattern_word))
            if self.has_wildcards
            else pattern_word == word
        )

    def _is_match_for_words(self, words: tuple[str, ...]) -> bool:
        if not self.has_wildcards and not self._is_prefix:
            return words == self._words
        if not self.has_wildcards:
            return words[: len(self._words) - 1] == self._words[:-1]
        return _is_word_pattern_match(self._words, words)


class ShellCommandRules:
    """Rules of one strength; in the usual case a single lookup shows that no rule matches a command."""

    def __init__(self, rules: Iterable[ToolPermissionRule]) -> None:
        self.rules = tuple(map(ShellCommandRule, rules))
        self._first_words = frozenset(rule.first for rule in self.rules)
        self._whole_commands = frozenset(rule.text.strip() for rule in self.rules)
        # A name with a slash matches the end of longer names.
        self._can_look_up = not any(rule.has_wildcards or "/" in rule.first for rule in self.rules)

    def is_certain_no_match(self, command: str, analysis: ShellCommandAnalysis) -> bool:
        """Return True if certainly no rule matches the command; False if one may."""
        if not self.rules:
            return True
        if not self._can_look_up or analysis.trouble is not None or command.strip() in self._whole_commands:
            return False
        for part in analysis.parts:
            words = part.words if part.argv is None else part.argv
            if part.via or (not words and part.argv is None):
                return False
            if words and (words[0] is None or _get_program_base_name(words[0]) in self._first_words):
                return False
        return True


def _is_word_pattern_match(pattern: tuple[str, ...], words: tuple[str, ...]) -> bool:
    for index, pattern_word in enumerate(pattern):
        if pattern_word == "*":
            return index <= len(words) and _is_word_match_after_star(pattern[index:], words[index:])
        if index >= len(words) or not fnmatchcase(words[index], _escape_all_but_star(pattern_word)):
            return False
    return len(pattern) == len(words)


def _is_word_match_after_star(pattern: tuple[str, ...], words: tuple[str, ...]) -> bool:
    """Match from the end, visiting each word once per pattern part; backtracking would be exponential."""
    # For each position: does the rest of the pattern match the words from there on?
    matches = [False] * len(words) + [True]
    for index, pattern_word in reversed(list(enumerate(pattern))):
        if pattern_word != "*":
            glob = _escape_all_but_star(pattern_word)
            matches = [
                after and fnmatchcase(word, glob) for word, after in zip(words, matches[1:], strict=True)
            ]
            matches.append(False)
        elif index == len(pattern) - 1:
            matches = [True] * (len(words) + 1)
        else:
            # Something follows, which needs at least one word.
            matches[-1] = False
            matches = list(accumulate(reversed(matches), or_))[::-1]
    return matches[0]


def _escape_all_but_star(pattern_word: str) -> str:
    """Escape everything but the star."""
    return re.sub(r"[\[?]", lambda found: f"[{found[0]}]", pattern_word).replace("\\*", "[*]")


def _split_rule_words(pattern: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(pattern.replace("\\*", "\\\\*")))
    except ValueError:
        return tuple(pattern.split())


def _get_program_base_name(word: str) -> str:
    return word[word.rfind("/") + 1 :]
