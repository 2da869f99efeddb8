"""Agents, skills and commands, with what Shoal does with each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path

from msgspec.structs import replace

from shoal.app.config.web_search import can_search
from shoal.app.definitions.agent_catalog import AgentCatalog, load_agent_catalog
from shoal.app.definitions.agent_files import DefinitionText, read_definition_text
from shoal.app.definitions.agent_trust import is_agent_trusted
from shoal.app.definitions.plugin_set import PluginSet
from shoal.app.doctor.claude_item import PLUGIN_ONLY_ADVICE, TRUST_ADVICE, ClaudeItem
from shoal.app.doctor.start_refusals import find_lead_card, find_unknown_model
from shoal.app.models.child_model import choose_subagent_model
from shoal.app.settings.claude_keys import KeyUse
from shoal.app.settings.managed_switches import is_plugin_only
from shoal.app.settings.mcp_files import load_mcp_servers
from shoal.app.settings.settings import Settings
from shoal.app.skills.skill_catalog import SkillAndCommandLibrary, SkillCatalog, load_skills
from shoal.app.skills.skill_policy import SkillPolicy, load_skill_policy
from shoal.app.skills.skill_trust import SkillTrustDecisionStore, find_escalating_skills
from shoal.core.agents.agent_definitions import (
    AgentDefinition,
    DefinitionProblem,
    DefinitionSource,
    select_definition_tools,
)
from shoal.core.errors import InvalidAgentDefinition, UnknownAgentType, UnknownSkill
from shoal.core.extensions.mcp_servers import MCP_PREFIX, format_mcp_tool_prefix, matches_mcp_server_pattern
from shoal.core.names import FORMER_TOOL_NAMES, TOOL_NAMES
from shoal.core.text.filenames import escape_filename
from shoal.core.text.name_suggestions import find_similar_names
from shoal.policy.permission_engine import PermissionEngine
from shoal.policy.rule_names import FOREIGN_TOOL_NAMES
from shoal.tools.web_search_tool import WEB_SEARCH_TOOL
from shoal.wire.front_matter import InvalidFrontMatterError, parse_front_matter
from shoal.wire.skill_codec import UNUSED_SKILL_FIELDS

_DENIED_ADVICE = "permissions.deny forbids it"
_CLAUDE_FIELDS = {"permission_mode": "permissionMode"}
RESOURCE_TOOLS = ("ListMcpResourcesTool", "ReadMcpResourceTool")


def list_definition_items(
    settings: Settings, cwd: Path, plugins: PluginSet, engine: PermissionEngine
) -> Iterator[ClaudeItem]:
    library = load_skills(cwd=cwd, home=settings.home)
    library.add_plugins(plugins)
    catalog = load_agent_catalog(cwd=cwd, home=settings.home, plugins=plugins.list_agent_dirs())
    found = load_mcp_servers(settings, cwd=cwd, plugins=plugins.build_mcp_documents())
    servers = [server.name for server in (*found.servers, *found.disabled, *found.untrusted)]
    for item in _list_agent_items(settings, cwd, catalog, library, servers):
        is_denied = item.use == "used" and engine.check_agent_start(item.item.removeprefix("agent "))
        yield replace(item, use="not used", advice=_DENIED_ADVICE) if is_denied else item
    trust = SkillTrustDecisionStore(settings.home, cwd)
    yield from _list_skill_items(settings, library, catalog, engine, trust)
    for skill in find_escalating_skills(library):
        if skill.allowed_tools and not trust.list_granted_tools(skill):
            name = f"allowed-tools of the {skill.kind} {skill.name}"
            yield _make_definition_item(skill.source, name, TRUST_ADVICE)


def _list_agent_items(
    settings: Settings,
    cwd: Path,
    catalog: AgentCatalog,
    skills: SkillAndCommandLibrary,
    servers: Sequence[str],
) -> Iterator[ClaudeItem]:
    is_locked = is_plugin_only(settings.documents, "agents")
    definitions = [each for each in catalog.all() if each.source.kind != "builtin"]
    named = {name for each in definitions for _, name in _iter_named_tools(each)}
    absent = find_absent_tools(settings, named)
    models = _AgentModels(settings)
    for definition in definitions:
        source = definition.source
        reason = PLUGIN_ONLY_ADVICE if is_locked and source.kind in ("user", "project") else ""
        if definition.hooks and not is_agent_trusted(settings.home, cwd, definition):
            reason = TRUST_ADVICE
        reason = reason or _find_missing_part(definition, skills, servers) or models.find_unknown(definition)
        missing_tools = {
            **dict(_find_unknown_tools(definition, servers)),
            **{entry: absent[name] for entry, name in _iter_named_tools(definition) if name in absent},
        }
        if not reason and missing_tools and not set(definition.capabilities.tools or ()) - set(missing_tools):
            reason = "none of its tools is available, so the agent cannot start"
        yield _make_definition_item(source, f"agent {definition.name}", reason)
        yield from (_make_tool_item(definition, entry, advice) for entry, advice in missing_tools.items())
        unused_fields = {
            "model": models.find_unused(definition),
            "permission_mode": _find_unused_mode_reason(settings, definition),
        }
        for field, advice in unused_fields.items():
            if advice and not reason:
                yield _make_part_item(definition, field, _CLAUDE_FIELDS.get(field, field), advice)
    for shadowed in catalog.shadowed:
        if shadowed.definition.source.kind != "builtin":
            item = f"agent {shadowed.definition.name}"
            yield _make_definition_item(
                shadowed.definition.source, item, "another file with this name takes precedence"
            )
    yield from _list_definition_problems("agent", catalog.problems, catalog.unused_parts)


class _AgentModels:
    """Models of agents that Shoal does not use; each name is looked up once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._find_lead_card = cache(partial(find_lead_card, settings))
        # An agent whose model is not permitted runs on another one.
        models = replace(settings.foreign.models, available=())
        unlimited = replace(settings, foreign=replace(settings.foreign, models=models))
        self._find_unknown = cache(partial(find_unknown_model, settings=unlimited))

    def find_unknown(self, definition: AgentDefinition) -> str:
        """Return why there is no such model, so that the agent cannot start; empty if there is one."""
        name = self._choose_name(definition)
        return "" if name is None else self._find_unknown(name)

    def find_unused(self, definition: AgentDefinition) -> str:
        """Return why the agent runs on another model; empty if it does not."""
        from shoal.app.models.model_choice import find_unavailable_reason

        if definition.model is not None and self._settings.models.subagents is not None:
            return f"every agent runs on {self._settings.models.subagents}, which a variable sets"
        name = self._choose_name(definition)
        return "" if name is None else find_unavailable_reason(name, self._settings) or ""

    def _choose_name(self, definition: AgentDefinition) -> str | None:
        if definition.model is None or (card := self._find_lead_card()) is None:
            return None
        return choose_subagent_model(self._settings, card, call=None, definition=definition.model)


def _find_unused_mode_reason(settings: Settings, definition: AgentDefinition) -> str:
    mode, permissions = definition.permission_mode, settings.permissions
    if mode == "bypassPermissions" and permissions.bypass_ban is not None:
        return f"{permissions.bypass_ban} forbids it"
    is_unused = mode == "bypassPermissions" and permissions.entries.default_mode != mode
    return "it applies only with --dangerously-skip-permissions" if is_unused else ""


def _find_missing_part(
    definition: AgentDefinition, skills: SkillAndCommandLibrary, servers: Sequence[str]
) -> str:
    """Return why an agent cannot start; empty if its servers and skills exist."""
    for each in definition.capabilities.mcp_servers:
        if isinstance(each, str) and not any(matches_mcp_server_pattern(each, name) for name in servers):
            return f"no MCP server named {each!r} is configured, so the agent cannot start"
    for name in definition.capabilities.skills:
        try:
            skills.find_skill(name)
        except (UnknownSkill, InvalidAgentDefinition):
            return f"there is no skill {name!r}, so the agent cannot start"
    return ""


def _find_unknown_tools(definition: AgentDefinition, servers: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each entry in `tools` of an agent that names no tool, with the reason."""
    inline = [
        name for each in definition.capabilities.mcp_servers if not isinstance(each, str) for name in each
    ]
    known = (*map(format_mcp_tool_prefix, (*servers, *inline)),)
    for entry in select_definition_tools(definition.capabilities, (*TOOL_NAMES, *RESOURCE_TOOLS)).missing:
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
        yield entry, advice


def _iter_named_tools(definition: AgentDefinition) -> Iterator[tuple[str, str]]:
    """Yield each entry in `tools` of an agent with the current name of its tool."""
    for entry in definition.capabilities.tools or ():
        name = entry.partition("(")[0].strip()
        yield entry, FORMER_TOOL_NAMES.get(name, name)


def find_absent_tools(settings: Settings, named: Collection[str]) -> dict[str, str]:
    """Return the built-in tools among those named that sessions do not have with these settings."""
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
    return _make_part_item(definition, "tools", f"tool {entry}", advice)


def _make_part_item(definition: AgentDefinition, field: str, item: str, advice: str) -> ClaudeItem:
    line = (definition.source.locate_field(field) or "").rpartition(":")[2]
    return ClaudeItem(
        file=str(definition.source.path or definition.source),
        item=f"{item} of the agent {definition.name}",
        use="not used",
        advice=f"{line}: {advice}" if line.isdigit() else advice,
    )


def _list_skill_items(
    settings: Settings,
    library: SkillAndCommandLibrary,
    agents: AgentCatalog,
    engine: PermissionEngine,
    trust: SkillTrustDecisionStore,
) -> Iterator[ClaudeItem]:
    policy = load_skill_policy(settings.documents)
    reason = PLUGIN_ONLY_ADVICE if is_plugin_only(settings.documents, "skills") else ""
    for noun, catalog in (("skill", library.skills), ("command", library.commands)):
        yield from _list_catalog_items(noun, catalog, policy, reason, agents, engine, trust)


def _list_catalog_items(
    noun: str,
    catalog: SkillCatalog,
    policy: SkillPolicy,
    common_reason: str,
    agents: AgentCatalog,
    engine: PermissionEngine,
    trust: SkillTrustDecisionStore,
) -> Iterator[ClaudeItem]:
    for skill in catalog.all():
        reason = "" if skill.source.kind == "plugin" else common_reason
        if skill.hooks and trust.read_skill_trust(skill) != "trusted":
            reason = TRUST_ADVICE
        if policy.apply_to_skill(skill) is None:
            reason = "skillOverrides turns it off"
        if not reason and skill.execution.forks and (kind := skill.execution.agent):
            try:
                agents.find(kind)
            except (UnknownAgentType, InvalidAgentDefinition):
                reason = f"there is no agent {kind!r}, which it needs"
        is_typed = skill.for_person and not skill.execution.forks  # what the user types is not checked
        is_checked = skill.execution.forks or skill.for_model
        if not reason and is_checked and engine.check_skill_use(skill.name) is not None:
            reason = f"{_DENIED_ADVICE} for agents; only you can run it" if is_typed else _DENIED_ADVICE
        yield _make_definition_item(skill.source, f"{noun} {skill.name}", reason)
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
