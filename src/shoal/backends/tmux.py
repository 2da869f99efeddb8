"""Panes of tmux: split off the lead's window if it runs in tmux, otherwise in a separate session."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from secrets import token_hex

from shoal.backends.programs import Ran, run
from shoal.backends.tmux_control import Answer, TmuxControl, TmuxLost, TmuxRefused
from shoal.backends.tmux_layout import MOST, Row, Wardrobe, arrangement, read_rows, room_in, tmux_color
from shoal.core.backends import Pane, PaneEnd
from shoal.core.clock import Clock
from shoal.core.errors import ProcessError
from shoal.core.ports import Processes
from shoal.core.roster import BackendType

OLDEST = (3, 2)
"""Minimum version of tmux: clients without output and size, and hooks that report a closed pane."""
LEADING = 55
"""Percent of the window width that the lead's pane keeps."""
_FIELDS = ("pane_id", "window_id", "pane_dead", "window_zoomed_flag", "window_width", "window_height")
_ROW = " ".join(f"#{{{field}}}" for field in (*_FIELDS, "@shoal_owner"))
_MADE = "#{pane_id} #{pane_pid} #{window_id}"
_CHANGES = frozenset(
    {
        "%layout-change",
        "%window-close",
        "%unlinked-window-close",
        "%sessions-changed",
        "%subscription-changed",
    }
)
_DEATHS = ("refresh-client", "-B", "shoal:%*:#{pane_dead}")
_HOLDING = 'n=0; while [ "$n" -lt 120 ] && kill -0 "$1" 2>/dev/null; do sleep 0.5; n=$((n + 1)); done'
"""Occupies the first pane of a separate session until it is opened, or until the opener is dead."""
_SIZE = ("-x", "200", "-y", "50")
SOCKET = "shoal"


class _Shown:
    """State of one of our panes, from opening until it is gone."""

    def __init__(self, pid: int, window: str) -> None:
        self.pid = pid
        self.window = window
        self.marked = False
        """True if tmux can tell that it is ours."""
        self.missing = False
        self.asked: TmuxControl | None = None
        """Client that was asked for the exit status."""
        self.end: PaneEnd | None = None
        self.gone = asyncio.Event()

    def close(self, end: PaneEnd) -> None:
        if self.end is None:
            self.end = end
            self.gone.set()


class TmuxPanes:
    """`socket` names a separate server; without it, the server of $TMUX or else `shoal` is used."""

    type: BackendType = "tmux"

    def __init__(
        self,
        environ: Mapping[str, str],
        processes: Processes,
        clock: Clock,
        *,
        session_name: str,
        socket: str | None = None,
    ) -> None:
        self._env = {name: value for name, value in environ.items() if name not in ("TMUX", "TMUX_PANE")}
        self._processes = processes
        self._clock = clock
        inside = environ.get("TMUX", "") if socket is None else ""
        self._lead = environ.get("TMUX_PANE", "") if inside else ""
        """The lead's pane, inside tmux."""
        self._server = ("-S", inside.rsplit(",", 2)[0]) if self._lead else ("-L", socket or SOCKET)
        self._session = session_name
        self._owner = token_hex(8)
        self._control: TmuxControl | None = None
        self._connecting = asyncio.Lock()
        self._opening = asyncio.Lock()
        self._held = ""
        """Placeholder for the first pane."""
        self._shown: dict[str, _Shown] = {}
        self._windows: dict[str, int] = {}
        """Windows that we created for several panes, and their numbers."""
        self._untidy: set[str] = set()
        """Windows that need a new layout; a zoomed one waits until it is not."""
        self._wardrobe = Wardrobe()
        self._refreshing = self._refresh_again = False

    @property
    def attach_command(self) -> tuple[str, ...]:
        """Command that shows the panes from outside tmux; empty if they are next to the lead's."""
        return () if self._lead else ("tmux", *self._server, "attach", "-t", self._session)

    async def unavailable(self) -> str:
        if self._program() is None:
            return "tmux is not installed. Install it, for example with: apt install tmux"
        told = await self._run("-V")
        version = _version(told.out)
        if version is not None and version < OLDEST:
            wanted = ".".join(map(str, OLDEST))
            return f"{told.out.strip()} is too old: panes need tmux {wanted} or newer. Install a newer one."
        if self._lead:
            asked = await self._run(*self._server, "display-message", "-p", "-t", self._lead, "#{pane_id}")
            if asked.status != 0 or asked.out.strip() != self._lead:
                why = asked.err.strip() or f"it has no pane {self._lead}"
                return (
                    f"The tmux server of $TMUX does not answer ({why}). "
                    "Start shoal in a new pane, or unset TMUX."
                )
        return ""

    async def open(self, pane: Pane) -> str:
        async with self._opening:
            control = await self._connected()
            made, pid, window = (await self._place(control, pane)).split()
            shown = self._shown[made] = _Shown(int(pid), window)
            try:
                await self._arrange(control, made, shown, pane)
            except BaseException:
                shown.close(PaneEnd())
                await self._take_back(control, made)
                raise
        return made

    async def _arrange(self, control: TmuxControl, made: str, shown: _Shown, pane: Pane) -> None:
        for words in self._marks(made, pane):
            try:
                await control.ask(*words)
            except TmuxRefused:
                break  # its program has already ended
        shown.marked = True
        for words in await self._wardrobe.dress(control, shown.window, ours=shown.window in self._windows):
            await control.ask(*words)
        self._untidy.add(shown.window)
        await self._tidy(control)

    async def _take_back(self, control: TmuxControl, made: str) -> None:
        """Close a pane whose opening was interrupted: nobody else knows about it."""
        if control.alive:
            control.send(("kill-pane", "-t", made))
        else:
            with suppress(ProcessError):
                await self._run(*self._server, "kill-pane", "-t", made)

    async def close(self, pane: str) -> None:
        shown = self._shown.get(pane)
        if shown is not None and await self._look(shown) and self._control is not None:
            # It was ours a moment ago, and a server never reuses a number: only another server does.
            self._control.send(("kill-pane", "-t", pane))
            await self.over(pane)

    async def alive(self, pane: str) -> bool:
        shown = self._shown.get(pane)
        return shown is not None and await self._look(shown)

    def pid(self, pane: str) -> int:
        return self._shown[pane].pid

    async def over(self, pane: str) -> PaneEnd:
        shown = self._shown[pane]
        while await self._look(shown) and self._control is not None:
            await _either(shown.gone, self._control)
        if shown.asked is not None:
            await _either(shown.gone, shown.asked)
        if shown.end is None:
            # Our own session ends with its last pane, and its client with it, before it could report how.
            shown.close(PaneEnd())
        assert shown.end is not None
        return shown.end

    async def _look(self, shown: _Shown) -> bool:
        """Return True if the pane exists now; restarts a client that the user detached with `attach -d`."""
        while not shown.missing and shown.end is None:
            try:
                self._compare(await self._rows(await self._connected(anew=False)))
            except TmuxLost:
                continue
            except ProcessError:
                self._all_gone()
            else:
                break
        return not shown.missing and shown.end is None

    async def aclose(self) -> None:
        for pane in list(self._shown):
            await self.close(pane)
        if self._held:
            # A hanging server must not block its client here.
            with suppress(ProcessError):
                await self._run(*self._server, "kill-pane", "-t", self._held)
        if self._control is not None:
            for words in self._wardrobe.undress(set()):
                self._control.send(words)
            await self._control.close()
            self._control = None

    async def _connected(self, *, anew: bool = True) -> TmuxControl:
        """Return the client; starts another one if the user detached the last one with `attach -d`.

        With `create_session`, our session is created if it does not exist.
        """
        async with self._connecting:
            if self._control is not None and self._control.alive:
                return self._control
            session = await (self._beside_lead() if self._lead else self._own_session(anew=anew))
            program = self._program() or "tmux"
            # Nothing visible to the user may change: not the size, not their environment, not the window.
            attach = ("attach-session", "-E", "-f", "no-output,ignore-size", "-t", session)
            control = self._control = await TmuxControl.start(
                (program, *self._server, "-u", "-C", *attach),
                self._processes,
                self._env,
                owner=self._owner,
                clock=self._clock,
                noticed=self._noticed,
            )
            try:
                await control.attached()
            except (TmuxLost, TimeoutError) as error:
                raise ProcessError(f"tmux does not let a client in: {error}") from error
            control.send(_DEATHS)
            return control

    async def _beside_lead(self) -> str:
        told = await self._run(*self._server, "display-message", "-p", "-t", self._lead, "#{session_id}")
        if told.status != 0 or not told.out.strip():
            raise ProcessError(f"tmux does not show the lead's pane {self._lead}: {told.err.strip()}")
        return told.out.strip()

    async def _own_session(self, *, anew: bool) -> str:
        if anew:
            words = ("new-session", "-d", "-P", "-F", "#{pane_id}", "-s", self._session, *_SIZE)
            holding = ("sh", "-c", _HOLDING, "sh", str(os.getpid()))
            told = await self._run(*self._server, *words, "--", *holding)
            if told.status == 0:
                self._held = told.out.strip()
            elif "duplicate session" not in told.err:
                raise ProcessError(f"tmux cannot make the session {self._session}: {told.err.strip()}")
        elif (await self._run(*self._server, "has-session", "-t", f"={self._session}")).status != 0:
            raise ProcessError(f"tmux has no session {self._session} any more.")
        return f"={self._session}"

    async def _rows(self, control: TmuxControl) -> list[Row]:
        return read_rows(await control.ask("list-panes", "-a", "-F", _ROW))

    async def _place(self, control: TmuxControl, pane: Pane) -> str:
        """Create the pane, already running, and return its description in `_NEW_PANE_FORMAT`."""
        words = ["-c", str(pane.cwd), *(word for each in pane.env.items() for word in ("-e", "=".join(each)))]
        # A single word would go through the user's shell and its startup files.
        argv = pane.argv if len(pane.argv) > 1 else ("env", *pane.argv)
        held, self._held = self._held, ""
        if held:
            try:
                return await self._in_held(control, held, pane, (*words, "--", *argv))
            except BaseException:
                await self._take_back(control, held)
                raise

        def close(answer: Answer) -> None:
            if not answer.refused:
                control.send(("kill-pane", "-t", answer.lines[0].split()[0]))

        rows = await self._rows(control)
        tail = ["-d", "-P", "-F", _MADE, *words, "--", *argv]
        for target, how in self._places(rows) if pane.split else ():
            try:
                (made,) = await control.ask("split-window", "-t", target, *how, *tail, late=close)
            except TmuxRefused:
                continue  # no room there
            return made
        name = self._next_name() if pane.split else pane.title
        (made,) = await control.ask("new-window", "-n", name, *tail, late=close)
        if pane.split:
            self._windows[made.split()[2]] = self._next_number()
        return made

    async def _in_held(self, control: TmuxControl, held: str, pane: Pane, words: tuple[str, ...]) -> str:
        await control.ask("respawn-pane", "-k", "-t", held, *words)
        (made,) = await control.ask("display-message", "-p", "-t", held, _MADE)
        window = made.split()[2]
        await control.ask("rename-window", "-t", window, self._next_name() if pane.split else pane.title)
        if pane.split:
            self._windows[window] = self._next_number()
        return made

    def _places(self, rows: list[Row]) -> list[tuple[str, list[str]]]:
        """Return the panes that may be split, best first, and how: next to the lead, then in our windows."""
        found: list[tuple[str, list[str]]] = []
        lead = next((row for row in rows if row.pane == self._lead), None)
        windows = [*((lead.window,) if lead else ()), *self._windows]
        for window in windows:
            ours = [row for row in rows if row.window == window and row.owner == self._owner]
            beside = lead is not None and lead.window == window
            most = room_in(lead) if lead is not None and beside else MOST
            if len(ours) >= most:
                continue
            zoom = ["-Z"] if any(row.zoomed for row in rows if row.window == window) else []
            if ours:
                found.append((ours[-1].pane, ["-v", *zoom]))
            elif lead is not None and beside:
                found.append((lead.pane, ["-h", "-l", f"{100 - LEADING}%", *zoom]))
        return found

    def _next_number(self) -> int:
        first = 2 if self._lead else 1
        taken = {*self._windows.values()}
        return next(number for number in range(first, first + len(taken) + 1) if number not in taken)

    def _next_name(self) -> str:
        number = self._next_number()
        return "shoal" if number == 1 else f"shoal {number}"

    def _marks(self, made: str, pane: Pane) -> list[tuple[str, ...]]:
        """Build the commands that mark a pane; a program that ends between two of them still closes it."""
        title = pane.title.replace("#", "##")
        ended = (
            f"set-option -s -F {_end_option(made)} '#{{pane_dead_status}},#{{pane_dead_signal}}' ; "
            f"run-shell -b -C 'kill-pane -t {made}'"
        )
        return [
            ("set-option", "-p", "-t", made, "@shoal_owner", self._owner),
            ("set-option", "-p", "-t", made, "@shoal_name", title),
            ("set-option", "-p", "-t", made, "@shoal_color", tmux_color(pane.color)),
            ("select-pane", "-t", made, "-T", title),
            ("set-hook", "-p", "-t", made, "pane-died", ended),
            ("set-option", "-p", "-t", made, "remain-on-exit", "on"),
        ]

    def _noticed(self, kind: str) -> None:
        if kind not in _CHANGES:
            return
        if self._refreshing or self._control is None:
            self._refresh_again = True
            return
        self._refreshing, self._refresh_again = True, False
        self._control.send(("list-panes", "-a", "-F", _ROW), self._refreshed)

    def _refreshed(self, answer: Answer) -> None:
        self._refreshing = False
        if not answer.refused:
            self._compare(read_rows(answer.lines))
        if self._refresh_again and self._control is not None and self._control.alive:
            self._noticed("%layout-change")

    def _compare(self, rows: list[Row]) -> None:
        """Detect panes that are gone, and lay out their windows again."""
        control = self._control
        there = {row.pane for row in rows if row.owner == self._owner}
        if control is not None and any(row.dead for row in rows if row.pane in there):
            # The hook of a pane whose program ended stores the status and closes the pane.
            # tmux may have missed that end; the end of any other child reminds it.
            control.send(("run-shell", "-b", "true"))
        for pane, shown in self._shown.items():
            if shown.marked and not shown.missing and pane not in there and control is not None:
                shown.missing = True
                self._bury(control, pane, shown)
                self._untidy.add(shown.window)
        windows = {row.window for row in rows}
        self._windows = {each: number for each, number in self._windows.items() if each in windows}
        self._untidy &= {row.window for row in rows if row.owner == self._owner}
        if control is not None:
            for words in self._wardrobe.undress({row.window for row in rows if row.owner == self._owner}):
                control.send(words)
            for words in self._tidying(rows):
                control.send(words)

    def _bury(self, control: TmuxControl, pane: str, shown: _Shown) -> None:
        def hear(answer: Answer) -> None:
            shown.close(PaneEnd(status=_status("".join(answer.lines))))

        shown.asked = control
        control.send(("show-options", "-s", "-q", "-v", _end_option(pane)), hear)
        control.send(("set-option", "-s", "-q", "-u", _end_option(pane)))

    def _tidying(self, rows: list[Row]) -> list[tuple[str, ...]]:
        found: list[tuple[str, ...]] = []
        for window in list(self._untidy):
            within = [row for row in rows if row.window == window]
            if not any(row.zoomed for row in within):
                self._untidy.discard(window)
                found.extend(arrangement(within, self._lead, self._owner, LEADING))
        return found

    async def _tidy(self, control: TmuxControl) -> None:
        for words in self._tidying(await self._rows(control)):
            await control.ask(*words)

    def _all_gone(self) -> None:
        left = [shown for shown in self._shown.values() if shown.end is None]
        for shown in left:
            # Our own session ends with its last pane, however that ended.
            shown.close(PaneEnd(all_gone=bool(self._lead) or len(left) > 1))
        self._windows.clear()
        self._wardrobe = Wardrobe()

    def _program(self) -> str | None:
        return shutil.which("tmux", path=self._env.get("PATH"))

    async def _run(self, *words: str) -> Ran:
        return await run((self._program() or "tmux", "-u", *words), self._env, self._clock)


def _end_option(pane: str) -> str:
    return f"@shoal_end_{pane.removeprefix('%')}"


def _status(told: str) -> int | None:
    status, _, signal = told.strip().partition(",")
    if signal.isdecimal():
        return -int(signal)
    return int(status) if status.isdecimal() else None


def _version(told: str) -> tuple[int, int] | None:
    """Return the version; None for one without a number, built from the latest sources."""
    found = re.search(r"(\d+)\.(\d+)", told)
    return None if found is None else (int(found[1]), int(found[2]))


async def _either(gone: asyncio.Event, control: TmuxControl) -> None:
    """Wait until the pane is gone, or the client that would report it."""
    async with asyncio.TaskGroup() as both:
        tasks = [both.create_task(gone.wait()), both.create_task(control.gone())]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
