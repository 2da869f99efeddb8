"""Plug-ins: directories that bring agents, skills, commands, hooks and MCP servers under a name of theirs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from shoal.core.filenames import shown

Offered: TypeAlias = Literal["flag", "settings", "home"]
ROOT = "${CLAUDE_PLUGIN_ROOT}"
"""Stands for the plug-in's directory in what it configures."""


class Fault(Struct, frozen=True, kw_only=True):
    """What is wrong with a plug-in."""

    what: str
    path: Path
    line: int | None = None
    plugin: str = ""
    fatal: bool = True
    """Whether nothing of the plug-in is used; else the rest of it is."""

    def __str__(self) -> str:
        place = shown(self.path) if self.line is None else f"{shown(self.path)}:{self.line}"
        return f"{place}: {self.what}"


class Configured(Struct, frozen=True, kw_only=True):
    """The text of a JSON file of a plug-in, and the part of it that counts."""

    path: Path
    text: str
    raw: Mapping[str, Any]


class Plugin(Struct, frozen=True, kw_only=True):
    name: str
    root: Path
    """Its real path."""
    offered: Offered
    origin: str
    """Who named it: a flag, a settings file with the line, or the home."""
    version: str = ""
    description: str = ""
    agents: tuple[Path, ...] = ()
    skills: tuple[Path, ...] = ()
    commands: tuple[Path, ...] = ()
    hooks: Configured | None = None
    """Events and their hooks, as written."""
    servers: Configured | None = None
    """MCP servers by the names that the plug-in gives them, as written."""
    faults: tuple[Fault, ...] = ()
    """Of parts that are left out."""
