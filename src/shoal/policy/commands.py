"""Rules about shell commands, matched against the simple commands that a command line runs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from fnmatch import fnmatchcase
from itertools import accumulate
from operator import or_
from typing import Literal, TypeAlias

from shoal.policy.rules import Rule
from shoal.policy.shell.analysis import Analysis, Part

Match: TypeAlias = Literal["yes", "maybe", "no"]

PASSING = frozenset({"time", "nohup", "nice", "ionice", "timeout", "command", "stdbuf", "setsid", "builtin"})
"""Wrappers that do not change what a command does; a rule about the command also covers it under them."""
_STAR = re.compile(r"(?<!\\)\*")


class CommandRule:
    """Rule such as `Bash(git log:*)` or `Bash(git log *)` (first words) or `Bash(make test)` (whole command).

    A `*` inside a word matches any characters, a word `*` matches any number of words; `\\*` is a literal
    star.
    """

    def __init__(self, rule: Rule) -> None:
        pattern = rule.pattern or ""
        self.rule = rule
        self._open = pattern.endswith(":*")
        if self._open:
            pattern = pattern[:-2]
        self.text = pattern.replace("\\*", "*")
        self.globs = _STAR.search(pattern) is not None
        self._words = _split(pattern if self.globs else self.text)
        if self._open:
            self._words = (*self._words, "*")
        self.first = self._words[0] if self._words else ""
        self._path_end = f"/{self.first}"

    def is_whole(self, command: str) -> bool:
        """Return True if the rule is exactly this command line, so the user has seen it in full."""
        return not self._open and not self.globs and self.text.strip() == command.strip()

    def covers(self, part: Part) -> bool:
        """Return True if the rule certainly allows this simple command."""
        if part.argv is None or not (self.globs or part.via or part.argv[:1] == self._words[:1]):
            return False
        if all(wrapper in PASSING for wrapper in part.via) and self._fits(part.argv):
            return True
        # A rule about `find` or `env` allows these programs, but not the commands that they run.
        names_it = len(self._words) - self._open > len(part.via)
        return bool(part.via) and names_it and self._fits((*part.via, *part.argv))

    def concerns(self, part: Part) -> Match:
        """Return how a forbidding rule matches this simple command, under any path or wrapper."""
        if part.argv and not self.globs and not part.via:
            name = part.argv[0]
            if name != self.first and not name.endswith(self._path_end):
                return "no"
        if self.first in part.via and (len(self._words) == 1 or self._words[1:] == ("*",)):
            return "yes"
        known: tuple[str | None, ...] = part.argv if part.argv is not None else part.words
        if not known:
            return "no" if part.argv is not None or not part.text else "maybe"
        if None not in known:
            words = tuple(word for word in known if word is not None)
            return "yes" if self._fits(words) or self._fits((_name(words[0]), *words[1:])) else "no"
        return self._may_concern(known)

    def may_concern_text(self, command: str) -> bool:
        """Return True if the rule may match a command that could not be parsed."""
        return not self.first or "*" in self.first or self.first in command

    def _may_concern(self, known: tuple[str | None, ...]) -> Match:
        for at, (own, word) in enumerate(zip(self._words, known, strict=False)):
            if own == "*" and at == len(self._words) - 1:
                return "yes"
            # An unknown word may expand to no word or to several, so nothing after it is certain either.
            if word is None or own == "*":
                return "maybe"
            if not self._same(own, word) and not self._same(own, _name(word)):
                return "no"
        return "maybe"

    def _same(self, own: str, word: str) -> bool:
        return fnmatchcase(word, _as_glob(own)) if self.globs else own == word

    def _fits(self, words: tuple[str, ...]) -> bool:
        if not self.globs and not self._open:
            return words == self._words
        if not self.globs:
            return words[: len(self._words) - 1] == self._words[:-1]
        return _fits(self._words, words)


class CommandRules:
    """Rules of one strength; in the usual case a single lookup shows that no rule matches a command."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.each = tuple(map(CommandRule, rules))
        self._names = frozenset(rule.first for rule in self.each)
        self._wholes = frozenset(rule.text.strip() for rule in self.each)
        # A name with a slash matches the end of longer names.
        self._looked_up = not any(rule.globs or "/" in rule.first for rule in self.each)

    def silent_on(self, command: str, analysis: Analysis) -> bool:
        """Return True if certainly no rule matches the command; False if one may."""
        if not self.each:
            return True
        if not self._looked_up or analysis.trouble is not None or command.strip() in self._wholes:
            return False
        for part in analysis.parts:
            known = part.words if part.argv is None else part.argv
            if part.via or (not known and part.argv is None):
                return False
            if known and (known[0] is None or _name(known[0]) in self._names):
                return False
        return True


def _fits(pattern: tuple[str, ...], words: tuple[str, ...]) -> bool:
    for at, own in enumerate(pattern):
        if own == "*":
            return at <= len(words) and _fits_behind(pattern[at:], words[at:])
        if at >= len(words) or not fnmatchcase(words[at], _as_glob(own)):
            return False
    return len(pattern) == len(words)


def _fits_behind(pattern: tuple[str, ...], words: tuple[str, ...]) -> bool:
    """Match from the end, visiting each word once per pattern part; backtracking would be exponential."""
    # For each position: does the rest of the pattern match the words from there on?
    fits = [False] * len(words) + [True]
    for at, own in reversed(list(enumerate(pattern))):
        if own != "*":
            glob = _as_glob(own)
            fits = [after and fnmatchcase(word, glob) for word, after in zip(words, fits[1:], strict=True)]
            fits.append(False)
        elif at == len(pattern) - 1:
            fits = [True] * (len(words) + 1)
        else:
            # Something follows, which needs at least one word.
            fits[-1] = False
            fits = list(accumulate(reversed(fits), or_))[::-1]
    return fits[0]


def _as_glob(own: str) -> str:
    """Escape everything but the star."""
    return re.sub(r"[\[?]", lambda found: f"[{found[0]}]", own).replace("\\*", "[*]")


def _split(pattern: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(pattern.replace("\\*", "\\\\*")))
    except ValueError:
        return tuple(pattern.split())


def _name(word: str) -> str:
    return word[word.rfind("/") + 1 :]
