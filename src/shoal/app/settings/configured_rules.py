"""Permission rules of settings and flags, each with its source."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from shoal.app.settings.managed_switches import MANAGED_RULES_KEY, allows_only_managed_rules
from shoal.core.errors import SettingsError
from shoal.core.permissions.permission_changes import RuleBehavior
from shoal.core.unused_items import UnusedItem
from shoal.core.user_environment import UserEnvironment
from shoal.policy.permission_rules import (
    FILE_TOOLS,
    PermissionRuleSet,
    ToolPermissionRule,
    parse_permission_rule,
)
from shoal.wire.json_line_numbers import find_json_list_entry_lines
from shoal.wire.settings_codec import SettingsDocument, convert_to_settings_schema

BEHAVIORS: tuple[RuleBehavior, ...] = ("allow", "ask", "deny")
_APPROVES_NOTHING = "it approves nothing; name the tools, or the tools of one MCP server as in mcp__server__*"
_ONE_SLASH = re.compile("/(?!/)")
_GLOB_CHARACTER = re.compile(r"[*?\[\\]")
FLAGS: dict[RuleBehavior, str] = {"allow": "--allowedTools", "deny": "--disallowedTools"}


def load_permission_rules(
    documents: Sequence[SettingsDocument], cwd: Path, user: UserEnvironment
) -> PermissionRuleSet:
    """Load the rules. Raises `SettingsError` for an invalid rule that forbids or asks."""
    rules: dict[str, Any] = {"allow": (), "ask": (), "deny": ()}
    is_closed = allows_only_managed_rules(documents)
    directories: list[Path] = []
    for document in documents:
        if "permissions" not in document.raw:
            continue
        permissions = convert_to_settings_schema(document.raw).permissions
        document_rules: dict[str, Any] = {
            kind: _parse_document_rules(document, kind, getattr(permissions, kind)) for kind in BEHAVIORS
        }
        if is_closed and document.kind != "managed":
            # Rules that forbid or ask only restrict more, so they stay.
            document_rules["allow"] = ()
        rules = {kind: (*rules[kind], *document_rules[kind]) for kind in BEHAVIORS}
        directories.extend(cwd / user.expand_home(each) for each in permissions.additional_directories)
    return PermissionRuleSet(**rules, directories=tuple(dict.fromkeys(directories)), is_closed=is_closed)


def find_skipped_rules(documents: Sequence[SettingsDocument]) -> Iterator[UnusedItem]:
    """Yield each allow rule without effect: an invalid or misspelled one, one that names tools with `*`."""
    is_closed = allows_only_managed_rules(documents)
    for document in documents:
        permissions = convert_to_settings_schema(document.raw).permissions
        stricter = dict.fromkeys(permissions.deny, "deny") | dict.fromkeys(permissions.ask, "ask")
        for text, line in _pair_rules_with_lines(document, "allow", permissions.allow):
            reason = _find_allow_rule_problem(text) or _find_misspelling(text)
            if reason is None and text in stricter:
                reason = f"permissions.{stricter[text]} has the same rule, which takes precedence"
            if is_closed and document.kind != "managed":
                reason = f"{MANAGED_RULES_KEY} is set in a managed file"
            if reason is not None:
                location = f"{document.name}:{line}"
                yield UnusedItem(location=location, name=f"permissions.allow {text!r}", reason=reason)


def find_skipped_flag_rules(allow: Sequence[str], *, is_closed: bool) -> Iterator[str]:
    """Yield a sentence for each allowed tool of a flag that approves nothing."""
    for text in allow:
        if is_closed:
            yield f"{FLAGS['allow']} {text} is not used: {MANAGED_RULES_KEY} is set in a managed file."
        elif (reason := _explain_approval_of_nothing(parse_permission_rule(text))) is not None:
            yield f"{FLAGS['allow']} {text}: {reason}."


def add_permission_flag_rules(
    rules: PermissionRuleSet,
    *,
    allow: Sequence[str],
    deny: Sequence[str],
    lead_deny: Sequence[ToolPermissionRule] = (),
) -> PermissionRuleSet:
    """Add the rules of flags, and those of the lead's definition. Raises `SettingsError`."""
    allowed = (parse_permission_rule(rule, FLAGS["allow"]) for rule in allow)
    flag_rules = PermissionRuleSet(
        allow=() if rules.is_closed else tuple(rule for rule in allowed if not rule.approves_nothing),
        deny=tuple(parse_permission_rule(rule, FLAGS["deny"]) for rule in deny),
    )
    for rule in flag_rules.deny:
        if str(rule) in map(str, flag_rules.allow):
            raise SettingsError(
                f"{rule} is in both --allowedTools and --disallowedTools. Remove one of them."
            )
    return replace(
        rules, allow=(*flag_rules.allow, *rules.allow), deny=(*flag_rules.deny, *lead_deny, *rules.deny)
    )


def _parse_document_rules(
    document: SettingsDocument, behavior: RuleBehavior, texts: Sequence[str]
) -> tuple[ToolPermissionRule, ...]:
    found: list[ToolPermissionRule] = []
    # A pattern with one leading slash starts at the directory of your own file; forbidding rules, which
    # must not lose what they covered, start at the project too.
    anchor = None if document.kind != "user" or document.path is None else str(document.path.parent)
    for text, line in _pair_rules_with_lines(document, behavior, texts):
        if behavior == "allow" and _find_allow_rule_problem(text) is not None:
            continue
        try:
            rule = replace(parse_permission_rule(text), source=f"{document.name}:{line}")
        except SettingsError as error:
            message = f"{document.name}:{line}: permissions.{behavior}: {error}"
            raise SettingsError(message, path=document.path, line=line) from error
        pattern = rule.pattern or ""
        if anchor is None or rule.tool not in FILE_TOOLS or not _ONE_SLASH.match(pattern):
            found.append(rule)
        elif behavior == "allow":
            found.append(replace(rule, anchor=anchor))
        else:
            escaped = _GLOB_CHARACTER.sub(r"\\\g<0>", anchor)
            found += (rule, replace(rule, pattern=f"/{escaped}{pattern}"))
    return tuple(found)


def _pair_rules_with_lines(
    document: SettingsDocument, behavior: RuleBehavior, texts: Sequence[str]
) -> Iterator[tuple[str, int]]:
    if texts:
        lines = find_json_list_entry_lines(document.text, ("permissions", behavior))
        # The last value of a duplicate key counts.
        yield from zip(texts, lines[-len(texts) :], strict=True)


def _find_allow_rule_problem(text: str) -> str | None:
    try:
        rule = parse_permission_rule(text)
    except SettingsError as error:
        return str(error).removesuffix(".")
    return _explain_approval_of_nothing(rule)


def _explain_approval_of_nothing(rule: ToolPermissionRule) -> str | None:
    if not rule.approves_nothing:
        return None
    return _APPROVES_NOTHING if rule.former is None else f"write {rule.tool}({rule.pattern}) instead"


def _find_misspelling(text: str) -> str | None:
    """Return why a valid rule has no effect, if its tool is probably misspelled."""
    from shoal.policy.rule_names import find_intended_tool

    name = parse_permission_rule(text).tool
    intended = find_intended_tool(name)
    return None if intended is None else f"there is no tool {name}; write {intended}"
