"""Permission changes that a person can make: rules, directories and the mode, and their duration."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, TypeAlias, get_args

from msgspec import Struct

from shoal.core.text.name_suggestions import find_similar_names

PermissionMode: TypeAlias = Literal[
    "default", "acceptEdits", "plan", "dontAsk", "bypassPermissions", "delegate", "bubble"
]
"""Permission mode: what happens to a call that matches no rule."""
RequestedPermissionMode: TypeAlias = PermissionMode | Literal["auto", "manual"]
"""Modes that settings and flags may name."""
PERMISSION_MODES: tuple[PermissionMode, ...] = get_args(PermissionMode)
AUTO_MODE = "auto"
AUTO_MODE_NOTE = (
    "Auto mode is not available yet, so default mode applies: Shoal asks about calls that no rule covers."
)
_OTHER_MODE_NAMES: dict[str, PermissionMode] = {"manual": "default", AUTO_MODE: "default"}
_WIDE_MODES: tuple[PermissionMode, ...] = ("acceptEdits", "bypassPermissions")
_CLEAR_MISSPELLING = 0.85
REQUESTED_PERMISSION_MODES = (*PERMISSION_MODES, *_OTHER_MODE_NAMES)
RuleBehavior: TypeAlias = Literal["allow", "ask", "deny"]
"""What a permission rule does to the calls that it matches."""
RuleDestination: TypeAlias = Literal["session", "localSettings", "projectSettings", "userSettings"]
"""Where a permission change is stored: in the session, or in a settings file."""


def resolve_permission_mode(name: object) -> PermissionMode | None:
    """Return the mode with this name, ignoring case; None if there is none. `manual` is `default`."""
    folded = str(name).casefold()
    known = next((mode for mode in PERMISSION_MODES if mode.casefold() == folded), None)
    return known or _OTHER_MODE_NAMES.get(folded)


def find_similar_modes(name: str, choices: Collection[str] = PERMISSION_MODES) -> list[str]:
    """Return the nearest modes.

    A mode that allows more is near only if the name can hardly mean anything else: a person who takes the
    suggestion must not allow more than they meant.
    """
    clear = find_similar_names(name, _WIDE_MODES, _CLEAR_MISSPELLING)
    return clear or find_similar_names(name, [each for each in choices if each not in _WIDE_MODES])


def suggest_permission_mode(name: str, choices: Collection[str] = PERMISSION_MODES) -> str:
    """Return the nearest mode as a question, or all modes."""
    close = find_similar_modes(name, choices)
    return f" Did you mean {' or '.join(close)}?" if close else f" Allowed values: {', '.join(choices)}."


class SuggestedPermissionRule(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Rule `Tool` or `Tool(content)`."""

    tool_name: str
    """Name of the tool."""
    rule_content: str | None = None
    """Pattern in parentheses; None for all calls of the tool."""

    def __str__(self) -> str:
        return self.tool_name if self.rule_content is None else f"{self.tool_name}({self.rule_content})"


class AddPermissionRulesSuggestion(Struct, frozen=True, kw_only=True, tag_field="type", tag="addRules"):
    """Suggestion to add permission rules."""

    rules: tuple[SuggestedPermissionRule, ...]
    """The rules."""
    behavior: RuleBehavior = "allow"
    """What the rules do."""
    destination: RuleDestination = "session"
    """Where the rules are stored."""


class AddDirectoriesPermissionSuggestion(
    Struct, frozen=True, kw_only=True, tag_field="type", tag="addDirectories"
):
    """Suggestion to let tools work in more directories."""

    directories: tuple[str, ...]
    """The directories."""
    destination: RuleDestination = "session"
    """Where the change is stored."""


class SetPermissionModeSuggestion(Struct, frozen=True, kw_only=True, tag_field="type", tag="setMode"):
    """Suggestion to change the permission mode."""

    mode: PermissionMode
    """The mode."""
    destination: RuleDestination = "session"
    """Where the mode is stored."""


PermissionSuggestion: TypeAlias = (
    AddPermissionRulesSuggestion | AddDirectoriesPermissionSuggestion | SetPermissionModeSuggestion
)
"""Permission change that an answer can make: rules, directories, or a mode."""


def find_permission_suggestion(
    suggestions: tuple[PermissionSuggestion, ...], destination: RuleDestination
) -> PermissionSuggestion | None:
    """Return the suggestion for that destination: the first, which is the narrowest."""
    return next((each for each in suggestions if each.destination == destination), None)


def is_allow_rule_suggestion(suggestion: PermissionSuggestion) -> bool:
    return isinstance(suggestion, AddPermissionRulesSuggestion) and suggestion.behavior == "allow"


def format_session_permission_rules(suggestions: tuple[PermissionSuggestion, ...]) -> str:
    """Return the rules that an answer for the whole session would add, as text; empty if none."""
    found = find_permission_suggestion(suggestions, "session")
    return ", ".join(map(str, found.rules)) if isinstance(found, AddPermissionRulesSuggestion) else ""
