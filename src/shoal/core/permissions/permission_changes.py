"""Permission changes that a person can make: rules, directories and the mode, and their duration."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

PermissionMode: TypeAlias = Literal[
    "default", "acceptEdits", "plan", "dontAsk", "bypassPermissions", "delegate", "bubble"
]
RuleBehavior: TypeAlias = Literal["allow", "ask", "deny"]
RuleDestination: TypeAlias = Literal["session", "localSettings", "projectSettings", "userSettings"]


class SuggestedPermissionRule(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Rule `Tool` or `Tool(content)`."""

    tool_name: str
    rule_content: str | None = None

    def __str__(self) -> str:
        return self.tool_name if self.rule_content is None else f"{self.tool_name}({self.rule_content})"


class AddPermissionRulesSuggestion(Struct, frozen=True, kw_only=True, tag_field="type", tag="addRules"):
    rules: tuple[SuggestedPermissionRule, ...]
    behavior: RuleBehavior = "allow"
    destination: RuleDestination = "session"


class AddDirectoriesPermissionSuggestion(
    Struct, frozen=True, kw_only=True, tag_field="type", tag="addDirectories"
):
    directories: tuple[str, ...]
    destination: RuleDestination = "session"


class SetPermissionModeSuggestion(Struct, frozen=True, kw_only=True, tag_field="type", tag="setMode"):
    mode: PermissionMode
    destination: RuleDestination = "session"


PermissionSuggestion: TypeAlias = (
    AddPermissionRulesSuggestion | AddDirectoriesPermissionSuggestion | SetPermissionModeSuggestion
)


def find_permission_suggestion(
    suggestions: tuple[PermissionSuggestion, ...], destination: RuleDestination
) -> PermissionSuggestion | None:
    """Return the suggestion for that destination: the first, which is the narrowest."""
    return next((each for each in suggestions if each.destination == destination), None)


def format_session_permission_rules(suggestions: tuple[PermissionSuggestion, ...]) -> str:
    """Return the rules that an answer for the whole session would add, as text; empty if none."""
    found = find_permission_suggestion(suggestions, "session")
    return ", ".join(map(str, found.rules)) if isinstance(found, AddPermissionRulesSuggestion) else ""
