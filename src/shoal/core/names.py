"""Names of teams, agents and tasks. They become paths, so they are validated before any disk access."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import NewType

from shoal.core.core_texts import format_core_notice
from shoal.core.errors import InvalidName

TeamName = NewType("TeamName", str)
AgentName = NewType("AgentName", str)
"""Name of an agent."""
TaskId = NewType("TaskId", str)
"""Id of a task on its board."""

LEAD_NAME = AgentName("team-lead")
USER_NAME = AgentName("user")
TASK_LIST_NAME = AgentName("task-list")
RESERVED_NAMES: frozenset[str] = frozenset({LEAD_NAME, USER_NAME, TASK_LIST_NAME, "system"})
"""Sender names that only the runtime may use."""
# fmt: off
TOOL_NAMES: frozenset[str] = frozenset({
    "Agent", "AskUserQuestion", "Bash", "BashOutput", "CronCreate", "CronDelete", "CronList", "Edit",
    "EnterPlanMode", "EnterWorktree", "ExitPlanMode", "ExitWorktree", "Glob", "Grep", "KillShell",
    "ListAgents", "NotebookEdit", "Read",
    "SendMessage", "Skill", "Task", "TaskCreate", "TaskGet", "TaskList", "TaskOutput", "TaskStop",
    "TaskUpdate", "TeamCreate", "TeamDelete", "TodoWrite", "ToolSearch", "WebFetch", "WebSearch",
    "Workflow", "Write",
})
"""Built-in tools: a member with that name would be mistaken for the tool."""
# fmt: on
FORMER_TOOL_NAMES = {
    "Task": "Agent",
    "MultiEdit": "Edit",
    "LS": "Glob",
    "NotebookRead": "Read",
    "TodoRead": "TodoWrite",
    "KillBash": "KillShell",
    "BashOutputTool": "BashOutput",
    "AgentOutputTool": "TaskOutput",
    "MCPSearch": "ToolSearch",
    "SlashCommand": "Skill",
}
"""Tool names of other programs and older versions, and their current equivalents."""
NOTEBOOK_PATTERN = "//**/*.ipynb"
"""The files that the former tool `NotebookRead` read."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_INBOX_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OTHER_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")
_TASK_ID = re.compile(r"[1-9][0-9]{0,17}")


@lru_cache(maxsize=4_096)
def parse_safe_name(text: str) -> str:
    """Parse a name: fold compatibility forms, then allow only letters, digits, `_` and `-`."""
    folded = unicodedata.normalize("NFKC", text).strip()
    if _NAME.fullmatch(folded) is None:
        raise InvalidName(format_core_notice("invalid_name", name=repr(text[:80])))
    return folded


def parse_team_name(text: str) -> TeamName:
    return TeamName(parse_safe_name(text))


def parse_agent_name(text: str) -> AgentName:
    return AgentName(parse_safe_name(text))


def parse_inbox_name(text: str) -> AgentName:
    """Parse the name of an inbox: a name as in `map_to_inbox_name`, which may start with `-` or `_`."""
    if _INBOX_NAME.fullmatch(text) is not None:
        return AgentName(text)
    return parse_agent_name(text)


def parse_teammate_name(text: str) -> AgentName:
    """Parse the name for a new teammate in Shoal, which names neither the runtime nor a tool."""
    name = parse_agent_name(text)
    if name in RESERVED_NAMES:
        raise InvalidName(format_core_notice("reserved_name", name=repr(name)))
    if name in TOOL_NAMES:
        raise InvalidName(format_core_notice("tool_name", name=repr(name)))
    return name


def fold_name(text: str) -> str:
    """Return the form in which names that a reader or a file system confuses are equal."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def map_to_inbox_name(name: str) -> AgentName:
    """Return the file name that programs use for the inbox of a member: other characters become `-`."""
    return AgentName(_OTHER_CHARACTER.sub("-", name))


def translate_former_tool(tool: str, pattern: str | None) -> tuple[str, str | None]:
    """Return the current form of a permission rule about a tool, which is the same for current names."""
    if tool == "SlashCommand" and pattern is not None:
        # Its patterns are typed commands, as `/review:*`.
        pattern = pattern.removeprefix("/").removesuffix(":*").strip() or None
    if tool == "NotebookRead" and pattern is None:
        pattern = NOTEBOOK_PATTERN
    return FORMER_TOOL_NAMES.get(tool, tool), pattern


def parse_task_id(text: str) -> TaskId:
    """Parse a task id: a decimal number without leading zeros."""
    if _TASK_ID.fullmatch(text) is None:
        raise InvalidName(format_core_notice("invalid_task_id", task=repr(text[:80])))
    return TaskId(text)


def find_free_name(requested: str, taken: set[str]) -> str:
    """Return the name, with the first number that makes it unique if it is taken, in any case."""
    # A team may have a thousand members, and most names are ASCII.
    folded = set(map(str.lower if "".join(taken).isascii() else fold_name, taken))
    if fold_name(requested) not in folded:
        return requested
    number = 2
    while fold_name(candidate := f"{requested[: 63 - len(str(number))]}-{number}") in folded:
        number += 1
    return candidate
