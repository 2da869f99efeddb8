"""Report on plug-ins: their parts, whether they are used, and their faults."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from shoal.app.definitions.definitions import Definitions, plugin_definitions
from shoal.app.definitions.plugin_files import read_plugin
from shoal.app.definitions.plugins import Plugins, plugins_for
from shoal.app.settings.settings import Settings
from shoal.core.definitions import Problem
from shoal.core.plugins import Fault, Plugin


class PluginRow(Struct, frozen=True, kw_only=True):
    name: str
    state: str
    """`used`, `not trusted` or `cannot be used`."""
    path: str
    origin: str = ""
    version: str = ""
    description: str = ""
    agents: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    hooks: tuple[str, ...] = ()
    """Names of hook events."""
    mcp_servers: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class Checked(Struct, frozen=True, kw_only=True):
    plugins: tuple[Plugin, ...]
    problems: tuple[Fault, ...]
    """Faults of whole plug-ins and of their parts."""
    warnings: tuple[str, ...] = ()


def plugin_rows(settings: Settings, project: Path, given: Sequence[Path] = ()) -> tuple[PluginRow, ...]:
    plugins = plugins_for(settings, project, given)
    known = _agents(plugins.all)
    rows = [_row(plugin, "used", known) for plugin in plugins.all]
    rows += (_row(plugin, "not trusted", None) for plugin in plugins.untrusted)
    rows += (
        PluginRow(name=fault.plugin, state="cannot be used", path=str(fault.path), problems=(str(fault),))
        for fault in plugins.faults
        if fault.fatal
    )
    return tuple(rows)


def checked_plugins(settings: Settings, project: Path, paths: Sequence[Path]) -> Checked:
    """Check the plug-ins in these directories, or all that are found, trusted or not."""
    if paths:
        read = [read_plugin(path, offered="flag", origin="") for path in paths]
        found = tuple(each for each in read if isinstance(each, Plugin))
        faults = tuple(each for each in read if isinstance(each, Fault))
    else:
        plugins = plugins_for(settings, project)
        found, faults = (*plugins.all, *plugins.untrusted), tuple(f for f in plugins.faults if f.fatal)
    agents = _agents(found)
    bad = (_fault(each, each.source.path) for each in agents.problems if each.source.path is not None)
    return Checked(
        plugins=found,
        problems=(*faults, *(fault for plugin in found for fault in plugin.faults), *bad),
        warnings=agents.warnings,
    )


def _fault(problem: Problem, path: Path) -> Fault:
    what = problem.what if problem.field is None else f"{problem.field}: {problem.what}"
    return Fault(what=what, path=path, line=problem.line, plugin=problem.name)


def _agents(plugins: Sequence[Plugin]) -> Definitions:
    return plugin_definitions(Plugins(all=tuple(plugins)).agents())


def _row(plugin: Plugin, state: str, known: Definitions | None) -> PluginRow:
    prefix = f"{plugin.name}:"
    agents = () if known is None else (each.name for each in known.all() if each.name.startswith(prefix))
    return PluginRow(
        name=plugin.name,
        state=state,
        path=str(plugin.root),
        origin=plugin.origin,
        version=plugin.version,
        description=plugin.description,
        agents=tuple(agents),
        skills=tuple(_below(plugin.skills, "*/SKILL.md", prefix, by_directory=True)),
        commands=tuple(_below(plugin.commands, "**/*.md", prefix)),
        hooks=() if plugin.hooks is None else tuple(plugin.hooks.raw),
        mcp_servers=() if plugin.servers is None else tuple(prefix + name for name in plugin.servers.raw),
        problems=tuple(map(str, plugin.faults)),
    )


def _below(places: Sequence[Path], pattern: str, prefix: str, *, by_directory: bool = False) -> Iterator[str]:
    for place in places:
        for path in sorted(place.glob(pattern)):
            yield prefix + (path.parent.name if by_directory else path.stem)
