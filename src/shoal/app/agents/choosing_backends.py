"""Chooses and creates the backends of a session's teammates."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from shoal.app.settings.settings import Settings
from shoal.core.backends import Backend, Panes, Papers
from shoal.core.roster import BackendType

if TYPE_CHECKING:
    from shoal.app.agents.crewing import Ground

LOGS = "members"


def chosen(settings: Settings, *, attended: bool, foreign: bool) -> BackendType:
    """Choose a backend: panes only if attended, `auto` only inside tmux; a foreign program needs a pane."""
    mode, environ = settings.own.teammate_mode, settings.environ
    if mode == "iterm2" and (attended or foreign):
        return "iterm2"
    if foreign or (mode == "tmux" and attended):
        return "tmux"
    if mode == "auto":
        return "tmux" if attended and environ.get("TMUX") else "in-process"
    return "in-process" if mode == "in-process" else "process"


class Backends:
    """Backends of one session, created on first use; all start own teammates in the same way."""

    def __init__(self, ground: Ground, session: Callable[[], str]) -> None:
        self._on = ground
        self._session = session
        self._made: dict[BackendType, Backend] = {}
        self._usable: set[BackendType] = set()

    def of(self, place: BackendType) -> Backend:
        if place not in self._made:
            self._made[place] = self._processes() if place == "process" else self._panes(place)
        return self._made[place]

    async def trouble_with(self, place: BackendType) -> str:
        """Return the reason why a backend is unavailable; success is cached until `forget_checks`."""
        if place in self._usable:
            return ""
        why = await self.of(place).unavailable()
        if not why:
            self._usable.add(place)
        return why

    def look_again(self) -> None:
        self._usable.clear()

    async def aclose(self) -> None:
        for backend in self._made.values():
            await backend.aclose()

    def _processes(self) -> Backend:
        from shoal.app.agents.berths import ENTRY, PRELOADED
        from shoal.backends.process_backend import ProcessBackend

        return ProcessBackend(
            self._on.shore.processes,
            self._on.options.clock,
            entry=ENTRY,
            preload=PRELOADED,
            log_directory=self._on.directory / LOGS,
        )

    def _panes(self, place: BackendType) -> Backend:
        from shoal.backends.pane_backend import PaneBackend

        note, environ, clock = self._on.shore.note, self._on.settings.environ, self._on.options.clock
        panes: Panes
        if place == "iterm2":
            from shoal.backends.iterm2 import Iterm2Panes

            panes = Iterm2Panes(environ, clock)
        else:
            from shoal.backends.tmux import TmuxPanes

            name = f"shoal-{self._session()[:8]}"
            panes = TmuxPanes(environ, self._on.shore.processes, clock, session_name=name)
            if attach := panes.attach_command:
                note(f"Teammates are shown in tmux. To see them: {shlex.join(attach)}")
        return PaneBackend(panes, self.of("process"), self._viewer, clock, on_note=note)

    def _viewer(self, papers: Papers) -> tuple[str, ...]:
        return (sys.executable, "-m", "shoal", "view", papers.session, papers.name)
