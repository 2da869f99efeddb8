"""Settings that are reloaded while a session runs, so that a change needs no restart."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from shoal.app.settings.configured_rules import add_permission_flag_rules
from shoal.app.settings.file_stamps import is_file_unchanged, stamp_file
from shoal.app.settings.settings import Settings, list_settings_files, load_settings
from shoal.core.errors import SettingsError
from shoal.policy.permission_rules import PermissionRuleSet
from shoal.stores.files.home.trust_file import ProjectTrustFile

_CHECK_INTERVAL = 0.05
"""Seconds without another check of the files while agents only read."""


class AutoReloadingSettings:
    """The last valid settings; `note` reports an invalid change to the user once."""

    def __init__(
        self,
        settings: Settings,
        *,
        cwd: Path,
        given: str | None = None,
        sources: Sequence[str] | None = None,
        allow: Sequence[str] = (),
        deny: Sequence[str] = (),
        note: Callable[[str], None],
    ) -> None:
        self.settings = settings
        self._cwd = cwd
        self._given = given
        self._sources = sources
        self._flags = (tuple(allow), tuple(deny))
        self._note = note
        self._rules = add_permission_flag_rules(settings.permission_rules, allow=allow, deny=deny)
        files = [path for path, _ in list_settings_files(settings.home, cwd, given)]
        self._paths = tuple(map(str, (*files, ProjectTrustFile(settings.home).path)))
        self._stamps = tuple(map(stamp_file, self._paths))
        self._checked_at = time.monotonic()
        self._last_error = ""

    def load_rules(self, *, fresh: bool) -> PermissionRuleSet:
        """Return the active rules. Never raises: an invalid file leaves the last valid rules."""
        now = time.monotonic()
        if fresh or now - self._checked_at > _CHECK_INTERVAL:
            self._checked_at = now
            if not all(map(is_file_unchanged, self._paths, self._stamps)):
                self._stamps = tuple(map(stamp_file, self._paths))
                self._reload_settings()
        return self._rules

    def _reload_settings(self) -> None:
        before = self.settings
        try:
            settings = load_settings(
                cwd=self._cwd, environ=before.environ, given=self._given, sources=self._sources
            )
            rules = add_permission_flag_rules(
                settings.permission_rules, allow=self._flags[0], deny=self._flags[1]
            )
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
        for warning in settings.warnings:
            if warning not in before.warnings:
                self._note(warning)
