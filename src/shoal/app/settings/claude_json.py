"""State file of Claude Code, `.claude.json`: MCP servers and trust that the user gave there."""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, Struct

from shoal.app.settings.project_directories import iter_project_directories
from shoal.core.errors import SettingsError
from shoal.core.unused_items import UnusedItem
from shoal.stores.files.home.trust_file import find_project_of_worktree
from shoal.wire.json_line_numbers import find_json_key_line
from shoal.wire.settings_codec import SettingsDocument

CLAUDE_JSON = ".claude.json"
_MAX_LOCATED_CHARS = 200_000
"""Maximum file size for which lines are looked up; the file also contains histories."""
SERVER_CHOICE_KEYS = ("enabledMcpjsonServers", "disabledMcpjsonServers", "enableAllProjectMcpServers")
_NARROWING_KEYS = ("disabledMcpServers", "disabledMcpjsonServers")
_NAMED_DISABLED_SERVERS = rb'"disabledMcp(?:json)?Servers"\s*:\s*+(?!\[\s*\]|null)'
"""A list of disabled servers that is not empty, in a file that cannot be parsed."""
_NO_OBJECT = "expected an object"


class _ClaudeJsonContent(Struct, frozen=True, kw_only=True, rename="camel"):
    mcp_servers: Any = None
    projects: Raw = Raw(b"null")


class ClaudeJson(Struct, frozen=True, kw_only=True):
    documents: tuple[SettingsDocument, ...] = ()
    """The user's servers for this project, then those for all projects."""
    is_project_trusted: bool = False
    unused: tuple[UnusedItem, ...] = ()
    problems: tuple[str, ...] = ()


def find_claude_json(home: Path) -> Path | None:
    """Return the path of the file: in the home, or next to a home called `.claude`."""
    return next((path for path in _list_candidates(home) if path.is_file()), None)


def choose_claude_json(home: Path) -> Path:
    """Return the path of the file, or of the one to create."""
    return find_claude_json(home) or _list_candidates(home)[-1]


def _list_candidates(home: Path) -> tuple[Path, ...]:
    return (home / CLAUDE_JSON, *([home.with_name(CLAUDE_JSON)] if home.name == ".claude" else ()))


def read_claude_json(home: Path, cwd: Path) -> ClaudeJson:
    """Read the file. If it or an entry cannot be read, that is only reported: most of it adds servers.

    Raises `SettingsError` if a list of disabled servers cannot be read, because these would start.
    """
    path = find_claude_json(home)
    if path is None:
        return ClaudeJson()
    content = b""
    try:
        content = path.read_bytes().removeprefix(codecs.BOM_UTF8)
        found = msgspec.json.decode(content, type=_ClaudeJsonContent)
        projects = _split_object(found.projects)
        keys = [key for key in _list_project_keys(cwd) if key in (projects or {})]
        entries = {key: msgspec.json.decode((projects or {})[key]) for key in keys}
    except (OSError, ValueError, RecursionError) as error:
        if re.search(_NAMED_DISABLED_SERVERS, content):
            raise SettingsError(
                f"Cannot read {path}: {error}. It lists servers that you turned off, and they would start. "
                "Correct the file by hand.",
                path=path,
            ) from error
        return ClaudeJson(problems=(f"Cannot read {path}, so its MCP servers are not available: {error}.",))
    text = content.decode(errors="replace") if len(content) <= _MAX_LOCATED_CHARS else ""
    entry_reader = _EntryReader(path, text)
    if projects is None:
        entry_reader.note_unused("projects", _NO_OBJECT)
    documents = []
    for key, project in entries.items():
        if own := entry_reader.read_project(key, project):
            documents.append(SettingsDocument(name=str(path), kind="private", path=path, text="", raw=own))
    if servers := entry_reader.read_servers("mcpServers", found.mcp_servers):
        raw = {"mcpServers": servers}
        documents.append(SettingsDocument(name=str(path), kind="user", path=path, text=text, raw=raw))
    return ClaudeJson(
        documents=tuple(documents),
        is_project_trusted=any(
            isinstance(each, dict) and each.get("hasTrustDialogAccepted") is True for each in entries.values()
        ),
        unused=tuple(entry_reader.unused),
    )


def _split_object(raw: Raw) -> dict[str, Raw] | None:
    """Return the undecoded values of an object; none for null, None for any other type."""
    if bytes(raw).lstrip()[:1] == b"{":
        return msgspec.json.decode(raw, type=dict[str, Raw])
    return {} if msgspec.json.decode(raw) is None else None


class _EntryReader:
    """Reads entries of the file, and collects those of the wrong type. Null means that there is none."""

    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._text = text
        self.unused: list[UnusedItem] = []

    def note_unused(self, name: str, reason: str) -> None:
        self.unused.append(UnusedItem(location=str(self._path), name=name, reason=reason))

    def read_project(self, key: str, project: Any) -> dict[str, Any]:
        """Return the usable parts of the entry for a project. Raises `SettingsError`."""
        name = f"projects[{key}]"
        if not isinstance(project, dict):
            if project is not None:
                self.note_unused(name, _NO_OBJECT)
            return {}
        if project.get("allowedTools"):
            reason = "Claude Code moved these rules to permissions.allow in settings files; copy them there"
            self.note_unused(f"{name}.allowedTools", reason)
        if not isinstance(project.get("hasTrustDialogAccepted"), bool | None):
            self.note_unused(f"{name}.hasTrustDialogAccepted", "expected true or false")
        for narrowing in _NARROWING_KEYS:
            self._require_names(key, narrowing, project.get(narrowing))
        parts = {
            "mcpServers": self.read_servers(f"{name}.mcpServers", project.get("mcpServers")),
            **{narrowing: project.get(narrowing) for narrowing in _NARROWING_KEYS},
            "enabledMcpjsonServers": self._read_names(
                f"{name}.enabledMcpjsonServers", project.get("enabledMcpjsonServers")
            ),
        }
        return {part: value for part, value in parts.items() if value}

    def read_servers(self, name: str, servers: Any) -> dict[str, Any]:
        if not isinstance(servers, dict):
            if servers is not None:
                self.note_unused(name, _NO_OBJECT)
            return {}
        usable = {server: config for server, config in servers.items() if isinstance(config, dict)}
        for server in servers:
            if server not in usable:
                self.note_unused(f"{name}.{server}", _NO_OBJECT)
        return usable

    def _read_names(self, name: str, names: Any) -> list[str]:
        if names is None or _is_name_list(names):
            return list(names or ())
        self.note_unused(name, "expected a list of strings")
        return []

    def _require_names(self, project: str, key: str, names: Any) -> None:
        """Raises `SettingsError` if this is not a list of names."""
        if names is None or _is_name_list(names):
            return
        line = find_json_key_line(self._text, ("projects", project, key))
        raise SettingsError(
            f"{self._path}:{line}: projects[{project}].{key}: expected a list of strings. Servers that you "
            "turned off would start, so correct it by hand.",
            path=self._path,
            line=line,
        )


def _list_project_keys(cwd: Path) -> list[str]:
    """Return the keys of the entries for a directory and its parents in the repository, nearest first.

    A worktree below `.claude/worktrees` has those of its project too.
    """
    directories = [str(each) for each in iter_project_directories(cwd)]
    if (owner := find_project_of_worktree(Path(directories[-1]))) is not None:
        directories.append(str(owner))
    return [*dict.fromkeys(key for path in directories for key in (path, os.path.realpath(path)))]


def find_server_sections(home: Path, cwd: Path, name: str) -> dict[str, list[tuple[str, ...]]]:
    """Return the paths of the objects whose `mcpServers` has a server, by scope: local and user.

    Raises `SettingsError` if the file cannot be read.
    """
    found: dict[str, list[tuple[str, ...]]] = {"local": [], "user": []}
    raw = _read_content(home)
    for key in _list_project_keys(cwd):
        section = ("projects", key)
        if name in _get_section(raw, (*section, "mcpServers")):
            found["local"].append(section)
    if name in _get_section(raw, ("mcpServers",)):
        found["user"].append(())
    return found


def forget_server_choices(home: Path, cwd: Path) -> bool:
    """Remove the user's choices on servers of `.mcp.json`; return True if there were any.

    Raises `SettingsError` and `StateFileError`.
    """
    from shoal.app.settings.settings_writer import edit_claude_json

    raw, path = _read_content(home), find_claude_json(home)
    sections = [
        key
        for key in _list_project_keys(cwd)
        if any(_get_section(raw, ("projects", key)).get(choice) for choice in SERVER_CHOICE_KEYS)
    ]
    if path is None or not sections:
        return False

    def remove_choices(content: dict[str, Any]) -> None:
        for key in sections:
            for choice in SERVER_CHOICE_KEYS:
                content["projects"][key].pop(choice, None)

    edit_claude_json(path, remove_choices)
    return True


def _read_content(home: Path) -> Any:
    """Return the content of the file. Raises `SettingsError` if it cannot be read."""
    path = find_claude_json(home)
    try:
        return {} if path is None else msgspec.json.decode(path.read_bytes().removeprefix(codecs.BOM_UTF8))
    except (OSError, ValueError, RecursionError) as error:
        raise SettingsError(f"Cannot read {path}: {error}. Fix it by hand.", path=path) from error


def _get_section(raw: Any, keys: Sequence[str]) -> dict[str, Any]:
    for key in keys:
        raw = raw.get(key) if isinstance(raw, dict) else None
    return raw if isinstance(raw, dict) else {}


def list_top_keys(path: Path) -> tuple[str, ...]:
    """Return the keys of the file; none if it cannot be read."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=dict[str, msgspec.Raw])
    except (OSError, ValueError, RecursionError):
        return ()
    return tuple(found)


def _is_name_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)
