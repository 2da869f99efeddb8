"""Names in agents that a program passes: unlike in shared files, each of them must exist."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from shoal.app.agents.agent import Agent
from shoal.app.config.tool_selection import split_permission_rule_flags
from shoal.app.definitions.agent_catalog import parse_agents_option
from shoal.app.hooks.hook_sources import find_unknown_agent_problem, refuse_unknown_matcher_names
from shoal.app.models.child_model import choose_subagent_model, format_qualified_model_name
from shoal.app.models.model_choice import refuse_unknown_model
from shoal.core.agents.agent_definitions import AgentDefinition
from shoal.core.errors import InvalidAgentDefinition, SettingsError, UnknownModel, UnknownSkill
from shoal.core.extensions.hooks import MATCHER_FIELDS
from shoal.core.extensions.mcp_servers import matches_mcp_server_pattern
from shoal.core.ids import LEAD_ID
from shoal.core.names import FORMER_TOOL_NAMES, TOOL_NAMES
from shoal.core.text.name_suggestions import suggest_name
from shoal.policy.permission_rules import AGENT_TOOLS, parse_permission_rule
from shoal.policy.rule_names import FOREIGN_TOOL_NAMES
from shoal.wire.json_comments import decode_commented_json

if TYPE_CHECKING:
    from shoal.app.runtime.runtime import Runtime

_JSON_NAMES = {"disallowed_tools": "disallowedTools", "mcp_servers": "mcpServers"}


def refuse_unknown_agent_names(agent: Agent[Any], runtime: Runtime) -> None:
    """Raise `SettingsError` for a tool, skill, MCP server or model of an agent that does not exist."""
    own_tools = [tool.schema.name for tool in agent.extras.tools]
    for field, problem in _find_problems(agent.parsed.definition, runtime, own_tools):
        raise SettingsError(f"shoal.Agent({agent.name!r}): {field}: {problem}")


def refuse_unknown_names_in_option(agents: str | Mapping[str, Any] | None, runtime: Runtime) -> None:
    """Raise `SettingsError` for an unknown name in `agents=` as a mapping or JSON; files are not checked."""
    if agents is None or (isinstance(agents, str) and not agents.lstrip().startswith(("{", "["))):
        return
    for parsed in parse_agents_option(agents, runtime.config.cwd, runtime.settings.user):
        definition = parsed.definition
        own_tools = [tool.schema.name for tool in _get_extra_tools(runtime, definition.name)]
        for field, problem in _find_problems(definition, runtime, (*own_tools, *FOREIGN_TOOL_NAMES)):
            json_field = _JSON_NAMES.get(field, field)
            raise SettingsError(f"shoal.open: agents: {definition.name}: {json_field}: {problem}")


def refuse_unknown_skills(runtime: Runtime) -> None:
    """Raise `SettingsError` for a name in `skills=` that no skill has, or if skills are turned off."""
    options = runtime.options
    if options.skills and not options.slash_commands:
        raise SettingsError("shoal.open: skills: slash_commands=False turns skills off. Leave out one.")
    for problem in runtime.knowledge.unknown_skills:
        raise SettingsError(f"shoal.open: skills: {problem[0].lower()}{problem[1:]}")


def refuse_unknown_agent_types(runtime: Runtime) -> None:
    """Raise `SettingsError` for an agent type in hooks, limits or rules of the program that does not exist.

    Only JSON settings are checked. Files may be shared with projects that have other agents.
    """
    options, types = runtime.options, runtime.config.list_agent_types()
    text = options.settings or ""
    settings = decode_commented_json(text)[0] if text.lstrip().startswith("{") else {}
    origin = "shoal.open: settings"
    hooks = settings.get("hooks") or {}
    agent_hooks = {name: hooks[name] for name in hooks if MATCHER_FIELDS.get(name) == "agent_type"}
    refuse_unknown_matcher_names(origin, agent_hooks, (), types)
    for name in (settings.get("shoal") or {}).get("agent_type_limits") or ():
        # The lead is an agent with limits too, but not one that can be started.
        if problem := find_unknown_agent_problem(name, (*types, LEAD_ID)):
            raise SettingsError(f"{origin}: shoal.agent_type_limits: {problem}")
    permissions = settings.get("permissions") or {}
    for field in ("allow", "ask", "deny"):
        _refuse_unknown_types_in_rules(f"{origin}: permissions.{field}", permissions.get(field) or (), types)
    for option in ("allowed_tools", "disallowed_tools"):
        rules = split_permission_rule_flags(getattr(options, option))
        _refuse_unknown_types_in_rules(f"shoal.open: {option}", rules, types)


def _refuse_unknown_types_in_rules(location: str, rules: Iterable[str], types: Collection[str]) -> None:
    for rule in (parse_permission_rule(each, location) for each in rules):
        pattern = rule.pattern
        if rule.tool not in AGENT_TOOLS or pattern is None or rule.parameter is not None or "*" in pattern:
            continue
        if problem := find_unknown_agent_problem(pattern, types):
            raise SettingsError(f"{location}: the rule {rule}: {problem}")


def _get_extra_tools(runtime: Runtime, name: str) -> Collection[Any]:
    extras = runtime.agents.extras.get(name)
    return () if extras is None else extras.tools


def _find_problems(
    definition: AgentDefinition, runtime: Runtime, more_tools: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Yield fields and problems. Tools of MCP servers and patterns are not checked: servers connect later."""
    capabilities = definition.capabilities
    session_tools = runtime.agents.running.lead.environment.session_tools
    tools = {*session_tools, *TOOL_NAMES, *FORMER_TOOL_NAMES, *more_tools}
    for field, entries in (
        ("tools", capabilities.tools or ()),
        ("disallowed_tools", capabilities.disallowed_tools),
    ):
        for name in (entry.partition("(")[0] for entry in entries):
            if name not in tools and not name.startswith("mcp__") and "*" not in name:
                suggestion = suggest_name(name, sorted(tools - FOREIGN_TOOL_NAMES))
                yield field, f"there is no tool named {name!r}.{suggestion}"
    for name in capabilities.skills:
        try:
            runtime.knowledge.skills.find_skill(name)
        except (UnknownSkill, InvalidAgentDefinition) as error:
            yield "skills", str(error)
    servers = _list_server_names(runtime)
    for entry in capabilities.mcp_servers:
        if isinstance(entry, str) and not any(matches_mcp_server_pattern(entry, each) for each in servers):
            suggestion = suggest_name(entry, servers) if servers else " No MCP servers are configured."
            yield "mcp_servers", f"there is no MCP server named {entry!r}.{suggestion}"
    if definition.model is not None and (problem := _find_model_problem(definition.model, runtime)):
        yield "model", problem


def _list_server_names(runtime: Runtime) -> list[str]:
    configured = runtime.servers.configured
    own = (*configured.servers, *configured.disabled, *configured.untrusted)
    return [*(each.name for each in own), *(each.name for each in configured.relayed)]


def _find_model_problem(name: str, runtime: Runtime) -> str:
    parent = runtime.lead.model
    chosen = choose_subagent_model(runtime.settings, parent.card, call=None, definition=name)
    if chosen is None or chosen in (parent.card.id, format_qualified_model_name(parent)):
        return ""
    try:
        refuse_unknown_model(chosen, runtime.settings)
    except UnknownModel as error:
        return str(error)
    return ""
