"""The ToolSearch tool, which finds and loads tools whose schemas are not sent with every request."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, TypeAlias

from msgspec import Meta

from shoal.core.conversation.model_requests import ToolSchema
from shoal.core.conversation.tools import Tool, ToolContext, ToolOutput
from shoal.core.text.control_tags import escape_control_tags
from shoal.tools.builtin_tool import builtin_tool
from shoal.tools.tool_texts import format_tool_text, load_tool_description, load_tool_text

TOOL_SEARCH = "ToolSearch"
_SELECT = "select:"
_MAX_RESULTS = 20
_MAX_DESCRIPTION = 300
_MAX_LISTED_SERVERS = 40


ToolLoader: TypeAlias = Callable[
    [ToolContext, Callable[[Mapping[str, ToolSchema]], list[str]]], Awaitable[list[ToolSchema]]
]
"""Waits for servers that are connecting, and loads the tools that the function selects."""


def build_tool_search_tool(servers: Sequence[str], load_tools: ToolLoader) -> Tool:
    """Build the tool; `servers` are the names of servers that it can find tools of."""
    listed = _format_servers(servers)
    named = format_tool_text("ToolSearch", "servers", servers=listed)
    description = f"{load_tool_description(TOOL_SEARCH)}\n{named}"

    @builtin_tool(name=TOOL_SEARCH, reads_only=True, description=description)
    async def search_tools(
        query: Annotated[str, Meta(min_length=1)],
        context: ToolContext,
        max_results: Annotated[int, Meta(ge=1)] = 5,
    ) -> ToolOutput:
        def select_names(available: Mapping[str, ToolSchema]) -> list[str]:
            return find_tools(available, query, min(max_results, _MAX_RESULTS))

        loaded = await load_tools(context, select_names)
        if not loaded:
            text = format_tool_text("ToolSearch", "nothing", query=repr(query), servers=listed)
            return ToolOutput(content=text)
        lines = [load_tool_text("ToolSearch", "loaded")]
        lines += (f"- {schema.name}: {_shorten(schema.description)}" for schema in loaded)
        return ToolOutput(
            content=escape_control_tags("\n".join(lines)), data={"tools": [schema.name for schema in loaded]}
        )

    return search_tools


def find_tools(available: Mapping[str, ToolSchema], query: str, limit: int) -> list[str]:
    """Return the names that a query selects, the best first."""
    if query.startswith(_SELECT):
        names = [name.strip() for name in query.removeprefix(_SELECT).split(",")]
        return [name for name in names if name in available][:limit]
    words = query.casefold().split()
    required = [word[1:] for word in words if word.startswith("+") and len(word) > 1]
    wanted = [word.lstrip("+") for word in words if word.lstrip("+")]
    scores: Counter[str] = Counter()
    for name, schema in available.items():
        folded_name, text = name.casefold(), schema.description.casefold()
        if all(word in folded_name or word in text for word in required):
            parts = re.split(r"[^a-z0-9]+", folded_name)
            scores[name] = sum(_score_word(word, parts, folded_name, text) for word in wanted)
    return [name for name, score in scores.most_common(limit) if score > 0]


def _score_word(word: str, parts: Sequence[str], name: str, text: str) -> int:
    if word == name:
        return 100
    return 10 * (word in parts) + 4 * (word in name) + 2 * (word in text)


def _format_servers(names: Sequence[str]) -> str:
    rest = len(names) - _MAX_LISTED_SERVERS
    return ", ".join([*names[:_MAX_LISTED_SERVERS], *([f"and {rest} more"] if rest > 0 else [])])


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_DESCRIPTION else f"{line[: _MAX_DESCRIPTION - 1]}…"
