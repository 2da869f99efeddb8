"""Prompts of MCP servers as slash commands."""

from __future__ import annotations

import shlex

from shoal.app.mcp.mcp_servers import SessionMcpServerManager
from shoal.core.extensions.mcp_servers import McpPrompt
from shoal.core.extensions.skills import ExternalSlashPrompt


class McpPromptCommands:
    """Prompt commands. Typed words fill the arguments in order; the last argument takes the rest."""

    def __init__(self, servers: SessionMcpServerManager) -> None:
        self._servers = servers

    def list_prompts(self) -> tuple[ExternalSlashPrompt, ...]:
        return tuple(
            ExternalSlashPrompt(
                name=each.name,
                description=each.description,
                argument_hint=" ".join(f"[{argument.name}]" for argument in each.arguments),
            )
            for each in self._servers.list_prompts()
        )

    async def expand_prompt(self, name: str, arguments: str) -> str:
        prompt = next((each for each in self._servers.list_prompts() if each.name == name), None)
        values = {} if prompt is None else _parse_prompt_arguments(prompt, arguments)
        return await self._servers.render_prompt(name, values)


def _parse_prompt_arguments(prompt: McpPrompt, arguments: str) -> dict[str, str]:
    names = [argument.name for argument in prompt.arguments]
    try:
        words = shlex.split(arguments)
    except ValueError:  # an unbalanced quotation mark
        words = arguments.split()
    if names and len(words) > len(names):
        words[len(names) - 1 :] = [" ".join(words[len(names) - 1 :])]
    return dict(zip(names, words, strict=False))
