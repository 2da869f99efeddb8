"""Run as `python agent_tree_crashes.py DIRECTORY [N]`: kills a lead at each Nth step of its agent's worktree.

Before each system call that changes something, and before each git: the lead dies while the worktree is
created, or while it is returned; another process resumes its session and gives the agent no more work.
A worktree without work may not be left then, unless its agent was interrupted and can be resumed in it.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import signal
import sys
import traceback
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "plugins"))

import shoal
from agent_scripts import call_tool, script_agents, spawn_agent
from git_repository import GitRepository
from shoal.app.isolation import repository_worktrees
from shoal.app.session import session_builder
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.events import AgentEnded, AgentStarted
from shoal.stores.files.sessions.file_journal import read_journal

PRELOADED_MODULES = (session_builder, repository_worktrees)
WATCHED_EVENTS = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "subprocess.Popen")
SETTINGS = '{"shoal": {"worktree_guard": "weak"}}'


class ScheduledKill:
    """Kills this process at the step of this number, counted from the moment it is armed."""

    def __init__(self, step: int) -> None:
        self._steps_left = step
        self._is_armed = False
        sys.addaudithook(self._count_step)

    def arm(self) -> None:
        self._is_armed = True

    def _count_step(self, event: str, _: object) -> None:
        if self._is_armed and event in WATCHED_EVENTS:
            self._steps_left -= 1
            if self._steps_left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def die_while_creating(kill: ScheduledKill) -> Any:
    def spawn_in_worktree(_: ModelRequest) -> Any:
        kill.arm()
        return spawn_agent("You look", "c1", isolation="worktree")

    return script_agents(lead=[spawn_in_worktree, "end"], You=[lambda _: os._exit(0)])


def die_while_returning(kill: ScheduledKill) -> Any:
    def finish(_: ModelRequest) -> str:
        kill.arm()
        return "seen"

    return script_agents(
        lead=[spawn_agent("You look", "c1", isolation="worktree"), lambda _: os._exit(0)],
        You=[call_tool("Bash", "b", command="ls"), finish],
    )


async def run_session(repository: GitRepository, model: Any, **options: Any) -> None:
    async with shoal.open(
        cwd=repository.top, model=model, skip_permissions=True, settings=SETTINGS, **options
    ) as opened:
        async for _ in opened.run("lead, go"):
            pass


def run_in_fork(create_coroutine: Callable[[], Any]) -> bool:
    """Run in a fork; return True if it finished."""
    child = os.fork()
    if child == 0:
        try:
            asyncio.run(create_coroutine())
            os._exit(0)
        except BaseException:  # noqa: BLE001 - the wall around a copy of this process
            traceback.print_exc()
            os._exit(1)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return False
    assert os.WEXITSTATUS(status) == 0
    return True


def find_faults(repository: GitRepository, ident: str) -> list[str]:
    journal = repository.home / "shoal" / "runs" / ident / "journal.jsonl"
    events = [each.event for each in read_journal(journal)] if journal.exists() else []
    begun = {event.agent for event in events if isinstance(event, AgentStarted)}
    ends = [event.completion for event in events if isinstance(event, AgentEnded)]
    cut_off = {end.agent for end in ends if end.status == "killed"}
    wrong = [f"{each} has no end" for each in begun - {end.agent for end in ends}]
    left = [
        *repository.home.glob("worktrees/*/agent-*"),
        *(repository.top / ".git/worktrees").glob("*"),
        *({*repository.branches} - {"main"}),
    ]
    return wrong if cut_off else [*wrong, *(f"{each} is left" for each in left)]


def main(directory: Path, stride: int) -> None:
    first = GitRepository(directory / "first")
    for life in (die_while_creating, die_while_returning):
        last, deaths, wrong = 1, 0, list[str]()
        while True:
            repository, ident = first.copy_to(directory / f"{life.__name__}-{last}"), str(uuid.uuid4())
            os.environ |= {"HOME": str(directory), "SHOAL_HOME": str(repository.home)}
            if run_in_fork(lambda: run_session(repository, life(ScheduledKill(last)), session_id=ident)):  # noqa: B023
                break
            # A git that the dead process had started may run for a moment: its worktree counts as owned.
            for lease in repository.home.glob("worktrees/*/.owners/*"):
                with lease.open() as file:
                    fcntl.flock(file, fcntl.LOCK_EX)
            known = any(repository.home.glob(f"projects/*/{ident}.jsonl"))
            if known:
                assert run_in_fork(lambda: run_session(repository, script_agents(lead=["end"]), resume=ident))  # noqa: B023
                found = find_faults(repository, ident)
                wrong += [f"{life.__name__}, killed at step {last}: {each}" for each in found]
            shutil.rmtree(repository.top.parent)
            last, deaths = last + stride, deaths + 1
        sys.stdout.write(f"{life.__name__} {deaths}\n")
        sys.stderr.writelines(f"{each}\n" for each in wrong)


main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
