"""Codec for `mcpServers` of settings, `.mcp.json`, flags and agents, with variable expansion."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from shoal.core.mcp import Address, Program, Push, Server

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
LONGEST_PUSH = 20_000
"""Characters of one channel message that are passed on."""
_MOST_META = 20
_LONGEST_META = 500
_META_KEY = re.compile(r"[A-Za-z0-9_]{1,64}", re.ASCII)
_TYPES = {"http": "http", "streamable-http": "http", "streamableHttp": "http", "sse": "sse"}


class BadServer(ValueError):
    """A server that cannot be used; the text completes a sentence about it."""


class BadPush(ValueError):
    """A channel message that cannot be used; the text completes a sentence about it."""


class UnsetVariable(BadServer):
    def __init__(self, variable: str) -> None:
        super().__init__(
            f"it needs the environment variable {variable}, which is not set. "
            f"Set it, or write ${{{variable}:-default}}"
        )
        self.variable = variable


class ReadServers(Struct, frozen=True, kw_only=True):
    servers: tuple[Server, ...]
    problems: tuple[tuple[str, str], ...]
    """Names of servers that cannot be used, each with the reason."""


def read_servers(raw: Any, place: Callable[[str], str]) -> ReadServers:
    """Parse each server separately, so an invalid one does not affect the others."""
    if not isinstance(raw, Mapping):
        return ReadServers(servers=(), problems=(("mcpServers", f"{place('')}: mcpServers is no object"),))
    servers: list[Server] = []
    problems: list[tuple[str, str]] = []
    for name, given in raw.items():
        try:
            servers.append(read_server(name, given, place(name)))
        except BadServer as error:
            problems.append((name, f"{place(name)}: the MCP server {name} cannot be used: {error}."))
    return ReadServers(servers=tuple(servers), problems=tuple(problems))


def read_server(name: str, given: Any, origin: str) -> Server:
    """Parse one server; raise `InvalidServerConfig`."""
    if not name.strip() or len(name) > 200:
        raise BadServer("its name is empty or longer than 200 characters")
    if not isinstance(given, Mapping):
        raise BadServer("its configuration is no object")
    named = given.get("type", "stdio" if "command" in given else "http")
    if named == "stdio":
        return Server(name=name, reach=_program(given), origin=origin)
    if isinstance(named, str) and named in _TYPES:
        return Server(name=name, reach=_address(given, _TYPES[named]), origin=origin)
    raise BadServer(f"its type is {named!r}, and only stdio, http and sse are known")


def written_server(server: Server) -> dict[str, Any]:
    """Return the server as the JSON object of a settings file."""
    fields = {key: value for key, value in msgspec.to_builtins(server.reach).items() if value}
    transport = fields.pop("transport", None)
    return fields if transport is None else {"type": transport, **fields}


def filled(server: Server, env: Mapping[str, str]) -> Server:
    """Return the server with its variables expanded; raise `UnsetEnvironmentVariable`."""

    def fill(text: str) -> str:
        return _VARIABLE.sub(lambda found: _value(found[1], found[2], env), text)

    def fill_all(texts: Mapping[str, str]) -> dict[str, str]:
        return {key: fill(value) for key, value in texts.items()}

    match server.reach:
        case Program() as program:
            reach: Program | Address = replace(
                program,
                command=fill(program.command),
                args=tuple(map(fill, program.args)),
                env=fill_all(program.env),
                cwd=None if program.cwd is None else fill(program.cwd),
            )
        case Address() as address:
            reach = replace(address, url=fill(address.url), headers=fill_all(address.headers))
    return replace(server, reach=reach)


def _value(variable: str, otherwise: str | None, env: Mapping[str, str]) -> str:
    if env.get(variable):
        return env[variable]
    if otherwise is not None:
        return otherwise
    if variable in env:
        return ""
    raise UnsetVariable(variable)


def _program(given: Mapping[str, Any]) -> Program:
    command = given.get("command")
    if not isinstance(command, str) or not command.strip():
        raise BadServer("its command is missing or no text")
    cwd = given.get("cwd")
    if cwd is not None and not isinstance(cwd, str):
        raise BadServer("its cwd is no text")
    args = given.get("args", [])
    if not isinstance(args, list | tuple) or not all(isinstance(word, str | int | float) for word in args):
        raise BadServer("its args are no list of texts")
    return Program(command=command, args=tuple(map(str, args)), env=_texts(given, "env"), cwd=cwd)


def _address(given: Mapping[str, Any], transport: str) -> Address:
    url = given.get("url")
    if not isinstance(url, str) or not re.match(r"https?://|\$\{", url):
        raise BadServer("its url is missing or no http address")
    return Address(
        url=url, headers=_texts(given, "headers"), transport="sse" if transport == "sse" else "http"
    )


def _texts(given: Mapping[str, Any], key: str) -> dict[str, str]:
    texts = given.get(key) or {}
    if not isinstance(texts, Mapping) or not all(
        isinstance(value, str | int | float | bool) for value in texts.values()
    ):
        raise BadServer(f"its {key} is no object of texts")
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in texts.items()
    }


def read_push(params: Any) -> Push:
    """Parse the params of `notifications/claude/channel`; raise `InvalidChannelMessage`.

    Invalid metadata is skipped.
    """
    content = params.get("content") if isinstance(params, Mapping) else None
    if not isinstance(content, str):
        raise BadPush("its content is no text")
    given = params.get("meta")
    meta = {
        key: value[:_LONGEST_META]
        for key, value in (given.items() if isinstance(given, Mapping) else ())
        # The source is always the sender, so a value given here is ignored.
        if isinstance(value, str) and _META_KEY.fullmatch(key) and key != "source"
    }
    return Push(
        content=content[:LONGEST_PUSH],
        meta=dict(islice(meta.items(), _MOST_META)),
        left_out=max(0, len(content) - LONGEST_PUSH),
    )
