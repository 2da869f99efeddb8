"""Plug-in directories: reads the manifest and its parts, and refuses paths that leave the directory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shoal.core.errors import SettingsError
from shoal.core.extensions.plugins import Plugin, PluginConfigFile, PluginProblem, PluginSourceKind
from shoal.core.text.filenames import escape_filename
from shoal.wire.plugin_manifest_codec import PluginManifest, parse_plugin_manifest, parse_settings_json_object

MANIFEST = Path(".claude-plugin/plugin.json")
MAX_JSON_BYTES = 1_000_000
"""Maximum size of a JSON file."""
MAX_ENTRIES = 20_000
_FILES = {"hooks": "hooks/hooks.json", "mcpServers": ".mcp.json"}


def read_plugin(
    directory: Path, *, offered: PluginSourceKind, origin: str, name: str = ""
) -> Plugin | PluginProblem:
    """Return the plug-in without its unusable parts, or its problem if it cannot be used at all.

    `name` is that of a plug-in which may have no manifest.
    """
    root = Path(os.path.realpath(directory))
    path = root / MANIFEST
    try:
        manifest = (
            PluginManifest(name=name)
            if name and not path.exists()
            else parse_plugin_manifest(_read_plugin_text(root, path), path)
        )
        _refuse_links_leaving_plugin(root)
        return _build_plugin(root, manifest, offered=offered, origin=origin)
    except SettingsError as error:
        return PluginProblem(what=str(error), path=error.path or path, line=error.line, plugin=directory.name)


def _build_plugin(root: Path, manifest: PluginManifest, *, offered: PluginSourceKind, origin: str) -> Plugin:
    faults = [
        PluginProblem(what=what, path=root / MANIFEST, line=line, plugin=manifest.name, fatal=False)
        for line, what in manifest.warnings
    ]
    directories = {
        key: _find_component_directories(root, manifest, key, faults)
        for key in ("agents", "skills", "commands")
    }
    files = {key: _read_plugin_config(root, manifest, key, faults) for key in _FILES}
    return Plugin(
        name=manifest.name,
        version=manifest.version,
        description=manifest.description,
        root=root,
        offered=offered,
        origin=origin,
        agents=directories["agents"],
        skills=directories["skills"],
        commands=directories["commands"],
        hooks=files["hooks"],
        servers=files["mcpServers"],
        faults=tuple(faults),
    )


def _find_component_directories(
    root: Path, manifest: PluginManifest, key: str, faults: list[PluginProblem]
) -> tuple[Path, ...]:
    default_directory = root / key
    found = [default_directory] if default_directory.is_dir() else []
    for entry in manifest.component_paths.get(key, ()):
        directory = resolve_plugin_path(root, entry, key)
        if directory.is_dir():
            found.append(directory)
        else:
            what = f"{key}: {escape_filename(directory)} is not a directory, so it is ignored"
            faults.append(PluginProblem(what=what, path=root / MANIFEST, plugin=manifest.name, fatal=False))
    return tuple(dict.fromkeys(found))


def _read_plugin_config(
    root: Path, manifest: PluginManifest, key: str, faults: list[PluginProblem]
) -> PluginConfigFile | None:
    config = manifest.component_configs.get(key)
    if isinstance(config, Mapping):
        return PluginConfigFile(path=root / MANIFEST, text=manifest.text, raw=config)
    path = root / _FILES[key] if config is None else resolve_plugin_path(root, config, key)
    if config is None and not path.exists():
        return None
    try:
        text = _read_plugin_text(root, path)
        part = _select_plugin_config(parse_settings_json_object(text, path), key, path)
    except SettingsError as error:
        faults.append(
            PluginProblem(what=str(error), path=path, line=error.line, plugin=manifest.name, fatal=False)
        )
        return None
    return PluginConfigFile(path=path, text=text, raw=part)


def _select_plugin_config(raw: Mapping[str, Any], key: str, path: Path) -> Mapping[str, Any]:
    # In `.mcp.json` the servers may also be the top-level object.
    part = raw.get(key, raw if key == "mcpServers" else {})
    if not isinstance(part, dict):
        raise SettingsError(f"{key}: expected an object", path=path, line=1)
    return part


def resolve_plugin_path(root: Path, given: str, key: str) -> Path:
    """Return the path that a manifest entry refers to. Raises `SettingsError` if it leaves the plug-in."""
    relative = Path(given)
    real_path = Path(os.path.realpath(root / relative))
    if relative.is_absolute() or ".." in relative.parts or not real_path.is_relative_to(root):
        message = f"{key}: {given!r} is outside the plug-in, so it is ignored"
        raise SettingsError(message, path=root / MANIFEST, line=1)
    return root / relative


def _refuse_links_leaving_plugin(root: Path) -> None:
    """Raise `SettingsError` if a symlink leaves the plug-in: foreign files would look like its own."""
    pending, entry_count = [root], 0
    while pending:
        try:
            entries = list(os.scandir(pending.pop()))
        except OSError as error:
            raise SettingsError(f"cannot be read: {error.strerror}", path=root) from error
        entry_count += len(entries)
        if entry_count > MAX_ENTRIES:
            raise SettingsError(f"more than {MAX_ENTRIES:,} files and directories", path=root)
        for entry in entries:
            if entry.is_symlink():
                real_path = os.path.realpath(entry.path)
                if not Path(real_path).is_relative_to(root):
                    message = f"a link to {escape_filename(real_path)}, which is outside the plug-in; ignored"
                    raise SettingsError(message, path=Path(entry.path))
            elif entry.is_dir():
                pending.append(Path(entry.path))


def _read_plugin_text(root: Path, path: Path) -> str:
    """Return the text of a file in the plug-in. Raises `SettingsError`."""
    real_path = Path(os.path.realpath(path))
    if not real_path.is_relative_to(root):
        message = f"a link to {escape_filename(real_path)}, which is outside the plug-in; ignored"
        raise SettingsError(message, path=path)
    try:
        if not real_path.is_file():
            problem = (
                "this file is missing, so the directory is not a plug-in"
                if path == root / MANIFEST
                else "no file"
            )
            raise SettingsError(problem, path=path)
        if real_path.stat().st_size > MAX_JSON_BYTES:
            raise SettingsError(f"more than {MAX_JSON_BYTES:,} bytes", path=path)
        text = real_path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise SettingsError(f"cannot be read: {error.strerror}", path=path) from error
    except UnicodeDecodeError as error:
        raise SettingsError("not UTF-8 text", path=path) from error
    return text if text.strip() else "{}"
