"""Sessions and members in separate processes that outlive the process that started them."""

from __future__ import annotations

import asyncio
import fcntl
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from shoal.app.outside.watching import Run, find_run
from shoal.core.clock import Clock
from shoal.core.decisions import Mode
from shoal.core.errors import AgentRefused, NoSuchSession
from shoal.core.events import Asked, Event, TurnEnded
from shoal.core.ids import Ids, SessionId
from shoal.stores.files.journal import read_journal
from shoal.stores.files.places import make_private

_TAIL = 2_000
_LOOK = 0.2


class RunFlags(Struct, frozen=True, kw_only=True):
    """Limits of the user for every run started here; a program that requests a run cannot raise them."""

    model: str | None = None
    mode: Mode | None = None
    allowed: tuple[str, ...] = ()
    disallowed: tuple[str, ...] = ()
    skip_permissions: bool = False
    max_budget_usd: float | None = None
    settings: str | None = None
    plugin_dirs: tuple[Path, ...] = ()
    most: int = 8
    """Maximum number of concurrent runs."""

    def budget(self, wanted: float | None) -> float | None:
        """Return the smaller of the requested and the allowed budget."""
        return min((each for each in (wanted, self.max_budget_usd) if each is not None), default=None)

    def words(self, max_budget_usd: float | None = None) -> list[str]:
        usd = self.budget(max_budget_usd)
        words: list[str] = []
        words += ["--model", self.model] if self.model else []
        words += ["--permission-mode", self.mode] if self.mode else []
        words += ["--dangerously-skip-permissions"] if self.skip_permissions else []
        words += [word for rule in self.allowed for word in ("--allowedTools", rule)]
        words += [word for rule in self.disallowed for word in ("--disallowedTools", rule)]
        words += ["--max-budget-usd", str(usd)] if usd is not None else []
        words += ["--settings", self.settings] if self.settings else []
        words += [word for place in self.plugin_dirs for word in ("--plugin-dir", str(place))]
        return words


class Standing(Struct, frozen=True, kw_only=True):
    """Status of a run, for whoever started it."""

    id: str
    state: str
    """`running`, `done`, `failed` or `died`."""
    exit_code: int | None = None
    turns: int = 0
    asks: int = 0
    """Number of questions it asked, which may wait for a person."""
    detail: str = ""


class Outcome(Struct, frozen=True, kw_only=True):
    """Result of a run so far."""

    id: str
    state: str
    text: str = ""
    cost_usd: float | None = None
    detail: str = ""


class BackgroundRuns:
    """Processes started here. `directory` holds the output of each."""

    def __init__(
        self, home: Path, directory: Path, *, cwd: Path, flags: RunFlags, ids: Ids, clock: Clock
    ) -> None:
        self._home = home
        self._directory = directory
        self.cwd = cwd
        self.flags = flags
        self._ids = ids
        self._clock = clock
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, prompt: str, *, max_budget_usd: float | None = None) -> str:
        """Start a session that works on the prompt; return its id."""
        words = ["-p", "--output-format", "json", *self.flags.words(max_budget_usd)]
        return self._session(words, prompt)

    def start_team(self, template: str, goal: str, *, max_budget_usd: float | None = None) -> str:
        """Start a session that leads a team from a template; return its id."""
        words = ["team", "start", template, "-", "-p", "--output-format", "json"]
        return self._session([*words, *self.flags.words(max_budget_usd)], goal)

    def start_member(self, id_: str, words: Sequence[str]) -> None:
        self._begin(id_, words, "")

    def is_running(self, id_: str) -> bool | None:
        """Return True while it runs; None if it was not started here."""
        process = self._processes.get(id_)
        return _held(self._file(id_, "out")) if process is None else process.poll() is None

    def wrote(self, id_: str) -> str:
        """Return the end of its standard error."""
        try:
            return self._file(id_, "err").read_text(encoding="utf-8", errors="replace")[-_TAIL:].strip()
        except OSError:
            return ""

    def exit_code(self, id_: str) -> int | None:
        process = self._processes.get(id_)
        return None if process is None else process.poll()

    def status(self, id_: str) -> Standing:
        """Return the status. Raises `SessionNotFound`."""
        ours, run = self.is_running(id_), self._found(id_)
        live = ours if ours is not None else run is not None and run.is_live
        turns = asks = 0
        detail = ""
        for recorded in () if run is None else read_journal(run.journal):
            match recorded.event:
                case TurnEnded(reason=reason):
                    turns, detail = turns + 1, f"the last turn ended: {reason}"
                case Asked():
                    asks += 1
                case Event():
                    continue
        code = self.exit_code(id_)
        state = "running" if live else self._ended(id_, code)
        if state in ("failed", "died"):
            detail = self.wrote(id_) or detail
        return Standing(id=id_, state=state, exit_code=code, turns=turns, asks=asks, detail=detail)

    async def result(self, id_: str, *, wait: float) -> Outcome:
        """Return the result after at most `wait` seconds. Raises `SessionNotFound`."""
        if wait > 0:
            await self._over(id_, wait)
        standing = self.status(id_)
        if standing.state == "running":
            return Outcome(id=id_, state="running", detail="It is still at work. Ask again later.")
        found = self._printed(id_)
        text = found.get("result")
        cost = found.get("total_cost_usd")
        return Outcome(
            id=id_,
            state=standing.state,
            text=text if isinstance(text, str) else "",
            cost_usd=cost if isinstance(cost, int | float) else None,
            detail=standing.detail if standing.state != "done" else "",
        )

    async def _over(self, id_: str, wait: float) -> None:
        process = self._processes.get(id_)
        if process is not None:
            await asyncio.to_thread(_wait, process, wait)
            return
        with suppress(TimeoutError):
            async with self._clock.deadline(wait):
                while self.is_running(id_):
                    # There is no notification for the end of a process that is not a child of this one.
                    await self._clock.sleep(_LOOK)

    def _session(self, words: Sequence[str], prompt: str) -> str:
        id_ = self._ids.uuid()
        self._begin(id_, [*words, "--session-id", id_], prompt)
        return id_

    def _begin(self, id_: str, words: Sequence[str], prompt: str) -> None:
        busy = sum(process.poll() is None for process in self._processes.values())
        if busy >= self.flags.most:
            raise AgentRefused(f"{busy} runs are at work already, and no more are started at once.")
        make_private(self._directory)
        self._file(id_, "prompt").write_text(prompt, encoding="utf-8")
        with (
            self._file(id_, "prompt").open("rb") as told,
            self._file(id_, "out").open("wb") as out,
            self._file(id_, "err").open("wb") as err,
        ):
            # The child inherits the lock, so it is held until the child ends, even if this process ends
            # first.
            fcntl.flock(out, fcntl.LOCK_EX)
            self._processes[id_] = subprocess.Popen(
                [sys.executable, "-m", "shoal", *words],
                cwd=self.cwd,
                env=dict(os.environ),
                stdin=told,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    def _found(self, id_: str) -> Run | None:
        try:
            return find_run(self._home, id_)
        except NoSuchSession:
            if id_ in self._processes or self._file(id_, "out").exists():
                return None
            raise

    def _ended(self, id_: str, code: int | None) -> str:
        if code is not None:
            return "done" if code == 0 else "failed"
        found = self._printed(id_)
        if not found:
            return "died"
        return "failed" if found.get("is_error") else "done"

    def _printed(self, id_: str) -> dict[str, Any]:
        try:
            found = msgspec.json.decode(self._file(id_, "out").read_bytes())
        except (OSError, msgspec.DecodeError):
            return {}
        return found if isinstance(found, dict) else {}

    def _file(self, id_: str, ending: str) -> Path:
        if "/" in id_ or id_.startswith("."):
            raise NoSuchSession(f"{id_!r} names no run.", path=self._directory)
        return self._directory / f"{SessionId(id_)}.{ending}"


def _held(path: Path) -> bool | None:
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False


def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return
