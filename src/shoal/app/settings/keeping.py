"""Writer of settings files for answers that outlast the session."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from shoal.app.settings.settings import Settings
from shoal.app.settings.trust import persons_part, trust_files, trust_in, widening_part
from shoal.core.errors import SettingsError
from shoal.core.permissions import AddDirectories, AddRules, Destination, SetMode, Suggestion
from shoal.stores.files.places import write_whole
from shoal.stores.files.trust import TrustFile
from shoal.wire.settings import Document, Kind, read_document

T = TypeVar("T")
_NAMES: dict[Destination, str] = {
    "localSettings": "settings.local.json",
    "projectSettings": "settings.json",
}


def settings_path(destination: Destination, settings: Settings, cwd: Path) -> Path:
    project = cwd / ".claude"
    if destination == "userSettings" or project.resolve() == settings.home.resolve():
        return settings.home / "settings.json"
    return project / _NAMES[destination]


def keep_answer(update: Suggestion, settings: Settings, cwd: Path) -> bool:
    """Save the user's answer in its settings file and trust what it adds.

    Return False without a change if that file holds untrusted settings. Raises what `save_suggestion` does.
    """
    path = settings_path(update.destination, settings, cwd)
    if path.parent == settings.home:
        keep(update, path)
        return True
    kind: Kind = "local" if update.destination == "localSettings" else "project"
    person = persons_part(settings.documents)

    def document(text: str) -> Document:
        return read_document(text, name=str(path), kind=kind, path=path)

    def may(text: str) -> bool:
        wide = widening_part(document(text), person)
        return not wide or trust_in(TrustFile(settings.home), cwd, document(text), wide) == "trusted"

    written = keep(update, path, may=may)
    if written is None:
        return False
    # Written second: a crash in between asks about the file again, and never trusts what is not in it.
    trust_files(settings.home, cwd, [document(written)], person)
    return True


def keep(update: Suggestion, path: Path, *, may: Callable[[str], bool] = lambda _: True) -> str | None:
    """Add the user's choice to the file; everything else in it stays.

    Return the new content; None without a change if `is_allowed` rejects the old content.

    Raises `SettingsError` if the file cannot be parsed, `StoreError` if it cannot be written.
    """
    file = _Opened(path)
    raw = read_document(file.text, name=str(path), kind="user", path=path).raw
    if not may(file.text):
        return None
    _add(raw, update)
    return file.write(raw)


def keep_model(name: str | None, path: Path) -> None:
    """Set or, with None, remove the default model. Raises what `save_suggestion` does."""
    file = _Opened(path)
    raw = read_document(file.text, name=str(path), kind="user", path=path).raw
    own = raw.setdefault("shoal", {})
    if name is not None:
        own["model"] = name
    elif own.pop("model", None) is None:
        return
    file.write(raw)


def _add(raw: dict[str, Any], update: Suggestion) -> None:
    permissions = raw.setdefault("permissions", {})
    match update:
        case AddRules(rules=rules, behavior=behavior):
            _join(permissions, behavior, [str(rule) for rule in rules])
        case AddDirectories(directories=directories):
            _join(permissions, "additionalDirectories", list(directories))
        case SetMode(mode=wished):
            permissions["defaultMode"] = wished


def rewritten(path: Path, edit: Callable[[dict[str, Any]], T]) -> T:
    """Let `edit` change the content of a JSON file; other content, indent and file mode stay.

    Raises `SettingsError` if the file cannot be parsed, `StoreError` if it cannot be written.
    """
    file = _Opened(path)
    try:
        raw = json.loads(file.text) if file.text.strip() else {}
    except ValueError as error:
        raise SettingsError(f"{path} is not valid JSON: {error}. Repair it by hand.", path=path) from error
    if not isinstance(raw, dict):
        raise SettingsError(f"{path} holds no JSON object. Repair it by hand.", path=path)
    found = edit(raw)
    file.write(raw)
    return found


def _join(permissions: dict[str, Any], key: str, new: list[str]) -> None:
    present = permissions.setdefault(key, [])
    present.extend(each for each in new if each not in present)


class _Opened:
    """JSON file of the user, with symlinks resolved: other content, indent and file mode stay."""

    def __init__(self, path: Path) -> None:
        self._real = Path(path.resolve())
        self._mode: int | None = None
        self.text = ""
        try:
            self.text = self._real.read_text(encoding="utf-8-sig")
            self._mode = stat.S_IMODE(self._real.stat().st_mode)
        except FileNotFoundError:
            return
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"The settings in {path} cannot be read: {error}.", path=path) from error

    def write(self, raw: dict[str, Any]) -> str:
        """Write the content and return the new text."""
        written = json.dumps(raw, indent=_indent(self.text), ensure_ascii=False) + "\n"
        write_whole(self._real, written.encode())
        if self._mode is not None:
            self._real.chmod(self._mode)
        return written


def _indent(text: str) -> str | int:
    """Return the indent that the file uses."""
    found = re.search(r"\n([ \t]+)\S", text)
    return found[1] if found else 2
