"""Prompts of MCP servers as slash commands."""

from __future__ import annotations

import shlex

from shoal.app.mcp.servers import McpServers
from shoal.core.mcp import OfferedPrompt
from shoal.core.skills import TypedPrompt


class ServedPrompts:
    """Prompt commands. Typed words fill the arguments in order; the last argument takes the rest."""

    def __init__(self, servers: McpServers) -> None:
        self._servers = servers

    def list(self) -> tuple[TypedPrompt, ...]:
        return tuple(
            TypedPrompt(
                name=each.name,
                description=each.description,
                argument_hint=" ".join(f"[{argument.name}]" for argument in each.arguments),
            )
            for each in self._servers.prompts()
        )

    async def text(self, name: str, arguments: str) -> str:
        offered = next((each for each in self._servers.prompts() if each.name == name), None)
        given = {} if offered is None else _given(offered, arguments)
        return await self._servers.prompt(name, given)


def _given(offered: OfferedPrompt, arguments: str) -> dict[str, str]:
    names = [argument.name for argument in offered.arguments]
    try:
        words = shlex.split(arguments)
    except ValueError:  # an unbalanced quotation mark
        words = arguments.split()
    if names and len(words) > len(names):
        words[len(names) - 1 :] = [" ".join(words[len(names) - 1 :])]
    return dict(zip(names, words, strict=False))
