"""PaneBackend: own members survive their panes, foreign programs run in theirs."""

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
from process_helpers import is_running, wait_for_member_exit

from shoal.backends.guarded_processes import GuardedProcessLauncher
from shoal.backends.pane_backend import PaneBackend
from shoal.backends.process_backend import ProcessBackend
from shoal.backends.tmux_panes import TmuxPaneManager
from shoal.core.clock import SystemClock
from shoal.core.errors import ProcessError
from shoal.core.ids import AgentId
from shoal.core.names import parse_agent_name, parse_team_name
from shoal.core.teams.member_backends import (
    MemberBackend,
    MemberLaunchArgs,
    MemberProcess,
    MemberProcessLaunchSpec,
)
from shoal.wire.launch_args_codec import build_member_launch_flags
from tmux_server import WAITING_PROGRAM, TmuxServer

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


def make_pane_launch(
    cwd: Path, name: str = "alice", *, program: tuple[str, ...] = (), split: bool = True
) -> MemberProcessLaunchSpec:
    launch_args = MemberLaunchArgs(
        agent=AgentId(f"{name}@roof"),
        name=parse_agent_name(name),
        team=parse_team_name("roof"),
        color="orange",
        session="11111111-2222",
        kind="worker",
        model="m",
    )
    env = {"PATH": os.environ["PATH"], "TERM": "dumb", "TMUX_PANE": "%999", "ANTHROPIC_API_KEY": "secret"}
    brief = json.dumps({"do": "wait"}).encode()
    return MemberProcessLaunchSpec(
        launch_args=launch_args, cwd=cwd, env=env, bootstrap=brief, program=program, split=split
    )


@asynccontextmanager
async def open_backend(
    environ: dict[str, str], root: Path, notes: list[str], viewer: tuple[str, ...] = WAITING_PROGRAM
) -> AsyncIterator[PaneBackend]:
    clock = SystemClock()
    processes = GuardedProcessLauncher(clock, root / "guardians")
    panes = TmuxPaneManager(environ, processes, clock, session_name="shoal-11111111")
    members = ProcessBackend(processes, clock, entry="forked_entry:main", log_directory=root / "logs")
    backend = PaneBackend(
        panes,
        members,
        lambda launch_args: (*viewer, launch_args.session, launch_args.agent),
        clock,
        on_note=notes.append,
        record_process=processes.record_process,
    )
    try:
        yield backend
    finally:
        await backend.aclose()
        await processes.aclose()


async def wait_until_up(member: MemberProcess) -> None:
    assert member.channel is not None
    async with asyncio.timeout(20):
        assert await member.channel.receive() == b"up"


@pytest.mark.spec("BCK-08", "BCK-03", "USR-08")
async def test_a_member_runs_in_a_process_and_its_pane_shows_a_viewer(
    tmux: TmuxServer, tmp_path: Path
) -> None:
    lead = tmux.start_user_session().inside_env["TMUX_PANE"]
    notes: list[str] = []
    async with open_backend(tmux.inside_env, tmp_path, notes) as made:
        backend: MemberBackend = made
        assert backend.type == "tmux"
        assert await backend.explain_unavailable() == ""
        member = await backend.spawn_member(make_pane_launch(tmp_path))
        await wait_until_up(member)
        assert member.pane in tmux.list_panes("#{pane_id}")
        await tmux.wait_for_text(member.pane, "11111111-2222 alice@roof")
        assert str(member.pid) not in tmux.list_panes("#{pane_pid}")
        viewer = int(tmux("display-message", "-p", "-t", member.pane, "#{pane_pid}"))
        assert b"secret" not in Path(f"/proc/{viewer}/environ").read_bytes()
        assert backend.is_process_alive(member)
        await member.stop(grace=5)
        assert not backend.is_process_alive(member)
        assert not is_running(member.pid)
        assert tmux.list_panes("#{pane_id}") == [lead]
        assert await wait_for_member_exit(member) == "it was killed by signal 15"
    assert notes == []


@pytest.mark.spec("USR-20")
async def test_a_member_survives_the_closing_of_its_pane(tmux: TmuxServer, tmp_path: Path) -> None:
    tmux.start_user_session()
    notes: list[str] = []
    async with open_backend(tmux.inside_env, tmp_path, notes) as backend:
        member = await backend.spawn_member(make_pane_launch(tmp_path))
        await wait_until_up(member)
        tmux("kill-pane", "-t", member.pane)
        await tmux.wait_until(lambda: member.pane not in tmux.list_panes("#{pane_id}"))
        assert backend.is_process_alive(member)
        assert is_running(member.pid)
        await member.stop(grace=5)
        assert not is_running(member.pid)
    assert notes == []


@pytest.mark.spec("USR-20")
async def test_members_survive_a_killed_tmux_server_and_one_note_says_so(
    tmux: TmuxServer, tmp_path: Path
) -> None:
    tmux.start_user_session()
    notes: asyncio.Queue[str] = asyncio.Queue()
    heard: list[str] = []
    async with open_backend(tmux.inside_env, tmp_path, heard) as backend:
        backend._note = notes.put_nowait
        members = [
            await backend.spawn_member(make_pane_launch(tmp_path, name)) for name in ("alice", "bob", "carol")
        ]
        for member in members:
            await wait_until_up(member)
        tmux("kill-server")
        async with asyncio.timeout(20):
            told = await notes.get()
        assert told == "tmux exited and closed all its panes. The teammates keep running without panes."
        assert all(map(backend.is_process_alive, members))
        # The next one is not lost either.
        late = await backend.spawn_member(make_pane_launch(tmp_path, "dave"))
        await wait_until_up(late)
        assert "dave is working without a pane" in notes.get_nowait()
        assert late.pane == "process"
        assert notes.empty()
        for member in (*members, late):
            await member.stop(grace=5)


async def test_a_failed_viewer_is_noted_and_its_member_survives(tmux: TmuxServer, tmp_path: Path) -> None:
    tmux.start_user_session()
    notes: asyncio.Queue[str] = asyncio.Queue()
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    async with open_backend(tmux.inside_env, tmp_path, [], ("sh", "-c", f"exit $(cat {gate})")) as backend:
        backend._note = notes.put_nowait
        member = await backend.spawn_member(make_pane_launch(tmp_path))
        await wait_until_up(member)
        await asyncio.to_thread(gate.write_text, "3")
        async with asyncio.timeout(20):
            told = await notes.get()
        assert told == "The pane that shows alice failed: it ended with status 3. alice continues."
        assert backend.is_process_alive(member)
        await member.stop(grace=5)


async def read_program_report(path: Path, tmux: TmuxServer) -> dict[str, Any]:
    await tmux.wait_until(path.exists, "the foreign program")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.mark.slow
@pytest.mark.spec("BCK-03", "BCK-06")
async def test_a_foreign_program_runs_in_its_pane_with_its_launch_arguments(
    tmux: TmuxServer, tmp_path: Path
) -> None:
    lead = tmux.start_user_session().inside_env["TMUX_PANE"]
    async with open_backend(tmux.inside_env, tmp_path, []) as backend:
        program = (sys.executable, "-c", FOREIGN, str(tmp_path / "said"))
        launch = make_pane_launch(tmp_path, program=program)
        member = await backend.spawn_member(launch)
        said = await read_program_report(tmp_path / "said", tmux)
        assert said["words"] == [*build_member_launch_flags(launch.launch_args)]
        assert (said["cwd"], said["tty"], member.channel) == (str(tmp_path), True, None)
        env = said["env"]
        assert (env["CLAUDECODE"], env["CLAUDE_CODE_EXPERIMENTAL_AGENT_TEAMS"]) == ("1", "1")
        assert (env["CLAUDE_CODE_ENTRYPOINT"], env["ANTHROPIC_API_KEY"]) == ("cli", "secret")
        assert env["TMUX_PANE"] == member.pane != lead
        assert env["TERM"] != "dumb"
        assert not [name for name, value in env.items() if "alice" in value or "roof@" in value]
        assert str(member.pid) == tmux("display-message", "-p", "-t", member.pane, "#{pane_pid}")
        assert backend.is_process_alive(member)
        waiting = asyncio.create_task(wait_for_member_exit(member))
        await tmux.wait_for_text(member.pane, "status?")
        tmux("send-keys", "-t", member.pane, "4", "Enter")
        assert await waiting == "it ended with status 4"
        assert not backend.is_process_alive(member)
        assert tmux.list_panes("#{pane_id}") == [lead]


async def test_stopping_ends_a_foreign_program_that_ignores_signals(tmux: TmuxServer, tmp_path: Path) -> None:
    lead = tmux.start_user_session().inside_env["TMUX_PANE"]
    async with open_backend(tmux.inside_env, tmp_path, []) as backend:
        deaf = str(tmp_path / "deaf--stubborn")
        program = (sys.executable, "-c", FOREIGN)
        easy = await backend.spawn_member(
            make_pane_launch(tmp_path, "easy", program=(*program, str(tmp_path / "easy")))
        )
        hard = await backend.spawn_member(
            make_pane_launch(tmp_path, "hard", program=(*program, deaf), split=False)
        )
        await read_program_report(tmp_path / "easy", tmux)
        await tmux.wait_for_text(hard.pane, "deaf")
        pids = (easy.pid, hard.pid)
        await easy.stop(grace=10)
        await hard.stop(grace=0.1)
        assert tmux.list_panes("#{pane_id}") == [lead]
        await tmux.wait_until(lambda: not any(map(is_running, pids)), "the end of both")
        await hard.stop()
        assert await wait_for_member_exit(easy) == "it was killed by signal 15"
        assert await wait_for_member_exit(hard) == "it was killed by signal 9"
        gone = await backend.spawn_member(
            make_pane_launch(tmp_path, "gone", program=(*program, str(tmp_path / "gone")))
        )
        tmux("kill-pane", "-t", gone.pane)
        assert await wait_for_member_exit(gone) == "its pane was closed"


@pytest.mark.spec("LIM-06")
async def test_foreign_programs_in_panes_are_recorded_for_others_of_the_home(
    tmux: TmuxServer, tmp_path: Path
) -> None:
    tmux.start_user_session()
    async with open_backend(tmux.inside_env, tmp_path, []) as backend:
        program = (sys.executable, "-c", FOREIGN, str(tmp_path / "said"))
        foreign = await backend.spawn_member(make_pane_launch(tmp_path, "bob", program=program))
        records = [each.read_text() for each in (tmp_path / "guardians").iterdir()]
        recorded = [int(line.split()[0]) for text in records for line in text.splitlines()[1:]]
        assert foreign.pid in recorded
    assert not list((tmp_path / "guardians").iterdir())


async def test_a_foreign_program_is_not_started_without_a_pane(tmux: TmuxServer, tmp_path: Path) -> None:
    tmux.start_user_session()
    async with open_backend(tmux.inside_env, tmp_path, []) as backend:
        await tmux.kill_and_wait()
        with pytest.raises(ProcessError, match="lead's pane"):
            await backend.spawn_member(make_pane_launch(tmp_path, program=("true",)))


async def test_closing_the_backend_ends_processes_and_panes(tmux: TmuxServer, tmp_path: Path) -> None:
    lead = tmux.start_user_session().inside_env["TMUX_PANE"]
    async with open_backend(tmux.inside_env, tmp_path, []) as backend:
        ours = await backend.spawn_member(make_pane_launch(tmp_path))
        await wait_until_up(ours)
        theirs = await backend.spawn_member(make_pane_launch(tmp_path, "bob", program=WAITING_PROGRAM))
        pids = (ours.pid, theirs.pid)
    assert ours.channel is not None
    ours.channel.close()
    assert tmux.list_panes("#{pane_id}") == [lead]
    await tmux.wait_until(lambda: not any(map(is_running, pids)), "the end of both")
