"""Report on the agents that a session in this directory would have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from shoal.app.definitions.definitions import Definitions, definitions_for, given_definitions
from shoal.app.definitions.plugins import plugins_for
from shoal.app.hooks.sources import hooks_of
from shoal.app.views import permissions as permissions_view
from shoal.core.definitions import INHERIT, Definition, Problem, Toolset, tool_names
from shoal.policy.authority import narrowed

_DEFAULT = "default"


class Fact(Struct, frozen=True, kw_only=True):
    """Effective property of an agent and its origin."""

    key: str
    value: Any
    origin: str


class AgentsView:
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
        self.settings = permissions_view.load(self.cwd, given=settings)
        plugins = plugins_for(self.settings, self.cwd)
        self.definitions: Definitions = definitions_for(
            cwd=self.cwd,
            home=self.settings.home,
            given=given_definitions(agents, self.cwd),
            plugins=plugins.agents(),
            complete=plugins.completed,
        )

    def tools(self, definition: Definition) -> Toolset:
        return tool_names(definition, self.offered)

    def model(self, definition: Definition) -> Fact:
        chosen = self.settings.subagent_model
        if chosen is not None:
            return Fact(key="model", value=chosen, origin=self.settings.origin("subagent_model"))
        origin = definition.source.place("model") or _DEFAULT
        return Fact(key="model", value=definition.model or INHERIT, origin=origin)

    def facts(self, definition: Definition) -> Iterator[Fact]:
        """Yield the properties that every agent has, then those that are set."""
        place = definition.source.place
        tools = self.tools(definition)
        yield Fact(key="tools", value=tools.names, origin=place("tools") or f"{_DEFAULT}: all")
        if tools.only:
            yield Fact(key="only", value=tools.only, origin=place("tools") or _DEFAULT)
        if definition.disallowed_tools:
            origin = place("disallowed_tools") or _DEFAULT
            yield Fact(key="disallowedTools", value=definition.disallowed_tools, origin=origin)
        if tools.missing:
            yield Fact(key="missing tools", value=tools.missing, origin=place("tools") or _DEFAULT)
        yield self.model(definition)
        mode = definition.permission_mode or INHERIT
        yield Fact(key="permissionMode", value=mode, origin=place("permission_mode") or _DEFAULT)
        for key, field in _SHOWN.items():
            if (where := place(field)) is not None:
                yield Fact(key=key, value=getattr(definition, field), origin=where)

    def permissions(self, definition: Definition) -> permissions_view.View:
        """Report the permissions of the agent as a child of the lead."""
        lead = permissions_view.view(self.settings, self.cwd)
        source, tools = definition.source, self.tools(definition)
        wished = definition.permission_mode
        mode = narrowed(lead.mode, wished, person_configured=source.trusted, may_skip=lead.may_skip)
        own = source.place("permission_mode")
        where = own if own is not None and mode == wished else f"the lead's: {lead.mode_source}"
        patterns: dict[str, list[str]] = {}
        for entry in tools.only:
            patterns.setdefault(entry.partition("(")[0], []).append(entry)
        narrow = [(f"{tool}, but for {' '.join(only)}", "tools") for tool, only in patterns.items()]
        denied = [*narrow, *((rule, "disallowed_tools") for rule in tools.never)]
        rules = (
            permissions_view.RuleShown(behavior="deny", rule=rule, source=source.place(field) or str(source))
            for rule, field in denied
        )
        return replace(lead, agent=definition.name, mode=mode, mode_source=where, rules=(*rules, *lead.rules))

    def unknown_tools(self, definitions: Sequence[Definition]) -> Iterator[str]:
        """Yield unknown tools, which prevent an agent's start; MCP tools may still be added by servers."""
        for definition in definitions:
            place = definition.source.place("tools") or str(definition.source)
            for entry in self.tools(definition).missing:
                name = entry.partition("(")[0]
                if not name.startswith("mcp__"):
                    near = get_close_matches(name, self.offered, n=1)
                    meant = f"; is {near[0]} meant?" if near else ""
                    yield f"{place}: tools: there is no tool {name!r} here{meant}"

    def hook_problems(self, definitions: Sequence[Definition]) -> Iterator[Problem]:
        """Yield unusable hooks, which prevent the start of an agent."""
        for definition in definitions:
            source = definition.source
            place = source.place("hooks") or str(source)
            for told in hooks_of(definition, self.settings).problems:
                way, _, what = told.removeprefix(f"{place}: ").partition(": ")
                field = f"{definition.name}.{way}" if source.kind == "flag" else way
                line = source.lines.get("hooks") or None
                yield Problem(what=what, name=definition.name, source=source, line=line, field=field)

    def hook_warnings(self, definitions: Sequence[Definition]) -> Iterator[str]:
        for definition in definitions:
            yield from hooks_of(definition, self.settings).warnings


_SHOWN = {
    "effort": "effort",
    "background": "background",
    "isolation": "isolation",
    "maxTurns": "max_turns",
    "maxBudgetUsd": "max_budget_usd",
    "acceptance": "acceptance",
    "color": "color",
    "memory": "memory",
    "skills": "skills",
    "requiredMcpServers": "required_mcp_servers",
    "mcpServers": "mcp_servers",
    "hooks": "hooks",
    "initialPrompt": "initial_prompt",
    "oneShot": "one_shot",
    "instructions": "instructions",
}


async def offered_tools(cwd: Path, settings: str | None = None) -> tuple[str, ...]:
    """Return the tool names that a session offers to agents. It stores nothing and sends no request."""
    from shoal.app.options import Options
    from shoal.app.session.session import Session
    from shoal.models.scripted import ScriptedModel

    options = Options(cwd=cwd, model=ScriptedModel([]), settings=settings, persist=False, begun=None)
    async with Session(options) as session:
        return tuple(session.agent.tools)
