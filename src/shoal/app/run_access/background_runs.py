"""Sessions and members in separate processes that outlive the process that started them."""

from __future__ import annotations

import asyncio
import fcntl
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from shoal.app.model_notices import format_session_notice
from shoal.app.run_access.run_handle import RunHandle
from shoal.app.run_access.stored_runs import open_stored_runs
from shoal.core.clock import Clock
from shoal.core.errors import AgentRequestRefused, SessionNotFound
from shoal.core.events import Event, ModelRequestSent, QuestionAsked, TurnEnded
from shoal.core.ids import IdGenerator, SessionId
from shoal.core.permissions.permission_decisions import PermissionMode
from shoal.stores.files.home.home_paths import (
    open_private_file,
    open_state_file,
    read_state_file,
    write_file_atomically,
)
from shoal.stores.files.locks.flocks import is_flocked

_MAX_ID_CHARS = 200
"""Longer than the id of a member, which contains the names of the member and its team."""
_MAX_SHOWN_CHARS = 60
_STDERR_TAIL_CHARS = 2_000
_POLL_SECONDS = 0.2
_START_POLL_SECONDS = 0.05
START_WAIT = 45.0
"""Seconds within which a run shows that it has started, or why it has not."""


class BackgroundRunFlags(Struct, frozen=True, kw_only=True):
    """Limits of the user for every run started here; a program that requests a run cannot raise them."""

    model: str | None = None
    mode: PermissionMode | None = None
    allowed: tuple[str, ...] = ()
    disallowed: tuple[str, ...] = ()
    skip_permissions: bool = False
    max_budget_usd: float | None = None
    settings: str | None = None
    plugin_dirs: tuple[Path, ...] = ()
    max_concurrent: int = 8
    """Maximum number of concurrent runs."""

    def cap_budget(self, requested: float | None) -> float | None:
        """Return the smaller of the requested and the allowed budget."""
        return min((each for each in (requested, self.max_budget_usd) if each is not None), default=None)

    def to_cli_arguments(self, max_budget_usd: float | None = None) -> list[str]:
        usd = self.cap_budget(max_budget_usd)
        arguments: list[str] = []
        arguments += ["--model", self.model] if self.model else []
        arguments += ["--permission-mode", self.mode] if self.mode else []
        arguments += ["--dangerously-skip-permissions"] if self.skip_permissions else []
        arguments += [argument for rule in self.allowed for argument in ("--allowedTools", rule)]
        arguments += [argument for rule in self.disallowed for argument in ("--disallowedTools", rule)]
        arguments += ["--max-budget-usd", str(usd)] if usd is not None else []
        arguments += ["--settings", self.settings] if self.settings else []
        arguments += [
            argument for directory in self.plugin_dirs for argument in ("--plugin-dir", str(directory))
        ]
        return arguments


class BackgroundRunStatus(Struct, frozen=True, kw_only=True):
    """Status of a run, for the client that started it."""

    id: str
    state: str
    """`running`, `done`, `failed` or `died`."""
    exit_code: int | None = None
    turns: int = 0
    asks: int = 0
    """Number of questions it asked, which may wait for a person."""
    detail: str = ""


class BackgroundRunResult(Struct, frozen=True, kw_only=True):
    """Result of a run so far."""

    id: str
    state: str
    text: str = ""
    cost_usd: float | None = None
    detail: str = ""


class BackgroundRunManager:
    """Processes started here. `directory` holds the output of each."""

    def __init__(
        self,
        home: Path,
        directory: Path,
        *,
        cwd: Path,
        flags: BackgroundRunFlags,
        ids: IdGenerator,
        clock: Clock,
    ) -> None:
        self._home = home
        self._directory = directory
        self.cwd = cwd
        self.flags = flags
        self._ids = ids
        self._clock = clock
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start_prompt_run(self, prompt: str, *, max_budget_usd: float | None = None) -> str:
        """Start a session that works on the prompt; return its id."""
        arguments = ["-p", "--output-format", "json", *self.flags.to_cli_arguments(max_budget_usd)]
        return self._start_session(arguments, prompt)

    def start_team_run(self, template: str, goal: str, *, max_budget_usd: float | None = None) -> str:
        """Start a session that leads a team from a template; return its id."""
        arguments = ["team", "start", template, "-", "-p", "--output-format", "json"]
        return self._start_session([*arguments, *self.flags.to_cli_arguments(max_budget_usd)], goal)

    def start_member_process(self, id_: str, arguments: Sequence[str]) -> None:
        self._start_process(id_, arguments, "")

    async def wait_until_begun(self, id_: str, has_begun: Callable[[], Awaitable[bool]]) -> bool:
        """Return True once the run works, or False if it has not started after `START_WAIT` seconds.

        Raises `AgentRequestRefused` with the reason if its process ends first.
        """
        process = self._processes[id_]
        with suppress(TimeoutError):
            async with self._clock.deadline(START_WAIT):
                while process.poll() is None and not await has_begun():
                    # Nothing notifies about both the end of the process and its first files.
                    await self._clock.sleep(_START_POLL_SECONDS)
        code, is_working = process.poll(), await has_begun()
        if code and not is_working:
            detail = self.read_stderr_tail(id_) or f"its process ended with exit code {code}"
            raise AgentRequestRefused(format_session_notice("run_not_started", reason=detail))
        return is_working or code is not None

    async def has_session_begun(self, id_: str) -> bool:
        """Return True if the session has sent a request or written a result without an error."""
        output, run = self._read_run_output(id_), self._find_run(id_)
        if output and not output.get("is_error"):
            return True
        return run is not None and any(
            isinstance(each.event, ModelRequestSent) for each in run.read_journal()
        )

    def is_running(self, id_: str) -> bool | None:
        """Return True while it runs; None if it was not started here."""
        process = self._processes.get(id_)
        return (
            _is_locked(self._get_output_file_path(id_, "out")) if process is None else process.poll() is None
        )

    def read_stderr_tail(self, id_: str) -> str:
        """Return the end of its standard error."""
        try:
            text = read_state_file(self._get_output_file_path(id_, "err")).decode("utf-8", "replace")
            return text[-_STDERR_TAIL_CHARS:].strip()
        except OSError:
            return ""

    def is_started_here(self, id_: str) -> bool:
        """Return True if this server or an earlier one started it."""
        return id_ in self._processes or self._get_output_file_path(id_, "out").exists()

    def get_exit_code(self, id_: str) -> int | None:
        process = self._processes.get(id_)
        return None if process is None else process.poll()

    def get_status(self, id_: str) -> BackgroundRunStatus:
        """Return the status. Raises `SessionNotFound`."""
        is_own_running, run = self.is_running(id_), self._find_run(id_)
        is_live = is_own_running if is_own_running is not None else run is not None and run.is_live
        turns = questions = 0
        detail = ""
        for recorded in () if run is None else run.read_journal():
            match recorded.event:
                case TurnEnded(reason=reason):
                    turns, detail = turns + 1, f"the last turn ended: {reason}"
                case QuestionAsked():
                    questions += 1
                case Event():
                    continue
        code = self.get_exit_code(id_)
        state = "running" if is_live else self._classify_run_end(id_, code)
        if state in ("failed", "died"):
            detail = self.read_stderr_tail(id_) or detail
        return BackgroundRunStatus(
            id=id_, state=state, exit_code=code, turns=turns, asks=questions, detail=detail
        )

    async def wait_for_result(self, id_: str, *, wait: float) -> BackgroundRunResult:
        """Return the result after at most `wait` seconds. Raises `SessionNotFound`."""
        await self._wait_for_end(id_, wait)
        status = self.get_status(id_)
        if status.state == "running":
            return BackgroundRunResult(
                id=id_, state="running", detail="It is still working. Ask again later."
            )
        output = self._read_run_output(id_)
        text = output.get("result")
        cost = output.get("total_cost_usd")
        return BackgroundRunResult(
            id=id_,
            state=status.state,
            text=text if isinstance(text, str) else "",
            cost_usd=cost if isinstance(cost, int | float) else None,
            detail=status.detail if status.state != "done" else "",
        )

    async def _wait_for_end(self, id_: str, wait: float) -> None:
        process = self._processes.get(id_)
        if process is not None:
            await asyncio.to_thread(_wait_for_process, process, wait)
            return
        with suppress(TimeoutError):
            async with self._clock.deadline(wait):
                while self.is_running(id_):
                    # There is no notification for the end of a process that is not a child of this one.
                    await self._clock.sleep(_POLL_SECONDS)

    def _start_session(self, arguments: Sequence[str], prompt: str) -> str:
        id_ = self._ids.new_uuid()
        self._start_process(id_, [*arguments, "--session-id", id_], prompt)
        return id_

    def _start_process(self, id_: str, arguments: Sequence[str], prompt: str) -> None:
        running = sum(process.poll() is None for process in self._processes.values())
        if running >= self.flags.max_concurrent:
            raise AgentRequestRefused(format_session_notice("too_many_runs", count=running))
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        write_file_atomically(self._get_output_file_path(id_, "prompt"), prompt.encode("utf-8"))
        with (
            open_state_file(self._get_output_file_path(id_, "prompt")) as stdin,
            os.fdopen(open_private_file(self._get_output_file_path(id_, "out"), flags), "wb") as stdout,
            os.fdopen(open_private_file(self._get_output_file_path(id_, "err"), flags), "wb") as stderr,
        ):
            # The child inherits the lock, so it is held until the child ends, even if this process ends
            # first.
            fcntl.flock(stdout, fcntl.LOCK_EX)
            self._processes[id_] = subprocess.Popen(
                [sys.executable, "-m", "shoal", *arguments],
                cwd=self.cwd,
                env=dict(os.environ),
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )

    def _find_run(self, id_: str) -> RunHandle | None:
        """Return the run with exactly this id; None if it was started here and has no journal yet."""
        self._get_output_file_path(id_, "out")  # raises SessionNotFound for text that is no id
        with suppress(SessionNotFound):
            run = open_stored_runs(self._home, id_).find_run(id_)
            if run.session == id_:
                return run
        if self.is_started_here(id_):
            return None
        raise SessionNotFound(format_session_notice("unknown_run", run=repr(id_)), path=self._directory)

    def _classify_run_end(self, id_: str, code: int | None) -> str:
        if code is not None:
            return "done" if code == 0 else "failed"
        output = self._read_run_output(id_)
        if not output:
            return "died"
        return "failed" if output.get("is_error") else "done"

    def _read_run_output(self, id_: str) -> dict[str, Any]:
        try:
            output = msgspec.json.decode(read_state_file(self._get_output_file_path(id_, "out")))
        except (OSError, msgspec.DecodeError):
            return {}
        return output if isinstance(output, dict) else {}

    def _get_output_file_path(self, id_: str, suffix: str) -> Path:
        is_file_name = bool(id_) and "/" not in id_ and not id_.startswith(".") and id_.isprintable()
        if not is_file_name or len(id_) > _MAX_ID_CHARS:
            text = format_session_notice("unknown_run", run=repr(id_[:_MAX_SHOWN_CHARS]))
            raise SessionNotFound(text, path=self._directory)
        return self._directory / f"{SessionId(id_)}.{suffix}"


def _is_locked(path: Path) -> bool | None:
    try:
        with open_state_file(path) as file:
            return is_flocked(file.fileno())
    except OSError:
        return None


def _wait_for_process(process: subprocess.Popen[bytes], seconds: float) -> None:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return
