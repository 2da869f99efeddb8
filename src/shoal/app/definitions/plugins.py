"""Plug-ins of a session and their parts, with namespaced names and the plug-in directory filled in."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from shoal.app.definitions.plugin_files import MANIFEST, read_plugin
from shoal.app.definitions.plugin_trust import plugin_widening
from shoal.app.settings.settings import Settings
from shoal.app.settings.trust import Widening
from shoal.core.definitions import Definition
from shoal.core.errors import SettingsError
from shoal.core.filenames import shown
from shoal.core.plugins import ROOT, Configured, Fault, Offered, Plugin
from shoal.wire.settings import Document

_Named: TypeAlias = tuple[Path, Offered, str, bool]
"""Directory, how it was offered, where it is named, and True if that place is trusted."""


class Plugins(Struct, frozen=True, kw_only=True):
    """Plug-ins of a session: the single source of plug-in agents, skills, commands, hooks and MCP servers."""

    all: tuple[Plugin, ...] = ()
    """Plug-ins in use."""
    untrusted: tuple[Plugin, ...] = ()
    """Plug-ins in the project that nobody has trusted in their current state."""
    widening: tuple[Widening, ...] = ()
    """Everything that needs trust, trusted or not."""
    faults: tuple[Fault, ...] = ()
    """Faults of unusable plug-ins and of unusable parts of others."""

    def agents(self) -> tuple[tuple[str, Path], ...]:
        """Return pairs of namespace and directory of agent definitions."""
        return tuple((plugin.name, place) for plugin in self.all for place in plugin.agents)

    def skill_dirs(self) -> tuple[tuple[str, Path], ...]:
        return tuple((plugin.name, place) for plugin in self.all for place in plugin.skills)

    def command_dirs(self) -> tuple[tuple[str, Path], ...]:
        return tuple((plugin.name, place) for plugin in self.all for place in plugin.commands)

    def hooks(self) -> tuple[Document, ...]:
        """Return one settings document with only `hooks` per plug-in."""
        return tuple(
            _document(plugin.hooks, {"hooks": _hooks(plugin.hooks.raw, plugin.root)})
            for plugin in self.all
            if plugin.hooks is not None
        )

    def mcp_servers(self) -> tuple[Document, ...]:
        """Return one settings document with only `mcpServers` per plug-in. Names are `plugin:server`."""
        return tuple(
            _document(plugin.servers, {"mcpServers": _servers(plugin, plugin.servers.raw)})
            for plugin in self.all
            if plugin.servers is not None
        )

    def completed(self, name: str, definition: Definition) -> Definition:
        """Return a plug-in's agent with the plug-in directory filled in."""
        return _completed(definition, next(each.root for each in self.all if each.name == name))

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences shown to the user when a session starts."""
        notes = [str(fault) for fault in self.faults if fault.fatal]
        if self.untrusted:
            names = ", ".join(plugin.name for plugin in self.untrusted)
            notes.append(
                f"Plug-ins in this project are not trusted, and nothing of them is used ({names}). "
                "See them with `shoal trust --show`, trust them with `shoal trust`."
            )
        return tuple(notes)


def plugins_for(settings: Settings, project: Path, given: Sequence[Path | str] = ()) -> Plugins:
    """Load plug-ins. Raises `SettingsError` if a directory named by a flag is not a usable plug-in."""
    used: dict[str, Plugin] = {}
    untrusted: list[Plugin] = []
    faults: list[Fault] = []
    widening: list[Widening] = []
    home = settings.home / "plugins"
    for directory, offered, origin, counts in (*_named(settings, project, given), *_in_home(home, faults)):
        found = read_plugin(directory, offered=offered, origin=origin)
        if isinstance(found, Plugin) and found.name in used and used[found.name].root != found.root:
            other = used[found.name]
            what = f"another plug-in is named {found.name}, and comes first: {shown(other.root)}"
            found = Fault(what=what, path=found.root / MANIFEST, line=1, plugin=found.name)
        if isinstance(found, Fault):
            if offered == "flag":
                raise SettingsError(f"--plugin-dir: {found}", path=found.path, line=found.line)
            faults.append(found)
        elif found.name not in used:
            try:
                wide = plugin_widening(found, settings.home, project)
            except SettingsError as error:
                faults.append(Fault(what=str(error), path=found.root, plugin=found.name))
                continue
            widening += () if wide is None else (wide,)
            if counts and (wide is None or wide.trust == "trusted"):
                used[found.name] = found
                faults += found.faults
            else:
                untrusted.append(found)
    return Plugins(
        all=tuple(used.values()),
        untrusted=tuple(untrusted),
        widening=tuple(widening),
        faults=tuple(faults),
    )


def _named(settings: Settings, project: Path, given: Sequence[Path | str]) -> Iterator[_Named]:
    for each in given:
        yield _place(each, project), "flag", "--plugin-dir", True
    for document in settings.documents:
        yield from _listed(document, (document.raw.get("shoal") or {}).get("plugins"), project, counts=True)
    for left in settings.left_out:
        if left.keys == ("shoal", "plugins"):
            yield from _listed(left.document, left.value, project, counts=False)


def _in_home(home: Path, faults: list[Fault]) -> Iterator[_Named]:
    try:
        entries = sorted(entry.name for entry in os.scandir(home))
    except FileNotFoundError:
        return
    except OSError as error:
        faults.append(Fault(what=f"it cannot be read: {error.strerror}", path=home, plugin=home.name))
        return
    for name in entries:
        # Other programs store other things there.
        if (home / name / MANIFEST).is_file():
            yield home / name, "home", shown(home), True


def _listed(document: Document, listed: Any, project: Path, *, counts: bool) -> Iterator[_Named]:
    """Yield the plug-ins that a settings file lists. In a user's file, paths are relative to that file."""
    base = project if not document.is_persons or document.path is None else document.path.parent
    for number, each in enumerate(listed or ()):
        place = document.place(("shoal", "plugins", str(number)))
        yield _place(each, base), "settings", place, counts


def _place(given: Path | str, base: Path) -> Path:
    return base / Path(given).expanduser()


def _document(source: Configured, raw: dict[str, Any]) -> Document:
    return Document(name=str(source.path), kind="plugin", path=source.path, text=source.text, raw=raw)


def _hooks(value: Any, root: Path) -> Any:
    """Fill in the directory. Commands get it as an exported variable, which the shell quotes correctly."""
    if isinstance(value, Mapping):
        filled = {key: _hooks(each, root) for key, each in value.items()}
        command = value.get("command")
        if isinstance(command, str):
            filled["command"] = f"export CLAUDE_PLUGIN_ROOT={shlex.quote(str(root))}; {command}"
        return filled
    if isinstance(value, list | tuple):
        return [_hooks(each, root) for each in value]
    return _filled(value, root)


def _servers(plugin: Plugin, raw: Mapping[str, Any]) -> dict[str, Any]:
    servers: dict[str, Any] = {}
    for name, given in raw.items():
        server = _filled(given, plugin.root)
        if isinstance(server, dict) and "command" in server:
            server["env"] = {"CLAUDE_PLUGIN_ROOT": str(plugin.root), **(server.get("env") or {})}
        servers[f"{plugin.name}:{name}"] = server
    return servers


def _filled(value: Any, root: Path) -> Any:
    if isinstance(value, str):
        return value.replace(ROOT, str(root))
    if isinstance(value, Mapping):
        return {key: _filled(each, root) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_filled(each, root) for each in value]
    return value


def _completed(definition: Definition, root: Path) -> Definition:
    return replace(
        definition,
        prompt=_filled(definition.prompt, root),
        initial_prompt=_filled(definition.initial_prompt, root),
        hooks=_hooks(definition.hooks, root),
        mcp_servers=tuple(_filled(definition.mcp_servers, root)),
    )
