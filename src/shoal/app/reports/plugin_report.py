"""Report on plug-ins: their parts, whether they are used, and their problems."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from shoal.app.definitions.agent_catalog import AgentCatalog, load_plugin_agents
from shoal.app.definitions.installed_plugins import list_installed_plugin_ids
from shoal.app.definitions.plugin_files import read_plugin
from shoal.app.definitions.plugin_set import PluginSet, load_plugins
from shoal.app.settings.settings import Settings
from shoal.app.settings.settings_writer import edit_json_file, find_settings_path
from shoal.core.agents.agent_definitions import DefinitionProblem
from shoal.core.errors import SettingsError
from shoal.core.extensions.plugins import Plugin, PluginProblem
from shoal.core.permissions.permission_changes import RuleDestination


class PluginReportRow(Struct, frozen=True, kw_only=True):
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


class PluginCheckResult(Struct, frozen=True, kw_only=True):
    plugins: tuple[Plugin, ...]
    problems: tuple[PluginProblem, ...]
    """Problems of whole plug-ins and of their parts."""
    warnings: tuple[str, ...] = ()


def list_plugin_rows(
    settings: Settings, project: Path, given: Sequence[Path] = ()
) -> tuple[PluginReportRow, ...]:
    plugins = load_plugins(settings, project, given)
    catalog = _load_plugin_agents(plugins.all)
    rows = [_make_plugin_row(plugin, "used", catalog) for plugin in plugins.all]
    rows += (_make_plugin_row(plugin, "not trusted", None) for plugin in plugins.untrusted)
    rows += (
        PluginReportRow(
            name=fault.plugin, state="cannot be used", path=str(fault.path), problems=(str(fault),)
        )
        for fault in plugins.faults
        if fault.fatal
    )
    return tuple(rows)


def set_plugin_enabled(settings: Settings, project: Path, plugin: str, *, scope: str, on: bool) -> Path:
    """Set a plug-in in `enabledPlugins` of a settings file. Raises `SettingsError` and `StateFileError`."""
    installed = list_installed_plugin_ids(settings.home)
    found = [id_ for id_ in installed if plugin in (id_, id_.partition("@")[0])]
    if not found and "@" not in plugin:
        names = ", ".join(installed) or "none"
        raise SettingsError(f"There is no installed plug-in {plugin!r}. Installed plug-ins: {names}.")
    id_ = found[0] if found else plugin
    destinations: dict[str, RuleDestination] = {
        "user": "userSettings",
        "project": "projectSettings",
        "local": "localSettings",
    }
    path = find_settings_path(destinations[scope], settings, project)

    def set_entry(raw: dict[str, Any]) -> None:
        entries = raw.setdefault("enabledPlugins", {})
        if not isinstance(entries, dict):
            raise SettingsError(f"{path}: enabledPlugins is not an object. Fix it by hand.", path=path)
        entries[id_] = on

    edit_json_file(path, set_entry)
    return path


def check_plugins(settings: Settings, project: Path, paths: Sequence[Path]) -> PluginCheckResult:
    """Check the plug-ins in these directories, or all that are found, trusted or not."""
    if paths:
        results = [read_plugin(path, offered="flag", origin="") for path in paths]
        found = tuple(each for each in results if isinstance(each, Plugin))
        faults = tuple(each for each in results if isinstance(each, PluginProblem))
    else:
        plugins = load_plugins(settings, project)
        found, faults = (*plugins.all, *plugins.untrusted), tuple(f for f in plugins.faults if f.fatal)
    agents = _load_plugin_agents(found)
    agent_problems = (
        _to_plugin_problem(each, each.source.path) for each in agents.problems if each.source.path is not None
    )
    return PluginCheckResult(
        plugins=found,
        problems=(*faults, *(fault for plugin in found for fault in plugin.faults), *agent_problems),
        warnings=agents.warnings,
    )


def _to_plugin_problem(problem: DefinitionProblem, path: Path) -> PluginProblem:
    what = problem.what if problem.field is None else f"{problem.field}: {problem.what}"
    return PluginProblem(what=what, path=path, line=problem.line, plugin=problem.name)


def _load_plugin_agents(plugins: Sequence[Plugin]) -> AgentCatalog:
    return load_plugin_agents(PluginSet(all=tuple(plugins)).list_agent_dirs())


def _make_plugin_row(plugin: Plugin, state: str, catalog: AgentCatalog | None) -> PluginReportRow:
    prefix = f"{plugin.name}:"
    agents = () if catalog is None else (each.name for each in catalog.all() if each.name.startswith(prefix))
    return PluginReportRow(
        name=plugin.name,
        state=state,
        path=str(plugin.root),
        origin=plugin.origin,
        version=plugin.version,
        description=plugin.description,
        agents=tuple(agents),
        skills=tuple(_list_plugin_component_names(plugin.skills, "*/SKILL.md", prefix, by_directory=True)),
        commands=tuple(_list_plugin_component_names(plugin.commands, "**/*.md", prefix)),
        hooks=() if plugin.hooks is None else tuple(plugin.hooks.raw),
        mcp_servers=() if plugin.servers is None else tuple(prefix + name for name in plugin.servers.raw),
        problems=tuple(map(str, plugin.faults)),
    )


def _list_plugin_component_names(
    directories: Sequence[Path], pattern: str, prefix: str, *, by_directory: bool = False
) -> Iterator[str]:
    for directory in directories:
        for path in sorted(directory.glob(pattern)):
            yield prefix + (path.parent.name if by_directory else path.stem)
