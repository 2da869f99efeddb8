"""Codec for `mcpServers` of settings, `.mcp.json`, flags and agents, with variable expansion."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from shoal.core.extensions.mcp_servers import (
    McpChannelMessage,
    McpHttpConfig,
    McpOAuthConfig,
    McpServerConfig,
    McpStdioConfig,
)

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
MAX_MESSAGE_LENGTH = 20_000
"""Maximum number of characters of one channel message that are passed on."""
_MAX_META_KEYS = 20
_MAX_META_LENGTH = 500
_META_KEY = re.compile(r"[A-Za-z0-9_]{1,64}", re.ASCII)
_TRANSPORTS = {"http": "http", "streamable-http": "http", "streamableHttp": "http", "sse": "sse"}


class InvalidMcpServerConfigError(ValueError):
    """A server that cannot be used; the text completes a sentence about it."""


class InvalidMcpChannelMessageError(ValueError):
    """A channel message that cannot be used; the text completes a sentence about it."""


class UnsetMcpConfigVariableError(InvalidMcpServerConfigError):
    def __init__(self, variable: str) -> None:
        super().__init__(
            f"it needs the environment variable {variable}, which is not set. "
            f"Set it, or write ${{{variable}:-default}}"
        )
        self.variable = variable


class ParsedMcpServers(Struct, frozen=True, kw_only=True):
    servers: tuple[McpServerConfig, ...]
    problems: tuple[tuple[str, str], ...]
    """Names of servers that cannot be used, each with the reason."""


def parse_mcp_servers(raw: Any, locate: Callable[[str], str]) -> ParsedMcpServers:
    """Parse each server separately, so an invalid one does not affect the others."""
    if not isinstance(raw, Mapping):
        return ParsedMcpServers(
            servers=(), problems=(("mcpServers", f"{locate('')}: mcpServers is not an object"),)
        )
    servers: list[McpServerConfig] = []
    problems: list[tuple[str, str]] = []
    for name, config in raw.items():
        try:
            servers.append(parse_mcp_server(name, config, locate(name)))
        except InvalidMcpServerConfigError as error:
            problems.append((name, f"{locate(name)}: the MCP server {name} cannot be used: {error}."))
    return ParsedMcpServers(servers=tuple(servers), problems=tuple(problems))


def parse_mcp_server(name: str, config: Any, origin: str) -> McpServerConfig:
    """Parse one server; raise `InvalidMcpServerConfigError`."""
    if not name.strip() or len(name) > 200:
        raise InvalidMcpServerConfigError("its name is empty or longer than 200 characters")
    if not isinstance(config, Mapping):
        raise InvalidMcpServerConfigError("its configuration is not an object")
    server_type = config.get("type", "stdio" if "command" in config else "http")
    connection: McpStdioConfig | McpHttpConfig | None = None
    if server_type == "stdio":
        connection = _parse_mcp_stdio_config(config)
    elif isinstance(server_type, str) and server_type in _TRANSPORTS:
        connection = _parse_mcp_http_config(config, _TRANSPORTS[server_type])
    if connection is not None:
        return McpServerConfig(
            name=name,
            connection=connection,
            origin=origin,
            timeout=_parse_timeout(config),
            always_load=config.get("alwaysLoad") is True,
        )
    raise InvalidMcpServerConfigError(f"type is {server_type!r}; use stdio, http or sse")


def expand_mcp_server_variables(server: McpServerConfig, env: Mapping[str, str]) -> McpServerConfig:
    """Return the server with its variables expanded; raise `UnsetMcpConfigVariableError`."""

    def expand_text(text: str) -> str:
        return _VARIABLE.sub(lambda found: _lookup_environment_variable(found[1], found[2], env), text)

    def expand_mapping_values(texts: Mapping[str, str]) -> dict[str, str]:
        return {key: expand_text(value) for key, value in texts.items()}

    match server.connection:
        case McpStdioConfig() as program:
            connection: McpStdioConfig | McpHttpConfig = replace(
                program,
                command=expand_text(program.command),
                args=tuple(map(expand_text, program.args)),
                env=expand_mapping_values(program.env),
                cwd=None if program.cwd is None else expand_text(program.cwd),
            )
        case McpHttpConfig() as address:
            connection = replace(
                address, url=expand_text(address.url), headers=expand_mapping_values(address.headers)
            )
    return replace(server, connection=connection)


def _lookup_environment_variable(variable: str, default: str | None, env: Mapping[str, str]) -> str:
    if env.get(variable):
        return env[variable]
    if default is not None:
        return default
    if variable in env:
        return ""
    raise UnsetMcpConfigVariableError(variable)


def _parse_mcp_stdio_config(config: Mapping[str, Any]) -> McpStdioConfig:
    command = config.get("command")
    if not isinstance(command, str) or not command.strip():
        raise InvalidMcpServerConfigError("command is missing or not a string")
    cwd = config.get("cwd")
    if cwd is not None and not isinstance(cwd, str):
        raise InvalidMcpServerConfigError("cwd must be a string")
    args = config.get("args", [])
    if not isinstance(args, list | tuple) or not all(isinstance(word, str | int | float) for word in args):
        raise InvalidMcpServerConfigError("args must be a list of strings")
    return McpStdioConfig(
        command=command, args=tuple(map(str, args)), env=_parse_string_mapping(config, "env"), cwd=cwd
    )


def _parse_mcp_http_config(config: Mapping[str, Any], transport: str) -> McpHttpConfig:
    url = config.get("url")
    if not isinstance(url, str) or not re.match(r"https?://|\$\{", url):
        raise InvalidMcpServerConfigError("url is missing or not an http URL")
    helper = config.get("headersHelper", "")
    if not isinstance(helper, str):
        raise InvalidMcpServerConfigError("headersHelper is not a command")
    return McpHttpConfig(
        url=url,
        headers=_parse_string_mapping(config, "headers"),
        transport="sse" if transport == "sse" else "http",
        headers_helper=helper,
        oauth=_parse_oauth_client(config.get("oauth")),
    )


def _parse_oauth_client(config: Any) -> McpOAuthConfig:
    if config is None:
        return McpOAuthConfig()
    if not isinstance(config, Mapping):
        raise InvalidMcpServerConfigError("oauth is not an object")
    client_id, port = config.get("clientId") or "", config.get("callbackPort") or 0
    if not isinstance(client_id, str):
        raise InvalidMcpServerConfigError("oauth.clientId is not a string")
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port < 1 << 16:
        raise InvalidMcpServerConfigError("oauth.callbackPort is not a port number")
    return McpOAuthConfig(client_id=client_id, callback_port=port)


def _parse_timeout(config: Mapping[str, Any]) -> float | None:
    timeout = config.get("timeout")
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or timeout <= 0:
        raise InvalidMcpServerConfigError("its timeout is not a number of milliseconds greater than 0")
    return timeout / 1000


def _parse_string_mapping(config: Mapping[str, Any], key: str) -> dict[str, str]:
    texts = config.get(key) or {}
    if not isinstance(texts, Mapping) or not all(
        isinstance(value, str | int | float | bool) for value in texts.values()
    ):
        raise InvalidMcpServerConfigError(f"{key} must be an object with string values")
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in texts.items()
    }


def parse_mcp_channel_message(params: Any) -> McpChannelMessage:
    """Parse the params of `notifications/claude/channel`; raise `InvalidMcpChannelMessageError`.

    Invalid metadata is skipped.
    """
    content = params.get("content") if isinstance(params, Mapping) else None
    if not isinstance(content, str):
        raise InvalidMcpChannelMessageError("content must be a string")
    raw_meta = params.get("meta")
    meta = {
        key: value[:_MAX_META_LENGTH]
        for key, value in (raw_meta.items() if isinstance(raw_meta, Mapping) else ())
        # The source is always the sender, so a value given here is ignored.
        if isinstance(value, str) and _META_KEY.fullmatch(key) and key != "source"
    }
    return McpChannelMessage(
        content=content[:MAX_MESSAGE_LENGTH],
        meta=dict(islice(meta.items(), _MAX_META_KEYS)),
        left_out=max(0, len(content) - MAX_MESSAGE_LENGTH),
    )
