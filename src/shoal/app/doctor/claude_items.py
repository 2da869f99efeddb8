"""Inventory of the files that Claude Code would read, with what Shoal does with each item."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from shoal.app.config.web_search import can_search
from shoal.app.definitions.agent_catalog import AgentCatalog, load_agent_catalog
from shoal.app.definitions.agent_files import DefinitionText, read_definition_text
from shoal.app.definitions.agent_trust import find_project_escalations, is_agent_trusted
from shoal.app.definitions.installed_plugins import find_enabled_plugin_ids, list_installed_plugin_ids
from shoal.app.definitions.instructions import (
    InstructionReader,
    LoadedInstructionFiles,
    list_managed_instruction_files,
    load_instructions,
)
from shoal.app.definitions.output_styles import choose_output_style, list_output_style_files
from shoal.app.definitions.plugin_set import PluginSet, load_plugins
from shoal.app.definitions.project_memory import read_instruction_exclusions
from shoal.app.doctor.claude_variables import explain_unused_variable
from shoal.app.doctor.start_refusals import find_lead_card, find_start_refusals
from shoal.app.hooks.hook_sources import (
    are_settings_hooks_disabled,
    list_unused_settings,
    load_configured_hooks,
    parse_document_hooks,
)
from shoal.app.reports.permission_report import create_permission_engine
from shoal.app.settings.claude_json import find_claude_json, list_top_keys, read_claude_json
from shoal.app.settings.claude_keys import CLAUDE_KEYS, KeyUse, find_claude_key, iter_document_keys
from shoal.app.settings.foreign_settings import is_sandbox_key_enabled
from shoal.app.settings.managed_switches import PLUGIN_ONLY_KEY, SWITCHES, is_plugin_only
from shoal.app.settings.mcp_files import load_mcp_servers
from shoal.app.settings.project_directories import iter_project_directories
from shoal.app.settings.provider_credentials import PROVIDER_VARIABLES
from shoal.app.settings.settings import (
    Settings,
    is_project_bypass_mode,
    list_settings_files,
    load_settings,
    resolve_shoal_home,
)
from shoal.app.skills.skill_catalog import SkillAndCommandLibrary, SkillCatalog, load_skills
from shoal.app.skills.skill_policy import SkillPolicy, load_skill_policy
from shoal.core.agents.agent_definitions import (
    AgentDefinition,
    DefinitionProblem,
    DefinitionSource,
    select_definition_tools,
)
from shoal.core.errors import InvalidAgentDefinition, SettingsError, UnknownAgentType, UnknownSkill
from shoal.core.extensions.mcp_servers import MCP_PREFIX, format_mcp_tool_prefix, matches_mcp_server_pattern
from shoal.core.names import FORMER_TOOL_NAMES, TOOL_NAMES
from shoal.core.text.filenames import escape_filename
from shoal.core.text.name_suggestions import find_similar_names
from shoal.core.user_environment import get_user_environment
from shoal.policy.permission_engine import PermissionEngine
from shoal.policy.rule_names import FOREIGN_TOOL_NAMES
from shoal.tools.web_search_tool import WEB_SEARCH_TOOL
from shoal.wire.front_matter import InvalidFrontMatterError, parse_front_matter
from shoal.wire.hook_codec import is_usable_hook
from shoal.wire.json_comments import decode_commented_json
from shoal.wire.settings_codec import SettingsDocument, has_settings_key
from shoal.wire.skill_codec import UNUSED_SKILL_FIELDS
from shoal.workspaces.git_paths import contains_git_repository
from shoal.workspaces.worktree_extras import INCLUDE_FILE

_PROVIDER_VARIABLES = frozenset(name for names in PROVIDER_VARIABLES.values() for name in names)
_TRUST_ADVICE = "the project is not trusted: shoal trust --show, then shoal trust"
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
    | {"enableAllProjectMcpServers", "enabledMcpjsonServers", "sandbox.filesystem.allowWrite"}
)
OTHER_FILES = {
    "keybindings.json": "Shoal's key bindings are fixed",
    "loop.md": "ask the agent to schedule the prompt",
    "scheduled_tasks.json": "ask the agent to schedule the prompts",
    "themes/*.json": "custom themes have no effect",
}
"""Files below `.claude` that Shoal does not read, and what to do."""
_MANAGED_ONLY = frozenset((*SWITCHES, PLUGIN_ONLY_KEY))
_GLOBAL_PREFERENCES = frozenset(
    {"autoConnectIde", "autoInstallIdeExtension", "autoUpdates", "verbose"}
    | {key.name for key in CLAUDE_KEYS} - {"mcpServers"}
)
"""Keys that `.claude.json` may contain, of which Shoal reads only MCP servers and trust."""
_COMMAND_REMARK = "only you can run it; for agents, move it to skills/NAME/SKILL.md"
_DENIED_ADVICE = "permissions.deny forbids it"
_PLUGIN_ONLY_ADVICE = "a managed file sets strictPluginOnlyCustomization"
_OAUTH_ADVICE = "`shoal mcp login` uses only clientId and callbackPort"
_NESTED_ADVICE = "an agent gets it when it uses a file in that directory"
_NO_START_ADVICE = "Shoal will not start until the refused items are corrected"
_BLOCKING_HOOK = "Shoal starts, but blocks what this hook would check."
_INSTRUCTIONS_OFF = "shoal.instructions is false"
_SKIPPED_DIRECTORIES = frozenset({"node_modules", "__pycache__", "venv"})
_MAX_DIRECTORIES = 2_000
_RESOURCE_TOOLS = ("ListMcpResourcesTool", "ReadMcpResourceTool")


class ClaudeItem(Struct, frozen=True, kw_only=True):
    """One item of a file that Claude Code would read."""

    file: str
    item: str
    use: KeyUse
    advice: str = ""


class ClaudeItemList(Struct, frozen=True, kw_only=True):
    items: list[ClaudeItem]
    unused_settings: tuple[str, ...] = ()
    """Sentences about the items that a session counts when it starts."""


def list_claude_items(environ: Mapping[str, str], cwd: Path, *, given: str | None = None) -> ClaudeItemList:
    """List the items of the home and the project. Nothing is changed or started."""
    home = resolve_shoal_home(environ, cwd)
    refused = [*_find_refused_files(home, cwd, given and get_user_environment(environ).expand_home(given))]
    try:
        settings = load_settings(cwd=cwd, environ=environ, given=given)
    except SettingsError as error:
        if not refused:
            refused = [ClaudeItem(file=str(error.path or ""), item="file", use="refused", advice=str(error))]
        unread = _list_unread_files(home, cwd, given, refused)
        items = sorted([*refused, *unread], key=lambda item: (item.file, item.item != "file"))
        return ClaudeItemList(items=items)
    plugins = load_plugins(settings, cwd)
    engine = create_permission_engine(settings, cwd, refuses_unknown_tools=False)
    is_hidden = engine.build_unreadable_file_filter("Read", str(cwd))
    instructions = _load_instructions(settings, cwd, is_hidden)
    items = [
        *(
            item
            for document in settings.documents
            for item in _list_document_items(settings, document, cwd, plugins.list_style_dirs())
        ),
        *_list_mcp_server_items(settings, cwd, plugins),
        *_list_left_out_items(settings, cwd),
        *_list_definition_items(settings, cwd, plugins, engine),
        *_list_plugin_items(settings, plugins),
        *_list_instruction_items(settings, instructions),
        *_list_nested_instruction_items(settings, cwd, is_hidden, instructions),
        *_list_output_style_items(settings, cwd, plugins.list_style_dirs()),
        *_list_other_files(home, cwd),
    ]
    refusals = find_start_refusals(settings, cwd, plugins)
    hooks = load_configured_hooks(settings, plugins=plugins.build_hook_documents())
    return ClaudeItemList(
        items=sorted(_mark_refused_items(items, refusals), key=lambda item: item.file),
        unused_settings=list_unused_settings(settings, hooks),
    )


def _mark_refused_items(
    items: Iterable[ClaudeItem], refusals: Mapping[tuple[str, str], str]
) -> Iterator[ClaudeItem]:
    """Yield the items, with those that a start refuses marked, listed above or not."""
    yield from (item for item in items if (item.file, item.item) not in refusals)
    for (file, name), reason in refusals.items():
        yield ClaudeItem(file=file, item=name, use="refused", advice=reason)


def _find_refused_files(home: Path, cwd: Path, given: str | None) -> Iterator[ClaudeItem]:
    from shoal.wire.settings_codec import parse_settings_document

    for path, kind in list_settings_files(home, cwd, given):
        try:
            text = path.read_text(encoding="utf-8-sig")
            parse_settings_document(text, name=str(path), kind=kind, path=path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, UnicodeDecodeError) as error:
            yield ClaudeItem(file=str(path), item="file", use="refused", advice=f"cannot be read: {error}")
        except SettingsError as error:
            yield ClaudeItem(file=str(path), item="file", use="refused", advice=str(error))


def _list_unread_files(
    home: Path, cwd: Path, given: str | None, refused: Sequence[ClaudeItem]
) -> Iterator[ClaudeItem]:
    """Yield the other settings files, and the keys of all: nothing is used while the start fails."""
    reasons = {item.file: item.advice for item in refused}
    for path, kind in list_settings_files(home, cwd, given):
        if not path.is_file():
            continue
        name = str(path)
        if name not in reasons:
            yield ClaudeItem(file=name, item="file", use="not used", advice=_NO_START_ADVICE)
        try:
            raw, text = decode_commented_json(path.read_text(encoding="utf-8-sig"))
        except (OSError, ValueError):
            continue
        if isinstance(raw, dict):
            document = SettingsDocument(name=name, kind=kind, path=path, text=text, raw=raw)
            for key, _ in iter_document_keys(document):
                if key not in reasons.get(name, ""):
                    yield ClaudeItem(file=name, item=key, use="not used", advice=_NO_START_ADVICE)


def _list_document_items(
    settings: Settings, document: SettingsDocument, cwd: Path, styles: Sequence[tuple[str, Path]]
) -> Iterator[ClaudeItem]:
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
            yield from _list_hook_items(settings, document, value)
            continue
        key = find_claude_key(name)
        if name == "permissions.allow" and value and all(f"{name} {rule!r}" in unused for rule in value):
            unused.setdefault(name, "none of its rules is used")
        reason = unused.pop(name, None) or _find_other_reason(settings, document, name, value)
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
        return "it applies only in your own files"
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


def _list_hook_items(settings: Settings, document: SettingsDocument, value: Any) -> Iterator[ClaudeItem]:
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


def _list_mcp_server_items(settings: Settings, cwd: Path, plugins: PluginSet) -> Iterator[ClaudeItem]:
    found = load_mcp_servers(settings, cwd=cwd, plugins=plugins.build_mcp_documents())
    is_installed = importlib.util.find_spec("mcp") is not None
    used = {(server.origin.rpartition(":")[0], server.name) for server in found.servers if is_installed}
    disabled = {server.name for server in found.disabled}
    for document in (*settings.documents, *plugins.build_mcp_documents()):
        for name, server in (document.raw.get("mcpServers") or {}).items():
            is_used = (document.name, name) in used
            reason = "it is disabled" if name in disabled else _find_server_problem(found.problems, name)
            if document.kind != "plugin" and is_plugin_only(settings.documents, "mcp"):
                reason = _PLUGIN_ONLY_ADVICE
            if not is_installed:
                reason = "the MCP client is not installed: pip install 'shoal[mcp]'"
            yield ClaudeItem(
                file=document.name,
                item=f"mcpServers.{name}",
                use="used" if is_used else "not used",
                advice="" if is_used else reason or "another file with this server takes precedence",
            )
            oauth = server.get("oauth") if isinstance(server, dict) else None
            for key in oauth if isinstance(oauth, dict) and is_used else ():
                is_known = key in ("clientId", "callbackPort")
                yield ClaudeItem(
                    file=document.name,
                    item=f"mcpServers.{name}.oauth.{key}",
                    use="used" if is_known else "not used",
                    advice="" if is_known else _OAUTH_ADVICE,
                )


def _find_server_problem(problems: Iterable[str], name: str) -> str:
    return next((problem for problem in problems if f"the MCP server {name} " in problem), "")


def _list_left_out_items(settings: Settings, cwd: Path) -> Iterator[ClaudeItem]:
    for each in find_project_escalations(settings, cwd):
        if each.trust != "trusted":
            name = each.document.name
            yield ClaudeItem(file=name, item=each.key, use="not used", advice=_TRUST_ADVICE)
    path = find_claude_json(settings.home)
    for problem in read_claude_json(settings.home, cwd).problems:
        yield ClaudeItem(file=str(path), item="file", use="not used", advice=problem)
    for item in settings.findings.unused_items:
        if item.name == "file" or (path is not None and item.location == str(path)):
            yield ClaudeItem(file=item.location, item=item.name, use="not used", advice=item.reason)
    for key in () if path is None else list_top_keys(path):
        if key in _GLOBAL_PREFERENCES:
            advice = "Shoal reads preferences only from settings files"
            yield ClaudeItem(file=str(path), item=key, use="not used", advice=advice)


def _list_definition_items(
    settings: Settings, cwd: Path, plugins: PluginSet, engine: PermissionEngine
) -> Iterator[ClaudeItem]:
    library = load_skills(cwd=cwd, home=settings.home)
    library.add_plugins(plugins)
    catalog = load_agent_catalog(cwd=cwd, home=settings.home, plugins=plugins.list_agent_dirs())
    found = load_mcp_servers(settings, cwd=cwd, plugins=plugins.build_mcp_documents())
    servers = [server.name for server in (*found.servers, *found.disabled, *found.untrusted)]
    for item in _list_agent_items(settings, cwd, catalog, library.skills, servers):
        is_denied = item.use == "used" and engine.check_agent_start(item.item.removeprefix("agent "))
        yield replace(item, use="not used", advice=_DENIED_ADVICE) if is_denied else item
    yield from _list_absent_tools(settings, catalog)
    yield from _list_skill_items(settings, library, catalog, engine)


def _list_agent_items(
    settings: Settings, cwd: Path, catalog: AgentCatalog, skills: SkillCatalog, servers: Sequence[str]
) -> Iterator[ClaudeItem]:
    is_locked = is_plugin_only(settings.documents, "agents")
    for definition in catalog.all():
        source = definition.source
        if source.kind != "builtin":
            reason = _PLUGIN_ONLY_ADVICE if is_locked and source.kind in ("user", "project") else ""
            if definition.hooks and not is_agent_trusted(settings.home, cwd, definition):
                reason = _TRUST_ADVICE
            reason = reason or _find_missing_part(definition, skills, servers)
            yield _make_definition_item(source, f"agent {definition.name}", reason)
            yield from _list_unknown_tools(definition, servers)
    for shadowed in catalog.shadowed:
        if shadowed.definition.source.kind != "builtin":
            item = f"agent {shadowed.definition.name}"
            yield _make_definition_item(
                shadowed.definition.source, item, "another file with this name takes precedence"
            )
    yield from _list_definition_problems("agent", catalog.problems, catalog.unused_parts)


def _find_missing_part(definition: AgentDefinition, skills: SkillCatalog, servers: Sequence[str]) -> str:
    """Return why an agent cannot start; empty if its servers and skills exist."""
    for each in definition.capabilities.mcp_servers:
        if isinstance(each, str) and not any(matches_mcp_server_pattern(each, name) for name in servers):
            return f"no MCP server named {each!r} is configured, so the agent cannot start"
    for name in definition.capabilities.skills:
        try:
            skills.find(name)
        except (UnknownSkill, InvalidAgentDefinition):
            return f"there is no skill {name!r}, so the agent cannot start"
    return ""


def _list_unknown_tools(definition: AgentDefinition, servers: Sequence[str]) -> Iterator[ClaudeItem]:
    """Yield each entry in `tools` of an agent that names no tool."""
    inline = [
        name for each in definition.capabilities.mcp_servers if not isinstance(each, str) for name in each
    ]
    known = (*map(format_mcp_tool_prefix, (*servers, *inline)),)
    for entry in select_definition_tools(definition.capabilities, (*TOOL_NAMES, *_RESOURCE_TOOLS)).missing:
        name = entry.partition("(")[0].strip()
        if not name.startswith(MCP_PREFIX):
            similar = " or ".join(find_similar_names(name, sorted(TOOL_NAMES)))
            reason = (
                "Shoal does not have this tool" if name in FOREIGN_TOOL_NAMES else "there is no such tool"
            )
            advice = f"{reason}; did you mean {similar}?" if similar else reason
        elif "*" in name.removeprefix(MCP_PREFIX).partition("__")[0] or f"{name}__".startswith(known):
            continue
        else:
            similar = " or ".join(find_similar_names(name.split("__")[1], sorted({*servers, *inline})))
            advice = "no MCP server with this name is configured"
            advice += f"; did you mean {similar}?" if similar else ""
        yield _make_tool_item(definition, entry, advice)


def _list_absent_tools(settings: Settings, catalog: AgentCatalog) -> Iterator[ClaudeItem]:
    """Yield each built-in tool in `tools` of an agent that sessions do not have with these settings."""
    named = [
        (definition, entry, FORMER_TOOL_NAMES.get(name, name))
        for definition in catalog.all()
        for entry in definition.capabilities.tools or ()
        if definition.source.kind != "builtin" and (name := entry.partition("(")[0].strip())
    ]
    absent = _find_absent_tools(settings, {name for _, _, name in named})
    yield from (_make_tool_item(each, entry, absent[name]) for each, entry, name in named if name in absent)


def _find_absent_tools(settings: Settings, named: Collection[str]) -> dict[str, str]:
    absent: dict[str, str] = {}
    card = find_lead_card(settings) if WEB_SEARCH_TOOL in named else None
    if card is not None and not can_search(settings, card):
        absent[WEB_SEARCH_TOOL] = "nothing here answers searches; set shoal.web_search"
    if not settings.own.workflow_tool:
        absent["Workflow"] = "set shoal.workflow_tool to true to use it"
    if settings.foreign.tools.is_background_disabled:
        # TaskOutput also shows the progress of workflows.
        names = ("BashOutput", "KillShell", *(() if settings.own.workflow_tool else ("TaskOutput",)))
        absent |= dict.fromkeys(names, "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS turns it off")
    return absent


def _make_tool_item(definition: AgentDefinition, entry: str, advice: str) -> ClaudeItem:
    line = (definition.source.locate_field("tools") or "").rpartition(":")[2]
    return ClaudeItem(
        file=str(definition.source.path or definition.source),
        item=f"tool {entry} of the agent {definition.name}",
        use="not used",
        advice=f"{line}: {advice}" if line.isdigit() else advice,
    )


def _list_skill_items(
    settings: Settings, library: SkillAndCommandLibrary, agents: AgentCatalog, engine: PermissionEngine
) -> Iterator[ClaudeItem]:
    policy = load_skill_policy(settings.documents)
    reason = _PLUGIN_ONLY_ADVICE if is_plugin_only(settings.documents, "skills") else ""
    for noun, catalog in (("skill", library.skills), ("command", library.commands)):
        yield from _list_catalog_items(noun, catalog, policy, reason, agents, engine)


def _list_catalog_items(
    noun: str,
    catalog: SkillCatalog,
    policy: SkillPolicy,
    common_reason: str,
    agents: AgentCatalog,
    engine: PermissionEngine,
) -> Iterator[ClaudeItem]:
    for skill in catalog.all():
        reason = "" if skill.source.kind == "plugin" else common_reason
        if policy.apply_to_skill(skill) is None:
            reason = "skillOverrides turns it off"
        if not reason and skill.execution.forks and (kind := skill.execution.agent):
            try:
                agents.find(kind)
            except (UnknownAgentType, InvalidAgentDefinition):
                reason = f"there is no agent {kind!r}, which it needs"
        is_typed = skill.for_person and not skill.execution.forks  # what the user types is not checked
        is_checked = skill.execution.forks or (noun == "skill" and skill.for_model)
        if not reason and is_checked and engine.check_skill_use(skill.name) is not None:
            reason = f"{_DENIED_ADVICE} for agents; only you can run it" if is_typed else _DENIED_ADVICE
        item = _make_definition_item(skill.source, f"{noun} {skill.name}", reason)
        is_for_user_only = noun == "command" and skill.for_model and not reason
        yield replace(item, advice=_COMMAND_REMARK) if is_for_user_only else item
        yield from _list_unused_skill_fields(noun, skill.source)
    for skill, _ in catalog.shadowed:
        yield _make_definition_item(
            skill.source, f"{noun} {skill.name}", "another file with this name takes precedence"
        )
    yield from _list_definition_problems(noun, catalog.problems, catalog.unused_parts)


def _list_unused_skill_fields(noun: str, source: DefinitionSource) -> Iterator[ClaudeItem]:
    file = None if source.path is None else read_definition_text(source.path, source.kind)
    if not isinstance(file, DefinitionText):
        return
    try:
        entries = parse_front_matter(file.text, UNUSED_SKILL_FIELDS).entries
    except InvalidFrontMatterError:
        return
    for entry in entries:
        if entry.key in UNUSED_SKILL_FIELDS:
            advice = f"{entry.line}: {entry.key} has no effect"
            yield ClaudeItem(file=str(source.path), item=f"part of the {noun}", use="not used", advice=advice)


def _make_definition_item(source: DefinitionSource, item: str, reason: str = "") -> ClaudeItem:
    use: KeyUse = "not used" if reason else "used"
    return ClaudeItem(file=str(source.path or source), item=item, use=use, advice=reason)


def _list_definition_problems(
    noun: str, problems: Iterable[DefinitionProblem], unused_parts: Iterable[str]
) -> Iterator[ClaudeItem]:
    for problem in problems:
        item = f"{noun} {escape_filename(problem.name)}"
        yield ClaudeItem(
            file=str(problem.source.path or problem.source), item=item, use="not used", advice=str(problem)
        )
    for sentence in unused_parts:
        file, _, rest = sentence.partition(":")
        yield ClaudeItem(file=file, item=f"part of the {noun}", use="not used", advice=rest.strip())


def _list_plugin_items(settings: Settings, plugins: PluginSet) -> Iterator[ClaudeItem]:
    enabled = find_enabled_plugin_ids(settings)
    for id_ in list_installed_plugin_ids(settings.home):
        if id_ not in enabled:
            advice = "enabledPlugins does not enable it"
            file = str(settings.home / "plugins" / "installed_plugins.json")
            yield ClaudeItem(file=file, item=f"plug-in {id_}", use="not used", advice=advice)
    for document in plugins.build_hook_documents():
        yield from _list_hook_items(settings, document, document.raw["hooks"])
    for plugin in plugins.all:
        yield ClaudeItem(file=str(plugin.root), item=f"plug-in {plugin.name}", use="used")
        if (path := plugin.root / ".lsp.json").is_file():
            advice = "Shoal starts no language servers"
            yield ClaudeItem(file=str(path), item="file", use="not used", advice=advice)
    for plugin in plugins.untrusted:
        item = f"plug-in {plugin.name}"
        yield ClaudeItem(file=str(plugin.root), item=item, use="not used", advice=_TRUST_ADVICE)
    for fault in plugins.faults:
        item = f"plug-in {fault.plugin}" if fault.plugin else "plug-ins"
        yield ClaudeItem(file=str(fault.path), item=item, use="not used", advice=str(fault))


def _load_instructions(
    settings: Settings, cwd: Path, is_hidden: Callable[[str], bool]
) -> LoadedInstructionFiles:
    return load_instructions(
        cwd=cwd,
        home=settings.home,
        is_hidden=is_hidden,
        exclusions=read_instruction_exclusions(settings),
        managed=list_managed_instruction_files(),
    )


def _list_instruction_items(
    settings: Settings, instructions: LoadedInstructionFiles, advice: str = ""
) -> Iterator[ClaudeItem]:
    """Yield the files that are read, with `advice`, and those that are left out."""
    is_on = settings.own.instructions
    use: KeyUse = "used" if is_on else "not used"
    other_notes = [*instructions.notes]
    for file in instructions.files:
        name = escape_filename(file.path)
        about = [note for note in other_notes if note.startswith((f"{name} ", f"{name}: "))]
        other_notes = [note for note in other_notes if note not in about]
        remark = " ".join(about) or advice
        yield ClaudeItem(
            file=str(file.path), item="instructions", use=use, advice=remark if is_on else _INSTRUCTIONS_OFF
        )
    for rule in instructions.rules:
        remark = f"an agent gets it when it uses a file that matches {', '.join(rule.patterns)}"
        yield ClaudeItem(
            file=str(rule.path), item="rule", use=use, advice=remark if is_on else _INSTRUCTIONS_OFF
        )
    for path in instructions.excluded:
        remark = "claudeMdExcludes excludes it"
        yield ClaudeItem(file=str(path), item="instructions", use="not used", advice=remark)
    for note in other_notes:
        file_name = note.partition(" is not used as instructions")[0]
        yield ClaudeItem(file=file_name, item="instructions", use="not used", advice=note)


def _list_nested_instruction_items(
    settings: Settings, cwd: Path, is_hidden: Callable[[str], bool], loaded: LoadedInstructionFiles
) -> Iterator[ClaudeItem]:
    """Yield the files of subdirectories, each read as if an agent used a file next to it."""
    *_, root = iter_project_directories(cwd)
    exclusions = read_instruction_exclusions(settings)
    listed = [file.path for file in loaded.files]
    for directory in _iter_directories_below(cwd):
        reader = InstructionReader(root=root, home=settings.home, is_hidden=is_hidden, exclusions=exclusions)
        reader.skip_files(listed)
        reader.read_directory(directory)
        reader.read_project_rules(directory)
        found = reader.fit_files_to_size_limit()
        listed += (file.path for file in found.files)
        yield from _list_instruction_items(settings, found, _NESTED_ADVICE)
        for path in sorted((directory / ".claude" / "skills").glob("*/SKILL.md")):
            item, advice = f"skill {path.parent.name}", f"start Shoal in {directory} to use it"
            yield ClaudeItem(file=str(path), item=item, use="not used", advice=advice)


def _iter_directories_below(cwd: Path) -> Iterator[Path]:
    for number, (directory, names, _) in enumerate(os.walk(cwd)):
        if number >= _MAX_DIRECTORIES:
            return
        names[:] = sorted(
            name for name in names if not name.startswith(".") and name not in _SKIPPED_DIRECTORIES
        )
        if number:
            yield Path(directory)


def _list_output_style_items(
    settings: Settings, cwd: Path, styles: Sequence[tuple[str, Path]]
) -> Iterator[ClaudeItem]:
    chosen = choose_output_style(settings, cwd, styles).name
    for file in list_output_style_files(settings, cwd, styles):
        use: KeyUse = "not used" if file.problem else "used"
        advice = file.problem or ("" if file.name == chosen else "choose it with outputStyle")
        yield ClaudeItem(file=str(file.path), item=f"output style {file.name}", use=use, advice=advice)


def _list_other_files(home: Path, cwd: Path) -> Iterator[ClaudeItem]:
    for base in dict.fromkeys((home, cwd / ".claude")):
        for pattern, advice in OTHER_FILES.items():
            for path in sorted(base.glob(pattern)):
                yield ClaudeItem(file=str(path), item="file", use="not used", advice=advice)
    *_, root = iter_project_directories(cwd)
    for directory in dict.fromkeys((cwd, root)):
        if (path := directory / INCLUDE_FILE).is_file():
            is_used = directory == root and contains_git_repository(root)
            advice = "" if is_used else "it applies only in the top directory of a git repository"
            use: KeyUse = "used" if is_used else "not used"
            yield ClaudeItem(file=str(path), item="file", use=use, advice=advice)
