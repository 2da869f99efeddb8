"""Settings that are reloaded while a session runs, so that a change needs no restart."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from shoal.app.settings.settings import Settings, load_settings, settings_files
from shoal.app.settings.stamps import is_still, stamp
from shoal.app.settings.standing import with_flags
from shoal.core.errors import SettingsError
from shoal.policy.rules import Standing
from shoal.stores.files.trust import TrustFile

_PAUSE = 0.05
"""Seconds without another check of the files while agents only read."""


class LiveSettings:
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
        self._standing = with_flags(settings.standing, allow=allow, deny=deny)
        files = [path for path, _ in settings_files(settings.home, cwd, given)]
        self._paths = tuple(map(str, (*files, TrustFile(settings.home).path)))
        self._stamps = tuple(map(stamp, self._paths))
        self._looked = time.monotonic()
        self._trouble = ""

    def current(self, *, fresh: bool) -> Standing:
        """Return the rules in force. Never raises: an invalid file leaves the last valid rules."""
        now = time.monotonic()
        if fresh or now - self._looked > _PAUSE:
            self._looked = now
            if not all(map(is_still, self._paths, self._stamps)):
                self._stamps = tuple(map(stamp, self._paths))
                self._load()
        return self._standing

    def _load(self) -> None:
        before = self.settings
        try:
            settings = load_settings(
                cwd=self._cwd, environ=before.environ, given=self._given, sources=self._sources
            )
            standing = with_flags(settings.standing, allow=self._flags[0], deny=self._flags[1])
        except SettingsError as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                self._note(f"A change of the settings is not taken over, the earlier ones stay: {error}")
            return
        self.settings, self._trouble = settings, ""
        if standing != self._standing:
            self._standing = standing
        for warning in settings.warnings:
            if warning not in before.warnings:
                self._note(warning)
