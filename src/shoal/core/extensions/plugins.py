"""Plugins: directories that provide agents, skills, commands, hooks and MCP servers under one name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from shoal.core.text.filenames import escape_filename

PluginSourceKind: TypeAlias = Literal["flag", "settings", "home"]
PLUGIN_ROOT_VARIABLE = "${CLAUDE_PLUGIN_ROOT}"
"""Placeholder for the plug-in's directory in its configuration."""
PLUGIN_DATA_VARIABLE = "${CLAUDE_PLUGIN_DATA}"
"""Placeholder for the directory in which the plug-in may keep files."""


class PluginProblem(Struct, frozen=True, kw_only=True):
    """Problem found in a plug-in."""

    what: str
    path: Path
    line: int | None = None
    plugin: str = ""
    fatal: bool = True
    """True if the whole plug-in is ignored; else the rest of it is used."""

    def __str__(self) -> str:
        location = (
            escape_filename(self.path) if self.line is None else f"{escape_filename(self.path)}:{self.line}"
        )
        return f"{location}: {self.what}"


class PluginConfigFile(Struct, frozen=True, kw_only=True):
    """JSON file of a plug-in: its text and the relevant part of it."""

    path: Path
    text: str
    raw: Mapping[str, Any]


class Plugin(Struct, frozen=True, kw_only=True):
    name: str
    root: Path
    """Real path of its directory."""
    offered: PluginSourceKind
    origin: str
    """Place where it is enabled: a flag, a settings file with the line, or the home."""
    data: Path = Path()
    """Directory in which it may keep files; made on first use."""
    version: str = ""
    description: str = ""
    agents: tuple[Path, ...] = ()
    skills: tuple[Path, ...] = ()
    commands: tuple[Path, ...] = ()
    hooks: PluginConfigFile | None = None
    """Hooks by event, as written."""
    servers: PluginConfigFile | None = None
    """MCP servers by their names in the plug-in, as written."""
    faults: tuple[PluginProblem, ...] = ()
    """Problems of the parts that are ignored."""
