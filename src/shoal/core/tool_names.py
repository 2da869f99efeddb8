"""Names of the built-in tools as types, so that type checkers find misspelled ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NewType, TypeAlias

from shoal.core.conversation.tools import Tool

ToolName: TypeAlias = Literal[
    "Agent",
    "AskUserQuestion",
    "Bash",
    "BashOutput",
    "CronCreate",
    "CronDelete",
    "CronList",
    "Edit",
    "EnterPlanMode",
    "EnterWorktree",
    "ExitPlanMode",
    "ExitWorktree",
    "Glob",
    "Grep",
    "KillShell",
    "ListAgents",
    "NotebookEdit",
    "Read",
    "SendMessage",
    "Skill",
    "Task",
    "TaskCreate",
    "TaskGet",
    "TaskList",
    "TaskOutput",
    "TaskStop",
    "TaskUpdate",
    "TeamCreate",
    "TeamDelete",
    "TodoWrite",
    "ToolSearch",
    "WebFetch",
    "WebSearch",
    "Workflow",
    "Write",
]
"""Name of a built-in tool."""
ToolRule = NewType("ToolRule", str)
"""Any other entry of a list of tools: `ToolRule("Bash(git log:*)")`, `ToolRule("mcp__server")`."""
ToolEntry: TypeAlias = ToolName | ToolRule | Tool
"""Entry of a list of tools: a name, a rule, or a Python tool."""
DUPLICATE_TOOL_ADVICE = "Rename one of them with @shoal.tool(name=…)."


def find_duplicate_tool_name(tools: Sequence[Tool]) -> str | None:
    """Return the name that two different tools have; None if there is none."""
    by_name: dict[str, Tool] = {}
    for tool in tools:
        if by_name.setdefault(tool.schema.name, tool) is not tool:
            return tool.schema.name
    return None
