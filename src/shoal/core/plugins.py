"""Plugins: directories that provide agents, skills, commands, hooks and MCP servers under one name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from shoal.core.filenames import shown

Offered: TypeAlias = Literal["flag", "settings", "home"]
ROOT = "${CLAUDE_PLUGIN_ROOT}"
"""Placeholder for the plugin's directory in its configuration."""


class Fault(Struct, frozen=True, kw_only=True):
    """Problem found in a plugin."""

    what: str
    path: Path
    line: int | None = None
    plugin: str = ""
    fatal: bool = True
    """True if the whole plugin is ignored; else the rest of it is used."""

    def __str__(self) -> str:
        place = shown(self.path) if self.line is None else f"{shown(self.path)}:{self.line}"
        return f"{place}: {self.what}"


class Configured(Struct, frozen=True, kw_only=True):
    """JSON file of a plugin: its text and the relevant part of it."""

    path: Path
    text: str
    raw: Mapping[str, Any]


class Plugin(Struct, frozen=True, kw_only=True):
    name: str
    root: Path
    """Real path of its directory."""
    offered: Offered
    origin: str
    """Place where it is enabled: a flag, a settings file with the line, or the home."""
    version: str = ""
    description: str = ""
    agents: tuple[Path, ...] = ()
    skills: tuple[Path, ...] = ()
    commands: tuple[Path, ...] = ()
    hooks: Configured | None = None
    """Hooks by event, as written."""
    servers: Configured | None = None
    """MCP servers by their names in the plugin, as written."""
    faults: tuple[Fault, ...] = ()
    """Problems of the parts that are ignored."""
