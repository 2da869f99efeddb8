"""Tools of a session: complete when they are made, except for those of MCP servers."""

from __future__ import annotations

from shoal.core.conversation.tools import Tool, ToolRegistry
from shoal.tools.function_tool import tool


def build_tool(name: str) -> Tool:
    @tool(name=name, description="Does nothing.")
    async def do_nothing() -> str:
        return ""

    return do_nothing


def test_tools_of_servers_follow_the_other_tools_and_are_replaced_together() -> None:
    registry = ToolRegistry(map(build_tool, ("Read", "Bash")))
    registry.replace_server_tools({name: build_tool(name) for name in ("mcp__a__x", "mcp__b__x")})
    assert list(registry) == ["Read", "Bash", "mcp__a__x", "mcp__b__x"]
    registry.replace_server_tools({name: build_tool(name) for name in ("mcp__b__x", "mcp__c__x")})
    assert list(registry) == ["Read", "Bash", "mcp__b__x", "mcp__c__x"]


def test_of_two_tools_with_one_name_the_later_one_counts() -> None:
    first, other, second = map(build_tool, ("Bash", "Read", "Bash"))
    assert list(ToolRegistry((first, other, second)).values()) == [second, other]
