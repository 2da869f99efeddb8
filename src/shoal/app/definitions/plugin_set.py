"""Plug-ins of a session and their parts, with namespaced names and the plug-in directory filled in."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from shoal.app.definitions.installed_plugins import find_enabled_plugins, get_plugin_data_directory
from shoal.app.definitions.plugin_files import MANIFEST, read_plugin
from shoal.app.settings.settings import Settings
from shoal.app.settings.settings_trust import PermissionEscalation, read_document_trust
from shoal.core.agents.agent_definitions import AgentDefinition
from shoal.core.errors import SettingsError, StateFileError
from shoal.core.extensions.hooks import add_plugin_variables
from shoal.core.extensions.plugins import (
    PLUGIN_DATA_VARIABLE,
    PLUGIN_ROOT_VARIABLE,
    Plugin,
    PluginConfigFile,
    PluginProblem,
    PluginSourceKind,
)
from shoal.core.text.filenames import escape_filename
from shoal.core.user_environment import UserEnvironment
from shoal.stores.files.home.trust_file import ProjectTrustFile
from shoal.wire.settings_codec import SettingsDocument

_PluginCandidate: TypeAlias = tuple[Path, PluginSourceKind, str, bool, str]
"""Directory, how it was offered, where it is named, True if that source is trusted, and the installed id."""
MAX_PLUGIN_BYTES = 50_000_000


def find_plugin_escalation(plugin: Plugin, home: Path, project: Path) -> PermissionEscalation | None:
    """Return what needs trust; None if the user chose the plug-in by flag or from outside the project."""
    real_project, real_home = Path(os.path.realpath(project)), Path(os.path.realpath(home))
    is_in_project = plugin.root.is_relative_to(real_project) and not plugin.root.is_relative_to(
        real_home / "plugins"
    )
    if plugin.offered == "flag" or not is_in_project:
        return None
    key = ("plugin", plugin.name)
    value = {
        "directory": str(plugin.root.relative_to(real_project)),
        "hooks": None if plugin.hooks is None else plugin.hooks.raw,
        "mcpServers": None if plugin.servers is None else plugin.servers.raw,
        "sha256": _hash_plugin_files(plugin.root),
    }
    manifest = plugin.root / MANIFEST
    document = SettingsDocument(
        name=str(manifest), kind="plugin", path=manifest, text="{}", raw={"plugin": value}
    )
    try:
        trust = read_document_trust(ProjectTrustFile(home), project, document, ((key, value),))
    except StateFileError:
        trust = "unasked"
    return PermissionEscalation(document=document, keys=key, value=value, trust=trust)


def _hash_plugin_files(root: Path) -> str:
    """Hash every file, because a hook runs the content of its script."""
    digest, total = hashlib.sha256(), 0
    for path in _iter_plugin_files(root):
        digest.update(f"{path.relative_to(root)}\0".encode("utf-8", "surrogateescape"))
        if path.is_symlink():
            digest.update(os.fsencode(os.readlink(path)))  # noqa: PTH115 - the raw link target
        elif path.is_file():
            total += path.stat().st_size
            if total > MAX_PLUGIN_BYTES:
                message = f"more than {MAX_PLUGIN_BYTES:,} bytes, the limit for a plug-in in a project"
                raise SettingsError(message, path=root)
            digest.update(path.read_bytes())
        digest.update(b"\0")
    return digest.hexdigest()


def _iter_plugin_files(root: Path) -> Iterator[Path]:
    """Yield files and links in an order that does not depend on the file system."""
    for directory, subdirectories, files in os.walk(root):
        subdirectories.sort()
        links = (each for each in subdirectories if (Path(directory) / each).is_symlink())
        for name in sorted((*files, *links)):
            yield Path(directory) / name


class PluginSet(Struct, frozen=True, kw_only=True):
    """Plug-ins of a session: the single source of plug-in agents, skills, commands, hooks and MCP servers."""

    all: tuple[Plugin, ...] = ()
    """Plug-ins in use."""
    untrusted: tuple[Plugin, ...] = ()
    """Plug-ins in the project that nobody has trusted in their current state."""
    escalations: tuple[PermissionEscalation, ...] = ()
    """Everything that needs trust, trusted or not."""
    faults: tuple[PluginProblem, ...] = ()
    """Problems of unusable plug-ins and of unusable parts of others."""

    def list_agent_dirs(self) -> tuple[tuple[str, Path], ...]:
        """Return pairs of namespace and directory of agent definitions."""
        return tuple((plugin.name, directory) for plugin in self.all for directory in plugin.agents)

    def list_skill_dirs(self) -> tuple[tuple[str, Path], ...]:
        return tuple((plugin.name, directory) for plugin in self.all for directory in plugin.skills)

    def list_command_dirs(self) -> tuple[tuple[str, Path], ...]:
        return tuple((plugin.name, directory) for plugin in self.all for directory in plugin.commands)

    def list_style_dirs(self) -> tuple[tuple[str, Path], ...]:
        return tuple((plugin.name, plugin.root / "output-styles") for plugin in self.all)

    def build_hook_documents(self) -> tuple[SettingsDocument, ...]:
        """Return one settings document with only `hooks` per plug-in."""
        return tuple(
            _make_plugin_document(
                plugin.hooks, {"hooks": _fill_plugin_directories_in_hooks(plugin.hooks.raw, plugin)}
            )
            for plugin in self.all
            if plugin.hooks is not None
        )

    def build_mcp_documents(self) -> tuple[SettingsDocument, ...]:
        """Return one settings document with only `mcpServers` per plug-in. Names are
        `plugin:PLUGIN:SERVER`."""
        return tuple(
            _make_plugin_document(
                plugin.servers, {"mcpServers": _fill_plugin_root_in_servers(plugin, plugin.servers.raw)}
            )
            for plugin in self.all
            if plugin.servers is not None
        )

    def fill_agent_plugin_root(self, name: str, definition: AgentDefinition) -> AgentDefinition:
        """Return a plug-in's agent with the plug-in directory filled in."""
        return _fill_plugin_root_in_agent(definition, next(each for each in self.all if each.name == name))

    @property
    def startup_notes(self) -> tuple[str, ...]:
        """Sentences shown to the user when a session starts."""
        notes = [str(fault) for fault in self.faults if fault.fatal]
        if self.untrusted:
            names = ", ".join(plugin.name for plugin in self.untrusted)
            notes.append(
                f"This project's plug-ins are not trusted, so Shoal ignores them ({names}). To see them, run "
                "`shoal trust --show`. To trust them, run `shoal trust`."
            )
        return tuple(notes)


def load_plugins(
    settings: Settings, project: Path, given: Sequence[Path | str] = (), *, installed: bool = True
) -> PluginSet:
    """Load plug-ins. Raises `SettingsError` if a directory named by a flag is not a usable plug-in."""
    used: dict[str, Plugin] = {}
    untrusted: list[Plugin] = []
    faults: list[PluginProblem] = []
    escalations: list[PermissionEscalation] = []
    home = settings.home / "plugins"
    for directory, offered, origin, is_trusted, id_ in (
        *_iter_configured_plugins(settings, project, given),
        *(_iter_enabled_plugins(settings, project, faults) if installed else ()),
        *(_iter_installed_plugins(home, faults) if installed else ()),
    ):
        found = read_plugin(directory, offered=offered, origin=origin, name=id_.partition("@")[0])
        if isinstance(found, Plugin) and found.name in used and used[found.name].root != found.root:
            earlier = used[found.name]
            what = (
                f"another plug-in has the name {found.name} and takes precedence: "
                f"{escape_filename(earlier.root)}"
            )
            found = PluginProblem(what=what, path=found.root / MANIFEST, line=1, plugin=found.name)
        if isinstance(found, PluginProblem):
            if offered == "flag":
                raise SettingsError(f"--plugin-dir: {found}", path=found.path, line=found.line)
            faults.append(found)
        elif found.name not in used:
            try:
                escalation = find_plugin_escalation(found, settings.home, project)
            except SettingsError as error:
                faults.append(PluginProblem(what=str(error), path=found.root, plugin=found.name))
                continue
            escalations += () if escalation is None else (escalation,)
            if is_trusted and (escalation is None or escalation.trust == "trusted"):
                data = get_plugin_data_directory(settings.home, id_ or found.name)
                used[found.name] = replace(found, data=data)
                faults += found.faults
            else:
                untrusted.append(found)
    return PluginSet(
        all=tuple(used.values()),
        untrusted=tuple(untrusted),
        escalations=tuple(escalations),
        faults=tuple(faults),
    )


def _iter_configured_plugins(
    settings: Settings, project: Path, given: Sequence[Path | str]
) -> Iterator[_PluginCandidate]:
    for path in given:
        yield project / settings.user.expand_home(str(path)), "flag", "--plugin-dir", True, ""
    for document in settings.documents:
        yield from _iter_plugins_in_settings(
            document,
            (document.raw.get("shoal") or {}).get("plugins"),
            project,
            settings.user,
            is_trusted=True,
        )
    for omitted in settings.findings.untrusted_escalations:
        if omitted.keys == ("shoal", "plugins"):
            yield from _iter_plugins_in_settings(
                omitted.document, omitted.value, project, settings.user, is_trusted=False
            )


def _iter_enabled_plugins(
    settings: Settings, project: Path, faults: list[PluginProblem]
) -> Iterator[_PluginCandidate]:
    for enabled in find_enabled_plugins(settings, project, faults):
        yield enabled.directory, "home", enabled.origin, enabled.is_trusted, enabled.id


def _iter_installed_plugins(home: Path, faults: list[PluginProblem]) -> Iterator[_PluginCandidate]:
    try:
        entries = sorted(entry.name for entry in os.scandir(home))
    except FileNotFoundError:
        return
    except OSError as error:
        faults.append(PluginProblem(what=f"cannot be read: {error.strerror}", path=home, plugin=home.name))
        return
    for name in entries:
        # Other programs store other things there.
        if (home / name / MANIFEST).is_file():
            yield home / name, "home", escape_filename(home), True, ""


def _iter_plugins_in_settings(
    document: SettingsDocument, entries: Any, project: Path, user: UserEnvironment, *, is_trusted: bool
) -> Iterator[_PluginCandidate]:
    """Yield the plug-ins that a settings file lists. In a user's file, paths are relative to that file."""
    base = project if not document.is_user_controlled or document.path is None else document.path.parent
    for number, entry in enumerate(entries or ()):
        location = document.locate_key(("shoal", "plugins", str(number)))
        yield base / user.expand_home(str(entry)), "settings", location, is_trusted, ""


def _make_plugin_document(source: PluginConfigFile, raw: dict[str, Any]) -> SettingsDocument:
    return SettingsDocument(name=str(source.path), kind="plugin", path=source.path, text=source.text, raw=raw)


def _fill_plugin_directories_in_hooks(value: Any, plugin: Plugin) -> Any:
    """Fill in the directories. Commands get them as exported variables, which the shell quotes correctly."""
    if isinstance(value, Mapping):
        filled = {key: _fill_plugin_directories_in_hooks(each, plugin) for key, each in value.items()}
        command = value.get("command")
        if isinstance(command, str) and "args" in value:
            arguments = filled["args"] if isinstance(filled["args"], list) else [filled["args"]]
            directories = (f"CLAUDE_PLUGIN_ROOT={plugin.root}", f"CLAUDE_PLUGIN_DATA={plugin.data}")
            filled |= {"command": "env", "args": [*directories, filled["command"], *arguments]}
        elif isinstance(command, str):
            filled["command"] = add_plugin_variables(command, str(plugin.root), str(plugin.data))
        return filled
    if isinstance(value, list | tuple):
        return [_fill_plugin_directories_in_hooks(each, plugin) for each in value]
    return _replace_plugin_directories(value, plugin)


def _fill_plugin_root_in_servers(plugin: Plugin, raw: Mapping[str, Any]) -> dict[str, Any]:
    servers: dict[str, Any] = {}
    for name, config in raw.items():
        server = _replace_plugin_directories(config, plugin)
        if isinstance(server, dict) and "command" in server:
            directories = {"CLAUDE_PLUGIN_ROOT": str(plugin.root), "CLAUDE_PLUGIN_DATA": str(plugin.data)}
            server["env"] = {**directories, **(server.get("env") or {})}
        servers[f"plugin:{plugin.name}:{name}"] = server
    return servers


def _replace_plugin_directories(value: Any, plugin: Plugin) -> Any:
    if isinstance(value, str):
        if PLUGIN_DATA_VARIABLE in value:
            # The text names the directory, so it has to exist from now on.
            with suppress(OSError):
                plugin.data.mkdir(parents=True, exist_ok=True)
        filled = value.replace(PLUGIN_ROOT_VARIABLE, str(plugin.root))
        return filled.replace(PLUGIN_DATA_VARIABLE, str(plugin.data))
    if isinstance(value, Mapping):
        return {key: _replace_plugin_directories(each, plugin) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_plugin_directories(each, plugin) for each in value]
    return value


def _fill_plugin_root_in_agent(definition: AgentDefinition, plugin: Plugin) -> AgentDefinition:
    servers = tuple(_replace_plugin_directories(definition.capabilities.mcp_servers, plugin))
    initial_prompt = _replace_plugin_directories(definition.run.initial_prompt, plugin)
    return replace(
        definition,
        prompt=_replace_plugin_directories(definition.prompt, plugin),
        hooks=_fill_plugin_directories_in_hooks(definition.hooks, plugin),
        capabilities=replace(definition.capabilities, mcp_servers=servers),
        run=replace(definition.run, initial_prompt=initial_prompt),
    )
