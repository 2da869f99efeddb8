"""Permission rules: `Tool` or `Tool(pattern)`, as settings and flags write them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

from shoal.core.errors import SettingsError

DOMAIN = "domain:"
"""What the pattern of a rule on web pages begins with."""
_RULE = re.compile(r"([A-Za-z_][\w-]*|\*)(?:\((.*)\))?", re.DOTALL)
_SHELL_SYNTAX = re.compile(r"[;&|<>$`(){}\n\r\\!*?\[\]#~]")


class Rule(Struct, frozen=True, kw_only=True):
    tool: str
    pattern: str | None = None
    source: str = ""

    def __str__(self) -> str:
        return self.tool if self.pattern is None else f"{self.tool}({self.pattern})"


def parse_rule(text: str, source: str = "") -> Rule:
    match = _RULE.fullmatch(text.strip())
    if match is None:
        raise SettingsError(f"{text!r} is not a permission rule ({source}): write Tool or Tool(pattern).")
    return Rule(tool=match[1], pattern=match[2], source=source)


def split_rules(text: str) -> list[str]:
    """The rules in a flag's value: separated by commas or blanks outside parentheses."""
    rules: list[str] = []
    depth = start = 0
    for at, character in enumerate(f"{text},"):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0 and (character == "," or character.isspace()):
            if at > start:
                rules.append(text[start:at])
            start = at + 1
    if depth != 0:
        # Half a pattern read as none would be a rule about every use of the tool.
        raise SettingsError(f"The parentheses in {text!r} do not match: write Tool or Tool(pattern).")
    return rules


def rule_for_path(rule: Rule, path: Path, root: Path) -> bool:
    """Whether a rule of a file tool speaks of this path; no pattern speaks of all."""
    if rule.pattern is None:
        return True
    pattern = rule.pattern
    if pattern.startswith("//"):
        base, pattern = "/", pattern[2:]
    elif pattern.startswith("~/"):
        base, pattern = str(Path.home()), pattern[2:]
    else:
        base, pattern = str(root), pattern.removeprefix("./").removeprefix("/")
    return _glob(f"{base.rstrip('/')}/{pattern}").fullmatch(str(path)) is not None


def rule_for_command(rule: Rule, command: str) -> bool:
    """Whether an *allow* rule covers a shell command.

    `git log:*` covers only one simple command without any shell syntax: text that could hide a second
    command is never judged by its beginning.
    """
    if rule.pattern is None:
        return True
    if rule.pattern == command:
        return True
    if not rule.pattern.endswith(":*") or _SHELL_SYNTAX.search(command):
        return False
    try:
        words = shlex.split(command)
        prefix = shlex.split(rule.pattern[:-2])
    except ValueError:
        return False
    return words[: len(prefix)] == prefix


def rule_forbids_command(rule: Rule, command: str) -> bool:
    """Whether a *deny* or *ask* rule may concern a shell command: in doubt it does."""
    if rule.pattern is None or rule.pattern == command:
        return True
    return rule.pattern.removesuffix(":*") in command


def rule_for_site(rule: Rule, url: str, *, forbids: bool) -> bool:
    """Whether `domain:example.org` speaks of an address: one that forbids speaks of what is below it too."""
    if rule.pattern is None:
        return True
    if not rule.pattern.startswith(DOMAIN):
        return forbids
    domain, host = rule.pattern.removeprefix(DOMAIN).lower(), host_of(url)
    return host == domain or (forbids and (not host or host.endswith(f".{domain}")))


def host_of(url: str) -> str:
    """Empty where the address names none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _glob(pattern: str) -> re.Pattern[str]:
    out: list[str] = []
    parts: Iterable[str] = re.split(r"(\*\*/?|\*|\?)", pattern)
    for part in parts:
        match part:
            case "**/":
                out.append("(?:.*/)?")
            case "**":
                out.append(".*")
            case "*":
                out.append("[^/]*")
            case "?":
                out.append("[^/]")
            case _:
                out.append(re.escape(part))
    return re.compile("".join(out), re.DOTALL)
