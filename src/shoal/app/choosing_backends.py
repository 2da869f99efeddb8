"""Which backend a session's teammates run on: by setting, by whether a person looks, and by where it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.app.settings import Settings
from shoal.core.backends import Backend
from shoal.core.roster import BackendType

if TYPE_CHECKING:
    from shoal.app.crewing import Ground

LOGS = "members"


def chosen(settings: Settings, *, attended: bool, foreign: bool) -> BackendType:
    """Panes only where a person looks; `auto` takes them only inside tmux. Another program needs a pane."""
    mode, environ = settings.own.teammate_mode, settings.environ
    if mode == "iterm2" and (attended or foreign):
        return "iterm2"
    if foreign or (mode == "tmux" and attended):
        return "tmux"
    if mode == "auto":
        return "tmux" if attended and environ.get("TMUX") else "in-process"
    return "in-process" if mode == "in-process" else "process"


def backend(place: BackendType, ground: Ground) -> Backend:
    from shoal.app.berths import ENTRY, PRELOADED
    from shoal.backends.process_backend import ProcessBackend

    clock = ground.options.clock
    return ProcessBackend(
        ground.shore.processes, clock, entry=ENTRY, preload=PRELOADED, log_directory=ground.directory / LOGS
    )
