"""Names of tools in rules: a misspelled name would make a rule that forbids nothing."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from shoal.core.errors import SettingsError
from shoal.core.extensions.mcp_servers import MCP_PREFIX
from shoal.core.names import FORMER_TOOL_NAMES, TOOL_NAMES
from shoal.policy.permission_rules import parse_permission_rule

FOREIGN_TOOL_NAMES = frozenset(
    {*FORMER_TOOL_NAMES, "LSP", "PowerShell", "StructuredOutput", "Config", "Monitor"}
    | {"ListMcpResourcesTool", "ReadMcpResourceTool"}
)
"""Tools of other programs, whose rules are often in the same files."""


def refuse_misspelled_rules(location: str, rules: Sequence[str], tools: Collection[str]) -> None:
    """Raise `SettingsError` for a rule whose tool is probably misspelled.

    Settings are shared with other programs, so a rule may name one of their tools.
    """
    for text in rules:
        name = parse_permission_rule(text, location).tool
        if find_intended_tool(name, tools):
            suggestion = suggest_tool(name, tools)
            raise SettingsError(
                f"{location}: the rule {text} names an unknown tool.{suggestion} Correct the rule."
            )


def find_intended_tool(name: str, tools: Collection[str] = ()) -> str | None:
    """Return the tool that a misspelled name probably means; None for a tool's name or an unrelated one."""
    is_unknown = names_no_tool(name, tools) and name not in FOREIGN_TOOL_NAMES
    return _find_nearest_tool(name, tools) if is_unknown else None


def names_no_tool(name: str, tools: Collection[str]) -> bool:
    """Return True if neither a tool nor an MCP server has this name, which may contain `*`."""
    if name in tools or name in TOOL_NAMES or name.startswith(MCP_PREFIX):
        return False
    return not any(fnmatchcase(each, name) for each in (*tools, *TOOL_NAMES, *FORMER_TOOL_NAMES))


def suggest_tool(name: str, tools: Collection[str]) -> str:
    """Return the nearest tool name as a question, or an empty text."""
    nearest = _find_nearest_tool(name, tools)
    return f" Did you mean {nearest}?" if nearest else ""


def _find_nearest_tool(name: str, tools: Collection[str]) -> str | None:
    folded = {each.casefold(): each for each in (*TOOL_NAMES, *tools)}
    close = get_close_matches(name.casefold(), folded, n=1, cutoff=0.7)
    return folded[close[0]] if close else None
