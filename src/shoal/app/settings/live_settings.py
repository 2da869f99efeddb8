"""Settings that are reloaded while a session runs, so that a change needs no restart."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from shoal.app.settings.file_stamps import is_file_unchanged, stamp_files
from shoal.app.settings.settings import Settings, load_settings
from shoal.app.settings.settings_files import list_settings_files
from shoal.core.errors import SettingsError
from shoal.policy.permission_rules import PermissionRuleSet
from shoal.stores.files.home.trust_file import ProjectTrustFile
from shoal.wire.settings_codec import SettingsSourceKind

_CHECK_INTERVAL = 0.05
"""Minimum seconds between two checks of the files while agents only read."""


class AutoReloadingSettings:
    """The last valid settings; `note` reports an invalid change to the user once.

    `add_rules` adds the rules that do not come from settings.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        cwd: Path,
        given: str | None = None,
        sources: Sequence[str] | None = None,
        add_rules: Callable[[PermissionRuleSet], PermissionRuleSet] = lambda rules: rules,
        note: Callable[[str], None],
    ) -> None:
        self.settings = settings
        self._cwd = cwd
        self._given = given = given and settings.user.expand_home(given)
        self._sources = sources
        self._add_rules = add_rules
        self._note = note
        self._rules = self._add_rules(settings.permissions.rules)
        files = list_settings_files(settings.home, cwd, given)
        self._kinds = {str(path): kind for path, kind in files}
        self._trust_file = str(ProjectTrustFile(settings.home).path)
        self._paths = (*self._kinds, self._trust_file)
        self._files = stamp_files(self._paths)
        self._checked_at = time.monotonic()
        self._last_error = ""
        self._reviewed_contents: dict[str, bytes | None] | None = None
        """Contents of the files at the last review, if changes apply only after `finish_review`."""
        self._blocked_contents: dict[str, bytes | None] = {}
        """Contents that apply in place of those of files whose change was blocked; None for no file."""

    def start_review(self) -> None:
        """Apply changes only after `finish_review` from now on."""
        self._reviewed_contents = {path: _read_content(path) for path in self._kinds}

    def list_changed_files(self) -> list[tuple[str, SettingsSourceKind]]:
        """Return the changed settings files and their kinds, until `finish_review`."""
        return [
            (path, self._kinds[path])
            for path, stamp in self._files.stamps.items()
            if path in self._kinds
            and not is_file_unchanged(path, stamp)
            # A stamp can be too young to be certain.
            and _read_content(path) != (self._reviewed_contents or {}).get(path)
        ]

    @property
    def is_trust_changed(self) -> bool:
        """True if the user has started or stopped trusting a project."""
        return not is_file_unchanged(self._trust_file, self._files.stamps[self._trust_file])

    def finish_review(self, *, blocked: Collection[str]) -> None:
        """Load the changed files. A blocked file keeps the content that applies until its next change."""
        before = self._reviewed_contents or {}
        for path, _ in self.list_changed_files():
            if path not in blocked:
                self._blocked_contents.pop(path, None)
            else:
                self._blocked_contents.setdefault(path, before.get(path))
        self._files = stamp_files(self._paths)
        self.start_review()
        self._reload_settings()

    def load_rules(self, *, fresh: bool) -> PermissionRuleSet:
        """Return the active rules. Never raises: an invalid file leaves the last valid rules."""
        if self._reviewed_contents is not None:
            return self._rules
        now = time.monotonic()
        if fresh or now - self._checked_at > _CHECK_INTERVAL:
            self._checked_at = now
            if not self._files.are_files_unchanged():
                self._files = stamp_files(self._paths)
                self._reload_settings()
        return self._rules

    def _reload_settings(self) -> None:
        before = self.settings
        try:
            settings = load_settings(
                cwd=self._cwd,
                environ=before.environ,
                given=self._given,
                sources=self._sources,
                contents=self._blocked_contents,
            )
            rules = self._add_rules(settings.permissions.rules)
        except SettingsError as error:
            if str(error) != self._last_error:
                self._last_error = str(error)
                self._note(
                    f"The changed settings are invalid, so the previous settings stay in effect: {error}"
                )
            return
        self.settings, self._last_error = settings, ""
        if rules != self._rules:
            self._rules = rules
        for warning in settings.findings.warnings:
            if warning not in before.findings.warnings:
                self._note(warning)


def _read_content(path: str) -> bytes | None:
    try:
        return Path(path).read_bytes()
    except OSError:
        return None
