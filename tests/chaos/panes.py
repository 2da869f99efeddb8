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

from tests.chaos.proc import await_end, send

from shoal.backends.tmux import SOCKET

_PERSON = ("new-session", "-d", "-s", "person", "-x", "200", "-y", "60", "cat", "-")
_LONGEST = 100
"""Maximum length of a socket path in bytes."""
_DRESS = ("pane-border-status", "pane-border-format", "main-pane-width")
"""Options that a window has while it contains our panes."""


class Panes:
    """With `in_user_pane` the lead runs in a person's pane; else tmux is not running before the lead."""

    def __init__(self, place: Path, *, beside: bool) -> None:
        self._directory = place / "t"
        self._beside = beside
        self._stopped = 0
        self.stays_dressed = False
        """Nobody was left to restore the options: the panes close by themselves, their borders remain."""
        self._socket = self._directory / f"tmux-{os.getuid()}" / SOCKET
        if len(os.fsencode(self._socket)) > _LONGEST:
            raise ValueError(f"{self._socket} is too long for a socket. Play the rounds in a shorter --keep.")

    @contextmanager
    def around(self) -> Iterator[None]:
        self._directory.mkdir()
        try:
            yield
        finally:
            self.end()

    def env(self) -> Mapping[str, str]:
        """Build the environment of a lead that starts now; a new server replaces one that has ended."""
        inside = {"TMUX": "", "TMUX_PANE": ""}
        if self._beside:
            if not self.server:
                self._run(*_PERSON, ";", "set-option", "-p", "@person", "is here")
            told = self._run(
                "display-message", "-p", "-t", "person:0.0", "#{socket_path},#{pid},0 #{pane_id}"
            )
            inside["TMUX"], inside["TMUX_PANE"] = told.rsplit(" ", 1)
        return {"TMUX_TMPDIR": str(self._directory), **inside}

    @property
    def server(self) -> int:
        """Id of the server process, or 0 if there is none."""
        return int(self._run("display-message", "-p", "#{pid}") or 0)

    def end(self) -> None:
        self.go_on()
        if pid := self.server:
            self._run("kill-server")
            if not await_end(pid, 5):
                send([pid], signal.SIGKILL)
        shutil.rmtree(self._directory)

    def disturb(self, rng: random.Random, lead: int) -> None:
        """Do something that a person may do to panes, or that may happen to the processes that show them."""
        ours = self._ours()
        acts: list[Callable[[], object]] = [
            lambda: self._end_of_tmux(lead, signal.SIGTERM),
            lambda: self._end_of_tmux(lead, signal.SIGKILL),
            lambda: self._run("detach-client", *(("-s", "person") if self._beside else ("-a",))),
            self._stop,
        ]
        if ours:
            session, window, pane, pid = rng.choice(ours)
            acts += [
                *(2 * [lambda: self._run("kill-pane", "-t", pane)]),
                lambda: self._run("break-pane", "-d", "-s", pane),
                lambda: send([int(pid)], signal.SIGKILL),
                lambda: send([int(pid)], signal.SIGSTOP),
                lambda: [self._run("kill-pane", "-t", each[2]) for each in ours],
                lambda: self._run("resize-pane", "-Z", "-t", pane),
            ]
            if session != "person":
                acts += [
                    lambda: self._run("kill-session", "-t", session),
                    lambda: self._run("kill-window", "-t", window),
                ]
        rng.choice(acts)()

    def await_first(self, seconds: float) -> None:
        """Wait until there is one of our panes, or the server that will show it."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self._ours() if self._beside else self._socket.exists():
                return
            time.sleep(0.005)

    def go_on(self) -> None:
        if self._stopped:
            send([self._stopped], signal.SIGCONT)
            self._stopped = 0

    def _end_of_tmux(self, lead: int, number: int) -> None:
        """End the server; a lead in one of its panes loses the terminal."""
        if pid := self.server:
            send([pid], number)
            await_end(pid, 5)
            send([lead] if self._beside else [], signal.SIGHUP)

    def _stop(self) -> None:
        self._stopped = self.server
        send([pid for pid in (self._stopped,) if pid], signal.SIGSTOP)

    def left(self, seconds: float) -> list[str]:
        """Return what is left of an ended lead after the timeout."""
        until = time.monotonic() + seconds
        while (found := list(self._left())) and time.monotonic() < until:
            time.sleep(0.1)
        return found

    def _left(self) -> Iterator[str]:
        if not self.server:
            return
        for session, _, pane, _ in self._ours():
            runs = self._run("display-message", "-p", "-t", pane, "#{pane_pid} #{pane_start_command}")
            yield f"pane {pane} of session {session} is left: {runs}"
        if not self._beside:
            yield "the tmux server is left"
        for row in self._run("list-clients", "-F", "#{client_pid} #{client_control_mode}").splitlines():
            yield f"client {row} is left"
        if self.stays_dressed:
            return
        for row in self._run("show-options", "-s").splitlines():
            if row.startswith("@shoal"):
                yield f"the option {row} is left"
        for row in self._run("show-options", "-w", "-t", "person:0").splitlines() if self._beside else ():
            if row.startswith(_DRESS):
                yield f"the option {row} of the person's window is left"

    def _ours(self) -> list[tuple[str, str, str, str]]:
        """List session, window, pane and process of all panes but the person's."""
        form = "#{session_name} #{window_id} #{pane_id} #{pane_pid} #{@person}"
        rows = (row.split(" ", 4) for row in self._run("list-panes", "-a", "-F", form).splitlines())
        return [(row[0], row[1], row[2], row[3]) for row in rows if not row[4]]

    def _run(self, *words: str) -> str:
        """Return the output of tmux; empty if there is no server, or it does not answer."""
        env = {name: value for name, value in os.environ.items() if name not in ("TMUX", "TMUX_PANE")}
        with suppress(subprocess.TimeoutExpired):
            return subprocess.run(
                ["tmux", "-L", SOCKET, "-f", os.devnull, "-u", *words],
                env={**env, "TMUX_TMPDIR": str(self._directory)},
                capture_output=True,
                text=True,
                timeout=5,
                check=False,
            ).stdout.removesuffix("\n")
        return ""
