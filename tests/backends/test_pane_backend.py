"""Teammates with panes: ours live without theirs, other programs live in theirs."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from shoal.backends.pane_backend import PaneBackend
from shoal.backends.process_backend import ProcessBackend
from shoal.backends.processes import GuardedProcesses
from shoal.backends.tmux import TmuxPanes
from shoal.core.backends import Backend, Berth, Papers, Wanted
from shoal.core.clock import SystemClock
from shoal.core.errors import ProcessError
from shoal.core.ids import AgentId
from shoal.core.names import agent_name, team_name
from shoal.wire.papers import command_line
from tmux_rig import WAITING, TmuxServer

pytestmark = pytest.mark.needs("tmux")
FOREIGN = """
import json, os, signal, sys
said = {"words": sys.argv[2:], "env": dict(os.environ), "cwd": os.getcwd(), "tty": os.isatty(0)}
with open(sys.argv[1] + ".part", "w") as file:
    json.dump(said, file)
os.rename(sys.argv[1] + ".part", sys.argv[1])
if "--stubborn" in sys.argv[1]:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("deaf", flush=True)
sys.exit(int(input("status? ")))
"""


def wanted(cwd: Path, name: str = "alice", *, program: tuple[str, ...] = (), split: bool = True) -> Wanted:
    papers = Papers(
        agent=AgentId(f"{name}@roof"),
        name=agent_name(name),
        team=team_name("roof"),
        color="orange",
        session="11111111-2222",
        kind="worker",
        model="m",
    )
    env = {"PATH": os.environ["PATH"], "TERM": "dumb", "TMUX_PANE": "%999", "ANTHROPIC_API_KEY": "secret"}
    brief = json.dumps({"do": "wait"}).encode()
    return Wanted(papers=papers, cwd=cwd, env=env, brief=brief, program=program, split=split)


@asynccontextmanager
async def backend_in(
    environ: dict[str, str], root: Path, notes: list[str], viewer: tuple[str, ...] = WAITING
) -> AsyncIterator[PaneBackend]:
    clock = SystemClock()
    processes = GuardedProcesses(clock)
    panes = TmuxPanes(environ, processes, clock, session_name="shoal-11111111")
    members = ProcessBackend(processes, clock, entry="forked_entry:main", log_directory=root / "logs")
    backend = PaneBackend(
        panes, members, lambda papers: (*viewer, papers.session, papers.agent), clock, on_note=notes.append
    )
    try:
        yield backend
    finally:
        await backend.aclose()
        await processes.aclose()


async def up(berth: Berth) -> None:
    assert berth.line is not None
    async with asyncio.timeout(20):
        assert await berth.line.receive() == b"up"


async def over(berth: Berth) -> str:
    async with asyncio.timeout(20):
        return await berth.over()


def is_there(pid: int) -> bool:
    """Whether it runs; one that ended stays in the list until its parent looks."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.spec("BCK-08", "BCK-03", "USR-08")
async def test_one_of_ours_is_a_process_and_its_pane_runs_a_viewer(tmux: TmuxServer, tmp_path: Path) -> None:
    lead = tmux.begin().inside["TMUX_PANE"]
    notes: list[str] = []
    async with backend_in(tmux.inside, tmp_path, notes) as made:
        backend: Backend = made
        assert backend.type == "tmux"
        assert await backend.unavailable() == ""
        berth = await backend.spawn(wanted(tmp_path))
        await up(berth)
        assert berth.pane in tmux.rows("#{pane_id}")
        await tmux.shows(berth.pane, "11111111-2222 alice@roof")
        assert str(berth.pid) not in tmux.rows("#{pane_pid}")
        viewer = int(tmux("display-message", "-p", "-t", berth.pane, "#{pane_pid}"))
        assert b"secret" not in Path(f"/proc/{viewer}/environ").read_bytes()
        assert backend.alive(berth)
        await berth.stop(grace=5)
        assert not backend.alive(berth)
        assert not is_there(berth.pid)
        assert tmux.rows("#{pane_id}") == [lead]
        assert await over(berth) == "it was killed by signal 15"
    assert notes == []


@pytest.mark.spec("USR-20")
async def test_an_agent_lives_when_a_person_closes_its_pane(tmux: TmuxServer, tmp_path: Path) -> None:
    tmux.begin()
    notes: list[str] = []
    async with backend_in(tmux.inside, tmp_path, notes) as backend:
        berth = await backend.spawn(wanted(tmp_path))
        await up(berth)
        tmux("kill-pane", "-t", berth.pane)
        await tmux.until(lambda: berth.pane not in tmux.rows("#{pane_id}"))
        assert backend.alive(berth)
        assert is_there(berth.pid)
        await berth.stop(grace=5)
        assert not is_there(berth.pid)
    assert notes == []


@pytest.mark.spec("USR-20")
async def test_agents_live_when_the_tmux_server_is_killed_and_a_person_is_told_once(
    tmux: TmuxServer, tmp_path: Path
) -> None:
    tmux.begin()
    notes: asyncio.Queue[str] = asyncio.Queue()
    heard: list[str] = []
    async with backend_in(tmux.inside, tmp_path, heard) as backend:
        backend._note = notes.put_nowait
        berths = [await backend.spawn(wanted(tmp_path, name)) for name in ("alice", "bob", "carol")]
        for berth in berths:
            await up(berth)
        tmux("kill-server")
        async with asyncio.timeout(20):
            told = await notes.get()
        assert told == "tmux ended, and every pane with it. The teammates work on without them."
        assert all(map(backend.alive, berths))
        # The next one is not lost either.
        late = await backend.spawn(wanted(tmp_path, "dave"))
        await up(late)
        assert "dave works without a pane" in notes.get_nowait()
        assert late.pane == "process"
        assert notes.empty()
        for berth in (*berths, late):
            await berth.stop(grace=5)


async def test_a_viewer_that_fails_is_told_and_its_agent_lives(tmux: TmuxServer, tmp_path: Path) -> None:
    tmux.begin()
    notes: asyncio.Queue[str] = asyncio.Queue()
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    async with backend_in(tmux.inside, tmp_path, [], ("sh", "-c", f"exit $(cat {gate})")) as backend:
        backend._note = notes.put_nowait
        berth = await backend.spawn(wanted(tmp_path))
        await up(berth)
        await asyncio.to_thread(gate.write_text, "3")
        async with asyncio.timeout(20):
            told = await notes.get()
        assert told == "The view of alice in its pane failed: it ended with status 3. alice works on."
        assert backend.alive(berth)
        await berth.stop(grace=5)


async def said_by(path: Path, tmux: TmuxServer) -> dict[str, Any]:
    await tmux.until(path.exists, "the foreign program")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.mark.spec("BCK-03", "BCK-06")
async def test_another_program_runs_in_its_pane_with_its_papers_and_ends_with_it(
    tmux: TmuxServer, tmp_path: Path
) -> None:
    lead = tmux.begin().inside["TMUX_PANE"]
    async with backend_in(tmux.inside, tmp_path, []) as backend:
        program = (sys.executable, "-c", FOREIGN, str(tmp_path / "said"))
        place = wanted(tmp_path, program=program)
        berth = await backend.spawn(place)
        said = await said_by(tmp_path / "said", tmux)
        assert said["words"] == [*command_line(place.papers)]
        assert (said["cwd"], said["tty"], berth.line) == (str(tmp_path), True, None)
        env = said["env"]
        assert (env["CLAUDECODE"], env["CLAUDE_CODE_EXPERIMENTAL_AGENT_TEAMS"]) == ("1", "1")
        assert (env["CLAUDE_CODE_ENTRYPOINT"], env["ANTHROPIC_API_KEY"]) == ("cli", "secret")
        assert env["TMUX_PANE"] == berth.pane != lead
        assert env["TERM"] != "dumb"
        assert not [name for name, value in env.items() if "alice" in value or "roof@" in value]
        assert str(berth.pid) == tmux("display-message", "-p", "-t", berth.pane, "#{pane_pid}")
        assert backend.alive(berth)
        waiting = asyncio.create_task(over(berth))
        await tmux.shows(berth.pane, "status?")
        tmux("send-keys", "-t", berth.pane, "4", "Enter")
        assert await waiting == "it ended with status 4"
        assert not backend.alive(berth)
        assert tmux.rows("#{pane_id}") == [lead]


async def test_another_program_is_stopped_with_its_pane_even_when_it_does_not_listen(
    tmux: TmuxServer, tmp_path: Path
) -> None:
    lead = tmux.begin().inside["TMUX_PANE"]
    async with backend_in(tmux.inside, tmp_path, []) as backend:
        deaf = str(tmp_path / "deaf--stubborn")
        program = (sys.executable, "-c", FOREIGN)
        easy = await backend.spawn(wanted(tmp_path, "easy", program=(*program, str(tmp_path / "easy"))))
        hard = await backend.spawn(wanted(tmp_path, "hard", program=(*program, deaf), split=False))
        await said_by(tmp_path / "easy", tmux)
        await tmux.shows(hard.pane, "deaf")
        pids = (easy.pid, hard.pid)
        await easy.stop(grace=10)
        await hard.stop(grace=0.1)
        assert tmux.rows("#{pane_id}") == [lead]
        await tmux.until(lambda: not any(map(is_there, pids)), "the end of both")
        await hard.stop()
        assert await over(easy) == "it was killed by signal 15"
        assert await over(hard) == "it was killed by signal 9"
        gone = await backend.spawn(wanted(tmp_path, "gone", program=(*program, str(tmp_path / "gone"))))
        tmux("kill-pane", "-t", gone.pane)
        assert await over(gone) == "its pane was closed"


async def test_another_program_without_a_pane_is_not_started(tmux: TmuxServer, tmp_path: Path) -> None:
    tmux.begin()
    async with backend_in(tmux.inside, tmp_path, []) as backend:
        await tmux.ended()
        with pytest.raises(ProcessError, match="lead's pane"):
            await backend.spawn(wanted(tmp_path, program=("true",)))


async def test_closing_ends_processes_and_panes(tmux: TmuxServer, tmp_path: Path) -> None:
    lead = tmux.begin().inside["TMUX_PANE"]
    async with backend_in(tmux.inside, tmp_path, []) as backend:
        ours = await backend.spawn(wanted(tmp_path))
        await up(ours)
        theirs = await backend.spawn(wanted(tmp_path, "bob", program=WAITING))
        pids = (ours.pid, theirs.pid)
    assert ours.line is not None
    ours.line.close()
    assert tmux.rows("#{pane_id}") == [lead]
    await tmux.until(lambda: not any(map(is_there, pids)), "the end of both")
