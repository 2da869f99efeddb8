"""Disturbances of a running lead: killed, stopped, hung, without disk, clock, provider or panes."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from msgspec import Struct
from tests.chaos import shoal_command
from tests.chaos.flaky_provider import FlakyProvider
from tests.chaos.lead_launcher import LeadLauncher
from tests.chaos.process_table import read_command, read_title, send_signal
from tests.chaos.round_tmux import RoundTmux
from tests.chaos.team_lead import DeathPoint
from tests.chaos.workloads import WorkloadPart

from shoal.core.ids import SessionId
from shoal.stores.files.locks.pid_locks import is_session_running

TroubleAction = Callable[[], None]
MEMBER_COMMAND, GUARDIAN_COMMAND = "fork_server", "guardian.py"
FORK_SERVER_TITLE, TMUX_SERVER_TITLE = "shoal:forks", "tmux: server"
GUARDIAN_TITLE, VIEWER_TITLE = "shoal:guardian", "shoal:view-"
STOP_TIMEOUT = 30.0
"""Seconds in which a command that ends a run has done so, whatever the run does."""
_FAKETIME = ("/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/lib*/faketime/libfaketimeMT.so.1")
_PRELOAD = Path(__file__).parent / "preload"
_HOUR = 3600


class RoundContext(Struct, frozen=True, kw_only=True):
    """Directory, random numbers and services of one round."""

    directory: Path
    rng: random.Random
    session: str
    provider: FlakyProvider | None = None
    tmux: RoundTmux | None = None


class Trouble:
    """A disturbance of one round. Its random numbers determine what happens when."""

    name: ClassVar[str]
    may_fail: ClassVar[bool] = False
    """True if a lead may fail because of it; it is then resumed."""
    settings: ClassVar[Mapping[str, Any]] = {}

    max_strikes: ClassVar[int] = 4
    """Highest number of times that a part of the work is disturbed."""
    timeout: ClassVar[float] = 60.0
    """Seconds in which a lead ends once it is not disturbed any more, more on a busy machine."""
    exit_statuses: ClassVar[frozenset[int]] = frozenset({-signal.SIGKILL})
    """Exit statuses that a lead may have because of it."""

    def __init__(self, context: RoundContext) -> None:
        self.context = context
        self.directory = context.directory
        self.rng = context.rng
        self.provider = context.provider
        self.strikes = 0
        self.faults: list[str] = []

    @classmethod
    def explain_impossible(cls) -> str:
        """Return why this machine cannot do it, or an empty string."""
        return ""

    @classmethod
    def applies_to(cls, backend: str) -> bool:
        """Return True if it can affect teammates with this backend."""
        return True

    @contextmanager
    def run_round(self) -> Iterator[None]:
        """Create the directory of the round; remove it at the end."""
        self.directory.mkdir(parents=True)
        yield

    @property
    def env(self) -> Mapping[str, str]:
        """Environment of the launcher of leads; if not empty, the round has its own launcher."""
        return {}

    @property
    def python(self) -> str:
        return ""

    def choose_death(self, part: WorkloadPart) -> DeathPoint | None:
        """Return a point inside the lead at which it dies, or None to use the actions from outside."""
        return None

    def generate_actions(
        self, part: WorkloadPart, lead: int, launcher: LeadLauncher
    ) -> Iterator[tuple[float, TroubleAction]]:
        """Yield actions, each with the seconds to wait before it."""
        yield from ()

    def stop_trouble(self) -> None:
        """End the disturbance, for this lead."""


class KillTrouble(Trouble):
    name = "kill"

    def choose_death(self, part: WorkloadPart) -> DeathPoint | None:
        if self.rng.random() >= 0.75:
            return None
        half = self.rng.random() < 0.3
        most = part.changes // 2 if half else part.changes
        if self.rng.random() < 0.5:
            # What is done once is done early: there small numbers are as likely as great ones.
            return DeathPoint(moment=round(most ** self.rng.random()), half=half)
        return DeathPoint(moment=self.rng.randint(1, most), half=half)

    def generate_actions(
        self, part: WorkloadPart, lead: int, launcher: LeadLauncher
    ) -> Iterator[tuple[float, TroubleAction]]:
        yield self.rng.uniform(0, part.span), lambda: self._kill_processes(lead, launcher)

    def _kill_processes(self, lead: int, launcher: LeadLauncher) -> None:
        """Kill the lead, one process of a teammate, another descendant, or all of them."""
        there = sorted({*launcher.list_processes()} - {lead})
        mates = [pid for pid in there if MEMBER_COMMAND in read_command(pid) and not classify_helper(pid)]
        others = [pid for pid in there if pid not in mates and read_title(pid) != TMUX_SERVER_TITLE]
        self.strikes += 1
        victims = [[lead], [lead, *mates], [lead, *mates, *others], *([mate] for mate in mates)]
        if others:
            victims.append([self.rng.choice(others)])
        chosen = self.rng.choice(victims)
        if self.context.tmux is not None and len(chosen) > len([lead, *mates]):
            self.context.tmux.keeps_options = True
        send_signal(chosen, signal.SIGKILL)


class HelpersTrouble(Trouble):
    """The guardian or the fork server is killed twice within half a second; sometimes the lead dies then too.

    A lead that lives starts both again, and its members with them.
    """

    name = "helpers"

    def generate_actions(
        self, part: WorkloadPart, lead: int, launcher: LeadLauncher
    ) -> Iterator[tuple[float, TroubleAction]]:
        for _ in range(self.rng.randint(1, 3)):
            kinds = self.rng.choice([("guardian",), ("fork server",), ("guardian", "fork server")])
            yield self.rng.uniform(0, part.span), lambda kinds=kinds: self._kill_helpers(launcher, kinds)  # type: ignore[misc]
            yield self.rng.uniform(0, 0.5), lambda kinds=kinds: self._kill_helpers(launcher, kinds)  # type: ignore[misc]
        if self.rng.random() < 0.3:
            yield self.rng.uniform(0, 0.2), lambda: self._kill_lead(lead)

    def _kill_helpers(self, launcher: LeadLauncher, kinds: Sequence[str]) -> None:
        found = [pid for pid in launcher.list_processes() if classify_helper(pid) in kinds]
        self.strikes += bool(found)
        send_signal(found, signal.SIGKILL)

    def _kill_lead(self, lead: int) -> None:
        self.strikes += 1
        send_signal([lead], signal.SIGKILL)


def classify_helper(pid: int) -> str:
    """Return "guardian", "fork server" or "" for any other process."""
    if read_title(pid) == FORK_SERVER_TITLE:
        return "fork server"
    is_guardian = read_title(pid) == GUARDIAN_TITLE or GUARDIAN_COMMAND in read_command(pid)
    return "guardian" if is_guardian else ""


class StopTrouble(Trouble):
    """A process stops for a while; sometimes the lead is killed meanwhile."""

    name = "stop"

    def __init__(self, scene: RoundContext) -> None:
        super().__init__(scene)
        self._stopped: list[int] = []

    def generate_actions(
        self, part: WorkloadPart, lead: int, launcher: LeadLauncher
    ) -> Iterator[tuple[float, TroubleAction]]:
        for _ in range(self.rng.randint(1, 3)):
            yield self.rng.uniform(0, part.span), lambda: self._stop_processes(launcher)
            if self.rng.random() < 0.3:
                yield self.rng.uniform(0, 0.5), lambda: send_signal([lead], signal.SIGKILL)
            yield self.rng.choice([0.05, 0.3, 1.0, 3.0]), self.stop_trouble

    def _stop_processes(self, launcher: LeadLauncher) -> None:
        if there := sorted(launcher.list_processes()):
            self.strikes += 1
            self._stopped = self.rng.sample(there, self.rng.choice([1, 1, 1, len(there)]))
            send_signal(self._stopped, signal.SIGSTOP)

    def stop_trouble(self) -> None:
        stopped, self._stopped = self._stopped, []
        send_signal(stopped, signal.SIGCONT)


class HangTrouble(Trouble):
    """A process stops for good: a member's, the lead's, or another descendant.

    The others continue without a member. A person who sees that a lead hangs ends it from another terminal.
    """

    name = "hang"
    max_strikes = 2
    # A process that was stopped while it started is given up after a minute.
    timeout = 150.0
    settings: ClassVar[Mapping[str, Any]] = {"stall_after": 2.0}
    exit_statuses = frozenset({-signal.SIGKILL, -signal.SIGTERM})

    def generate_actions(
        self, part: WorkloadPart, lead: int, launcher: LeadLauncher
    ) -> Iterator[tuple[float, TroubleAction]]:
        yield self.rng.uniform(0, part.span), lambda: None
        there = sorted({*launcher.list_processes()} - {lead})
        members = [
            pid
            for pid in there
            if read_title(pid).startswith("shoal:")
            and not read_title(pid).startswith((FORK_SERVER_TITLE, GUARDIAN_TITLE, VIEWER_TITLE))
        ]
        others = [pid for pid in there if pid not in members and read_title(pid) != TMUX_SERVER_TITLE]
        victims = self.rng.choice([[lead], *3 * [members], others]) or [lead]
        victim = self.rng.choice(victims)
        self.strikes += 1
        send_signal([victim], signal.SIGSTOP)
        if victim == lead:
            # Before it has its lock, nobody can find it.
            found = is_session_running(self.directory / "home", SessionId(self.context.session))
            how = ("stop", self.context.session) if found else ()
            yield self.rng.uniform(0, 1), lambda: self._end_lead(lead, how)

    def _end_lead(self, lead: int, command: Sequence[str]) -> None:
        if not command:
            send_signal([lead], signal.SIGKILL)
        elif wrong := shoal_command.run_shoal(self.directory, *command, timeout=STOP_TIMEOUT):
            self.faults.append(f"of a lead that hangs: {wrong}")
            send_signal([lead], signal.SIGKILL)


class PanesTrouble(Trouble):
    """A person closes panes, tmux ends or hangs; sometimes the lead is killed meanwhile."""

    name = "panes"
    exit_statuses = frozenset({-signal.SIGKILL, -signal.SIGHUP})

    @classmethod
    def applies_to(cls, backend: str) -> bool:
        return backend == "tmux"

    def generate_actions(
        self, part: WorkloadPart, lead: int, launcher: LeadLauncher
    ) -> Iterator[tuple[float, TroubleAction]]:
        panes = self.context.tmux
        assert panes is not None
        if self.rng.random() < 0.3:
            # The first pane of a session is created in several steps, and is marked only in the last.
            yield 0, lambda: panes.wait_for_first_pane(2 * part.span)
            self.strikes += 1
            yield self.rng.uniform(0, 0.15), lambda: send_signal([lead], signal.SIGKILL)
        for _ in range(self.rng.randint(1, 5)):
            self.strikes += 1
            yield self.rng.uniform(0, part.span), lambda: panes.disturb_panes(self.rng, lead)
            yield self.rng.choice([0.05, 0.3, 1.0]), panes.continue_server
        if self.rng.random() < 0.4:
            yield self.rng.uniform(0, part.span), lambda: send_signal([lead], signal.SIGKILL)


class DiskTrouble(Trouble):
    """Home, project and temporary files are on a small file system, which is full for a while."""

    name = "disk"
    may_fail = True
    _SIZE = 32 << 20

    @classmethod
    def explain_impossible(cls) -> str:
        done = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False)
        return "" if os.geteuid() == 0 and not done.returncode else "only root may mount a small file system"

    @contextmanager
    def run_round(self) -> Iterator[None]:
        self.directory.mkdir(parents=True)
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={self._SIZE},mode=700", "tmpfs", self.directory], check=True
        )
        copy = self.directory.with_suffix(".copy")
        try:
            yield
            shutil.copytree(self.directory, copy, symlinks=True, ignore=_list_sockets)
        finally:
            subprocess.run(["umount", "-l", self.directory], check=True)
        # Keeps the files for inspection.
        self.directory.rmdir()
        copy.rename(self.directory)

    def generate_actions(
        self, part: WorkloadPart, lead: int, launcher: LeadLauncher
    ) -> Iterator[tuple[float, TroubleAction]]:
        for _ in range(self.rng.randint(1, 3)):
            yield self.rng.uniform(0, part.span), self._fill_disk
            yield self.rng.choice([0.02, 0.1, 0.5, 1.5]), self.stop_trouble

    def _fill_disk(self) -> None:
        self.strikes += 1
        left = self.rng.choice([0, 0, 4, 16, 64, 256])
        filler = os.open(self._filler, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            state = os.fstatvfs(filler)
            size = max(0, state.f_bavail * state.f_frsize - left * 1024)
            # Others write meanwhile, so there may be less space than before.
            while size > 0:
                try:
                    os.posix_fallocate(filler, 0, size)
                except OSError:
                    size -= 4096
                else:
                    break
        finally:
            os.close(filler)

    def stop_trouble(self) -> None:
        self._filler.unlink(missing_ok=True)

    @property
    def _filler(self) -> Path:
        return self.directory / "filler"


def _list_sockets(directory: str, names: list[str]) -> list[str]:
    """List sockets of killed leads: they cannot be copied."""
    return [name for name in names if Path(directory, name).is_socket()]


class ClockTrouble(Trouble):
    """The clock of all processes jumps by hours, forwards and backwards; the monotonic clock goes on."""

    name = "clock"

    @classmethod
    def explain_impossible(cls) -> str:
        return "" if _find_faketime() else "libfaketime is not installed"

    @contextmanager
    def run_round(self) -> Iterator[None]:
        self.directory.mkdir(parents=True)
        self._set_offset(self.rng.randint(-24, 24) * _HOUR)
        self._wrapper.write_text(
            "#!/bin/sh\nexec env "
            + " ".join(f"{name}={value}" for name, value in self._faked.items())
            + f' {sys.executable} "$@"\n'
        )
        self._wrapper.chmod(0o700)
        yield

    @property
    def _file(self) -> Path:
        return self.directory.with_suffix(".clock")

    @property
    def _wrapper(self) -> Path:
        return self.directory.with_suffix(".python")

    @property
    def _faked(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": _find_faketime(),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }

    @property
    def env(self) -> Mapping[str, str]:
        path = os.pathsep.join((str(_PRELOAD), str(_PRELOAD.parents[2] / "src")))
        return {**self._faked, "PYTHONPATH": path}

    @property
    def python(self) -> str:
        # The server that teammates are forked from has its own environment.
        return str(self._wrapper)

    def generate_actions(
        self, part: WorkloadPart, lead: int, launcher: LeadLauncher
    ) -> Iterator[tuple[float, TroubleAction]]:
        for _ in range(self.rng.randint(2, 6)):
            by = self.rng.choice([-1, 1]) * self.rng.choice([5, 60, _HOUR, 12 * _HOUR, 400 * 24 * _HOUR])
            yield self.rng.uniform(0, part.span / 2), lambda by=by: self._jump_clock(by)  # type: ignore[misc]
        if self.rng.random() < 0.3:
            yield self.rng.uniform(0, part.span), lambda: send_signal([lead], signal.SIGKILL)

    def _jump_clock(self, by: int) -> None:
        self.strikes += 1
        self._set_offset(by)

    def _set_offset(self, offset: int) -> None:
        # A file that is read while it is written would be no time at all.
        new = self._file.with_suffix(".new")
        new.write_text(f"{offset:+d}\n")
        new.replace(self._file)


def _find_faketime() -> str:
    root = Path("/")
    return next((str(found) for pattern in _FAKETIME for found in root.glob(pattern.lstrip("/"))), "")


class ProviderTrouble(Trouble):
    name = "provider"
    settings: ClassVar[Mapping[str, Any]] = {"stream_gap": 1.0}

    def generate_actions(
        self, part: WorkloadPart, lead: int, launcher: LeadLauncher
    ) -> Iterator[tuple[float, TroubleAction]]:
        assert self.provider is not None
        self.provider.failures_left = self.rng.randint(2, 5)
        if self.rng.random() < 0.4:
            yield self.rng.uniform(0, part.span), self.provider.stop_listening
            yield self.rng.uniform(0.1, 1.5), self.provider.resume_listening
            self.strikes += 1

    def stop_trouble(self) -> None:
        assert self.provider is not None
        self.strikes += self.provider.failure_count
        self.provider.failure_count = 0
        if not self.provider.is_reachable:
            self.provider.resume_listening()


class MixedTrouble(ProviderTrouble):
    """A provider that fails, and processes that stop or are killed."""

    name = "mixed"

    def generate_actions(
        self, part: WorkloadPart, lead: int, launcher: LeadLauncher
    ) -> Iterator[tuple[float, TroubleAction]]:
        stop, kill = (kind(self.context) for kind in (StopTrouble, KillTrouble))
        yield from super().generate_actions(part, lead, launcher)
        try:
            yield from stop.generate_actions(part, lead, launcher)
            yield from kill.generate_actions(part, lead, launcher)
        finally:
            stop.stop_trouble()
            self.strikes += stop.strikes + kill.strikes


TROUBLES: Mapping[str, type[Trouble]] = {
    kind.name: kind
    for kind in (
        KillTrouble,
        HelpersTrouble,
        StopTrouble,
        HangTrouble,
        DiskTrouble,
        ClockTrouble,
        ProviderTrouble,
        MixedTrouble,
        PanesTrouble,
    )
}
