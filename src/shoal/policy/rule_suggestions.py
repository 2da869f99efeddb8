"""Suggested permission changes, so that a similar call is not asked about again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from shoal.core.permissions.permission_changes import (
    AddDirectoriesPermissionSuggestion,
    AddPermissionRulesSuggestion,
    PermissionSuggestion,
    SetPermissionModeSuggestion,
    SuggestedPermissionRule,
)
from shoal.policy.shell.command_analysis import SimpleShellCommand

_SUBCOMMANDS = {
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
_MAX_RULE_LENGTH = 500


def suggest_rules_for_read(tool: str, real: str, *, is_directory: bool) -> tuple[PermissionSuggestion, ...]:
    exact_rule = SuggestedPermissionRule(
        tool_name=tool, rule_content=_build_exact_path_pattern(real, is_directory=is_directory)
    )
    return (
        *_suggest_permission_rule(exact_rule),
        *_suggest_working_directory(real if is_directory else real[: real.rfind("/")]),
    )


def suggest_rules_for_edit(
    tool: str, real: str, root: str, *, inside: bool
) -> tuple[PermissionSuggestion, ...]:
    """Suggest rules for an edit.

    For the session: all project files with this tool, or accepting all edits. In settings: the directory of
    the file with the same tool. Outside the project: this one file.
    """
    if not inside or not real.startswith(f"{root}/"):
        exact_rule = SuggestedPermissionRule(
            tool_name=tool, rule_content=_build_exact_path_pattern(real, is_directory=False)
        )
        return (
            *_suggest_permission_rule(exact_rule),
            *(() if inside else _suggest_working_directory(real[: real.rfind("/")])),
        )
    pattern = f"{_escape_path_wildcards(real[len(root) : real.rfind('/')])}/**"
    return (
        AddPermissionRulesSuggestion(rules=(SuggestedPermissionRule(tool_name=tool, rule_content="/**"),)),
        SetPermissionModeSuggestion(mode="acceptEdits"),
        AddPermissionRulesSuggestion(
            rules=(SuggestedPermissionRule(tool_name=tool, rule_content=pattern),),
            destination="localSettings",
        ),
    )


def suggest_rules_for_command(
    command: str, asked_parts: Iterable[SimpleShellCommand]
) -> tuple[PermissionSuggestion, ...]:
    """Suggest the exact command for this session; in settings, a rule for each part that needed
    permission."""
    if len(command) > _MAX_RULE_LENGTH:
        return ()
    exact_rule = SuggestedPermissionRule(tool_name="Bash", rule_content=_escape_command_stars(command))
    parts = tuple(dict.fromkeys(_build_simple_command_rule(part) or exact_rule for part in asked_parts))
    return (
        AddPermissionRulesSuggestion(rules=(exact_rule,)),
        AddPermissionRulesSuggestion(rules=parts or (exact_rule,), destination="localSettings"),
    )


def suggest_rules_for_other_tool(tool: str, arguments: dict[str, Any]) -> tuple[PermissionSuggestion, ...]:
    content: str | None = None
    if tool == "Workflow":
        return ()  # a rule would allow every other script, which nobody has read
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
    return _suggest_permission_rule(SuggestedPermissionRule(tool_name=tool, rule_content=content))


def _suggest_permission_rule(rule: SuggestedPermissionRule) -> tuple[PermissionSuggestion, ...]:
    return (
        AddPermissionRulesSuggestion(rules=(rule,)),
        AddPermissionRulesSuggestion(rules=(rule,), destination="localSettings"),
    )


def _suggest_working_directory(path: str) -> tuple[PermissionSuggestion, ...]:
    """Suggest working in the directory too, for the session; never suggests the root directory."""
    return (AddDirectoriesPermissionSuggestion(directories=(path,)),) if path.strip("/") else ()


def _build_simple_command_rule(part: SimpleShellCommand) -> SuggestedPermissionRule | None:
    """Build the rule for one part; None if its text is not complete because of a here-document."""
    words = part.argv or ()
    if len(words) >= 2 and not part.via and words[1] in _SUBCOMMANDS.get(words[0], ()):
        return SuggestedPermissionRule(tool_name="Bash", rule_content=f"{words[0]} {words[1]}:*")
    if "<<" in part.text:
        return None
    return SuggestedPermissionRule(tool_name="Bash", rule_content=_escape_command_stars(part.text))


def _escape_command_stars(command: str) -> str:
    return command.strip().replace("*", "\\*")


def _build_exact_path_pattern(real: str, *, is_directory: bool) -> str:
    return f"/{_escape_path_wildcards(real)}{'/**' if is_directory else ''}"


def _escape_path_wildcards(path: str) -> str:
    return "".join(f"\\{character}" if character in "*?[\\" else character for character in path)
