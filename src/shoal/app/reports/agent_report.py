"""Report on the agents that a session in this directory would have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from operator import attrgetter
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from shoal.app.definitions.agent_catalog import AgentCatalog, load_agent_catalog, parse_agents_option
from shoal.app.definitions.plugin_set import load_plugins
from shoal.app.hooks.hook_sources import read_agent_definition_hooks
from shoal.app.reports import permission_report
from shoal.core.agents.agent_definitions import (
    INHERIT_MODEL,
    AgentDefinition,
    DefinitionProblem,
    ToolSelection,
    select_definition_tools,
)
from shoal.policy.mode_inheritance import narrow_child_permission_mode

_DEFAULT = "default"


class EffectiveAgentProperty(Struct, frozen=True, kw_only=True):
    """Effective property of an agent and its origin."""

    key: str
    value: Any
    origin: str


class AgentDefinitionInspector:
    def __init__(
        self,
        cwd: Path,
        *,
        offered: Sequence[str],
        settings: str | None = None,
        agents: str | None = None,
    ) -> None:
        """`offered` are the available tools. Raises `SettingsError`, `InvalidAgentDefinition`."""
        self.cwd = cwd.resolve()
        self.offered = tuple(offered)
        self.settings = permission_report.load_project_settings(self.cwd, given=settings)
        plugins = load_plugins(self.settings, self.cwd)
        self.definitions: AgentCatalog = load_agent_catalog(
            cwd=self.cwd,
            home=self.settings.home,
            given=parse_agents_option(agents, self.cwd),
            plugins=plugins.list_agent_dirs(),
            complete=plugins.fill_agent_plugin_root,
        )

    def resolve_tools(self, definition: AgentDefinition) -> ToolSelection:
        return select_definition_tools(definition.capabilities, self.offered)

    def resolve_agent_model_property(self, definition: AgentDefinition) -> EffectiveAgentProperty:
        override = self.settings.models.subagents
        if override is not None:
            return EffectiveAgentProperty(
                key="model", value=override, origin=self.settings.find_setting_origin("subagent_model")
            )
        origin = definition.source.locate_field("model") or _DEFAULT
        return EffectiveAgentProperty(key="model", value=definition.model or INHERIT_MODEL, origin=origin)

    def iter_properties(self, definition: AgentDefinition) -> Iterator[EffectiveAgentProperty]:
        """Yield the properties that every agent has, then those that are set."""
        locate_field = definition.source.locate_field
        tools = self.resolve_tools(definition)
        yield EffectiveAgentProperty(
            key="tools", value=tools.names, origin=locate_field("tools") or f"{_DEFAULT}: all"
        )
        if tools.only:
            yield EffectiveAgentProperty(
                key="only", value=tools.only, origin=locate_field("tools") or _DEFAULT
            )
        if definition.capabilities.disallowed_tools:
            origin = locate_field("disallowed_tools") or _DEFAULT
            yield EffectiveAgentProperty(
                key="disallowedTools", value=definition.capabilities.disallowed_tools, origin=origin
            )
        if tools.missing:
            yield EffectiveAgentProperty(
                key="missing tools", value=tools.missing, origin=locate_field("tools") or _DEFAULT
            )
        yield self.resolve_agent_model_property(definition)
        mode = definition.permission_mode or INHERIT_MODEL
        yield EffectiveAgentProperty(
            key="permissionMode", value=mode, origin=locate_field("permission_mode") or _DEFAULT
        )
        for key, field in _SHOWN_FIELDS.items():
            if (location := locate_field(field.rpartition(".")[2])) is not None:
                yield EffectiveAgentProperty(key=key, value=attrgetter(field)(definition), origin=location)

    def build_permission_report(self, definition: AgentDefinition) -> permission_report.PermissionReport:
        """Report the permissions of the agent as a child of the lead."""
        lead = permission_report.build_lead_permission_report(self.settings, self.cwd)
        source, tools = definition.source, self.resolve_tools(definition)
        requested = definition.permission_mode
        mode = narrow_child_permission_mode(
            lead.mode, requested, person_configured=source.is_trusted, can_bypass=lead.may_skip
        )
        mode_location = source.locate_field("permission_mode")
        mode_source = (
            mode_location
            if mode_location is not None and mode == requested
            else f"the lead's: {lead.mode_source}"
        )
        patterns: dict[str, list[str]] = {}
        for entry in tools.only:
            patterns.setdefault(entry.partition("(")[0], []).append(entry)
        restrictions = [(f"{tool}, except {' '.join(only)}", "tools") for tool, only in patterns.items()]
        denied = [*restrictions, *((rule, "disallowed_tools") for rule in tools.never)]
        rules = (
            permission_report.PermissionRuleReportRow(
                behavior="deny", rule=rule, source=source.locate_field(field) or str(source)
            )
            for rule, field in denied
        )
        return replace(
            lead, agent=definition.name, mode=mode, mode_source=mode_source, rules=(*rules, *lead.rules)
        )

    def find_unknown_tools(self, definitions: Sequence[AgentDefinition]) -> Iterator[str]:
        """Yield unknown tools, which prevent an agent's start; MCP tools may still be added by servers."""
        for definition in definitions:
            location = definition.source.locate_field("tools") or str(definition.source)
            for entry in self.resolve_tools(definition).missing:
                name = entry.partition("(")[0]
                if not name.startswith("mcp__"):
                    close_names = get_close_matches(name, self.offered, n=1)
                    suggestion = f"; did you mean {close_names[0]}?" if close_names else ""
                    yield f"{location}: tools: there is no tool {name!r}{suggestion}"

    def find_hook_problems(self, definitions: Sequence[AgentDefinition]) -> Iterator[DefinitionProblem]:
        """Yield unusable hooks, which prevent the start of an agent."""
        for definition in definitions:
            source = definition.source
            location = source.locate_field("hooks") or str(source)
            for problem in read_agent_definition_hooks(definition, self.settings).problems:
                hook_path, _, what = problem.removeprefix(f"{location}: ").partition(": ")
                field = f"{definition.name}.{hook_path}" if source.kind == "flag" else hook_path
                line = source.lines.get("hooks") or None
                yield DefinitionProblem(
                    what=what, name=definition.name, source=source, line=line, field=field
                )

    def find_hook_warnings(self, definitions: Sequence[AgentDefinition]) -> Iterator[str]:
        for definition in definitions:
            yield from read_agent_definition_hooks(definition, self.settings).warnings


_SHOWN_FIELDS = {
    "effort": "effort",
    "background": "run.background",
    "isolation": "run.isolation",
    "resources": "run.resources",
    "maxTurns": "run.max_turns",
    "maxBudgetUsd": "run.max_budget_usd",
    "acceptance": "run.acceptance",
    "color": "color",
    "memory": "memory",
    "skills": "capabilities.skills",
    "requiredMcpServers": "capabilities.required_mcp_servers",
    "mcpServers": "capabilities.mcp_servers",
    "hooks": "hooks",
    "initialPrompt": "run.initial_prompt",
    "oneShot": "run.one_shot",
    "instructions": "instructions",
}


async def list_session_tools(cwd: Path, settings: str | None = None) -> tuple[str, ...]:
    """Return the tool names that a session offers to agents. It stores nothing and sends no request."""
    from shoal.app.options import Options
    from shoal.app.session.session import Session
    from shoal.models.scripted_model import ScriptedModel

    options = Options(cwd=cwd, model=ScriptedModel([]), settings=settings, persist=False, begun=None)
    async with Session(options) as session:
        return tuple(session.agent.tools)
