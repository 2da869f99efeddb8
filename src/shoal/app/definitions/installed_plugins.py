"""Plug-ins that Claude Code has installed in the home, as far as settings enable them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from shoal.app.settings.settings import Settings
from shoal.core.extensions.plugins import PluginProblem
from shoal.wire.json_codec import decode_json
from shoal.wire.settings_codec import SettingsDocument

_INSTALLED_FILE = "installed_plugins.json"
_MARKETPLACES_FILE = "known_marketplaces.json"
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
    installed = _read_json_object(home / _INSTALLED_FILE).get("plugins")
    records = installed if isinstance(installed, Mapping) else {}
    for id_, (document, is_trusted) in documents.items():
        origin = document.locate_key(("enabledPlugins", id_))
        directory = _find_install_directory(home, id_, records.get(id_), project)
        if directory is not None:
            yield EnabledPlugin(id=id_, directory=directory, origin=origin, is_trusted=is_trusted)
        elif is_trusted:
            what = (
                f"the plug-in {id_} is enabled but not installed; install it with Claude Code, or disable it"
            )
            path, _, line = origin.rpartition(":")
            faults.append(
                PluginProblem(what=what, path=Path(path), line=int(line), plugin=id_.partition("@")[0])
            )


def list_installed_plugin_ids(home: Path) -> tuple[str, ...]:
    """Return the ids of the plug-ins that Claude Code has installed in the home."""
    installed = _read_json_object(home / "plugins" / _INSTALLED_FILE).get("plugins")
    return tuple(installed) if isinstance(installed, Mapping) else ()


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


def _find_install_directory(home: Path, id_: str, record: Any, project: Path) -> Path | None:
    name, _, marketplace = id_.partition("@")
    if not all(re.fullmatch(r"[A-Za-z0-9][\w.-]*", word) for word in (name, marketplace)):
        return None
    records = record if isinstance(record, list) else [record]
    usable = [each for each in records if isinstance(each, Mapping)]
    # An installation for this project wins over one for all projects; one for another project is not used.
    usable.sort(key=lambda each: "projectPath" not in each)
    for each in usable:
        path = each.get("installPath")
        is_here = "projectPath" not in each or Path(str(each["projectPath"])) == project
        if isinstance(path, str) and is_here and Path(path).is_dir():
            return Path(path)
    versions = home / "cache" / marketplace / name
    if versions.is_dir():
        found = sorted((path for path in versions.iterdir() if path.is_dir()), key=_get_version_key)
        return found[-1] if found else None
    return _find_in_marketplace(home, name, marketplace)


def _find_in_marketplace(home: Path, name: str, marketplace: str) -> Path | None:
    known = _read_json_object(home / _MARKETPLACES_FILE).get(marketplace)
    location = known.get("installLocation") if isinstance(known, Mapping) else None
    root = Path(location) if isinstance(location, str) else home / "marketplaces" / marketplace
    return next((path for path in (root / "plugins" / name, root / name) if path.is_dir()), None)


def _get_version_key(path: Path) -> tuple[list[int], float]:
    return [int(number) for number in re.findall(r"\d+", path.name)[:4]], path.stat().st_mtime


def _read_json_object(path: Path) -> Mapping[str, Any]:
    """Return the content of a file of another program; empty if it cannot be used."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            return {}
        raw = decode_json(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return raw if isinstance(raw, dict) else {}
