"""Chooses and creates the backends of a session's teammates."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from shoal.app.settings.settings import Settings
from shoal.core.teams.member_backends import MemberBackend, MemberLaunchArgs, TerminalMultiplexer
from shoal.core.teams.roster import BackendType

if TYPE_CHECKING:
    from shoal.app.runtime.runtime import Runtime

LOG_DIRECTORY = "members"


def choose_backend_type(settings: Settings, *, attended: bool, foreign: bool) -> BackendType:
    """Choose a backend: panes only if attended, `auto` only inside tmux; a foreign program needs a pane."""
    mode, environ = settings.own.teammate_mode, settings.environ
    if mode == "iterm2" and (attended or foreign):
        return "iterm2"
    if foreign or (mode == "tmux" and attended):
        return "tmux"
    if mode == "auto":
        return "tmux" if attended and environ.get("TMUX") else "in-process"
    return "in-process" if mode == "in-process" else "process"


class MemberBackendPool:
    """Backends of one session, created on first use; all start own teammates in the same way."""

    def __init__(self, runtime: Runtime, session: Callable[[], str]) -> None:
        self._runtime = runtime
        self._session = session
        self._backends: dict[BackendType, MemberBackend] = {}
        self._usable: set[BackendType] = set()

    def get_backend(self, backend: BackendType) -> MemberBackend:
        if backend not in self._backends:
            self._backends[backend] = (
                self._create_process_backend() if backend == "process" else self._create_pane_backend(backend)
            )
        return self._backends[backend]

    async def explain_unavailable(self, backend: BackendType) -> str:
        """Return why a backend is unavailable; success is cached until `forget_availability_checks`."""
        if backend in self._usable:
            return ""
        reason = await self.get_backend(backend).explain_unavailable()
        if not reason:
            self._usable.add(backend)
        return reason

    def forget_availability_checks(self) -> None:
        self._usable.clear()

    async def aclose(self) -> None:
        for backend in self._backends.values():
            await backend.aclose()

    def _create_process_backend(self) -> MemberBackend:
        from shoal.app.agents.backend_launcher import MEMBER_ENTRY_POINT, PRELOADED_MODULES
        from shoal.backends.process_backend import ProcessBackend

        return ProcessBackend(
            self._runtime.processes,
            self._runtime.clock,
            entry=MEMBER_ENTRY_POINT,
            preload=PRELOADED_MODULES,
            log_directory=self._runtime.store.directory / LOG_DIRECTORY,
        )

    def _create_pane_backend(self, backend: BackendType) -> MemberBackend:
        from shoal.backends.pane_backend import PaneBackend

        note, environ, clock = (
            self._runtime.events.note,
            self._runtime.settings.environ,
            self._runtime.clock,
        )
        panes: TerminalMultiplexer
        if backend == "iterm2":
            from shoal.backends.iterm2_panes import Iterm2PaneManager

            panes = Iterm2PaneManager(environ, clock)
        else:
            from shoal.backends.tmux_panes import TmuxPaneManager

            name = f"shoal-{self._session()[:8]}"
            panes = TmuxPaneManager(environ, self._runtime.processes, clock, session_name=name)
            if attach_command := panes.attach_command:
                note(f"Teammates run in tmux. Watch them: {shlex.join(attach_command)}")
        return PaneBackend(panes, self.get_backend("process"), self._build_viewer_argv, clock, on_note=note)

    def _build_viewer_argv(self, launch_args: MemberLaunchArgs) -> tuple[str, ...]:
        return (sys.executable, "-m", "shoal", "view", launch_args.session, launch_args.name)
