"""Plug-ins that Claude Code has installed in the home, as far as settings enable them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from shoal.app.settings.project_directories import iter_project_directories
from shoal.app.settings.settings import Settings
from shoal.core.extensions.plugins import PluginProblem
from shoal.wire.json_codec import decode_json
from shoal.wire.settings_codec import SettingsDocument

_INSTALLED_FILE = "installed_plugins.json"
_PROJECT_SCOPES = ("project", "local")
_GENERAL_SCOPES = ("user", "managed")
_MAX_BYTES = 4_000_000


class EnabledPlugin(Struct, frozen=True, kw_only=True):
    """Installed plug-in that a settings file enables."""

    id: str
    """Name and marketplace: `formatter@tools`."""
    directory: Path
    origin: str
    is_trusted: bool

    @property
    def name(self) -> str:
        return self.id.partition("@")[0]


def find_enabled_plugins(
    settings: Settings, project: Path, faults: list[PluginProblem]
) -> Iterator[EnabledPlugin]:
    """Yield the plug-ins of `enabledPlugins`; for each, the file with the highest precedence decides."""
    home = settings.home / "plugins"
    documents = {id_: (document, True) for id_, document in _decide_plugins(settings.documents).items()}
    for escalation in settings.findings.untrusted_escalations:
        if escalation.keys[0] == "enabledPlugins" and escalation.keys[-1] not in documents:
            documents[escalation.keys[-1]] = (escalation.document, False)
    if not documents:
        return
    try:
        records = _read_registry(settings.home)
    except _BrokenRegistryError as error:
        registry = home / _INSTALLED_FILE
        faults.append(PluginProblem(what=f"{error}, so no installed plug-in is used", path=registry, line=1))
        return
    for id_, (document, is_trusted) in documents.items():
        origin = document.locate_key(("enabledPlugins", id_))
        found = _find_install_directory(id_, records.get(id_), project)
        if isinstance(found, Path):
            yield EnabledPlugin(id=id_, directory=found, origin=origin, is_trusted=is_trusted)
        elif is_trusted:
            path, _, line = origin.rpartition(":")
            faults.append(
                PluginProblem(what=found, path=Path(path), line=int(line), plugin=id_.partition("@")[0])
            )


def list_installed_plugin_ids(home: Path) -> tuple[str, ...]:
    """Return the ids of the plug-ins that Claude Code has installed in the home."""
    try:
        return tuple(_read_registry(home))
    except _BrokenRegistryError:
        return ()


def find_enabled_plugin_ids(settings: Settings) -> frozenset[str]:
    """Return the ids of the plug-ins that a settings file enables, trusted or not."""
    untrusted = (
        escalation.keys[-1]
        for escalation in settings.findings.untrusted_escalations
        if escalation.keys[0] == "enabledPlugins"
    )
    return frozenset((*_decide_plugins(settings.documents), *untrusted))


def _decide_plugins(documents: Sequence[SettingsDocument]) -> dict[str, SettingsDocument]:
    """Return the document that enables each plug-in, except plug-ins disabled at the highest precedence."""
    decided: dict[str, SettingsDocument | None] = {}
    for document in documents:
        entries = document.raw.get("enabledPlugins")
        for id_, value in entries.items() if isinstance(entries, Mapping) else ():
            decided.setdefault(id_, document if value else None)
    return {id_: document for id_, document in decided.items() if document is not None}


def get_plugin_data_directory(home: Path, id_: str) -> Path:
    """Return the directory in which a plug-in may keep files."""
    return home / "plugins" / "data" / re.sub(r"[^A-Za-z0-9_-]", "-", id_)


def _find_install_directory(id_: str, record: Any, project: Path) -> Path | str:
    """Return the directory of a plug-in that is installed for this project, or a sentence why there is none.

    An installation for this project wins over one for all projects.
    """
    records = [
        each for each in (record if isinstance(record, list) else [record]) if isinstance(each, Mapping)
    ]
    directories = [os.path.realpath(each) for each in iter_project_directories(project)]
    usable = [each for each in records if _is_installed_for(each, directories)]
    usable.sort(key=lambda each: each.get("scope") not in _PROJECT_SCOPES)
    paths = [each["installPath"] for each in usable if isinstance(each.get("installPath"), str)]
    for path in map(Path, paths):
        if path.is_absolute() and path.is_dir():
            return path
    advice = "install it with Claude Code, or disable it"
    if paths:
        return f"the plug-in {id_} is enabled, but its directory {paths[0]} does not exist; {advice}"
    if records:
        return f"the plug-in {id_} is enabled but not installed for this project; {advice}"
    return f"the plug-in {id_} is enabled but not installed; {advice}"


def _is_installed_for(record: Mapping[str, Any], directories: Sequence[str]) -> bool:
    scope, path = record.get("scope", "user"), record.get("projectPath")
    if scope in _PROJECT_SCOPES or path is not None:
        return isinstance(path, str) and os.path.realpath(path) in directories
    return scope in _GENERAL_SCOPES


class _BrokenRegistryError(Exception):
    """The list of installed plug-ins cannot be used."""


def _read_registry(home: Path) -> Mapping[str, Any]:
    """Return the installed plug-ins by id; none without the file. Raises `_BrokenRegistryError`."""
    path = home / "plugins" / _INSTALLED_FILE
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise _BrokenRegistryError("the list of installed plug-ins is too large")
        raw = decode_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise _BrokenRegistryError(
            f"the list of installed plug-ins cannot be read: {error.strerror}"
        ) from error
    except ValueError as error:
        raise _BrokenRegistryError(f"the list of installed plug-ins is not valid JSON: {error}") from error
    plugins = raw.get("plugins") if isinstance(raw, Mapping) else None
    if not isinstance(plugins, Mapping):
        raise _BrokenRegistryError('the list of installed plug-ins has no object "plugins"')
    return plugins
