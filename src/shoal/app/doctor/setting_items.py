"""Keys, variables and hooks of settings files, with what Shoal does with each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from shoal.app.definitions.output_styles import choose_output_style
from shoal.app.doctor.claude_item import ClaudeItem
from shoal.app.doctor.claude_variables import explain_unused_variable
from shoal.app.hooks.hook_sources import are_settings_hooks_disabled, parse_document_hooks
from shoal.app.settings.claude_json import read_claude_json
from shoal.app.settings.claude_keys import KeyUse, find_claude_key, iter_document_keys
from shoal.app.settings.foreign_settings import is_sandbox_key_enabled
from shoal.app.settings.managed_switches import PLUGIN_ONLY_KEY, SWITCHES
from shoal.app.settings.provider_credentials import PROVIDER_VARIABLES
from shoal.app.settings.settings import Settings, is_project_bypass_mode
from shoal.app.settings.settings_trust import can_approve_servers
from shoal.wire.hook_codec import is_usable_hook
from shoal.wire.settings_codec import SettingsDocument, has_settings_key

_PROVIDER_VARIABLES = frozenset(name for names in PROVIDER_VARIABLES.values() for name in names)
_STRONGEST_COUNTS = frozenset(
    {
        "agent",
        "attribution",
        "cleanupPeriodDays",
        "includeCoAuthoredBy",
        "language",
        "model",
        "outputStyle",
        "plansDirectory",
    }
    | {"theme", "permissions.defaultMode"}
)
"""Keys for which only the value with the highest precedence counts."""
_USER_ONLY = frozenset(
    {"autoMemoryDirectory", "cleanupPeriodDays", "disableAllHooks", "modelOverrides"}
    | {"sandbox.filesystem.allowWrite"}
)
_USER_ONLY_ADVICE = "it applies only in your own files"
_APPROVAL_ADVICE = "it applies if you trust the project in Claude Code and git does not track the file"
_SERVER_APPROVALS = frozenset({"enableAllProjectMcpServers", "enabledMcpjsonServers"})
_MANAGED_ONLY = frozenset((*SWITCHES, PLUGIN_ONLY_KEY))
_BLOCKING_HOOK = "Shoal starts, but blocks what this hook would check."


def list_document_items(
    settings: Settings, document: SettingsDocument, cwd: Path, styles: Sequence[tuple[str, Path]]
) -> Iterator[ClaudeItem]:
    approves = can_approve_servers(
        document, is_trusted_in_claude_code=read_claude_json(settings.home, cwd).is_project_trusted
    )
    unused = {
        item.name: item.reason
        for item in settings.findings.unused_items
        if item.location.rpartition(":")[0] == document.name
    }
    for name, value in iter_document_keys(document):
        if name == "mcpServers":
            continue  # listed with their state
        if name == "env":
            yield from _list_variable_items(settings, document)
            continue
        if name == "hooks":
            yield from list_hook_items(settings, document, value)
            continue
        key = find_claude_key(name)
        if name == "permissions.allow" and value and all(f"{name} {rule!r}" in unused for rule in value):
            unused.setdefault(name, "none of its rules is used")
        reason = unused.pop(name, None) or _find_other_reason(settings, document, name, value)
        if name in _SERVER_APPROVALS and not approves:
            reason = _APPROVAL_ADVICE if document.kind == "local" else _USER_ONLY_ADVICE
        if name == "outputStyle" and reason is None:
            chosen = choose_output_style(settings, cwd, styles)
            reason = " ".join(chosen.notes) or None if chosen.style is None else None
        use: KeyUse = key.use if reason is None or key.use == "wider here" else "not used"
        yield ClaudeItem(file=document.name, item=name, use=use, advice=reason or key.advice)
    for name, reason in unused.items():
        yield ClaudeItem(file=document.name, item=name, use="not used", advice=reason)


def _list_variable_items(settings: Settings, document: SettingsDocument) -> Iterator[ClaudeItem]:
    for name in document.raw["env"]:
        reason = _find_unused_variable_reason(settings, document, name)
        use: KeyUse = "used" if reason is None else "not used"
        yield ClaudeItem(file=document.name, item=f"env.{name}", use=use, advice=reason or "")


def _find_unused_variable_reason(settings: Settings, document: SettingsDocument, name: str) -> str | None:
    is_provider_variable = name in _PROVIDER_VARIABLES
    if is_provider_variable and not document.is_user_controlled:
        return "provider variables apply only in your own files"
    setting = (
        each
        for each in settings.documents
        if has_settings_key(each, ("env", name)) and (each.is_user_controlled or not is_provider_variable)
    )
    if (first := next(setting, document)) is not document:
        return f"{first.name} sets it too and takes precedence"
    return explain_unused_variable(name) or _find_warning(settings, f"{name} is ")


def _find_warning(settings: Settings, beginning: str) -> str | None:
    """Return the warning that a value is ignored, if there is one."""
    return next((each for each in settings.findings.warnings if each.startswith(beginning)), None)


def _find_other_reason(settings: Settings, document: SettingsDocument, name: str, value: Any) -> str | None:
    if name in _MANAGED_ONLY and document.kind != "managed":
        return "it applies only in managed files"
    if name in _USER_ONLY and not document.is_user_controlled:
        return _USER_ONLY_ADVICE
    if name == "permissions.defaultMode" and is_project_bypass_mode(document):
        return "only your own settings or a flag can skip permissions"
    is_sandbox_part = name.startswith("sandbox.") and name != "sandbox.enabled"
    if is_sandbox_part and not is_sandbox_key_enabled(settings.documents):
        return "sandbox.enabled is not true"
    if name == "sandbox.enabled":
        return _find_sandbox_switch_reason(settings, document, value)
    if name in _STRONGEST_COUNTS:
        first = next(
            each
            for each in settings.documents
            if has_settings_key(each, name.split("."))
            and (each.is_user_controlled or name not in _USER_ONLY)
            and not (name == "permissions.defaultMode" and is_project_bypass_mode(each))
        )
        if first is not document:
            return f"{first.name} sets it too and takes precedence"
    return _find_stronger_item(settings, document, name)


def _find_sandbox_switch_reason(settings: Settings, document: SettingsDocument, value: Any) -> str | None:
    """Return the reason why a value of `sandbox.enabled` has no effect."""
    if value is False and not document.is_user_controlled:
        return "only your own files can turn the sandbox off"
    effective = {True: True, "worktrees": False}.get(settings.own.sandbox.enabled)
    if value is effective:
        return None
    keys = ("sandbox", "enabled")
    for other in settings.documents if effective is not None else ():
        is_counted = other.is_user_controlled or effective
        if is_counted and has_settings_key(other, keys) and other.raw["sandbox"]["enabled"] is effective:
            return f"{other.locate_key(keys)} takes precedence"
    return "the settings under shoal.sandbox take precedence"


def _find_stronger_item(settings: Settings, document: SettingsDocument, name: str) -> str | None:
    """Return the reason why another item or an unusable value makes this one ineffective."""
    if name == "model" and document.locate_key((name,)) != (origin := settings.find_setting_origin(name)):
        return f"{origin} takes precedence"
    if name == "includeCoAuthoredBy" and any(
        has_settings_key(each, ("attribution", key))
        for each in settings.documents
        for key in ("commit", "pr")
    ):
        return "attribution takes precedence"
    return _find_warning(settings, f"{document.locate_key(name.split('.'))}: {name}: expected")


def list_hook_items(settings: Settings, document: SettingsDocument, value: Any) -> Iterator[ClaudeItem]:
    is_off = are_settings_hooks_disabled(document, settings)
    for event, entries in value.items() if isinstance(value, dict) else ():
        parsed = parse_document_hooks(document, settings, {event: entries})
        has_usable_hooks = any(is_usable_hook(hook) for hook in parsed.hooks)
        if has_usable_hooks:
            advice = "disableAllHooks or a managed file disables it" if is_off else ""
            use: KeyUse = "not used" if is_off else "used"
            yield ClaudeItem(file=document.name, item=f"hooks.{event}", use=use, advice=advice)
        item = f"part of hooks.{event}" if has_usable_hooks else f"hooks.{event}"
        blocks = not is_off and not all(map(is_usable_hook, parsed.hooks))
        for problem in parsed.problems:
            use = "refused" if blocks else "not used"
            advice = f"{problem} {_BLOCKING_HOOK}" if blocks else problem
            yield ClaudeItem(file=document.name, item=item, use=use, advice=advice)
        for sentence in (*parsed.warnings, *parsed.unused):
            yield ClaudeItem(file=document.name, item=item, use="not used", advice=sentence)
