"""Selects the tools of an agent: built-in tools and the caller's, without denied ones."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from shoal.app.teams.team_store import TeamStore
from shoal.core.agents.agent_definitions import matches_tool_list_entry
from shoal.core.conversation.tools import Tool
from shoal.core.errors import SettingsError
from shoal.core.extensions.mcp_servers import MCP_PREFIX
from shoal.policy.permission_rules import (
    ToolPermissionRule,
    parse_permission_rule,
    split_permission_rule_list,
)
from shoal.policy.rule_names import find_intended_tool, names_no_tool, suggest_tool
from shoal.tools.shell_supervisor import BackgroundShellSupervisor

if TYPE_CHECKING:
    from shoal.tools.bash_tools import BashToolLimits
    from shoal.tools.task_tools import AcceptanceRunner, LeadIdentityLookup


def build_session_tools(
    shells: BackgroundShellSupervisor,
    team_store: TeamStore,
    accept: AcceptanceRunner | None = None,
    find_lead_identity: LeadIdentityLookup | None = None,
    bash_limits: BashToolLimits | None = None,
) -> tuple[Tool, ...]:
    from shoal.tools.bash_tools import build_shell_tools
    from shoal.tools.file_tools import get_file_tools
    from shoal.tools.question_tool import get_question_tools
    from shoal.tools.task_tools import build_task_tools
    from shoal.tools.web_fetch_tool import build_web_tools

    return (
        *get_file_tools(),
        *build_shell_tools(shells, bash_limits),
        *build_web_tools(),
        *get_question_tools(),
        *build_task_tools(
            team_store.open_agent_board,
            team_store.notify_assigned,
            accept,
            team_store.attempts,
            find_lead_identity,
        ),
    )


def select_tools_by_name(tools: dict[str, Tool], names: Sequence[str] | None) -> dict[str, Tool]:
    """Return the named tools. Raises `SettingsError` for a misspelled name: the agent would lack a tool."""
    if names is None:
        return tools
    for name in names:
        if find_intended_tool(name, tools):
            raise SettingsError(f"There is no tool named {name!r}.{suggest_tool(name, tools)}")
    return {
        name: tool
        for name, tool in tools.items()
        if any(matches_tool_list_entry(each, name) for each in names)
    }


def iter_missing_tool_notes(names: Sequence[str] | None, tools: Collection[str]) -> Iterator[str]:
    """Yield a note for each name that selects no tool. MCP servers may still be connecting."""
    for name in names or ():
        if not name.startswith(MCP_PREFIX) and not any(matches_tool_list_entry(name, each) for each in tools):
            yield f"The tool {name} is not available in this session."


def remove_denied_tools(tools: dict[str, Tool], denied: Sequence[ToolPermissionRule]) -> dict[str, Tool]:
    """Remove tools that are denied completely, so that the model does not see them."""
    rules = [rule for rule in denied if rule.pattern is None]
    if not rules:
        return tools
    return {
        name: tool for name, tool in tools.items() if not any(rule.applies_to_tool(name) for rule in rules)
    }


def split_permission_rule_flags(flags: Sequence[str]) -> tuple[str, ...]:
    return tuple(rule for flag in flags for rule in split_permission_rule_list(flag))


def iter_unknown_rule_warnings(rules: Sequence[str], tools: Collection[str]) -> Iterator[str]:
    """Yield a warning for each rule that names no tool: it has no effect, which is worst for a deny rule."""
    for text in split_permission_rule_flags(rules):
        name = parse_permission_rule(text).tool
        if names_no_tool(name, tools):
            yield f"The rule {text} names an unknown tool.{suggest_tool(name, tools)}"
