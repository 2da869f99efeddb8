"""Keys, variables and hooks of settings files, with what Shoal does with each."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from shoal.app.definitions.installed_plugins import list_installed_plugin_ids
from shoal.app.definitions.output_styles import choose_output_style
from shoal.app.doctor.claude_item import ClaudeItem
from shoal.app.doctor.claude_variables import explain_unused_variable
from shoal.app.doctor.definition_items import RESOURCE_TOOLS, find_absent_tools
from shoal.app.hooks.hook_sources import are_settings_hooks_disabled, parse_document_hooks
from shoal.app.settings.claude_json import read_claude_json
from shoal.app.settings.claude_keys import KeyUse, find_claude_key, iter_document_keys
from shoal.app.settings.foreign_settings import MANAGED_READ_KEY, is_sandbox_key_enabled
from shoal.app.settings.managed_switches import PLUGIN_ONLY_KEY, SWITCHES
from shoal.app.settings.provider_credentials import PROVIDER_VARIABLES
from shoal.app.settings.settings import Settings, is_project_bypass_mode
from shoal.app.settings.settings_trust import can_approve_servers
from shoal.core.extensions.hooks import MATCHER_FIELDS, Hook, McpToolHookAction
from shoal.core.extensions.mcp_servers import MCP_PREFIX, format_mcp_tool_prefix
from shoal.core.names import FORMER_TOOL_NAMES
from shoal.policy.hooks.hook_matcher import list_matcher_names
from shoal.policy.permission_rules import parse_permission_rule
from shoal.policy.rule_names import FOREIGN_TOOL_NAMES, names_no_tool
from shoal.wire.hook_codec import is_usable_hook
from shoal.wire.settings_codec import SettingsDocument, has_settings_key
from shoal.workspaces.git_paths import find_git_directory
from shoal.workspaces.hidden_file_marks import can_mark_hidden_files

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
_SERVER_PATTERN = re.compile(r"mcp__[A-Za-z0-9_-]")
_LITERAL = re.compile(r"[A-Za-z0-9_-]*(?![*?+{])")
_APPROVAL_ADVICE = "it applies if you trust the project in Claude Code and git does not track the file"
_SERVER_APPROVALS = frozenset({"enableAllProjectMcpServers", "enabledMcpjsonServers"})
_MANAGED_ONLY = frozenset((*SWITCHES, PLUGIN_ONLY_KEY, f"sandbox.filesystem.{MANAGED_READ_KEY}"))
_HIDING_KEYS = frozenset({"permissions.deny", "sandbox.filesystem.denyRead", "sandbox.credentials.files"})
_NO_COMMITS = (
    "git has a split index, a sparse checkout or SHA-256 ids here: "
    "commands cannot commit while a tracked file is hidden"
)
_BLOCKING_HOOK = "Shoal starts, but blocks what this hook would check."


def list_document_items(
    settings: Settings,
    document: SettingsDocument,
    cwd: Path,
    styles: Sequence[tuple[str, Path]],
    servers: Collection[str],
) -> Iterator[ClaudeItem]:
    """Yield the items of one file. `servers` are the names of the configured MCP servers."""
    approves = can_approve_servers(
        document, is_trusted_in_claude_code=read_claude_json(settings.home, cwd).is_project_trusted
    )
    unused = {
        item.name: item.reason
        for item in settings.findings.unused_items
        if item.location.rpartition(":")[0] == document.name
    }
    for name, value in iter_document_keys(document):
        if name == "mcpServers" or (name == "enabledPlugins" and not _has_plugins(settings, document, value)):
            continue  # listed with their state
        if name == "env":
            yield from _list_variable_items(settings, document, unused)
            continue
        if name == "hooks":
            yield from list_hook_items(settings, document, value, servers)
            continue
        key = find_claude_key(name)
        if name == "permissions.allow" and value:
            used_rules = [rule for rule in value if f"{name} {rule!r}" not in unused]
            absent = [*_list_allow_rule_items(settings, document, used_rules, servers)]
            yield from absent
            if len(absent) == len(used_rules):
                unused.setdefault(name, "none of its rules is used")
        reason = unused.pop(name, None) or _find_other_reason(settings, document, name, value)
        if name in _SERVER_APPROVALS and not approves:
            reason = _APPROVAL_ADVICE if document.kind == "local" else _USER_ONLY_ADVICE
        if name == "outputStyle" and reason is None:
            chosen = choose_output_style(settings, cwd, styles)
            reason = next((item.reason for item in chosen.unused_items), None)
        use: KeyUse = key.use if reason is None or key.use == "wider here" else "not used"
        advice = reason or "; ".join(filter(None, (key.advice, _explain_prevented_commits(name, value, cwd))))
        yield ClaudeItem(file=document.name, item=name, use=use, advice=advice)
    for name, reason in unused.items():
        yield ClaudeItem(file=document.name, item=name, use="not used", advice=reason)


def _explain_prevented_commits(name: str, value: Any, cwd: Path) -> str:
    """Return a remark if commands cannot change the repository while one of its files is hidden."""
    found = find_git_directory(cwd / "file") if name in _HIDING_KEYS and value else None
    if found is None or not (found[0] / "index").exists() or can_mark_hidden_files(found[0]):
        return ""
    return _NO_COMMITS


def _list_variable_items(
    settings: Settings, document: SettingsDocument, unused: dict[str, str]
) -> Iterator[ClaudeItem]:
    for name in document.raw["env"]:
        reason = unused.pop(f"env.{name}", None) or _find_unused_variable_reason(settings, document, name)
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
    return explain_unused_variable(name)


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
    return None


def list_hook_items(
    settings: Settings, document: SettingsDocument, value: Any, servers: Collection[str]
) -> Iterator[ClaudeItem]:
    """Yield the hooks by event. `servers` are the names of the configured MCP servers."""
    is_off = are_settings_hooks_disabled(document, settings)
    for event, entries in value.items() if isinstance(value, dict) else ():
        parsed = parse_document_hooks(document, settings, {event: entries})
        usable = [hook for hook in parsed.hooks if is_usable_hook(hook)]
        idle = [f"{hook.origin}: {reason}" for hook in usable if (reason := _find_idle_reason(hook, servers))]
        has_active_hooks = len(idle) < len(usable)
        if has_active_hooks:
            advice = "disableAllHooks or a managed file disables it" if is_off else ""
            use: KeyUse = "not used" if is_off else "used"
            yield ClaudeItem(file=document.name, item=f"hooks.{event}", use=use, advice=advice)
        item = f"part of hooks.{event}" if has_active_hooks else f"hooks.{event}"
        blocks = not is_off and len(usable) < len(parsed.hooks)
        for problem in parsed.problems:
            use = "refused" if blocks else "not used"
            advice = f"{problem} {_BLOCKING_HOOK}" if blocks else problem
            yield ClaudeItem(file=document.name, item=item, use=use, advice=advice)
        for sentence in (*parsed.warnings, *parsed.unused, *idle):
            yield ClaudeItem(file=document.name, item=item, use="not used", advice=sentence)


def _find_idle_reason(hook: Hook, servers: Collection[str]) -> str:
    """Return why a hook never does anything; empty if it can."""
    if isinstance(hook.action, McpToolHookAction) and not any(
        format_mcp_tool_prefix(hook.action.server) == format_mcp_tool_prefix(name) for name in servers
    ):
        reason = f"no MCP server named {hook.action.server!r} is configured"
        return f"{reason}; the hook fails and blocks" if hook.blocks_on_failure else reason
    if MATCHER_FIELDS.get(hook.event) != "tool_name":
        return ""
    names = list_matcher_names(hook.matcher) or _list_server_alternatives(hook.matcher)
    absent = [name for name in names if _is_absent_tool(name)]
    missing = [name for name in names if name.startswith(MCP_PREFIX) and not _has_server(name, servers)]
    if not names or len(absent) + len(missing) < len(names):
        return ""
    reasons = [f"there is no tool named {' or '.join(absent)}"] if absent else []
    if missing:
        reasons.append(f"no MCP server of {' or '.join(missing)} is configured")
    return f"{', and '.join(reasons)}, so the hook never runs"


def _list_server_alternatives(matcher: str) -> list[str]:
    """Return the alternatives of a pattern if each begins with the name of a server, as `mcp__github__.*`."""
    alternatives = [each.removeprefix("^") for each in matcher.split("|")]
    is_plain = not re.search(r"[()\[\]\\]", matcher)
    return alternatives if is_plain and all(map(_SERVER_PATTERN.match, alternatives)) else []


def _has_server(name: str, servers: Collection[str]) -> bool:
    """Return False if no configured server has tools with this name, or with one that begins like it."""
    literal = _LITERAL.match(name)
    start = literal[0] if literal else ""
    return any(
        start.startswith(prefix) or prefix.startswith(start)
        for prefix in map(format_mcp_tool_prefix, servers)
    )


def _is_absent_tool(name: str) -> bool:
    return names_no_tool(name, FORMER_TOOL_NAMES) and name not in RESOURCE_TOOLS


def _has_plugins(settings: Settings, document: SettingsDocument, value: Any) -> bool:
    """Return False if no plug-in of `enabledPlugins` is there: none is installed, or none is trusted."""
    if not isinstance(value, dict):
        return True
    installed = list_installed_plugin_ids(settings.home)
    is_left_out = any(
        each.document.name == document.name and each.keys[0] == "enabledPlugins"
        for each in settings.findings.untrusted_escalations
    )
    is_absent = bool(value) and all(is_enabled and id_ not in installed for id_, is_enabled in value.items())
    return not is_absent and (bool(value) or not is_left_out)


def _list_allow_rule_items(
    settings: Settings, document: SettingsDocument, rules: Sequence[str], servers: Collection[str]
) -> Iterator[ClaudeItem]:
    """Yield each valid allow rule whose tool does not exist here, or not with these settings."""
    names = {rule: parse_permission_rule(rule).tool for rule in rules}
    absent = find_absent_tools(settings, {*names.values()})
    prefixes = (*map(format_mcp_tool_prefix, servers),)
    for rule, name in names.items():
        advice = absent.get(name, "")
        if name.startswith(MCP_PREFIX):
            is_known = "*" in name.split("__")[1] or f"{name}__".startswith(prefixes)
            advice = "" if is_known else "no MCP server with this name is configured"
        elif _is_absent_tool(name):
            advice = (
                "Shoal does not have this tool" if name in FOREIGN_TOOL_NAMES else "there is no such tool"
            )
        if advice:
            item = f"permissions.allow {rule!r}"
            yield ClaudeItem(file=document.name, item=item, use="not used", advice=advice)
