"""Teammates with panes: our own run in a process that a pane shows, foreign programs in the pane itself."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress

from shoal.core.backends import MARKS, Backend, Berth, Line, Pane, PaneEnd, Panes, Papers, Wanted
from shoal.core.clock import Clock
from shoal.core.errors import ProcessError
from shoal.core.groups import leave
from shoal.core.roster import BackendType
from shoal.wire.papers import command_line

_OF_THE_TERMINAL = frozenset(
    {"TERM", "TERMCAP", "TMUX", "TMUX_PANE", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "COLUMNS", "LINES"}
)
"""Variables that a pane sets itself."""
_LOCALE = ("LANG", "LC_ALL", "LC_CTYPE", "NO_COLOR")
_OF_A_VIEWER = frozenset({"HOME", "PATH", "SHOAL_HOME", "CLAUDE_CONFIG_DIR", "PYTHONPATH", *_LOCALE})
"""Variables that a viewer needs; providers' keys are not among them."""
_DYING = 1.0
"""Seconds from KILL to the end of the pane."""


class ShownBerth:
    """Process of one of our members, which runs with or without its pane."""

    def __init__(self, berth: Berth, panes: Panes, pane: str) -> None:
        self.inner = berth
        self._panes = panes
        self._pane = pane

    @property
    def pid(self) -> int:
        return self.inner.pid

    @property
    def pane(self) -> str:
        return self._pane or self.inner.pane

    @property
    def line(self) -> Line | None:
        return self.inner.line

    async def over(self) -> str:
        return await self.inner.over()

    async def stop(self, *, grace: float = 2.0) -> None:
        try:
            await self.inner.stop(grace=grace)
        finally:
            await self.hide()

    async def hide(self) -> None:
        if self._pane:
            with suppress(ProcessError):  # the next program that is shown reports the problem
                await self._panes.close(self._pane)


class ForeignBerth:
    """Foreign program that lives exactly as long as its pane."""

    line: Line | None = None

    def __init__(self, panes: Panes, pane: str, clock: Clock) -> None:
        self._panes = panes
        self.pane = pane
        self._clock = clock
        self.gone = False

    @property
    def pid(self) -> int:
        return self._panes.pid(self.pane)

    async def over(self) -> str:
        end = await self._panes.over(self.pane)
        self.gone = True
        return how_it_ended(end)

    async def stop(self, *, grace: float = 2.0) -> None:
        if not await self._panes.alive(self.pane):
            self.gone = True
            return
        try:
            for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, _DYING)):
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, number)
                with suppress(TimeoutError):
                    async with self._clock.deadline(seconds):
                        await self.over()
                        return
        finally:
            await self._panes.close(self.pane)
            self.gone = True


def how_it_ended(end: PaneEnd) -> str:
    if end.all_gone:
        return "the program that showed its pane ended"
    if end.status is None:
        return "its pane was closed"
    if end.status < 0:
        return f"it was killed by signal {-end.status}"
    return f"it ended with status {end.status}"


class PaneBackend:
    """`members` starts our own processes; `viewer_command` returns the command for their panes."""

    def __init__(
        self,
        panes: Panes,
        members: Backend,
        viewer: Callable[[Papers], tuple[str, ...]],
        clock: Clock,
        *,
        on_note: Callable[[str], None],
    ) -> None:
        self._panes = panes
        self._members = members
        self._viewer = viewer
        self._clock = clock
        self._note = on_note
        self._watching: asyncio.TaskGroup | None = None
        self._watchers: set[asyncio.Task[None]] = set()
        self._told_of_loss = False

    @property
    def type(self) -> BackendType:
        return self._panes.type

    async def unavailable(self) -> str:
        return await self._members.unavailable() or await self._panes.unavailable()

    async def prepare(self) -> None:
        await self._members.prepare()

    async def spawn(self, wanted: Wanted) -> ShownBerth | ForeignBerth:
        if wanted.program:
            argv = (*wanted.program, *command_line(wanted.papers))
            pane = await self._panes.open(_pane(wanted, argv, {**wanted.env, **MARKS}))
            return ForeignBerth(self._panes, pane, self._clock)
        berth = await self._members.spawn(wanted)
        try:
            return ShownBerth(berth, self._panes, await self._shown(wanted))
        except BaseException:
            await berth.stop(grace=0.0)
            raise

    def alive(self, berth: Berth) -> bool:
        if isinstance(berth, ShownBerth):
            return self._members.alive(berth.inner)
        return isinstance(berth, ForeignBerth) and not berth.gone

    async def aclose(self) -> None:
        for watcher in self._watchers:
            watcher.cancel()
        if self._watching is not None:
            await leave(self._watching, None, None, None)
            self._watching = None
        try:
            await self._members.aclose()
        finally:
            with suppress(ProcessError):
                await self._panes.aclose()

    async def _shown(self, wanted: Wanted) -> str:
        """Open a pane for a member and return its id, or an empty text: the member runs without one."""
        name = wanted.papers.name
        try:
            env = {each: value for each, value in wanted.env.items() if each in _OF_A_VIEWER}
            pane = await self._panes.open(_pane(wanted, self._viewer(wanted.papers), env))
        except ProcessError as error:
            self._note(f"{name} works without a pane, for none could be opened: {error}")
            return ""
        self._told_of_loss = False
        if self._watching is None:
            self._watching = asyncio.TaskGroup()
            await self._watching.__aenter__()
        watcher = self._watching.create_task(self._watch(name, pane))
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)
        return pane

    async def _watch(self, name: str, pane: str) -> None:
        """Report a lost pane, unless the user closed it."""
        end = await self._panes.over(pane)
        if end.all_gone and not self._told_of_loss:
            self._told_of_loss = True
            self._note(f"{self.type} ended, and every pane with it. The teammates work on without them.")
        elif end.status:
            self._note(f"The view of {name} in its pane failed: {how_it_ended(end)}. {name} works on.")


def _pane(wanted: Wanted, argv: tuple[str, ...], env: Mapping[str, str]) -> Pane:
    return Pane(
        title=wanted.papers.name,
        color=wanted.papers.color,
        argv=argv,
        cwd=wanted.cwd,
        env={name: value for name, value in env.items() if name not in _OF_THE_TERMINAL},
        split=wanted.split,
    )
