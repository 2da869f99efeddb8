"""`shoal mcp`: Shoal and the Model Context Protocol."""

from __future__ import annotations

import click

from shoal.surfaces.cli.mcp_serve import serve


@click.group("mcp")
def command() -> None:
    """Let MCP clients lead and join teams."""


command.add_command(serve)
