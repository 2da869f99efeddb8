"""Trust check for plug-ins that a project contains, by their current content."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from shoal.app.definitions.plugin_files import MANIFEST
from shoal.app.settings.trust import Widening, trust_in
from shoal.core.errors import SettingsError, StoreError
from shoal.core.plugins import Plugin
from shoal.stores.files.trust import TrustFile
from shoal.wire.settings import Document

MOST_BYTES = 50_000_000


def plugin_widening(plugin: Plugin, home: Path, project: Path) -> Widening | None:
    """Return what needs trust; None if the user chose the plug-in by flag or from outside the project."""
    top, own = Path(os.path.realpath(project)), Path(os.path.realpath(home))
    is_projects = plugin.root.is_relative_to(top) and not plugin.root.is_relative_to(own / "plugins")
    if plugin.offered == "flag" or not is_projects:
        return None
    key = ("plugin", plugin.name)
    value = {
        "directory": str(plugin.root.relative_to(top)),
        "hooks": None if plugin.hooks is None else plugin.hooks.raw,
        "mcpServers": None if plugin.servers is None else plugin.servers.raw,
        "sha256": _digest(plugin.root),
    }
    manifest = plugin.root / MANIFEST
    document = Document(name=str(manifest), kind="plugin", path=manifest, text="{}", raw={"plugin": value})
    try:
        trust = trust_in(TrustFile(home), project, document, ((key, value),))
    except StoreError:
        trust = "unasked"
    return Widening(document=document, keys=key, value=value, trust=trust)


def _digest(root: Path) -> str:
    """Hash every file, because a hook runs the content of its script."""
    digest, read = hashlib.sha256(), 0
    for path in _entries(root):
        digest.update(f"{path.relative_to(root)}\0".encode("utf-8", "surrogateescape"))
        if path.is_symlink():
            digest.update(os.fsencode(os.readlink(path)))  # noqa: PTH115 - the raw link target
        elif path.is_file():
            read += path.stat().st_size
            if read > MOST_BYTES:
                told = f"it has more than {MOST_BYTES:,} bytes, too much to be trusted in a project"
                raise SettingsError(told, path=root)
            digest.update(path.read_bytes())
        digest.update(b"\0")
    return digest.hexdigest()


def _entries(root: Path) -> Iterator[Path]:
    """Yield files and links in an order that does not depend on the file system."""
    for directory, inner, files in os.walk(root):
        inner.sort()
        links = (each for each in inner if (Path(directory) / each).is_symlink())
        for name in sorted((*files, *links)):
            yield Path(directory) / name
