"""Plug-in directories: reads the manifest and its parts, and refuses paths that leave the directory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shoal.core.errors import SettingsError
from shoal.core.filenames import shown
from shoal.core.plugins import Configured, Fault, Offered, Plugin
from shoal.wire.plugins import Manifest, read_manifest, read_object

MANIFEST = Path(".claude-plugin/plugin.json")
LARGEST = 1_000_000
"""Maximum size of a JSON file."""
MOST_ENTRIES = 20_000
_FILES = {"hooks": "hooks/hooks.json", "mcpServers": ".mcp.json"}


def read_plugin(directory: Path, *, offered: Offered, origin: str) -> Plugin | Fault:
    """Return the plug-in without its unusable parts, or a fault if it cannot be used at all."""
    root = Path(os.path.realpath(directory))
    path = root / MANIFEST
    try:
        manifest = read_manifest(_text(root, path), path)
        _refuse_ways_out(root)
        return _made(root, manifest, offered=offered, origin=origin)
    except SettingsError as error:
        return Fault(what=str(error), path=error.path or path, line=error.line, plugin=directory.name)


def _made(root: Path, manifest: Manifest, *, offered: Offered, origin: str) -> Plugin:
    faults = [
        Fault(what=what, path=root / MANIFEST, line=line, plugin=manifest.name, fatal=False)
        for line, what in manifest.warnings
    ]
    places = {key: _places(root, manifest, key, faults) for key in ("agents", "skills", "commands")}
    files = {key: _configured(root, manifest, key, faults) for key in _FILES}
    return Plugin(
        name=manifest.name,
        version=manifest.version,
        description=manifest.description,
        root=root,
        offered=offered,
        origin=origin,
        **places,
        hooks=files["hooks"],
        servers=files["mcpServers"],
        faults=tuple(faults),
    )


def _places(root: Path, manifest: Manifest, key: str, faults: list[Fault]) -> tuple[Path, ...]:
    usual = root / key
    found = [usual] if usual.is_dir() else []
    for given in manifest.places.get(key, ()):
        place = inside(root, given, key)
        if place.is_dir():
            found.append(place)
        else:
            what = f"{key}: {shown(place)} is no directory, and is left out"
            faults.append(Fault(what=what, path=root / MANIFEST, plugin=manifest.name, fatal=False))
    return tuple(dict.fromkeys(found))


def _configured(root: Path, manifest: Manifest, key: str, faults: list[Fault]) -> Configured | None:
    given = manifest.configured.get(key)
    if isinstance(given, Mapping):
        return Configured(path=root / MANIFEST, text=manifest.text, raw=given)
    path = root / _FILES[key] if given is None else inside(root, given, key)
    if given is None and not path.exists():
        return None
    try:
        text = _text(root, path)
        part = _part(read_object(text, path), key, path)
    except SettingsError as error:
        faults.append(Fault(what=str(error), path=path, line=error.line, plugin=manifest.name, fatal=False))
        return None
    return Configured(path=path, text=text, raw=part)


def _part(raw: Mapping[str, Any], key: str, path: Path) -> Mapping[str, Any]:
    # In `.mcp.json` the servers may also be the top-level object.
    part = raw.get(key, raw if key == "mcpServers" else {})
    if not isinstance(part, dict):
        raise SettingsError(f"{key}: an object is expected", path=path, line=1)
    return part


def inside(root: Path, given: str, key: str) -> Path:
    """Return the path that a manifest entry refers to. Raises `SettingsError` if it leaves the plug-in."""
    place = Path(given)
    real = Path(os.path.realpath(root / place))
    if place.is_absolute() or ".." in place.parts or not real.is_relative_to(root):
        told = f"{key}: {given!r} leads out of the plug-in, and nothing of it is used"
        raise SettingsError(told, path=root / MANIFEST, line=1)
    return root / place


def _refuse_ways_out(root: Path) -> None:
    """Raise `SettingsError` if a symlink leaves the plug-in: foreign files would look like its own."""
    waiting, seen = [root], 0
    while waiting:
        try:
            entries = list(os.scandir(waiting.pop()))
        except OSError as error:
            raise SettingsError(f"it cannot be read: {error.strerror}", path=root) from error
        seen += len(entries)
        if seen > MOST_ENTRIES:
            raise SettingsError(f"it has more than {MOST_ENTRIES:,} files and directories", path=root)
        for entry in entries:
            if entry.is_symlink():
                real = os.path.realpath(entry.path)
                if not Path(real).is_relative_to(root):
                    told = f"a link that leads out of the plug-in, to {shown(real)}; nothing of it is used"
                    raise SettingsError(told, path=Path(entry.path))
            elif entry.is_dir():
                waiting.append(Path(entry.path))


def _text(root: Path, path: Path) -> str:
    """Return the text of a file in the plug-in. Raises `SettingsError`."""
    real = Path(os.path.realpath(path))
    if not real.is_relative_to(root):
        told = f"a link that leads out of the plug-in, to {shown(real)}; nothing of it is used"
        raise SettingsError(told, path=path)
    try:
        if not real.is_file():
            missing = "there is no such file, so this is no plug-in" if path == root / MANIFEST else "no file"
            raise SettingsError(missing, path=path)
        if real.stat().st_size > LARGEST:
            raise SettingsError(f"it has more than {LARGEST:,} bytes", path=path)
        text = real.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise SettingsError(f"it cannot be read: {error.strerror}", path=path) from error
    except UnicodeDecodeError as error:
        raise SettingsError("it is not UTF-8 text", path=path) from error
    return text if text.strip() else "{}"
