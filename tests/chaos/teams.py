"""Kills a lead with its team at random moments, resumes it until all is done, and looks what is wrong."""

from __future__ import annotations

import asyncio
import os
import random
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from tests.chaos import team_mind
from tests.chaos.team_faults import faults_of_end, faults_of_work, processes_of
from tests.chaos.team_lead import Death, Ended, Start, Started
from tests.chaos.team_mind import BEGIN, FINISH, GO_ON

from shoal.core.requests import Request
from shoal.testing import messages_server
from shoal.testing.replies import Body, Sayable
from shoal.testing.servers import in_thread
from shoal.wire.content import message_from

_ROOT = Path(__file__).parents[2]
MATE = "fork_server"
PATIENCE = 60.0
"""Seconds for a lead that nobody kills to come to its end."""
GONE = 5.0
"""Seconds after a kill until nothing of it runs."""
SPAN, CHANGES = {BEGIN: 1.2, FINISH: 0.5}, {BEGIN: 2500, FINISH: 300}
"""About how long a part takes, in seconds and in changes to the disk."""


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    seed: int
    kills: int
    seconds: float
    faults: tuple[str, ...]


class Leads:
    """Starts leads one after the other, through one process that has loaded all they need."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def start(self, start: Start) -> int:
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(start) + b"\n")
        self._process.stdin.flush()
        return msgspec.json.decode(self._line(10), type=Started).pid

    def ended(self, seconds: float) -> int | None:
        """How it ended; None where it still runs after so many seconds."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        return msgspec.json.decode(self._line(10), type=Ended).status if ready else None

    def _line(self, seconds: float) -> bytes:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], seconds)[0]:
            raise TimeoutError("the process that starts leads does not answer")
        line = bytearray()
        # Byte by byte: what a buffer has taken, select does not see.
        while not line.endswith(b"\n"):
            byte = os.read(self._process.stdout.fileno(), 1)
            if not byte:
                raise RuntimeError("the process that starts leads has ended")
            line += byte
        return bytes(line)


@contextmanager
def leads() -> Iterator[Leads]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.chaos.team_lead"],
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": f"{_ROOT}/src"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    )
    try:
        yield Leads(process)
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.stdout.close()
        process.wait(10)


@contextmanager
def provided(backend: str) -> Iterator[str]:
    """The address at which other processes find the mind of all; none is needed where there are none."""
    if backend == "in-process":
        yield ""
        return

    def think(body: Body) -> Sayable:
        messages = [message_from(raw)[0] for raw in body["messages"]]
        return team_mind.mind(Request(system=_text(body["system"]), messages=messages))

    with in_thread(messages_server(think, keep_requests=False)) as server:
        yield server.url


def _text(system: object) -> str:
    return system if isinstance(system, str) else "\n".join(part["text"] for part in system)


class Round:
    """One team in a home and a project of its own; what happens to it follows from the seed."""

    def __init__(self, place: Path, seed: int, through: Leads, *, kills: int, provider: str = "") -> None:
        """With a `provider` teammates run in processes of their own."""
        self._place = place.resolve()
        self._seed = seed
        self._leads = through
        self._most = kills
        self._provider = provider
        self._rng = random.Random(seed)
        self._session = str(uuid.UUID(int=self._rng.getrandbits(128), version=4))
        self._faults: list[str] = []
        self._kills = 0

    def run(self) -> Tally:
        since = time.monotonic()
        home = self._place / "home"
        home.mkdir(parents=True)
        (self._place / "tmp").mkdir()
        _make_project(self._place / "project")
        if self._until_done(BEGIN):
            self._faults += asyncio.run(faults_of_work(home, self._session))
            if self._until_done(FINISH):
                self._faults += faults_of_end(home, self._session)
        self._faults += [f"left behind: {path}" for path in (self._place / "tmp").glob("*-*")]
        return Tally(
            seed=self._seed,
            kills=self._kills,
            seconds=time.monotonic() - since,
            faults=tuple(self._faults),
        )

    def _until_done(self, part: str) -> bool:
        deadly = self._rng.randint(1, self._most)
        again = {BEGIN: GO_ON, FINISH: FINISH}
        begun = part == FINISH
        while True:
            status = self._one(part, again[part] if begun else part, deadly=deadly > 0)
            self._faults += self._left_running()
            begun = begun or self._has_begun()
            if status == 0:
                return True
            if status != -signal.SIGKILL or not deadly:
                self._faults.append(f"the lead ended with {status}: {self._log()}")
                return False
            deadly -= 1
            self._kills += 1

    def _one(self, part: str, prompt: str, *, deadly: bool) -> int:
        """How a lead ended that is killed at some moment, or at none."""
        death, seconds = None, PATIENCE
        if deadly and self._rng.random() < 0.75:
            death = self._death(CHANGES[part])
        elif deadly:
            seconds = self._rng.uniform(0, SPAN[part])
        pid = self._leads.start(
            Start(
                home=str(self._place / "home"),
                project=str(self._place / "project"),
                session=self._session,
                prompt=prompt,
                backend="process" if self._provider else "in-process",
                provider=self._provider,
                death=death,
                log=str(self._place / "log"),
            )
        )
        status = self._leads.ended(seconds)
        if status is None and deadly:
            victims = self._victims(pid)
            _kill(victims)
            self._kills += pid not in victims
            status = self._leads.ended(PATIENCE)
        if status is None:
            self._faults.append(f"the lead did not come to its end in {PATIENCE:g} s")
            _kill([pid])
            status = self._leads.ended(10)
        assert status is not None
        return status

    def _death(self, changes: int) -> Death:
        half = self._rng.random() < 0.3
        most = changes // 2 if half else changes
        if self._rng.random() < 0.5:
            # What is done once is done early: there small numbers are as likely as great ones.
            return Death(moment=round(most ** self._rng.random()), half=half)
        return Death(moment=self._rng.randint(1, most), half=half)

    def _victims(self, lead: int) -> Sequence[int]:
        """Whom a kill from outside hits: the lead, one process of a teammate, or all there are."""
        mates = [pid for pid in processes_of(self._place) if MATE in _command(pid)] if self._provider else []
        return self._rng.choice([[lead], [lead, *mates], *([mate] for mate in mates)])

    def _has_begun(self) -> bool:
        return any((self._place / "home" / "projects").glob(f"*/{self._session}.jsonl"))

    def _left_running(self) -> list[str]:
        """What still runs of a lead that has ended, when it has had its time."""
        until = time.monotonic() + GONE
        for pid in processes_of(self._place):
            try:
                handle = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            try:
                select.select([handle], [], [], max(0.0, until - time.monotonic()))
            finally:
                os.close(handle)
        return [f"process {pid} still runs: {_command(pid)}" for pid in processes_of(self._place)]

    def _log(self) -> str:
        path = self._place / "log"
        return path.read_text()[-2000:] if path.exists() else ""


def _kill(pids: Sequence[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _command(pid: int) -> str:
    with suppress(OSError):
        return (
            (Path("/proc") / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        )
    return "(gone)"


def _make_project(project: Path) -> None:
    project.mkdir()
    (project / "code.txt").write_text("one\n")
    author = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    for words in (("init", "-q", "-b", "main"), ("add", "-A"), (*author, "commit", "-qm", "first")):
        subprocess.run(["git", *words], cwd=project, check=True, capture_output=True)


def run(
    place: Path,
    seeds: Sequence[int],
    say: Callable[[str], None],
    *,
    kills: int = 4,
    backend: str = "in-process",
    seconds: float = float("inf"),
) -> list[Tally]:
    """A round for each seed, until the time is up; a round can be repeated with its seed."""
    since, tallies = time.monotonic(), []
    with leads() as through, provided(backend) as provider:
        for seed in seeds:
            if time.monotonic() - since > seconds:
                break
            tally = Round(place / str(seed), seed, through, kills=kills, provider=provider).run()
            tallies.append(tally)
            say(f"seed {seed}: {tally.kills} kills, {len(tally.faults)} faults ({tally.seconds:.1f} s)")
            for fault in tally.faults[:20]:
                say(f"  {fault}")
    return tallies
