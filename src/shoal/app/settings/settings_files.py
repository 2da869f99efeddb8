"""Settings files: which ones apply, in which order, and their contents."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from shoal.app.settings.mcp_files import read_managed_mcp_files
from shoal.app.settings.project_directories import exclude_directory, iter_project_directories
from shoal.core.errors import SettingsError
from shoal.core.unused_items import UnusedItem
from shoal.wire.settings_codec import SettingsDocument, SettingsSourceKind, parse_settings_document

_MANAGED_BY_PLATFORM = {
    "linux": ("/etc/shoal/managed-settings.json", "/etc/claude-code/managed-settings.json"),
    "darwin": (
        "/Library/Application Support/Shoal/managed-settings.json",
        "/Library/Application Support/ClaudeCode/managed-settings.json",
    ),
}
MANAGED_FILES = tuple(Path(path) for path in _MANAGED_BY_PLATFORM.get(sys.platform, ()))
SettingsFiles: TypeAlias = tuple[tuple[Path, SettingsSourceKind], ...]
_SOURCE_KINDS: tuple[SettingsSourceKind, ...] = ("user", "project", "local")
_KINDS_OF_SERVER_FILES: dict[SettingsSourceKind, SettingsSourceKind] = {"mcp": "project", "private": "local"}


def read_settings_documents(
    files: SettingsFiles, given: str | None, managed: Sequence[Path], contents: Mapping[str, bytes | None]
) -> Iterator[SettingsDocument]:
    for path, kind in files:
        if kind == "managed":
            yield from _read_settings_file(path, kind, contents)
    yield from read_managed_mcp_files(managed)
    if given is not None and given.lstrip().startswith("{"):
        yield parse_settings_document(given, name="--settings", kind="command line", path=None)
    for path, kind in files:
        if kind != "managed":
            yield from _read_settings_file(path, kind, contents)


def filter_documents_by_source(
    documents: Iterable[SettingsDocument], sources: Sequence[str] | None
) -> Iterator[SettingsDocument]:
    """Yield the documents of the given sources; managed files and flags always count."""
    for document in documents:
        kind = _KINDS_OF_SERVER_FILES.get(document.kind, document.kind)
        if sources is None or kind not in _SOURCE_KINDS or kind in sources:
            yield document


def list_settings_files(
    home: Path, cwd: Path, given: str | None, managed: Sequence[Path] | None = None
) -> SettingsFiles:
    """Return every file that may contain settings, highest precedence first. Raises `SettingsError`.

    A path in `given` has no `~`.
    """
    files: list[tuple[Path, SettingsSourceKind]] = []
    for path in MANAGED_FILES if managed is None else managed:
        # A later name overrides an earlier one, and all of them override the single file.
        files += ((each, "managed") for each in reversed(_list_managed_parts(path)))
        files.append((path, "managed"))
    if given is not None and not given.lstrip().startswith("{"):
        files.append((cwd / given, "command line"))
    # Claude Code reads the local file of the repository in its subdirectories too, but not the shared one.
    directories = [*_iter_project_settings_directories(home, cwd)]
    files += ((each / "settings.local.json", "local") for each in directories)
    files += ((each / "settings.json", "project") for each in directories if each.parent == cwd)
    return (*files, (home / "settings.json", "user"))


def _iter_project_settings_directories(home: Path, cwd: Path) -> Iterator[Path]:
    return exclude_directory(home, (each / ".claude" for each in iter_project_directories(cwd)))


def find_unused_parent_files(home: Path, cwd: Path) -> Iterator[UnusedItem]:
    for directory in _iter_project_settings_directories(home, cwd):
        path = directory / "settings.json"
        if directory.parent != cwd and path.is_file():
            reason = f"it applies only if you start Shoal in {directory.parent}"
            yield UnusedItem(location=str(path), name="file", reason=reason)


def _list_managed_parts(path: Path) -> list[Path]:
    directory = path.with_name("managed-settings.d")
    try:
        return sorted(each for each in directory.iterdir() if each.suffix == ".json" and each.name[0] != ".")
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        message = f"Cannot read the managed settings in {directory}: {error.strerror}."
        raise SettingsError(message, path=directory) from error


def _read_settings_file(
    path: Path, kind: SettingsSourceKind, contents: Mapping[str, bytes | None]
) -> Iterator[SettingsDocument]:
    try:
        content = contents[str(path)] if str(path) in contents else path.read_bytes()
        text = "{}" if content is None else content.decode("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        if kind == "command line":
            message = f"There is no settings file {path}. --settings takes a file path or JSON."
            raise SettingsError(message, path=path) from None
        return
    except OSError as error:
        raise SettingsError(f"Cannot read the settings in {path}: {error.strerror}.", path=path) from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"The settings in {path} are not UTF-8 text.", path=path) from error
    yield parse_settings_document(text, name=str(path), kind=kind, path=path)
