"""Permission rules of settings and flags, each with its source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from shoal.core.errors import SettingsError
from shoal.core.permissions.permission_changes import RuleBehavior
from shoal.policy.permission_rules import (
    PermissionRuleSet,
    ToolPermissionRule,
    find_contradicting_rules,
    parse_permission_rule,
)
from shoal.wire.json_line_numbers import find_json_list_entry_lines
from shoal.wire.settings_codec import SettingsDocument, convert_to_settings_schema

BEHAVIORS: tuple[RuleBehavior, ...] = ("allow", "ask", "deny")
_EVERY_TOOL = "*"
FLAGS: dict[RuleBehavior, str] = {"allow": "--allowedTools", "deny": "--disallowedTools"}


def load_permission_rules(documents: Sequence[SettingsDocument], cwd: Path) -> PermissionRuleSet:
    """Load the rules. Raises `SettingsError` for an invalid rule, or two contradicting rules in one file."""
    rules: dict[str, Any] = {"allow": (), "ask": (), "deny": ()}
    directories: list[Path] = []
    for document in documents:
        if "permissions" not in document.raw:
            continue
        permissions = convert_to_settings_schema(document.raw).permissions
        document_rules: dict[str, Any] = {
            kind: _parse_document_rules(document, kind, getattr(permissions, kind)) for kind in BEHAVIORS
        }
        _refuse_contradicting_rules(PermissionRuleSet(**document_rules), document.path)
        rules = {kind: (*rules[kind], *document_rules[kind]) for kind in BEHAVIORS}
        directories.extend(cwd / Path(each).expanduser() for each in permissions.additional_directories)
    return replace(PermissionRuleSet(**rules), directories=tuple(dict.fromkeys(directories)))


def find_skipped_rules(documents: Sequence[SettingsDocument]) -> Iterator[str]:
    """Yield a sentence for each allow rule that is skipped: a rule cannot approve every tool at once."""
    for document in documents:
        for text in convert_to_settings_schema(document.raw).permissions.allow:
            if text.strip() == _EVERY_TOOL:
                location = document.locate_key(("permissions", "allow"))
                yield f"{location}: permissions.allow: {text!r} has no effect; name the tools."


def add_permission_flag_rules(
    rules: PermissionRuleSet, *, allow: Sequence[str], deny: Sequence[str]
) -> PermissionRuleSet:
    if any(rule.strip() == _EVERY_TOOL for rule in allow):
        raise SettingsError("--allowedTools '*' has no effect. Name the tools to approve, such as Bash,Edit.")
    flag_rules = PermissionRuleSet(
        allow=tuple(parse_permission_rule(rule, FLAGS["allow"]) for rule in allow),
        deny=tuple(parse_permission_rule(rule, FLAGS["deny"]) for rule in deny),
    )
    for rule in flag_rules.deny:
        if str(rule) in map(str, flag_rules.allow):
            raise SettingsError(
                f"{rule} is in both --allowedTools and --disallowedTools. Remove one of them."
            )
    return replace(rules, allow=(*flag_rules.allow, *rules.allow), deny=(*flag_rules.deny, *rules.deny))


def _parse_document_rules(
    document: SettingsDocument, behavior: RuleBehavior, texts: Sequence[str]
) -> tuple[ToolPermissionRule, ...]:
    if not texts:
        return ()
    lines = find_json_list_entry_lines(document.text, ("permissions", behavior))
    found: list[ToolPermissionRule] = []
    # The last value of a duplicate key counts.
    for text, line in zip(texts, lines[-len(texts) :], strict=True):
        if behavior == "allow" and text.strip() == _EVERY_TOOL:
            continue
        try:
            found.append(replace(parse_permission_rule(text), source=f"{document.name}:{line}"))
        except SettingsError as error:
            message = f"{document.name}:{line}: permissions.{behavior}: {error}"
            raise SettingsError(message, path=document.path, line=line) from error
    return tuple(found)


def _refuse_contradicting_rules(rules: PermissionRuleSet, path: Path | None) -> None:
    found = find_contradicting_rules(rules)
    if found is None:
        return
    weaker, stronger = found
    name, _, line = stronger.source.rpartition(":")
    raise SettingsError(
        f"{stronger.source}: the rule {stronger} contradicts the same rule on line "
        f"{weaker.source.rpartition(':')[2]} of {name}. Remove one of them.",
        path=path,
        line=int(line),
    )
