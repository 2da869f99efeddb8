"""Writer of settings files for answers that outlast the session."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from shoal.app.settings.claude_json import CLAUDE_JSON
from shoal.app.settings.settings import Settings
from shoal.app.settings.settings_trust import (
    find_escalating_settings,
    merge_user_controlled_documents,
    read_document_trust,
    save_trust_in_documents,
)
from shoal.core.errors import SettingsError
from shoal.core.permissions.permission_changes import (
    AddDirectoriesPermissionSuggestion,
    AddPermissionRulesSuggestion,
    PermissionSuggestion,
    RuleDestination,
    SetPermissionModeSuggestion,
)
from shoal.stores.files.home.home_paths import read_state_file, write_file_atomically
from shoal.stores.files.home.trust_file import ProjectTrustFile
from shoal.stores.files.locks.foreign_lock import hold_foreign_lock
from shoal.wire.json_comments import decode_commented_json
from shoal.wire.json_text_edits import UneditableJsonError, detect_json_indent, edit_json_text
from shoal.wire.settings_codec import SettingsDocument, SettingsSourceKind, parse_settings_document

T = TypeVar("T")
_MAX_EDITS = 20
_FILE_NAMES: dict[RuleDestination, str] = {
    "localSettings": "settings.local.json",
    "projectSettings": "settings.json",
}


def find_settings_path(destination: RuleDestination, settings: Settings, cwd: Path) -> Path:
    project = cwd / ".claude"
    if destination == "userSettings" or project.resolve() == settings.home.resolve():
        return settings.home / "settings.json"
    return project / _FILE_NAMES[destination]


def save_permission_answer(update: PermissionSuggestion, settings: Settings, cwd: Path) -> bool:
    """Save the user's answer in its settings file and trust what it adds.

    Return False, unchanged, if the file has untrusted settings. Raises like `save_permission_suggestion`.
    """
    path = find_settings_path(update.destination, settings, cwd)
    if path.parent == settings.home:
        save_permission_suggestion(update, path)
        return True
    kind: SettingsSourceKind = "local" if update.destination == "localSettings" else "project"
    user_settings = merge_user_controlled_documents(settings.documents)

    def parse_settings_text(text: str) -> SettingsDocument:
        return parse_settings_document(text, name=str(path), kind=kind, path=path)

    def is_trusted_text(text: str) -> bool:
        parts = find_escalating_settings(parse_settings_text(text), user_settings)
        return (
            not parts
            or read_document_trust(ProjectTrustFile(settings.home), cwd, parse_settings_text(text), parts)
            == "trusted"
        )

    new_text = save_permission_suggestion(update, path, is_allowed=is_trusted_text)
    if new_text is None:
        return False
    # Written second: a crash in between asks about the file again, and never trusts what is not in it.
    save_trust_in_documents(settings.home, cwd, [parse_settings_text(new_text)], user_settings)
    return True


def save_permission_suggestion(
    update: PermissionSuggestion, path: Path, *, is_allowed: Callable[[str], bool] = lambda _: True
) -> str | None:
    """Add the user's choice to the file; everything else in it stays.

    Return the new content; None without a change if `is_allowed` rejects the old content.

    Raises `SettingsError` if the file cannot be parsed, `StateFileError` if it cannot be written.
    """

    def add_choice(file: _EditableJsonFile) -> dict[str, Any] | None:
        raw = _parse_editable_settings(file.text, path)
        if not is_allowed(file.text):
            return None
        _apply_permission_suggestion(raw, update)
        return raw

    return _edit_locked_file(path, add_choice)


def save_default_model(name: str | None, path: Path) -> None:
    """Set or, with None, remove the default model. Raises like `save_permission_suggestion`."""

    def set_model(file: _EditableJsonFile) -> dict[str, Any] | None:
        raw = _parse_editable_settings(file.text, path)
        shoal_settings = raw.setdefault("shoal", {})
        if name is not None:
            shoal_settings["model"] = name
        elif shoal_settings.pop("model", None) is None:
            return None
        return raw

    _edit_locked_file(path, set_model)


def _parse_editable_settings(text: str, path: Path) -> dict[str, Any]:
    """Return all entries of a file, including those that Shoal does not use. Raises `SettingsError`."""
    parse_settings_document(text, name=str(path), kind="user", path=path)
    raw: dict[str, Any] = decode_commented_json(text)[0] if text.strip() else {}
    return raw


def _apply_permission_suggestion(raw: dict[str, Any], update: PermissionSuggestion) -> None:
    permissions = raw.setdefault("permissions", {})
    match update:
        case AddPermissionRulesSuggestion(rules=rules, behavior=behavior):
            _append_missing_rules(permissions, behavior, [str(rule) for rule in rules])
        case AddDirectoriesPermissionSuggestion(directories=directories):
            _append_missing_rules(permissions, "additionalDirectories", list(directories))
        case SetPermissionModeSuggestion(mode=mode):
            permissions["defaultMode"] = mode


def edit_json_file(path: Path, edit: Callable[[dict[str, Any]], T]) -> T:
    """Let `edit` change the content of a JSON file; other content, comments, indent and file mode stay.

    `edit` is called again if another program changes the file at the same time. Raises `SettingsError` if
    the file cannot be parsed, `StateFileError` if it cannot be written, and `LockUnavailable`.
    """
    results: list[T] = []

    def edit_content(file: _EditableJsonFile) -> dict[str, Any]:
        raw = _parse_json_object(file.text, path)
        results.append(edit(raw))
        return raw

    _edit_locked_file(path, edit_content, follows_links=path.name != CLAUDE_JSON)
    return results[-1]


def edit_claude_json(path: Path, edit: Callable[[dict[str, Any]], T]) -> T:
    """Change Claude Code's state file as `edit_json_file` does.

    A link is refused: it could lead to another user's file. Raises like `edit_json_file`.
    """
    if path.is_symlink():
        message = (
            f"{path} is a symbolic link, so Shoal does not change it. Replace the link with the file, or "
            f"change {path.resolve()} by hand."
        )
        raise SettingsError(message, path=path)
    if path.exists() and not path.is_file():
        raise SettingsError(f"{path} is not a file. Remove it, and try again.", path=path)
    return edit_json_file(path, edit)


def _edit_locked_file(
    path: Path,
    edit: Callable[[_EditableJsonFile], dict[str, Any] | None],
    *,
    follows_links: bool = True,
) -> str | None:
    """Write the content that `edit` returns, and return the new text; with None, the file stays as it is."""
    real_path = Path(path.resolve()) if follows_links else path
    with hold_foreign_lock(real_path) as confirm_lock:
        for _ in range(_MAX_EDITS):
            file = _EditableJsonFile(real_path)
            raw = edit(file)
            if raw is None:
                return None
            confirm_lock()
            # Editors and Claude Code write without this lock.
            if file.is_unchanged():
                return file.write(raw)
    raise SettingsError(
        f"Another program keeps changing {path}. Close that program, and try again.", path=path
    )


def _parse_json_object(text: str, path: Path) -> dict[str, Any]:
    try:
        raw = decode_commented_json(text)[0] if text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{path} is not valid JSON: {error}. Fix it by hand.", path=path) from error
    if not isinstance(raw, dict):
        raise SettingsError(f"{path} does not contain a JSON object. Fix it by hand.", path=path)
    return raw


def _append_missing_rules(permissions: dict[str, Any], key: str, new: list[str]) -> None:
    entries = permissions.setdefault(key, [])
    if not isinstance(entries, list):
        raise SettingsError(f"permissions.{key} is not a list. Change it by hand.")
    entries.extend(each for each in new if each not in entries)


class _EditableJsonFile:
    """JSON file of the user: other content, comments, indent and file mode stay."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mode: int | None = None
        self.text = ""
        try:
            self.text = self._read_text()
            self._mode = stat.S_IMODE(self._path.stat().st_mode)
        except FileNotFoundError:
            return
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"Cannot read the settings in {path}: {error}.", path=path) from error

    def is_unchanged(self) -> bool:
        """Return True if nobody has changed the file since it was read."""
        try:
            return self._read_text() == self.text and self._mode is not None
        except FileNotFoundError:
            return self._mode is None
        except (OSError, UnicodeDecodeError):
            return False

    def _read_text(self) -> str:
        return read_state_file(self._path).decode("utf-8-sig")

    def write(self, raw: dict[str, Any]) -> str:
        """Write the content and return the new text. Raises `SettingsError` if comments would be lost."""
        text = self._format_content(raw)
        write_file_atomically(self._path, text.encode(), durable=True)
        if self._mode is not None:
            self._path.chmod(self._mode)
        return text

    def _format_content(self, raw: dict[str, Any]) -> str:
        if self.text.strip():
            try:
                return edit_json_text(self.text, raw)
            except UneditableJsonError as error:
                if decode_commented_json(self.text)[1] != self.text:
                    message = (
                        f"{self._path} was not changed, because its comments would be lost. "
                        "Change it by hand."
                    )
                    raise SettingsError(message, path=self._path) from error
        indent = detect_json_indent(self.text) or 2
        return json.dumps(raw, indent=indent, ensure_ascii=False) + "\n"
