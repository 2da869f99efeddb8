"""Permission changes that a person can make: rules, directories and the mode, and their duration."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

Mode: TypeAlias = Literal[
    "default", "acceptEdits", "plan", "dontAsk", "bypassPermissions", "delegate", "bubble"
]
Behavior: TypeAlias = Literal["allow", "ask", "deny"]
Destination: TypeAlias = Literal["session", "localSettings", "projectSettings", "userSettings"]


class RuleValue(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Rule `Tool` or `Tool(content)`."""

    tool_name: str
    rule_content: str | None = None

    def __str__(self) -> str:
        return self.tool_name if self.rule_content is None else f"{self.tool_name}({self.rule_content})"


class AddRules(Struct, frozen=True, kw_only=True, tag_field="type", tag="addRules"):
    rules: tuple[RuleValue, ...]
    behavior: Behavior = "allow"
    destination: Destination = "session"


class AddDirectories(Struct, frozen=True, kw_only=True, tag_field="type", tag="addDirectories"):
    directories: tuple[str, ...]
    destination: Destination = "session"


class SetMode(Struct, frozen=True, kw_only=True, tag_field="type", tag="setMode"):
    mode: Mode
    destination: Destination = "session"


Suggestion: TypeAlias = AddRules | AddDirectories | SetMode


def lasting(suggestions: tuple[Suggestion, ...], destination: Destination) -> Suggestion | None:
    """Return the suggestion for that destination: the first, which is the narrowest."""
    return next((each for each in suggestions if each.destination == destination), None)


def for_session(suggestions: tuple[Suggestion, ...]) -> str:
    """Return the rules that an answer for the whole session would add, as text; empty if none."""
    found = lasting(suggestions, "session")
    return ", ".join(map(str, found.rules)) if isinstance(found, AddRules) else ""
