"""Selects the tools of an agent: built-in tools and the caller's, without denied ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from shoal.app.teams.record import AgentsRecord
from shoal.core.definitions import means
from shoal.core.errors import SettingsError
from shoal.core.mcp import PREFIX
from shoal.core.tools import Tool
from shoal.policy.rules import parse_rule, split_rules
from shoal.tools.shells import Shells

if TYPE_CHECKING:
    from shoal.tools.tasks import Accept


def all_tools(
    shells: Shells,
    between: AgentsRecord,
    own: Sequence[Tool],
    accept: Accept | None = None,
    *,
    nested_teams: bool = False,
) -> dict[str, Tool]:
    from shoal.tools.askuser import ask_tools
    from shoal.tools.bash import shell_tools
    from shoal.tools.files import file_tools
    from shoal.tools.tasks import task_tools
    from shoal.tools.webfetch import web_tools

    led_as = between.led_as if nested_teams else None
    tools = (
        *file_tools(),
        *shell_tools(shells),
        *web_tools(),
        *ask_tools(),
        *task_tools(between.board_of, between.tell_assigned, accept, between.attempts, led_as),
        *own,
    )
    return {tool.schema.name: tool for tool in tools}


def only(tools: dict[str, Tool], names: Sequence[str] | None) -> dict[str, Tool]:
    """Return the named tools. Raises `SettingsError` for an unknown name: the agent would lack a tool."""
    if names is None:
        return tools
    for name in names:
        # The tools of an MCP server exist only once it is connected.
        if name not in tools and not name.startswith(PREFIX):
            near = get_close_matches(name, tools, n=1)
            meant = f" Is {near[0]} meant?" if near else f" There are {', '.join(tools)}."
            raise SettingsError(f"There is no tool named {name!r}.{meant}")
    return {name: tool for name, tool in tools.items() if any(means(each, name) for each in names)}


def left_of(tools: dict[str, Tool], denied: Sequence[str]) -> dict[str, Tool]:
    """Remove tools that are denied as a whole, so that the model does not see them."""
    gone = {rule.tool for rule in map(parse_rule, rules_in(denied)) if rule.pattern is None}
    of_servers = [name for name in gone if name.startswith(PREFIX)]
    return {
        name: tool
        for name, tool in tools.items()
        if name not in gone and not any(means(each, name) for each in of_servers)
    }


def rules_in(flags: Sequence[str]) -> tuple[str, ...]:
    return tuple(rule for flag in flags for rule in split_rules(flag))


def unknown_rules(flags: Sequence[str], tools: dict[str, Tool]) -> Iterator[str]:
    """Yield a warning for each rule that names no tool: it has no effect, which is worst for a deny rule."""
    for text in rules_in(flags):
        name = parse_rule(text).tool
        if name not in tools and name != "*" and not name.startswith(PREFIX):
            near = get_close_matches(name, tools, n=1)
            yield f"The rule {text} names no tool here." + (f" Is {near[0]} meant?" if near else "")
