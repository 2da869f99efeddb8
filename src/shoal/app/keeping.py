"""Answers that are to outlast the session, written into the settings file they belong to."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

from shoal.app.settings import Settings
from shoal.core.errors import SettingsError
from shoal.core.permissions import AddDirectories, AddRules, Destination, SetMode, Suggestion
from shoal.stores.files.places import write_whole
from shoal.wire.settings import read_document

_NAMES: dict[Destination, str] = {
    "localSettings": "settings.local.json",
    "projectSettings": "settings.json",
}


def settings_path(destination: Destination, settings: Settings, cwd: Path) -> Path:
    project = cwd / ".claude"
    if destination == "userSettings" or project.resolve() == settings.home.resolve():
        return settings.home / "settings.json"
    return project / _NAMES[destination]


def keep(update: Suggestion, path: Path) -> None:
    """Add to the file what the person chose; everything else in it stays.

    Raises `SettingsError` where the file cannot be understood, `StoreError` where it cannot be written.
    """
    real = Path(path.resolve())
    text, mode = _content(real)
    raw = read_document(text, name=str(path), kind="user", path=path).raw
    permissions = raw.setdefault("permissions", {})
    match update:
        case AddRules(rules=rules, behavior=behavior):
            _join(permissions, behavior, [str(rule) for rule in rules])
        case AddDirectories(directories=directories):
            _join(permissions, "additionalDirectories", list(directories))
        case SetMode(mode=wished):
            permissions["defaultMode"] = wished
    written = json.dumps(raw, indent=_indent(text), ensure_ascii=False) + "\n"
    write_whole(real, written.encode())
    if mode is not None:
        real.chmod(mode)


def _join(permissions: dict[str, Any], key: str, new: list[str]) -> None:
    present = permissions.setdefault(key, [])
    present.extend(each for each in new if each not in present)


def _content(path: Path) -> tuple[str, int | None]:
    try:
        return path.read_text(encoding="utf-8-sig"), stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return "", None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"The settings in {path} cannot be read: {error}.", path=path) from error


def _indent(text: str) -> str | int:
    """As the file does it."""
    found = re.search(r"\n([ \t]+)\S", text)
    return found[1] if found else 2
