"""Headers of a remote MCP server that a command prints, as `headersHelper` configures it."""

from __future__ import annotations

import asyncio
import os
import tempfile

from msgspec.structs import replace

from shoal.core.extensions.mcp_servers import McpHttpConfig
from shoal.core.ports import ProcessLaunchSpec
from shoal.tools.mcp.client_context import McpClientContext, McpConnectionLost
from shoal.wire.json_codec import decode_json

_TIMEOUT = 10.0
"""Seconds that the command may take."""
_MAX_BYTES = 64 * 1024


async def add_helper_headers(config: McpHttpConfig, name: str, context: McpClientContext) -> McpHttpConfig:
    """Return the server with the headers that its command prints. Raises `McpConnectionLost`."""
    if not config.headers_helper:
        return config
    env = {
        **context.env,
        "CLAUDE_CODE_MCP_SERVER_NAME": name,
        "CLAUDE_CODE_MCP_SERVER_URL": config.url,
    }
    with tempfile.TemporaryFile() as output, open(os.devnull, "wb") as nowhere:  # noqa: ASYNC230, PTH123 - local files
        launch = ProcessLaunchSpec(
            argv=("/bin/sh", "-c", config.headers_helper),
            cwd=context.root,
            env=env,
            stdout=output.fileno(),
            stderr=nowhere.fileno(),
        )
        process = await context.processes.start_process(launch)
        try:
            async with context.clock.deadline(_TIMEOUT):
                status = await process.wait()
        except (TimeoutError, asyncio.CancelledError) as error:
            await process.stop()
            if isinstance(error, asyncio.CancelledError):
                raise
            raise McpConnectionLost(f"its headersHelper took more than {_TIMEOUT:g} s") from None
        if status != 0:
            raise McpConnectionLost(f"its headersHelper ended with exit status {status}")
        output.seek(0)
        text = output.read(_MAX_BYTES)
    try:
        headers = decode_json(text)
    except ValueError as error:
        raise McpConnectionLost("its headersHelper did not print a JSON object") from error
    if not isinstance(headers, dict) or not all(isinstance(each, str) for each in headers.values()):
        raise McpConnectionLost("its headersHelper did not print a JSON object of texts")
    return replace(config, headers={**config.headers, **headers})
