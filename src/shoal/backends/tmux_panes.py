"""Panes of tmux: split off the lead's window if it runs in tmux, otherwise in a separate session."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from secrets import token_hex

from shoal.backends.backend_texts import format_backend_notice
from shoal.backends.program_runner import ProgramRunResult, run_program
from shoal.backends.tmux_control import (
    TmuxCommandError,
    TmuxCommandReply,
    TmuxControlClient,
    TmuxDisconnectedError,
)
from shoal.backends.tmux_layout import (
    MAX_PANES,
    ListedTmuxPane,
    SavedTmuxWindowOptions,
    build_tmux_layout_commands,
    get_pane_capacity,
    parse_tmux_pane_rows,
    to_tmux_color,
)
from shoal.core.clock import Clock
from shoal.core.errors import ProcessError
from shoal.core.ports import ProcessLauncher
from shoal.core.teams.member_backends import PaneExit, PaneSpec, PaneTerminal
from shoal.core.teams.roster import BackendType

MIN_VERSION = (3, 2)
"""Minimum version of tmux: clients without output and size, and hooks that report a closed pane."""
LEAD_WIDTH_PERCENT = 55
"""Percentage of the window width that the lead's pane keeps."""
_FIELDS = ("pane_id", "window_id", "pane_dead", "window_zoomed_flag", "window_width", "window_height")
_ROW_FORMAT = " ".join(f"#{{{field}}}" for field in (*_FIELDS, "@shoal_owner"))
_NEW_PANE_FORMAT = "#{pane_id} #{pane_pid} #{window_id} #{pane_tty} #{default-terminal}"
_LAYOUT_NOTIFICATIONS = frozenset(
    {
        "%layout-change",
        "%window-close",
        "%unlinked-window-close",
        "%sessions-changed",
        "%subscription-changed",
    }
)
_SUBSCRIBE_DEATHS = ("refresh-client", "-B", "shoal:%*:#{pane_dead}")
_PLACEHOLDER_SCRIPT = (
    'n=0; while [ "$n" -lt 120 ] && kill -0 "$1" 2>/dev/null; do sleep 0.5; n=$((n + 1)); done'
)
"""Occupies the first pane of a separate session until it is opened, or until the opener is dead."""
_SESSION_SIZE = ("-x", "200", "-y", "50")
DEFAULT_SOCKET = "shoal"


class _TmuxPaneState:
    """State of one of our panes, from opening until it is gone."""

    def __init__(self, pid: int, window: str, terminal: PaneTerminal) -> None:
        self.pid = pid
        self.window = window
        self.terminal = terminal
        self.marked = False
        """True if tmux can tell that it is ours."""
        self.missing = False
        self.status_client: TmuxControlClient | None = None
        """Client that was asked for the exit status."""
        self.end: PaneExit | None = None
        self.gone = asyncio.Event()

    def record_exit(self, end: PaneExit) -> None:
        if self.end is None:
            self.end = end
            self.gone.set()


class TmuxPaneManager:
    """`socket` names a separate server; without it, the server of $TMUX or else `shoal` is used."""

    type: BackendType = "tmux"

    def __init__(
        self,
        environ: Mapping[str, str],
        processes: ProcessLauncher,
        clock: Clock,
        *,
        session_name: str,
        socket: str | None = None,
    ) -> None:
        self._env = {name: value for name, value in environ.items() if name not in ("TMUX", "TMUX_PANE")}
        self._processes = processes
        self._clock = clock
        tmux_variable = environ.get("TMUX", "") if socket is None else ""
        self._lead = environ.get("TMUX_PANE", "") if tmux_variable else ""
        """The lead's pane, inside tmux."""
        self._server = (
            ("-S", tmux_variable.rsplit(",", 2)[0]) if self._lead else ("-L", socket or DEFAULT_SOCKET)
        )
        self._session = session_name
        self._owner = token_hex(8)
        self._control: TmuxControlClient | None = None
        self._connecting = asyncio.Lock()
        self._opening = asyncio.Lock()
        self._placeholder = ""
        """Placeholder for the first pane."""
        self._panes: dict[str, _TmuxPaneState] = {}
        self._windows: dict[str, int] = {}
        """Windows that we created for several panes, and their numbers."""
        self._untidy_windows: set[str] = set()
        """Windows that need a new layout; a zoomed one waits until it is not."""
        self._window_options = SavedTmuxWindowOptions()
        self._refreshing = self._refresh_again = False

    @property
    def attach_command(self) -> tuple[str, ...]:
        """Command that shows the panes from outside tmux; empty if they are next to the lead's."""
        return () if self._lead else ("tmux", *self._server, "attach", "-t", self._session)

    async def explain_unavailable(self) -> str:
        if self._find_tmux_program() is None:
            return "tmux is not installed. Install it, for example with: apt install tmux"
        result = await self._run_tmux("-V")
        version = _parse_tmux_version(result.out)
        if version is not None and version < MIN_VERSION:
            oldest = ".".join(map(str, MIN_VERSION))
            return f"{result.out.strip()} is too old: panes need tmux {oldest} or newer. Install a newer one."
        if self._lead:
            pane_result = await self._run_tmux(
                *self._server, "display-message", "-p", "-t", self._lead, "#{pane_id}"
            )
            if pane_result.status != 0 or pane_result.out.strip() != self._lead:
                reason = pane_result.err.strip() or f"it has no pane {self._lead}"
                return (
                    f"The tmux server in $TMUX does not respond ({reason}). Start shoal in a new pane, or "
                    "unset TMUX."
                )
        return ""

    async def open_pane(self, pane: PaneSpec) -> str:
        async with self._opening:
            control = await self._connect_client()
            pane_id, pid, window, path, term = (await self._create_pane(control, pane)).split()
            terminal = PaneTerminal(path=path, term=term)
            state = self._panes[pane_id] = _TmuxPaneState(int(pid), window, terminal)
            try:
                await self._set_up_pane(control, pane_id, state, pane)
            except BaseException:
                state.record_exit(PaneExit())
                await self._kill_unfinished_pane(control, pane_id)
                raise
        return pane_id

    async def _set_up_pane(
        self, control: TmuxControlClient, pane_id: str, state: _TmuxPaneState, pane: PaneSpec
    ) -> None:
        for words in self._build_pane_mark_commands(pane_id, pane):
            try:
                await control.run_command(*words)
            except TmuxCommandError:
                break  # its program has already ended
        state.marked = True
        for words in await self._window_options.build_style_commands(
            control, state.window, ours=state.window in self._windows
        ):
            await control.run_command(*words)
        self._untidy_windows.add(state.window)
        await self._lay_out_windows(control)

    async def _kill_unfinished_pane(self, control: TmuxControlClient, pane_id: str) -> None:
        """Close a pane whose opening was interrupted: nobody else knows about it."""
        if control.is_alive:
            control.send_command(("kill-pane", "-t", pane_id))
        else:
            with suppress(ProcessError):
                await self._run_tmux(*self._server, "kill-pane", "-t", pane_id)

    async def close_pane(self, pane: str) -> None:
        state = self._panes.get(pane)
        if state is not None and await self._is_pane_present(state) and self._control is not None:
            # It was ours a moment ago, and a server never reuses a number: only another server does.
            self._control.send_command(("kill-pane", "-t", pane))
            await self.wait_for_pane_exit(pane)

    async def is_pane_alive(self, pane: str) -> bool:
        state = self._panes.get(pane)
        return state is not None and await self._is_pane_present(state)

    def find_pane_pid(self, pane: str) -> int:
        return self._panes[pane].pid

    def find_pane_terminal(self, pane: str) -> PaneTerminal | None:
        return self._panes[pane].terminal

    async def wait_for_pane_exit(self, pane: str) -> PaneExit:
        state = self._panes[pane]
        while await self._is_pane_present(state) and self._control is not None:
            await _wait_for_pane_or_client_end(state.gone, self._control)
        if state.status_client is not None:
            await _wait_for_pane_or_client_end(state.gone, state.status_client)
        if state.end is None:
            # Our own session ends with its last pane, and its client with it, before it could report how.
            state.record_exit(PaneExit())
        assert state.end is not None
        return state.end

    async def _is_pane_present(self, state: _TmuxPaneState) -> bool:
        """Return True if the pane exists now; restarts a client that the user detached with `attach -d`."""
        while not state.missing and state.end is None:
            try:
                self._update_panes(
                    await self._list_pane_rows(await self._connect_client(create_session=False))
                )
            except TmuxDisconnectedError:
                continue
            except ProcessError:
                self._mark_all_panes_gone()
            else:
                break
        return not state.missing and state.end is None

    async def aclose(self) -> None:
        for pane in list(self._panes):
            await self.close_pane(pane)
        if self._placeholder:
            # A hanging server must not block its client here.
            with suppress(ProcessError):
                await self._run_tmux(*self._server, "kill-pane", "-t", self._placeholder)
        if self._control is not None:
            for words in self._window_options.build_restore_commands(set()):
                self._control.send_command(words)
            await self._control.close()
            self._control = None

    async def _connect_client(self, *, create_session: bool = True) -> TmuxControlClient:
        """Return the client; starts another one if the user detached the last one with `attach -d`.

        With `create_session`, our session is created if it does not exist.
        """
        async with self._connecting:
            if self._control is not None and self._control.is_alive:
                return self._control
            session = await (
                self._find_lead_session()
                if self._lead
                else self._find_or_create_own_session(create_session=create_session)
            )
            program = self._find_tmux_program() or "tmux"
            # Nothing visible to the user may change: not the size, not their environment, not the window.
            attach = ("attach-session", "-E", "-f", "no-output,ignore-size", "-t", session)
            control = self._control = await TmuxControlClient.start(
                (program, *self._server, "-u", "-C", *attach),
                self._processes,
                self._env,
                owner=self._owner,
                clock=self._clock,
                on_notification=self._on_tmux_notification,
            )
            try:
                await control.wait_until_attached()
            except (TmuxDisconnectedError, TimeoutError) as error:
                raise ProcessError(format_backend_notice("tmux_no_client", error=error)) from error
            control.send_command(_SUBSCRIBE_DEATHS)
            return control

    async def _find_lead_session(self) -> str:
        result = await self._run_tmux(
            *self._server, "display-message", "-p", "-t", self._lead, "#{session_id}"
        )
        if result.status != 0 or not result.out.strip():
            raise ProcessError(
                format_backend_notice("tmux_no_lead_pane", pane=self._lead, error=result.err.strip())
            )
        return result.out.strip()

    async def _find_or_create_own_session(self, *, create_session: bool) -> str:
        if create_session:
            arguments = ("new-session", "-d", "-P", "-F", "#{pane_id}", "-s", self._session, *_SESSION_SIZE)
            placeholder_command = ("sh", "-c", _PLACEHOLDER_SCRIPT, "sh", str(os.getpid()))
            result = await self._run_tmux(*self._server, *arguments, "--", *placeholder_command)
            if result.status == 0:
                self._placeholder = result.out.strip()
            elif "duplicate session" not in result.err:
                raise ProcessError(
                    format_backend_notice("tmux_no_session", session=self._session, error=result.err.strip())
                )
        elif (await self._run_tmux(*self._server, "has-session", "-t", f"={self._session}")).status != 0:
            raise ProcessError(format_backend_notice("tmux_session_lost", session=self._session))
        return f"={self._session}"

    async def _list_pane_rows(self, control: TmuxControlClient) -> list[ListedTmuxPane]:
        return parse_tmux_pane_rows(await control.run_command("list-panes", "-a", "-F", _ROW_FORMAT))

    async def _create_pane(self, control: TmuxControlClient, pane: PaneSpec) -> str:
        """Create the pane, already running, and return its description in `_NEW_PANE_FORMAT`."""
        arguments = [
            "-c",
            str(pane.cwd),
            *(word for each in pane.env.items() for word in ("-e", "=".join(each))),
        ]
        # A single word would go through the user's shell and its startup files.
        argv = pane.argv if len(pane.argv) > 1 else ("env", *pane.argv)
        placeholder, self._placeholder = self._placeholder, ""
        if placeholder:
            try:
                return await self._reuse_placeholder_pane(
                    control, placeholder, pane, (*arguments, "--", *argv)
                )
            except BaseException:
                await self._kill_unfinished_pane(control, placeholder)
                raise

        def kill_late_pane(answer: TmuxCommandReply) -> None:
            if not answer.refused:
                control.send_command(("kill-pane", "-t", answer.lines[0].split()[0]))

        rows = await self._list_pane_rows(control)
        tail = ["-d", "-P", "-F", _NEW_PANE_FORMAT, *arguments, "--", *argv]
        for target, split_options in self._list_split_targets(rows) if pane.split else ():
            try:
                (description,) = await control.run_command(
                    "split-window", "-t", target, *split_options, *tail, on_late_reply=kill_late_pane
                )
            except TmuxCommandError:
                continue  # no room there
            return description
        name = self._next_window_name() if pane.split else pane.title
        (description,) = await control.run_command(
            "new-window", "-n", name, *tail, on_late_reply=kill_late_pane
        )
        if pane.split:
            self._windows[description.split()[2]] = self._next_window_number()
        return description

    async def _reuse_placeholder_pane(
        self, control: TmuxControlClient, placeholder: str, pane: PaneSpec, arguments: tuple[str, ...]
    ) -> str:
        await control.run_command("respawn-pane", "-k", "-t", placeholder, *arguments)
        (description,) = await control.run_command(
            "display-message", "-p", "-t", placeholder, _NEW_PANE_FORMAT
        )
        window = description.split()[2]
        await control.run_command(
            "rename-window", "-t", window, self._next_window_name() if pane.split else pane.title
        )
        if pane.split:
            self._windows[window] = self._next_window_number()
        return description

    def _list_split_targets(self, rows: list[ListedTmuxPane]) -> list[tuple[str, list[str]]]:
        """Return the panes that may be split, best first, and how: next to the lead, then in our windows."""
        found: list[tuple[str, list[str]]] = []
        lead = next((row for row in rows if row.pane == self._lead), None)
        windows = [*((lead.window,) if lead else ()), *self._windows]
        for window in windows:
            own_rows = [row for row in rows if row.window == window and row.owner == self._owner]
            is_lead_window = lead is not None and lead.window == window
            max_panes = get_pane_capacity(lead) if lead is not None and is_lead_window else MAX_PANES
            if len(own_rows) >= max_panes:
                continue
            zoom = ["-Z"] if any(row.zoomed for row in rows if row.window == window) else []
            if own_rows:
                found.append((own_rows[-1].pane, ["-v", *zoom]))
            elif lead is not None and is_lead_window:
                found.append((lead.pane, ["-h", "-l", f"{100 - LEAD_WIDTH_PERCENT}%", *zoom]))
        return found

    def _next_window_number(self) -> int:
        first = 2 if self._lead else 1
        used_numbers = {*self._windows.values()}
        return next(
            number for number in range(first, first + len(used_numbers) + 1) if number not in used_numbers
        )

    def _next_window_name(self) -> str:
        number = self._next_window_number()
        return "shoal" if number == 1 else f"shoal {number}"

    def _build_pane_mark_commands(self, pane_id: str, pane: PaneSpec) -> list[tuple[str, ...]]:
        """Build the commands that mark a pane; a program that ends between two of them still closes it."""
        title = pane.title.replace("#", "##")
        exit_hook = (
            f"set-option -s -F {_get_exit_status_option_name(pane_id)} "
            "'#{pane_dead_status},#{pane_dead_signal}' ; "
            f"run-shell -b -C 'kill-pane -t {pane_id}'"
        )
        return [
            ("set-option", "-p", "-t", pane_id, "@shoal_owner", self._owner),
            ("set-option", "-p", "-t", pane_id, "@shoal_name", title),
            ("set-option", "-p", "-t", pane_id, "@shoal_color", to_tmux_color(pane.color)),
            ("select-pane", "-t", pane_id, "-T", title),
            ("set-hook", "-p", "-t", pane_id, "pane-died", exit_hook),
            ("set-option", "-p", "-t", pane_id, "remain-on-exit", "on"),
        ]

    def _on_tmux_notification(self, kind: str) -> None:
        if kind not in _LAYOUT_NOTIFICATIONS:
            return
        if self._refreshing or self._control is None:
            self._refresh_again = True
            return
        self._refreshing, self._refresh_again = True, False
        self._control.send_command(("list-panes", "-a", "-F", _ROW_FORMAT), self._on_panes_listed)

    def _on_panes_listed(self, answer: TmuxCommandReply) -> None:
        self._refreshing = False
        if not answer.refused:
            self._update_panes(parse_tmux_pane_rows(answer.lines))
        if self._refresh_again and self._control is not None and self._control.is_alive:
            self._on_tmux_notification("%layout-change")

    def _update_panes(self, rows: list[ListedTmuxPane]) -> None:
        """Detect panes that are gone, and lay out their windows again."""
        control = self._control
        present_panes = {row.pane for row in rows if row.owner == self._owner}
        if control is not None and any(row.dead for row in rows if row.pane in present_panes):
            # The hook of a pane whose program ended stores the status and closes the pane.
            # tmux may have missed that end; the end of any other child reminds it.
            control.send_command(("run-shell", "-b", "true"))
        for pane, state in self._panes.items():
            if state.marked and not state.missing and pane not in present_panes and control is not None:
                state.missing = True
                self._request_exit_status(control, pane, state)
                self._untidy_windows.add(state.window)
        windows = {row.window for row in rows}
        self._windows = {each: number for each, number in self._windows.items() if each in windows}
        self._untidy_windows &= {row.window for row in rows if row.owner == self._owner}
        if control is not None:
            for words in self._window_options.build_restore_commands(
                {row.window for row in rows if row.owner == self._owner}
            ):
                control.send_command(words)
            for words in self._build_window_layout_commands(rows):
                control.send_command(words)

    def _request_exit_status(self, control: TmuxControlClient, pane: str, state: _TmuxPaneState) -> None:
        def record_exit_status(answer: TmuxCommandReply) -> None:
            state.record_exit(PaneExit(status=_parse_pane_exit_status("".join(answer.lines))))

        state.status_client = control
        control.send_command(
            ("show-options", "-s", "-q", "-v", _get_exit_status_option_name(pane)), record_exit_status
        )
        control.send_command(("set-option", "-s", "-q", "-u", _get_exit_status_option_name(pane)))

    def _build_window_layout_commands(self, rows: list[ListedTmuxPane]) -> list[tuple[str, ...]]:
        found: list[tuple[str, ...]] = []
        for window in list(self._untidy_windows):
            window_rows = [row for row in rows if row.window == window]
            if not any(row.zoomed for row in window_rows):
                self._untidy_windows.discard(window)
                found.extend(
                    build_tmux_layout_commands(window_rows, self._lead, self._owner, LEAD_WIDTH_PERCENT)
                )
        return found

    async def _lay_out_windows(self, control: TmuxControlClient) -> None:
        for words in self._build_window_layout_commands(await self._list_pane_rows(control)):
            await control.run_command(*words)

    def _mark_all_panes_gone(self) -> None:
        remaining = [shown for shown in self._panes.values() if shown.end is None]
        for shown in remaining:
            # Our own session ends with its last pane, however that ended.
            shown.record_exit(PaneExit(all_gone=bool(self._lead) or len(remaining) > 1))
        self._windows.clear()
        self._window_options = SavedTmuxWindowOptions()

    def _find_tmux_program(self) -> str | None:
        return shutil.which("tmux", path=self._env.get("PATH"))

    async def _run_tmux(self, *words: str) -> ProgramRunResult:
        return await run_program((self._find_tmux_program() or "tmux", "-u", *words), self._env, self._clock)


def _get_exit_status_option_name(pane: str) -> str:
    return f"@shoal_end_{pane.removeprefix('%')}"


def _parse_pane_exit_status(output: str) -> int | None:
    status, _, signal = output.strip().partition(",")
    if signal.isdecimal():
        return -int(signal)
    return int(status) if status.isdecimal() else None


def _parse_tmux_version(output: str) -> tuple[int, int] | None:
    """Return the version; None for one without a number, built from the latest sources."""
    found = re.search(r"(\d+)\.(\d+)", output)
    return None if found is None else (int(found[1]), int(found[2]))


async def _wait_for_pane_or_client_end(gone: asyncio.Event, control: TmuxControlClient) -> None:
    """Wait until the pane is gone, or the client that would report it."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(gone.wait()), group.create_task(control.wait_until_disconnected())]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
