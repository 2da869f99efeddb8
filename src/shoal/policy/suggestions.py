"""Suggested permission changes, so that a similar call is not asked about again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from shoal.core.permissions import AddDirectories, AddRules, RuleValue, SetMode, Suggestion
from shoal.policy.shell.analysis import Part

_VERBS = {
    "git": {
        "add",
        "commit",
        "push",
        "pull",
        "fetch",
        "switch",
        "checkout",
        "merge",
        "rebase",
        "stash",
        "tag",
    },
    "npm": {"test", "install", "ci"},
    "pnpm": {"test", "install"},
    "yarn": {"test", "install"},
    "cargo": {"build", "test", "check", "clippy", "fmt"},
    "go": {"build", "test", "vet", "fmt"},
    "uv": {"sync", "lock"},
    "docker": {"build", "compose"},
}
"""Commands whose first two words determine what they do, whatever follows."""
_LONGEST_RULE = 500


def for_read(tool: str, real: str, *, is_directory: bool) -> tuple[Suggestion, ...]:
    exactly = RuleValue(tool_name=tool, rule_content=_exactly(real, is_directory=is_directory))
    return (*_both(exactly), *_directory(real if is_directory else real[: real.rfind("/")]))


def for_edit(tool: str, real: str, root: str, *, inside: bool) -> tuple[Suggestion, ...]:
    """Suggest rules for an edit.

    For the session: all project files with this tool, or accepting all edits. In settings: the directory of
    the file with the same tool. Outside the project: this one file.
    """
    if not inside or not real.startswith(f"{root}/"):
        exactly = RuleValue(tool_name=tool, rule_content=_exactly(real, is_directory=False))
        return (*_both(exactly), *(() if inside else _directory(real[: real.rfind("/")])))
    below = f"{_escaped(real[len(root) : real.rfind('/')])}/**"
    return (
        AddRules(rules=(RuleValue(tool_name=tool, rule_content="/**"),)),
        SetMode(mode="acceptEdits"),
        AddRules(rules=(RuleValue(tool_name=tool, rule_content=below),), destination="localSettings"),
    )


def for_command(command: str, asked: Iterable[Part]) -> tuple[Suggestion, ...]:
    """Suggest the exact command for this session; in settings, a rule for each part that was asked about."""
    if len(command) > _LONGEST_RULE:
        return ()
    whole = RuleValue(tool_name="Bash", rule_content=_literal(command))
    parts = tuple(dict.fromkeys(_for_part(part) for part in asked))
    return (
        AddRules(rules=(whole,)),
        AddRules(rules=parts or (whole,), destination="localSettings"),
    )


def for_other(tool: str, arguments: dict[str, Any]) -> tuple[Suggestion, ...]:
    content: str | None = None
    if tool == "WebFetch":
        try:
            host = urlsplit(str(arguments.get("url", ""))).hostname
        except ValueError:
            host = None
        if not host:
            return ()
        content = f"domain:{host}"
    elif tool in ("Agent", "Task"):
        content = str(arguments.get("subagent_type", "general-purpose"))
    elif tool == "SendMessage":
        content = str(arguments.get("to", ""))
    return _both(RuleValue(tool_name=tool, rule_content=content))


def _both(rule: RuleValue) -> tuple[Suggestion, ...]:
    return (AddRules(rules=(rule,)), AddRules(rules=(rule,), destination="localSettings"))


def _directory(path: str) -> tuple[Suggestion, ...]:
    """Suggest working in the directory too, for the session; never suggests the root directory."""
    return (AddDirectories(directories=(path,)),) if path.strip("/") else ()


def _for_part(part: Part) -> RuleValue:
    words = part.argv or ()
    if len(words) >= 2 and not part.via and words[1] in _VERBS.get(words[0], ()):
        return RuleValue(tool_name="Bash", rule_content=f"{words[0]} {words[1]}:*")
    return RuleValue(tool_name="Bash", rule_content=_literal(part.text))


def _literal(command: str) -> str:
    return command.strip().replace("*", "\\*")


def _exactly(real: str, *, is_directory: bool) -> str:
    return f"/{_escaped(real)}{'/**' if is_directory else ''}"


def _escaped(path: str) -> str:
    return "".join(f"\\{character}" if character in "*?[\\" else character for character in path)
