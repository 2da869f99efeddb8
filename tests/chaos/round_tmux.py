"""The tmux server of one round: what a person does in it, and what is left there at the end."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.chaos.process_table import ProcessTimer, send_signal, wait_for_exit

from shoal.backends.tmux_panes import DEFAULT_SOCKET

_USER_SESSION = ("new-session", "-d", "-s", "person", "-x", "200", "-y", "60", "cat", "-")
_MAX_SOCKET_PATH = 100
"""Maximum length of a socket path in bytes."""
_WINDOW_OPTIONS = ("pane-border-status", "pane-border-format", "main-pane-width")
"""Options that a window has while it contains our panes."""


class RoundTmux:
    """With `in_user_pane` the lead runs in a person's pane; else tmux is not running before the lead."""

    def __init__(self, directory: Path, *, in_user_pane: bool) -> None:
        self._directory = directory / "t"
        self._in_user_pane = in_user_pane
        self._stopped_pid = 0
        self.keeps_options = False
        """Nobody was left to restore the options: the panes close by themselves, their borders remain."""
        self._socket = self._directory / f"tmux-{os.getuid()}" / DEFAULT_SOCKET
        if len(os.fsencode(self._socket)) > _MAX_SOCKET_PATH:
            raise ValueError(f"{self._socket} is too long for a socket. Play the rounds in a shorter --keep.")

    @contextmanager
    def run_round(self) -> Iterator[None]:
        self._directory.mkdir()
        try:
            yield
        finally:
            self.stop_server()

    def build_env(self) -> Mapping[str, str]:
        """Build the environment of a lead that starts now; a new server replaces one that has ended."""
        inside = {"TMUX": "", "TMUX_PANE": ""}
        if self._in_user_pane:
            if not self.server_pid:
                self._run_tmux(*_USER_SESSION, ";", "set-option", "-p", "@person", "is here")
            told = self._run_tmux(
                "display-message", "-p", "-t", "person:0.0", "#{socket_path},#{pid},0 #{pane_id}"
            )
            inside["TMUX"], inside["TMUX_PANE"] = told.rsplit(" ", 1)
        return {"TMUX_TMPDIR": str(self._directory), **inside}

    @property
    def server_pid(self) -> int:
        """Id of the server process, or 0 if there is none."""
        return int(self._run_tmux("display-message", "-p", "#{pid}") or 0)

    def stop_server(self) -> None:
        self.continue_server()
        if pid := self.server_pid:
            self._run_tmux("kill-server")
            if not wait_for_exit(pid, 5):
                send_signal([pid], signal.SIGKILL)
        shutil.rmtree(self._directory)

    def disturb_panes(self, rng: random.Random, lead: int) -> None:
        """Do something that a person may do to panes, or that may happen to the processes that show them."""
        ours = self._list_own_panes()
        acts: list[Callable[[], object]] = [
            lambda: self._kill_server(lead, signal.SIGTERM),
            lambda: self._kill_server(lead, signal.SIGKILL),
            lambda: self._run_tmux("detach-client", *(("-s", "person") if self._in_user_pane else ("-a",))),
            self._stop_server_process,
        ]
        if ours:
            session, window, pane, pid = rng.choice(ours)
            acts += [
                *(2 * [lambda: self._run_tmux("kill-pane", "-t", pane)]),
                lambda: self._run_tmux("break-pane", "-d", "-s", pane),
                lambda: send_signal([int(pid)], signal.SIGKILL),
                lambda: send_signal([int(pid)], signal.SIGSTOP),
                lambda: [self._run_tmux("kill-pane", "-t", each[2]) for each in ours],
                lambda: self._run_tmux("resize-pane", "-Z", "-t", pane),
            ]
            if session != "person":
                acts += [
                    lambda: self._run_tmux("kill-session", "-t", session),
                    lambda: self._run_tmux("kill-window", "-t", window),
                ]
        rng.choice(acts)()

    def wait_for_first_pane(self, seconds: float) -> None:
        """Wait until there is one of our panes, or the server that will show it."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self._list_own_panes() if self._in_user_pane else self._socket.exists():
                return
            time.sleep(0.005)

    def continue_server(self) -> None:
        if self._stopped_pid:
            send_signal([self._stopped_pid], signal.SIGCONT)
            self._stopped_pid = 0

    def _kill_server(self, lead: int, signal_number: int) -> None:
        """End the server; a lead in one of its panes loses the terminal."""
        if pid := self.server_pid:
            send_signal([pid], signal_number)
            wait_for_exit(pid, 5)
            send_signal([lead] if self._in_user_pane else [], signal.SIGHUP)

    def _stop_server_process(self) -> None:
        self._stopped_pid = self.server_pid
        send_signal([pid for pid in (self._stopped_pid,) if pid], signal.SIGSTOP)

    def find_leftovers(self, seconds: float) -> list[str]:
        """Return what is left of an ended lead after the timeout."""
        timer = ProcessTimer(seconds)
        while (found := list(self._list_leftovers())) and timer.get_left() > 0:
            time.sleep(0.1)
        return found

    def _list_leftovers(self) -> Iterator[str]:
        if not self.server_pid:
            return
        for session, _, pane, _ in self._list_own_panes():
            runs = self._run_tmux("display-message", "-p", "-t", pane, "#{pane_pid} #{pane_start_command}")
            yield f"pane {pane} of session {session} is left: {runs}"
        if not self._in_user_pane:
            yield "the tmux server is left"
        for row in self._run_tmux("list-clients", "-F", "#{client_pid} #{client_control_mode}").splitlines():
            yield f"client {row} is left"
        if self.keeps_options:
            return
        for row in self._run_tmux("show-options", "-s").splitlines():
            if row.startswith("@shoal"):
                yield f"the option {row} is left"
        for row in (
            self._run_tmux("show-options", "-w", "-t", "person:0").splitlines() if self._in_user_pane else ()
        ):
            if row.startswith(_WINDOW_OPTIONS):
                yield f"the option {row} of the user's window is left"

    def _list_own_panes(self) -> list[tuple[str, str, str, str]]:
        """List session, window, pane and process of all panes but the user's."""
        form = "#{session_name} #{window_id} #{pane_id} #{pane_pid} #{@person}"
        rows = (row.split(" ", 4) for row in self._run_tmux("list-panes", "-a", "-F", form).splitlines())
        return [(row[0], row[1], row[2], row[3]) for row in rows if not row[4]]

    def _run_tmux(self, *arguments: str) -> str:
        """Return the output of tmux; empty if there is no server, or it does not answer."""
        env = {name: value for name, value in os.environ.items() if name not in ("TMUX", "TMUX_PANE")}
        with suppress(subprocess.TimeoutExpired):
            return subprocess.run(
                ["tmux", "-L", DEFAULT_SOCKET, "-f", os.devnull, "-u", *arguments],
                env={**env, "TMUX_TMPDIR": str(self._directory)},
                capture_output=True,
                text=True,
                timeout=5,
                check=False,
            ).stdout.removesuffix("\n")
        return ""
