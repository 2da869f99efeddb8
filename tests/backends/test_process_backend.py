"""ProcessBackend: start, environment and end of member processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from process_helpers import wait_for_exit, wait_for_exits_in, wait_for_member_exit

from elapsed_times import MeasuredWork, is_done_within, scale_to_load
from process_search import find_processes_in, wait_for_processes_in
from shoal.backends.guarded_processes import GuardedProcessLauncher
from shoal.backends.process_backend import FORK_SERVER_FILES, ForkedMemberProcess, ProcessBackend
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

# The fork server itself is tested here, as it starts for users.
pytestmark = pytest.mark.fresh_interpreter

ENV = {"PATH": os.environ["PATH"]}
ENTRY = "forked_entry:main"
OWN_SESSION = "setsid sh -c 'echo up; sleep 999' & sleep 999"
DAEMON = "(setsid sh -c 'echo up; exec >/dev/null; sleep 999' &) ; exec sleep 999"


@pytest.fixture
async def backend(processes: GuardedProcessLauncher, tmp_path: Path) -> AsyncIterator[ProcessBackend]:
    made = ProcessBackend(processes, SystemClock(), entry=ENTRY, log_directory=tmp_path / "logs")
    yield made
    await made.aclose()


def make_launch(
    cwd: Path,
    name: str = "researcher",
    *,
    env: dict[str, str] = ENV,
    program: tuple[str, ...] = (),
    **brief: Any,
) -> MemberProcessLaunchSpec:
    launch_args = MemberLaunchArgs(
        agent=AgentId(f"{name}@crew"),
        name=parse_agent_name(name),
        team=parse_team_name("crew"),
        color="blue",
        session="s",
        kind="worker",
        model="m",
    )
    return MemberProcessLaunchSpec(
        launch_args=launch_args, cwd=cwd, env=env, bootstrap=json.dumps(brief).encode(), program=program
    )


async def receive_member_message(member: MemberProcess) -> bytes | None:
    assert member.channel is not None
    async with asyncio.timeout(20):
        return await member.channel.receive()


async def describe_child(backend: ProcessBackend, launch: MemberProcessLaunchSpec) -> dict[str, Any]:
    member = await backend.spawn_member(launch)
    description: dict[str, Any] = json.loads(await receive_member_message(member) or b"{}")
    assert await wait_for_member_exit(member) == "it ended with status 0"
    member.channel.close()
    return description


@pytest.mark.spec("BCK-08")
async def test_a_backend_spawns_and_stops_members_and_reports_whether_they_are_alive(
    backend: ProcessBackend, tmp_path: Path
) -> None:
    seen: MemberBackend = backend
    assert seen.type == "process"
    assert await seen.explain_unavailable() == ""
    member = await seen.spawn_member(make_launch(tmp_path, do="wait"))
    assert await receive_member_message(member) == b"up"
    assert member.pane == "process"
    assert seen.is_process_alive(member)
    os.kill(member.pid, 0)
    await member.stop(grace=5)
    assert not seen.is_process_alive(member)
    with pytest.raises(ProcessLookupError):
        os.kill(member.pid, 0)
    assert await wait_for_member_exit(member) == "it was killed by signal 15"


def to_bytes(env: dict[str, str]) -> dict[str, bytes]:
    """Return the variables as the system has them: the child reads them as UTF-8 in every locale."""
    return {name: value.encode("utf-8", "surrogateescape") for name, value in env.items()}


async def test_a_child_has_its_own_environment_directory_group_and_name(
    backend: ProcessBackend, tmp_path: Path
) -> None:
    work_directory = tmp_path / os.fsdecode("größe".encode() + b" \xff")
    work_directory.mkdir()
    env = {"PATH": "/bin", "ODD": os.fsdecode(b"\xfe " + "ü".encode()), "TZ": "UTC"}
    description = await describe_child(backend, make_launch(work_directory, env=env, do="describe"))
    assert to_bytes(description["env"]) == to_bytes(env)
    assert description["cwd"].encode("utf-8", "surrogateescape") == os.fsencode(work_directory)
    assert description["group"] == description["session"] == description["pid"]
    assert description["parent"] == backend.fork_server_pid
    assert description["name"] == "shoal:researche"


async def test_a_child_has_its_channel_its_log_and_no_other_descriptor(
    backend: ProcessBackend, tmp_path: Path
) -> None:
    others = await asyncio.gather(
        *(backend.spawn_member(make_launch(tmp_path, f"other{n}", do="echo")) for n in range(3))
    )
    description = await describe_child(backend, make_launch(tmp_path, do="describe"))
    assert description["fds"] == sorted([0, 1, 2, description["line"]])
    log = str(tmp_path / "logs" / "researcher.log")
    assert description["files"] == {"0": "/dev/null", "1": log, "2": log}
    assert stat.S_IMODE(Path(log).stat().st_mode) == 0o600
    for member in others:  # no sibling holds a line of theirs
        member.channel.close()
        assert await wait_for_member_exit(member) == "it ended with status 0"


async def test_a_child_is_like_a_fresh_interpreter(backend: ProcessBackend, tmp_path: Path) -> None:
    first, second = [await describe_child(backend, make_launch(tmp_path, do="describe")) for _ in range(2)]
    usual = 1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1)
    assert (first["ignored"], first["blocked"]) == (usual, 0)
    assert first["threads"] == 1
    assert first["collecting"]
    assert first["chance"] != second["chance"]


async def test_the_objects_of_the_fork_server_are_frozen_and_none_was_collected(
    backend: ProcessBackend, tmp_path: Path
) -> None:
    description = await describe_child(backend, make_launch(tmp_path, do="describe"))
    assert description["frozen"] > 0
    assert description["full_collections"] == 0


async def test_preloaded_modules_are_imported_in_every_child(
    processes: GuardedProcessLauncher, tmp_path: Path
) -> None:
    backend = ProcessBackend(
        processes, SystemClock(), entry=ENTRY, preload=["shoal.core.agents.cron"], log_directory=tmp_path
    )
    description = await describe_child(backend, make_launch(tmp_path, do="describe"))
    assert "shoal.core.agents.cron" in description["imported"]
    await backend.aclose()


@pytest.mark.spec("USR-23")
async def test_files_of_a_fork_server_that_is_killed_while_it_warms_up_are_removed(
    processes: GuardedProcessLauncher, tmp_path: Path
) -> None:
    logs, warmup = tmp_path / "logs", "shoal.app.session.warmup"
    backend = ProcessBackend(
        processes, SystemClock(), entry=ENTRY, preload=[warmup], log_directory=tmp_path / "logs"
    )
    await backend.start_setup()
    async with asyncio.timeout(scale_to_load(10)):
        while not list(logs.glob(f"{FORK_SERVER_FILES}/*")):
            await asyncio.sleep(0.001)
    assert backend.fork_server_pid is not None
    os.kill(backend.fork_server_pid, signal.SIGKILL)
    left = list(logs.glob(f"{FORK_SERVER_FILES}/*"))
    description = await describe_child(backend, make_launch(tmp_path, do="describe"))
    assert not any(path.exists() for path in left)
    # The children have the environment of their order, and nothing that the fork server derived from its own.
    assert "TMPDIR" not in description["env"]
    assert description["temporary"] == "/tmp"
    await backend.aclose()
    assert not (logs / FORK_SERVER_FILES).exists()


async def test_sixteen_concurrent_spawns_share_one_server(backend: ProcessBackend, tmp_path: Path) -> None:
    members = await asyncio.gather(
        *(backend.spawn_member(make_launch(tmp_path, f"agent{n}", do="echo")) for n in range(16))
    )
    assert len({member.pid for member in members}) == 16
    for n, member in enumerate(members):
        member.channel.send(b"%d" % n)
    assert [await receive_member_message(member) for member in members] == [b"%d" % n for n in range(16)]
    parents = {
        Path(f"/proc/{member.pid}/stat").read_text().rpartition(")")[2].split()[1] for member in members
    }
    assert parents == {str(backend.fork_server_pid)}
    for member in members:
        member.channel.close()
    assert {await wait_for_member_exit(member) for member in members} == {"it ended with status 0"}


async def test_a_child_echoes_messages_of_megabytes(backend: ProcessBackend, tmp_path: Path) -> None:
    member = await backend.spawn_member(make_launch(tmp_path, do="echo"))
    sent = [os.urandom(6 << 20), b"", os.urandom(2 << 20)]
    for message in sent:
        member.channel.send(message)
    assert [await receive_member_message(member) for _ in sent] == sent
    await member.stop()


async def test_a_prepared_server_is_used_for_the_next_spawn(backend: ProcessBackend, tmp_path: Path) -> None:
    assert backend.fork_server_pid is None
    await backend.start_setup()
    server = backend.fork_server_pid
    assert server is not None
    description = await describe_child(backend, make_launch(tmp_path, do="describe"))
    assert description["parent"] == server


async def test_the_exit_of_a_crashed_child_shows_its_traceback(
    backend: ProcessBackend, tmp_path: Path
) -> None:
    member = await backend.spawn_member(make_launch(tmp_path, do="raise"))
    description = await wait_for_member_exit(member)
    assert description.startswith("it ended with status 1:\n")
    assert 'raise LookupError("no fish in the net")' in description
    assert description.endswith("LookupError: no fish in the net")
    member.channel.close()
    again = await backend.spawn_member(make_launch(tmp_path, do="exit", status=3))
    assert await wait_for_member_exit(again) == "it ended with status 3"
    again.channel.close()


async def test_a_child_that_dies_at_once_is_reported(backend: ProcessBackend, tmp_path: Path) -> None:
    member = await backend.spawn_member(make_launch(tmp_path, do="die"))
    assert await receive_member_message(member) is None
    assert await wait_for_member_exit(member) == "it was killed by signal 9"
    assert not backend.is_process_alive(member)
    member.channel.close()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"cwd": Path("/no/such/place")}, "Cannot start in /no/such/place: No such file"),
        ({"env": {"A": "b\0c"}}, "Embedded null byte"),
        ({"env": {"A": "\ud800"}}, ".*can't encode character"),
        ({"program": ("other",)}, "other, which needs a pane"),
    ],
)
async def test_a_failed_start_of_a_child_says_why(
    backend: ProcessBackend, tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    with pytest.raises(ProcessError, match=says):
        await backend.spawn_member(make_launch(**{"cwd": tmp_path, "do": "echo", **change}))
    assert (await describe_child(backend, make_launch(tmp_path, do="describe")))["cwd"] == str(tmp_path)


async def test_a_failed_import_of_the_server_says_why(
    processes: GuardedProcessLauncher, tmp_path: Path
) -> None:
    backend = ProcessBackend(processes, SystemClock(), entry="no_such_module:main", log_directory=tmp_path)
    for _ in range(2):
        with pytest.raises(ProcessError, match="ModuleNotFoundError: No module named 'no_such_module'"):
            await backend.spawn_member(make_launch(tmp_path, do="echo"))
    await backend.aclose()


async def test_an_invalid_log_directory_is_named(processes: GuardedProcessLauncher, tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    backend = ProcessBackend(processes, SystemClock(), entry=ENTRY, log_directory=tmp_path / "taken")
    with pytest.raises(ProcessError, match=r"Cannot start the fork server .*taken"):
        await backend.start_setup()


@pytest.mark.spec("USR-08")
@pytest.mark.parametrize("stubborn", [False, True])
async def test_a_stopped_child_and_its_family_are_gone_within_a_second_of_the_grace(
    backend: ProcessBackend, tmp_path: Path, stubborn: bool
) -> None:
    work_directory = tmp_path / "work"
    work_directory.mkdir()

    async def start_member() -> MeasuredWork:
        member = await backend.spawn_member(
            make_launch(work_directory, do="wait", stubborn=stubborn, families=[OWN_SESSION])
        )
        assert await receive_member_message(member) == b"up"
        wait_for_processes_in(work_directory, 4)
        os.kill(member.pid, signal.SIGSTOP)

        async def stop_member() -> None:
            await member.stop(grace=0.5)
            assert find_processes_in(work_directory) == []
            assert await wait_for_member_exit(member) == f"it was killed by signal {9 if stubborn else 15}"

        return stop_member

    assert await is_done_within(1.5, start_member)


async def test_stopping_an_exited_child_is_not_an_error(backend: ProcessBackend, tmp_path: Path) -> None:
    member = await backend.spawn_member(make_launch(tmp_path, do="die"))
    await wait_for_member_exit(member)
    await member.stop()
    await member.stop()


async def test_a_cancelled_spawn_leaves_no_process(backend: ProcessBackend, tmp_path: Path) -> None:
    work_directory = tmp_path / "work"
    work_directory.mkdir()
    await backend.start_setup()
    spawning = asyncio.ensure_future(backend.spawn_member(make_launch(work_directory, do="wait")))
    for _ in range(3):
        await asyncio.sleep(0)
    spawning.cancel()
    await asyncio.wait([spawning])
    assert spawning.cancelled()
    # The next order is answered after the one that was cancelled.
    await describe_child(backend, make_launch(tmp_path, do="describe"))
    assert await asyncio.to_thread(wait_for_exits_in, work_directory, within=scale_to_load(5))


@pytest.mark.spec("USR-23")
async def test_children_end_with_their_fork_server_and_the_next_spawn_starts_another(
    backend: ProcessBackend, tmp_path: Path
) -> None:
    work_directory = tmp_path / "work"
    work_directory.mkdir()
    members = [
        await backend.spawn_member(
            make_launch(work_directory, f"agent{n}", do="wait", stubborn=True, families=[OWN_SESSION])
        )
        for n in range(3)
    ]
    assert [await receive_member_message(member) for member in members] == [b"up"] * 3
    first = backend.fork_server_pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    for member in members:
        assert "fork server" in await wait_for_member_exit(member)
        assert not backend.is_process_alive(member)
        await member.stop()
    assert await asyncio.to_thread(wait_for_exits_in, work_directory, within=scale_to_load(5))
    description = await describe_child(backend, make_launch(tmp_path, do="describe"))
    assert description["parent"] == backend.fork_server_pid != first


async def test_the_fork_server_and_its_children_end_with_the_guardian(
    processes: GuardedProcessLauncher, backend: ProcessBackend, tmp_path: Path
) -> None:
    work_directory = tmp_path / "work"
    work_directory.mkdir()
    member = await backend.spawn_member(
        make_launch(work_directory, do="wait", stubborn=True, families=[OWN_SESSION])
    )
    assert await receive_member_message(member) == b"up"
    server = backend.fork_server_pid
    assert processes.guardian_pid is not None
    assert server is not None
    os.kill(processes.guardian_pid, signal.SIGKILL)
    assert "fork server" in await wait_for_member_exit(member)
    await asyncio.to_thread(wait_for_exit, server, within=scale_to_load(5))
    assert await asyncio.to_thread(wait_for_exits_in, work_directory, within=scale_to_load(5))
    assert (await describe_child(backend, make_launch(tmp_path, do="describe")))[
        "parent"
    ] == backend.fork_server_pid
    member.channel.close()


@pytest.mark.parametrize("victim", ["fork server", "guardian"])
async def test_a_member_starts_although_its_fork_server_is_killed_meanwhile(
    processes: GuardedProcessLauncher, backend: ProcessBackend, tmp_path: Path, victim: str
) -> None:
    await backend.start_setup()
    first = backend.fork_server_pid
    pid = first if victim == "fork server" else processes.guardian_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    # Nothing is awaited in between, so the backend does not know of the death yet.
    child = await describe_child(backend, make_launch(tmp_path, do="describe"))
    assert child["parent"] == backend.fork_server_pid != first


@pytest.mark.slow
async def test_closing_the_backend_ends_its_children(backend: ProcessBackend, tmp_path: Path) -> None:
    work_directory = tmp_path / "work"
    work_directory.mkdir()
    members: list[ForkedMemberProcess] = [
        await backend.spawn_member(
            make_launch(work_directory, "meek", do="wait", families=[OWN_SESSION, DAEMON])
        ),
        await backend.spawn_member(make_launch(work_directory, "stubborn", do="wait", stubborn=True)),
    ]
    assert [await receive_member_message(member) for member in members] == [b"up"] * 2
    async with asyncio.timeout(30):
        await backend.aclose()
    assert find_processes_in(work_directory) == []
    assert [await wait_for_member_exit(member) for member in members] == [
        f"it was killed by signal {n}" for n in (15, 9)
    ]
    for member in members:
        member.channel.close()
    with pytest.raises(ProcessError, match="session is closed"):
        await backend.spawn_member(make_launch(tmp_path, do="echo"))
