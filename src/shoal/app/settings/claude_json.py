"""State file of Claude Code, `.claude.json`: MCP servers and trust that the user gave there."""

from __future__ import annotations

import codecs
import os
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, Struct

from shoal.core.unused_items import UnusedItem
from shoal.wire.settings_codec import SettingsDocument

_FILE = ".claude.json"
_MAX_LOCATED_CHARS = 200_000
"""Maximum file size for which lines are looked up; the file also contains histories."""
_PROJECT_KEYS = ("mcpServers", "disabledMcpServers", "disabledMcpjsonServers", "enabledMcpjsonServers")


class _ClaudeJsonContent(Struct, frozen=True, kw_only=True, rename="camel"):
    mcp_servers: Any = None
    projects: dict[str, Raw] = {}


class ClaudeJson(Struct, frozen=True, kw_only=True):
    documents: tuple[SettingsDocument, ...] = ()
    """The user's servers for this project, then those for all projects."""
    is_project_trusted: bool = False
    unused: tuple[UnusedItem, ...] = ()
    problems: tuple[str, ...] = ()


def find_claude_json(home: Path) -> Path | None:
    """Return the path of the file: in the home, or next to a home called `.claude`."""
    candidates = (home / _FILE, *([home.with_name(_FILE)] if home.name == ".claude" else ()))
    return next((path for path in candidates if path.is_file()), None)


def read_claude_json(home: Path, cwd: Path) -> ClaudeJson:
    """Read the file; if it cannot be read, that is only reported, because the file only adds servers."""
    path = find_claude_json(home)
    if path is None:
        return ClaudeJson()
    try:
        content = path.read_bytes().removeprefix(codecs.BOM_UTF8)
        found = msgspec.json.decode(content, type=_ClaudeJsonContent)
        entry = found.projects.get(str(cwd)) or found.projects.get(os.path.realpath(cwd))
        project = {} if entry is None else msgspec.json.decode(entry)
    except (OSError, ValueError, RecursionError) as error:
        return ClaudeJson(problems=(f"Cannot read {path}, so its MCP servers are not available: {error}.",))
    if not isinstance(project, dict):
        project = {}
    text = content.decode(errors="replace") if len(content) <= _MAX_LOCATED_CHARS else ""
    documents = []
    own = {key: project[key] for key in _PROJECT_KEYS if _is_usable(key, project.get(key))}
    if own:
        documents.append(SettingsDocument(name=str(path), kind="private", path=path, text="", raw=own))
    if _is_usable("mcpServers", found.mcp_servers):
        raw = {"mcpServers": found.mcp_servers}
        documents.append(SettingsDocument(name=str(path), kind="user", path=path, text=text, raw=raw))
    unused: tuple[UnusedItem, ...] = ()
    if project.get("allowedTools"):
        reason = "Claude Code moved these rules to permissions.allow in settings files; copy them there"
        unused = (UnusedItem(location=str(path), name=f"projects[{cwd}].allowedTools", reason=reason),)
    return ClaudeJson(
        documents=tuple(documents),
        is_project_trusted=project.get("hasTrustDialogAccepted") is True,
        unused=unused,
    )


def list_top_keys(path: Path) -> tuple[str, ...]:
    """Return the keys of the file; none if it cannot be read."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=dict[str, msgspec.Raw])
    except (OSError, ValueError, RecursionError):
        return ()
    return tuple(found)


def _is_usable(key: str, value: Any) -> bool:
    if key == "mcpServers":
        return isinstance(value, dict) and bool(value)
    return isinstance(value, list) and bool(value) and all(isinstance(each, str) for each in value)
