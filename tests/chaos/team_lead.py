"""A lead with its agents, to be killed and resumed; `python -m tests.chaos.team_lead` starts any number.

Each line on its input is a `LeadStart`; it answers with the process id, and with the exit status when that
process has ended. The leads are forks of this process, which has loaded everything and has neither threads
nor an event loop.
"""

from __future__ import annotations

import asyncio
import ctypes
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
from tests.chaos import agents_mind, team_mind

import shoal
from shoal.app.agents import outfitting
from shoal.app.basis import left_shells, recovery
from shoal.app.quarters import worktrees
from shoal.app.session import build
from shoal.backends import guardian, link, processes, tmux
from shoal.core.events import Finished
from shoal.models.scripted import ScriptedModel
from shoal.stores.files import board, mailboxes, questions, renaming, rosters

MINDS = {"team": team_mind.mind, "agents": agents_mind.mind}
LOADED = (build, left_shells, outfitting, recovery, worktrees, guardian, link, processes, board, mailboxes)
LOADED_TOO = (questions, rosters, tmux)
_SUBREAPER = 36
WRITES = ("write", "pwrite")
CHANGES = (*WRITES, "ftruncate", "rename", "replace", "unlink", "link", "mkdir", "rmdir", "utime")


class Death(msgspec.Struct, frozen=True, kw_only=True):
    """Just before the n-th change to the disk, or when half of the n-th write is done."""

    moment: int
    half: bool = False


class Start(msgspec.Struct, frozen=True, kw_only=True):
    home: str
    project: str
    session: str
    prompt: str
    backend: str = "in-process"
    """Backend of teammates."""
    provider: str = ""
    """Address of the provider of all processes; without it the lead has an in-process model."""
    death: Death | None = None
    log: str = os.devnull
    work: str = "team"
    settings: dict[str, Any] = {}
    environ: dict[str, str] = {}
    """Environment variables to set; an empty value removes the variable."""
    python: str = ""
    """Interpreter of its other processes, if it is not its own."""


class Started(msgspec.Struct, frozen=True, kw_only=True):
    pid: int


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    """Negative for a signal."""


class Failed(Exception):
    """A turn of the lead ended with an error, and so does its process."""


def _tell_where_all_wait() -> None:
    for task in asyncio.all_tasks():
        task.print_stack(file=sys.stderr)


async def lead(start: Start) -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, _tell_where_all_wait)
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
    model = "anthropic:claude-sonnet-4-5" if start.provider else ScriptedModel(MINDS[start.work])
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
                if isinstance(event, Finished) and event.reason != "done":
                    raise Failed(f"{event.reason}: {event.detail}")
            turn = await session.next_turn()


def die_at(death: Death) -> None:
    """Kill this process at a point counted from now."""
    counter = count(1)

    def deadly(call: Callable[..., Any], *, writes: bool) -> Callable[..., Any]:
        def changed(*args: Any, **how: Any) -> Any:
            if (writes or not death.half) and next(counter) == death.moment:
                if death.half:
                    call(args[0], args[1][: len(args[1]) // 2], *args[2:], **how)
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **how)

        return changed

    for name in CHANGES:
        setattr(os, name, deadly(getattr(os, name), writes=name in WRITES))
    renaming._renamed = deadly(renaming._renamed, writes=False)


def serve() -> None:
    # Orphans of a lead are reparented to this process, where they can be seen.
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    for line in sys.stdin.buffer:
        start = msgspec.json.decode(line, type=Start)
        pid = os.fork()
        if not pid:
            _become(start)
        _say(Started(pid=pid))
        _say(Ended(status=os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _become(start: Start) -> None:
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
        # The start-up files of the person who runs this may take longer than all the rest.
        os.environ["HOME"] = str(Path(start.home).parent)
        os.environ |= start.environ
        for name in [name for name, value in start.environ.items() if not value]:
            del os.environ[name]
        sys.executable = start.python or sys.executable
        if start.death is not None:
            die_at(start.death)
        asyncio.run(lead(start))
        status = 0
    except BaseException:  # noqa: BLE001 - the outermost frame of a process
        traceback.print_exc()
    finally:
        os._exit(status)


def _say(what: msgspec.Struct) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(what) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    serve()
