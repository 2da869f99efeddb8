"""Configuration of MCP servers in settings, `.mcp.json` and flags, and changes to those files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from shoal.core.errors import SettingsError
from shoal.core.mcp import Program, Server
from shoal.wire.content import load
from shoal.wire.json_lines import line_of
from shoal.wire.mcp import ReadServers, read_servers, written_server
from shoal.wire.settings import Document

if TYPE_CHECKING:
    from shoal.app.settings.settings import Settings

PROJECT_FILE = ".mcp.json"
LARGEST = 1 << 20


class Configured(Struct, frozen=True, kw_only=True):
    """MCP servers of a session, each from its strongest source."""

    servers: tuple[Server, ...]
    disabled: tuple[Server, ...] = ()
    """Servers switched off by a setting."""
    untrusted: tuple[Server, ...] = ()
    """Servers of the project that are not started before the user trusts them."""
    problems: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.servers or self.disabled or self.untrusted or self.problems)


def project_servers(cwd: Path) -> tuple[tuple[Document, ...], tuple[str, ...]]:
    """Return a project's `.mcp.json` as an untrusted document, or the problems with it."""
    path = cwd / PROJECT_FILE
    try:
        if path.stat().st_size > LARGEST:
            return (), (f"{path} is longer than {LARGEST >> 20} MB and is not read.",)
        text = path.read_text(encoding="utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        return (), ()
    except (OSError, UnicodeDecodeError) as error:
        return (), (f"{path} cannot be read, and none of its MCP servers is there: {error}.",)
    try:
        servers = _servers_in(text, str(path))
    except SettingsError as error:
        return (), (f"{error} None of its MCP servers is there.",)
    # Nothing else in that file is a setting.
    raw = {"mcpServers": servers}
    return (Document(name=str(path), kind="mcp", path=path, text=text, raw=raw),), ()


def configured(
    settings: Settings,
    given: Sequence[str | Mapping[str, Any]] = (),
    *,
    strict: bool = False,
    cwd: Path,
    plugins: Sequence[Document] = (),
) -> Configured:
    """Load the servers. Raises `SettingsError` for an unusable flag; any other error becomes a problem."""
    sources = [given_servers(each, cwd) for each in given]
    off: set[str] = set()
    if not strict:
        ordered = sorted(settings.documents, key=lambda document: document.kind == "user")
        sources += (_of_document(document) for document in (*ordered, *plugins))
        off = {name for document in settings.documents for name in _disabled(document)}
    servers: dict[str, Server] = {}
    problems: dict[str, str] = {}
    for source in sources:
        for name, why in source.problems:
            if name not in servers:
                problems.setdefault(name, why)
        for server in source.servers:
            if server.name not in problems:
                servers.setdefault(server.name, server)
    found, doubled = _without_doubles(servers.values())
    return Configured(
        servers=tuple(server for server in found if server.name not in off or not _is_projects(server)),
        disabled=tuple(server for server in found if server.name in off and _is_projects(server)),
        untrusted=() if strict else tuple(_untrusted(settings, servers)),
        problems=(*problems.values(), *doubled),
    )


def server_variables(documents: Sequence[Document]) -> dict[str, str]:
    """Return the environment variables and headers that files give to servers, for redaction."""
    found: dict[str, str] = {}
    for server in (each for document in documents for each in _of_document(document).servers):
        given = server.reach.env if isinstance(server.reach, Program) else server.reach.headers
        found |= {name.replace("-", "_"): value for name, value in given.items() if "${" not in value}
    return found


def change(path: Path, name: str, server: Server | None) -> bool:
    """Put a server into a file, or remove it with None; return whether it existed. Raises `SettingsError`."""
    from shoal.app.settings.keeping import rewritten

    def edit(raw: dict[str, Any]) -> bool:
        servers = raw.setdefault("mcpServers", {})
        if not isinstance(servers, dict):
            raise SettingsError(f"{path}: mcpServers is no object. Repair it by hand.", path=path)
        was_there = name in servers
        servers.pop(name, None)
        if server is not None:
            servers[name] = written_server(server)
        if not servers:
            del raw["mcpServers"]
        return was_there

    return rewritten(path, edit)


def _servers_in(text: str, name: str) -> dict[str, Any]:
    try:
        raw = load(text.encode()) if text.strip() else {}
    except ValueError as error:
        line = getattr(error, "lineno", 1)
        raise SettingsError(f"{name}:{line}: not valid JSON: {getattr(error, 'msg', error)}.") from error
    servers = raw.get("mcpServers", {}) if isinstance(raw, dict) else None
    if not isinstance(servers, dict):
        raise SettingsError(f'{name}:1: MCP servers are written as {{"mcpServers": {{"name": {{…}}}}}}.')
    return servers


def given_servers(given: str | Mapping[str, Any], cwd: Path) -> ReadServers:
    """Parse the value of one `--mcp-config`. Raises `SettingsError`."""
    name, text = "--mcp-config", ""
    if isinstance(given, Mapping):
        text = json.dumps(dict(given))
    elif given.lstrip().startswith("{"):
        text = given
    else:
        path = cwd / Path(given).expanduser()
        name = str(path)
        try:
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            told = f"--mcp-config takes JSON or the path of a file, and {path} cannot be read: {why}."
            raise SettingsError(told, path=path) from error
    servers = _servers_in(text, name)
    return read_servers(servers, lambda key: f"{name}:{line_of(text, ('mcpServers', key))}")


def _of_document(document: Document) -> ReadServers:
    return read_servers(
        document.raw.get("mcpServers") or {}, lambda name: document.place(("mcpServers", name))
    )


def _disabled(document: Document) -> Iterator[str]:
    names = document.raw.get("disabledMcpjsonServers")
    yield from names if isinstance(names, list) else ()


def _is_projects(server: Server) -> bool:
    return f"{PROJECT_FILE}:" in server.origin


def _untrusted(settings: Settings, known: Mapping[str, Server]) -> Iterator[Server]:
    for each in settings.left_out:
        if each.keys[0] == "mcpServers" and each.keys[-1] not in known:
            yield from read_servers({each.keys[-1]: each.value}, lambda _, at=each: at.place).servers  # type: ignore[misc]


def _without_doubles(servers: Any) -> tuple[list[Server], list[str]]:
    """Drop servers whose tool names would be the same as those of another server."""
    kept: dict[str, Server] = {}
    told: list[str] = []
    for server in servers:
        other = kept.setdefault(server.prefix, server)
        if other is not server:
            told.append(
                f"{server.origin}: the MCP server {server.name} is left out: the names of its tools would be "
                f"those of {other.name} ({other.origin}). Rename one."
            )
    return list(kept.values()), told
