"""Trust check for plug-ins that a project contains, by their current content."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from shoal.app.definitions.plugin_files import MANIFEST
from shoal.app.settings.settings_trust import PermissionEscalation, read_document_trust
from shoal.core.errors import SettingsError, StateFileError
from shoal.core.plugins import Plugin
from shoal.stores.files.trust_file import ProjectTrustFile
from shoal.wire.settings_codec import SettingsDocument

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
                message = f"it has more than {MAX_PLUGIN_BYTES:,} bytes, too much to be trusted in a project"
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
