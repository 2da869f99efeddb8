"""A lead with its agents, to be killed and resumed; `python -m tests.chaos.team_lead` starts any number.

Each line on its input is a `LeadStart`; it answers with the process id, and with the exit status when that
process has ended. The leads are forks of this process, which has loaded everything and has neither threads
nor an event loop.
"""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
from tests.chaos import agents_script, team_script

import shoal
from shoal.app.agents import agent_factory
from shoal.app.config import journal_recovery
from shoal.app.isolation import repository_worktrees
from shoal.app.session import session_builder
from shoal.backends import guarded_processes, guardian, tmux_panes
from shoal.core.events import RunFinished
from shoal.models.scripted_model import ScriptedModel
from shoal.stores.files.access import atomic_rename
from shoal.stores.files.board import file_task_board
from shoal.stores.files.mailboxes import file_mailbox_store
from shoal.stores.files.sessions import question_files
from shoal.stores.files.teams import file_roster_store

SCRIPTS = {"team": team_script.choose_reply, "agents": agents_script.choose_reply}
PRELOADED_MODULES = (
    session_builder,
    agent_factory,
    journal_recovery,
    repository_worktrees,
    guardian,
    guarded_processes,
    file_task_board,
    file_mailbox_store,
)
MORE_PRELOADED_MODULES = (question_files, file_roster_store, tmux_panes)
_SUBREAPER = 36
WRITE_CALLS = ("write", "pwrite")
CHANGING_CALLS = (*WRITE_CALLS, "ftruncate", "rename", "replace", "unlink", "link", "mkdir", "rmdir", "utime")


class DeathPoint(msgspec.Struct, frozen=True, kw_only=True):
    """Just before the n-th change to the disk, or when half of the n-th write is done."""

    moment: int
    half: bool = False


class LeadStart(msgspec.Struct, frozen=True, kw_only=True):
    home: str
    project: str
    session: str
    prompt: str
    backend: str = "in-process"
    """Backend of teammates."""
    provider: str = ""
    """Address of the provider of all processes; without it the lead has an in-process model."""
    death: DeathPoint | None = None
    log: str = os.devnull
    work: str = "team"
    settings: dict[str, Any] = {}
    environ: dict[str, str] = {}
    """Environment variables to set; an empty value removes the variable."""
    python: str = ""
    """Interpreter of its other processes, if it is not its own."""


class LeadStarted(msgspec.Struct, frozen=True, kw_only=True):
    pid: int


class LeadEnded(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    """Negative for a signal."""


class LeadTurnFailed(Exception):
    """A turn of the lead ended with an error, and so does its process."""


def _print_task_stacks() -> None:
    for task in asyncio.all_tasks():
        task.print_stack(file=sys.stderr)


async def run_lead(start: LeadStart) -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, _print_task_stacks)
    known = any((Path(start.home) / "projects").glob(f"*/{start.session}.jsonl"))
    options: dict[str, Any] = {"resume": start.session} if known else {"session_id": start.session}
    own = {
        "plan_approver": "lead",
        "shutdown_grace": 10,
        "worktree_guard": "weak",
        "teammate_mode": start.backend,
        "teammate_restarts": 100,
        "fan_out_preview": None,
        **start.settings,
    }
    settings = msgspec.json.encode({"shoal": own}).decode()
    model = "anthropic:claude-sonnet-4-5" if start.provider else ScriptedModel(SCRIPTS[start.work])
    async with shoal.open(
        cwd=start.project,
        model=model,
        skip_permissions=True,
        settings=settings,
        # Panes are shown only in attended runs.
        attended=start.backend == "tmux",
        **options,
    ) as session:
        turn: shoal.Turn | None = session.run(start.prompt)
        while turn is not None:
            async for event in turn:
                if isinstance(event, RunFinished) and event.reason != "done":
                    raise LeadTurnFailed(f"{event.reason}: {event.detail}")
            turn = await session.next_turn()


def kill_at(death: DeathPoint) -> None:
    """Kill this process at a point counted from now."""
    counter = count(1)

    def wrap_call(call: Callable[..., Any], *, writes: bool) -> Callable[..., Any]:
        def call_or_die(*args: Any, **how: Any) -> Any:
            if (writes or not death.half) and next(counter) == death.moment:
                if death.half:
                    call(args[0], args[1][: len(args[1]) // 2], *args[2:], **how)
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **how)

        return call_or_die

    for name in CHANGING_CALLS:
        setattr(os, name, wrap_call(getattr(os, name), writes=name in WRITE_CALLS))
    atomic_rename._call_renameat2 = wrap_call(atomic_rename._call_renameat2, writes=False)


def serve_starts() -> None:
    # Orphans of a lead are reparented to this process, where they can be seen.
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    for line in sys.stdin.buffer:
        start = msgspec.json.decode(line, type=LeadStart)
        pid = os.fork()
        if not pid:
            _run_as_lead(start)
        _write_message(LeadStarted(pid=pid))
        _write_message(LeadEnded(status=os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _run_as_lead(start: LeadStart) -> None:
    status = 1
    try:
        log = os.open(start.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ["SHOAL_HOME"] = start.home
        os.environ |= {"ANTHROPIC_BASE_URL": start.provider, "ANTHROPIC_API_KEY": "key"}
        os.environ["TMPDIR"] = str(Path(start.home).parent / "tmp")
        # The start-up files of the user who runs this may take longer than all the rest.
        os.environ["HOME"] = str(Path(start.home).parent)
        os.environ |= start.environ
        for name in [name for name, value in start.environ.items() if not value]:
            del os.environ[name]
        sys.executable = start.python or sys.executable
        # Prints the stacks of all threads, also if the event loop is blocked.
        faulthandler.register(signal.SIGUSR2)
        if start.death is not None:
            kill_at(start.death)
        asyncio.run(run_lead(start))
        status = 0
    except BaseException:  # noqa: BLE001 - the outermost frame of a process
        traceback.print_exc()
    finally:
        os._exit(status)


def _write_message(message: msgspec.Struct) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(message) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    serve_starts()
