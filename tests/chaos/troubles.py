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
from tests.chaos import person
from tests.chaos.leads import Leads
from tests.chaos.panes import Panes
from tests.chaos.proc import command, send, title
from tests.chaos.provider import Provider
from tests.chaos.team_lead import Death
from tests.chaos.works import Part

from shoal.core.ids import SessionId
from shoal.stores.files.locks import is_held

Act = Callable[[], None]
MATE = "fork_server"
FORKS, TMUX = "shoal:forks", "tmux: server"
ENDED = 30.0
"""Seconds in which a command that ends a run has done so, whatever the run does."""
_FAKETIME = ("/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/lib*/faketime/libfaketimeMT.so.1")
_PRELOAD = Path(__file__).parent / "preload"
_HOUR = 3600


class Scene(Struct, frozen=True, kw_only=True):
    """Directory, random numbers and services of one round."""

    place: Path
    rng: random.Random
    session: str
    provider: Provider | None = None
    panes: Panes | None = None


class Trouble:
    """A disturbance of one round. Its random numbers determine what happens when."""

    name: ClassVar[str]
    may_fail: ClassVar[bool] = False
    """True if a lead may fail because of it; it is then resumed."""
    settings: ClassVar[Mapping[str, Any]] = {}

    most: ClassVar[int] = 4
    """Highest number of times that a part of the work is disturbed."""
    patience: ClassVar[float] = 60.0
    """Seconds in which a lead ends once it is not disturbed any more."""
    ends: ClassVar[frozenset[int]] = frozenset({-signal.SIGKILL})
    """Exit statuses that a lead may have because of it."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.place = scene.place
        self.rng = scene.rng
        self.provider = scene.provider
        self.struck = 0
        self.faults: list[str] = []

    @classmethod
    def impossible(cls) -> str:
        """Return why this machine cannot do it, or an empty string."""
        return ""

    @classmethod
    def concerns(cls, backend: str) -> bool:
        """Return True if it can affect teammates with this backend."""
        return True

    @contextmanager
    def around(self) -> Iterator[None]:
        """Create the directory of the round; remove it at the end."""
        self.place.mkdir(parents=True)
        yield

    @property
    def env(self) -> Mapping[str, str]:
        """Environment of the launcher of leads; if not empty, the round has its own launcher."""
        return {}

    @property
    def python(self) -> str:
        return ""

    def death(self, part: Part) -> Death | None:
        """Return a point inside the lead at which it dies, or None to use the actions from outside."""
        return None

    def acts(self, part: Part, lead: int, leads: Leads) -> Iterator[tuple[float, Act]]:
        """Yield actions, each with the seconds to wait before it."""
        yield from ()

    def calm(self) -> None:
        """End the disturbance, for this lead."""


class Kill(Trouble):
    name = "kill"

    def death(self, part: Part) -> Death | None:
        if self.rng.random() >= 0.75:
            return None
        half = self.rng.random() < 0.3
        most = part.changes // 2 if half else part.changes
        if self.rng.random() < 0.5:
            # What is done once is done early: there small numbers are as likely as great ones.
            return Death(moment=round(most ** self.rng.random()), half=half)
        return Death(moment=self.rng.randint(1, most), half=half)

    def acts(self, part: Part, lead: int, leads: Leads) -> Iterator[tuple[float, Act]]:
        yield self.rng.uniform(0, part.span), lambda: self._strike(lead, leads)

    def _strike(self, lead: int, leads: Leads) -> None:
        """Kill the lead, one process of a teammate, another descendant, or all of them."""
        there = sorted({*leads.processes()} - {lead})
        mates = [pid for pid in there if MATE in command(pid)]
        others = [pid for pid in there if pid not in mates and title(pid) != TMUX]
        self.struck += 1
        victims = [[lead], [lead, *mates], [lead, *mates, *others], *([mate] for mate in mates)]
        if others:
            victims.append([self.rng.choice(others)])
        chosen = self.rng.choice(victims)
        if self.scene.panes is not None and len(chosen) > len([lead, *mates]):
            self.scene.panes.stays_dressed = True
        send(chosen, signal.SIGKILL)


class Stop(Trouble):
    """A process stops for a while; sometimes the lead is killed meanwhile."""

    name = "stop"

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._stopped: list[int] = []

    def acts(self, part: Part, lead: int, leads: Leads) -> Iterator[tuple[float, Act]]:
        for _ in range(self.rng.randint(1, 3)):
            yield self.rng.uniform(0, part.span), lambda: self._stop(leads)
            if self.rng.random() < 0.3:
                yield self.rng.uniform(0, 0.5), lambda: send([lead], signal.SIGKILL)
            yield self.rng.choice([0.05, 0.3, 1.0, 3.0]), self.calm

    def _stop(self, leads: Leads) -> None:
        if there := sorted(leads.processes()):
            self.struck += 1
            self._stopped = self.rng.sample(there, self.rng.choice([1, 1, 1, len(there)]))
            send(self._stopped, signal.SIGSTOP)

    def calm(self) -> None:
        stopped, self._stopped = self._stopped, []
        send(stopped, signal.SIGCONT)


class Hang(Trouble):
    """A process stops for good: a member's, the lead's, or another descendant.

    The others continue without a member. A person who sees that a lead hangs ends it from another terminal.
    """

    name = "hang"
    most = 2
    # A process that was stopped while it started is given up after a minute.
    patience = 150.0
    settings: ClassVar[Mapping[str, Any]] = {"stall_after": 2.0}
    ends = frozenset({-signal.SIGKILL, -signal.SIGTERM})

    def acts(self, part: Part, lead: int, leads: Leads) -> Iterator[tuple[float, Act]]:
        yield self.rng.uniform(0, part.span), lambda: None
        there = sorted({*leads.processes()} - {lead})
        members = [pid for pid in there if title(pid).startswith("shoal:") and title(pid) != FORKS]
        others = [pid for pid in there if pid not in members and title(pid) != TMUX]
        victims = self.rng.choice([[lead], *3 * [members], others]) or [lead]
        victim = self.rng.choice(victims)
        self.struck += 1
        send([victim], signal.SIGSTOP)
        if victim == lead:
            # Before it has its lock, nobody can find it.
            found = is_held(self.place / "home", SessionId(self.scene.session))
            how = ("stop", self.scene.session) if found else ()
            yield self.rng.uniform(0, 1), lambda: self._end(lead, how)

    def _end(self, lead: int, how: Sequence[str]) -> None:
        if not how:
            send([lead], signal.SIGKILL)
        elif wrong := person.shoal(self.place, *how, seconds=ENDED):
            self.faults.append(f"of a lead that hangs: {wrong}")
            send([lead], signal.SIGKILL)


class PanesClosed(Trouble):
    """A person closes panes, tmux ends or hangs; sometimes the lead is killed meanwhile."""

    name = "panes"
    ends = frozenset({-signal.SIGKILL, -signal.SIGHUP})

    @classmethod
    def concerns(cls, backend: str) -> bool:
        return backend == "tmux"

    def acts(self, part: Part, lead: int, leads: Leads) -> Iterator[tuple[float, Act]]:
        panes = self.scene.panes
        assert panes is not None
        if self.rng.random() < 0.3:
            # The first pane of a session is created in several steps, and is marked only in the last.
            yield 0, lambda: panes.await_first(2 * part.span)
            self.struck += 1
            yield self.rng.uniform(0, 0.15), lambda: send([lead], signal.SIGKILL)
        for _ in range(self.rng.randint(1, 5)):
            self.struck += 1
            yield self.rng.uniform(0, part.span), lambda: panes.disturb(self.rng, lead)
            yield self.rng.choice([0.05, 0.3, 1.0]), panes.go_on
        if self.rng.random() < 0.4:
            yield self.rng.uniform(0, part.span), lambda: send([lead], signal.SIGKILL)


class Disk(Trouble):
    """Home, project and temporary files are on a small file system, which is full for a while."""

    name = "disk"
    may_fail = True
    _SIZE = 32 << 20

    @classmethod
    def impossible(cls) -> str:
        done = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False)
        return "" if os.geteuid() == 0 and not done.returncode else "only root may mount a small file system"

    @contextmanager
    def around(self) -> Iterator[None]:
        self.place.mkdir(parents=True)
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={self._SIZE},mode=700", "tmpfs", self.place], check=True
        )
        copy = self.place.with_suffix(".copy")
        try:
            yield
            shutil.copytree(self.place, copy, symlinks=True, ignore=_sockets)
        finally:
            subprocess.run(["umount", "-l", self.place], check=True)
        # Keeps the files for inspection.
        self.place.rmdir()
        copy.rename(self.place)

    def acts(self, part: Part, lead: int, leads: Leads) -> Iterator[tuple[float, Act]]:
        for _ in range(self.rng.randint(1, 3)):
            yield self.rng.uniform(0, part.span), self._fill
            yield self.rng.choice([0.02, 0.1, 0.5, 1.5]), self.calm

    def _fill(self) -> None:
        self.struck += 1
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

    def calm(self) -> None:
        self._filler.unlink(missing_ok=True)

    @property
    def _filler(self) -> Path:
        return self.place / "filler"


def _sockets(directory: str, names: list[str]) -> list[str]:
    """List sockets of killed leads: they cannot be copied."""
    return [name for name in names if Path(directory, name).is_socket()]


class ClockJumps(Trouble):
    """The clock of all processes jumps by hours, forwards and backwards; the monotonic clock goes on."""

    name = "clock"

    @classmethod
    def impossible(cls) -> str:
        return "" if _library() else "libfaketime is not installed"

    @contextmanager
    def around(self) -> Iterator[None]:
        self.place.mkdir(parents=True)
        self._set(self.rng.randint(-24, 24) * _HOUR)
        self._wrapper.write_text(
            "#!/bin/sh\nexec env "
            + " ".join(f"{name}={value}" for name, value in self._faked.items())
            + f' {sys.executable} "$@"\n'
        )
        self._wrapper.chmod(0o700)
        yield

    @property
    def _file(self) -> Path:
        return self.place.with_suffix(".clock")

    @property
    def _wrapper(self) -> Path:
        return self.place.with_suffix(".python")

    @property
    def _faked(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": _library(),
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

    def acts(self, part: Part, lead: int, leads: Leads) -> Iterator[tuple[float, Act]]:
        for _ in range(self.rng.randint(2, 6)):
            by = self.rng.choice([-1, 1]) * self.rng.choice([5, 60, _HOUR, 12 * _HOUR, 400 * 24 * _HOUR])
            yield self.rng.uniform(0, part.span / 2), lambda by=by: self._jump(by)  # type: ignore[misc]
        if self.rng.random() < 0.3:
            yield self.rng.uniform(0, part.span), lambda: send([lead], signal.SIGKILL)

    def _jump(self, by: int) -> None:
        self.struck += 1
        self._set(by)

    def _set(self, offset: int) -> None:
        # A file that is read while it is written would be no time at all.
        new = self._file.with_suffix(".new")
        new.write_text(f"{offset:+d}\n")
        new.replace(self._file)


def _library() -> str:
    root = Path("/")
    return next((str(found) for pattern in _FAKETIME for found in root.glob(pattern.lstrip("/"))), "")


class ProviderFaults(Trouble):
    name = "provider"
    settings: ClassVar[Mapping[str, Any]] = {"stream_gap": 1.0}

    def acts(self, part: Part, lead: int, leads: Leads) -> Iterator[tuple[float, Act]]:
        assert self.provider is not None
        self.provider.failures = self.rng.randint(2, 5)
        if self.rng.random() < 0.4:
            yield self.rng.uniform(0, part.span), self.provider.go_away
            yield self.rng.uniform(0.1, 1.5), self.provider.come_back
            self.struck += 1

    def calm(self) -> None:
        assert self.provider is not None
        self.struck += self.provider.failed
        self.provider.failed = 0
        if not self.provider.there:
            self.provider.come_back()


class Mixed(ProviderFaults):
    """A provider that fails, and processes that stop or are killed."""

    name = "mixed"

    def acts(self, part: Part, lead: int, leads: Leads) -> Iterator[tuple[float, Act]]:
        stop, kill = (kind(self.scene) for kind in (Stop, Kill))
        yield from super().acts(part, lead, leads)
        try:
            yield from stop.acts(part, lead, leads)
            yield from kill.acts(part, lead, leads)
        finally:
            stop.calm()
            self.struck += stop.struck + kill.struck


TROUBLES: Mapping[str, type[Trouble]] = {
    kind.name: kind for kind in (Kill, Stop, Hang, Disk, ClockJumps, ProviderFaults, Mixed, PanesClosed)
}
