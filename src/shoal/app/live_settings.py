"""Settings that are looked at again while a session runs, so that a change needs no restart."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from shoal.app.settings import Settings, load_settings, settings_files
from shoal.app.standing import with_flags
from shoal.core.errors import SettingsError
from shoal.policy.rules import Standing
from shoal.stores.files.trust import TrustFile

_PAUSE = 0.05
"""Seconds for which the files are not looked at again while nothing but reading goes on."""

_Stamp: TypeAlias = tuple[int, int, int] | None


class LiveSettings:
    """The last good settings; `note` tells a person, once, what is wrong with a change."""

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
        self._stamps: tuple[_Stamp, ...] = (None,) * len(self._paths)
        self._stamps = self._look()
        self._looked = time.monotonic()

    def current(self, *, fresh: bool) -> Standing:
        """The rules in force. Raises nothing: a broken file leaves the last good ones."""
        now = time.monotonic()
        if fresh or now - self._looked > _PAUSE:
            self._looked = now
            stamps = self._look()
            if stamps != self._stamps:
                self._stamps = stamps
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
            self._note(f"A change of the settings is not taken over, the earlier ones stay: {error}")
            return
        self.settings = settings
        if standing != self._standing:
            self._standing = standing
        for warning in settings.warnings:
            if warning not in before.warnings:
                self._note(warning)

    def _look(self) -> tuple[_Stamp, ...]:
        return tuple(map(_stamp, self._paths, self._stamps))


def _stamp(path: str, before: _Stamp) -> _Stamp:
    # Most of them do not exist, and this tells it at half the price of an exception.
    if before is None and not os.access(path, os.F_OK):
        return None
    try:
        state = os.stat(path)  # noqa: PTH116 - before every call that changes something: pathlib doubles its cost
    except OSError:
        return None
    return state.st_mtime_ns, state.st_size, state.st_ino
