"""Teammates in processes of their own: how they start, what they have, and how they end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from processes_in import processes_in
from shoal.backends.process_backend import ProcessBackend, ProcessBerth
from shoal.backends.processes import GuardedProcesses
from shoal.core.backends import Backend, Berth, Papers, Wanted
from shoal.core.clock import SystemClock
from shoal.core.errors import ProcessError
from shoal.core.ids import AgentId
from shoal.core.names import agent_name, team_name

ENV = {"PATH": os.environ["PATH"]}
ENTRY = "forked_entry:main"
OWN_SESSION = "setsid sh -c 'echo up; sleep 999' & sleep 999"
DAEMON = "(setsid sh -c 'echo up; exec >/dev/null; sleep 999' &) ; exec sleep 999"


@pytest.fixture
async def processes() -> AsyncIterator[GuardedProcesses]:
    made = GuardedProcesses(SystemClock())
    yield made
    await made.aclose()


@pytest.fixture
async def backend(processes: GuardedProcesses, tmp_path: Path) -> AsyncIterator[ProcessBackend]:
    made = ProcessBackend(processes, SystemClock(), entry=ENTRY, log_directory=tmp_path / "logs")
    yield made
    await made.aclose()


def wanted(
    cwd: Path,
    name: str = "researcher",
    *,
    env: dict[str, str] = ENV,
    program: tuple[str, ...] = (),
    **brief: Any,
) -> Wanted:
    papers = Papers(
        agent=AgentId(f"{name}@crew"),
        name=agent_name(name),
        team=team_name("crew"),
        color="blue",
        session="s",
        kind="worker",
        model="m",
    )
    return Wanted(papers=papers, cwd=cwd, env=env, brief=json.dumps(brief).encode(), program=program)


async def heard(berth: Berth) -> bytes | None:
    assert berth.line is not None
    async with asyncio.timeout(20):
        return await berth.line.receive()


async def described(backend: ProcessBackend, place: Wanted) -> dict[str, Any]:
    berth = await backend.spawn(place)
    said: dict[str, Any] = json.loads(await heard(berth) or b"{}")
    assert await over(berth) == "it ended with status 0"
    berth.line.close()
    return said


async def over(berth: Berth) -> str:
    async with asyncio.timeout(20):
        return await berth.over()


async def none_left_in(directory: Path, *, within: float) -> bool:
    until = time.monotonic() + within
    while left := processes_in(directory):
        if time.monotonic() > until:
            return False
        for pid in left:  # until each has ended, or the time is up
            await ended(pid, within=until - time.monotonic())
    return True


async def ended(pid: int, *, within: float) -> None:
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    gone = asyncio.Event()
    asyncio.get_running_loop().add_reader(fd, gone.set)
    try:
        async with asyncio.timeout(max(0, within)):
            await gone.wait()
    except TimeoutError:
        pass
    finally:
        asyncio.get_running_loop().remove_reader(fd)
        os.close(fd)


@pytest.mark.spec("BCK-08")
async def test_a_backend_is_its_type_whether_it_can_be_used_spawn_stop_and_alive(
    backend: ProcessBackend, tmp_path: Path
) -> None:
    seen: Backend = backend
    assert seen.type == "process"
    assert await seen.unavailable() == ""
    berth = await seen.spawn(wanted(tmp_path, do="wait"))
    assert await heard(berth) == b"up"
    assert berth.pane == "process"
    assert seen.alive(berth)
    os.kill(berth.pid, 0)
    await berth.stop(grace=5)
    assert not seen.alive(berth)
    with pytest.raises(ProcessLookupError):
        os.kill(berth.pid, 0)
    assert await over(berth) == "it was killed by signal 15"


async def test_a_child_has_its_own_environment_directory_group_and_name(
    backend: ProcessBackend, tmp_path: Path
) -> None:
    place = tmp_path / "größe \udcff"
    place.mkdir()
    env = {"PATH": "/bin", "ODD": "\udcfe ü", "TZ": "UTC"}
    said = await described(backend, wanted(place, env=env, do="describe"))
    assert said["env"] == env
    assert said["cwd"] == str(place)
    assert said["group"] == said["session"] == said["pid"]
    assert said["parent"] == backend.server
    assert said["name"] == "shoal:researche"


async def test_a_child_has_its_line_its_log_and_no_other_descriptor(
    backend: ProcessBackend, tmp_path: Path
) -> None:
    others = await asyncio.gather(
        *(backend.spawn(wanted(tmp_path, f"other{n}", do="echo")) for n in range(3))
    )
    said = await described(backend, wanted(tmp_path, do="describe"))
    assert said["fds"] == sorted([0, 1, 2, said["line"]])
    log = str(tmp_path / "logs" / "researcher.log")
    assert said["files"] == {"0": "/dev/null", "1": log, "2": log}
    assert stat.S_IMODE(Path(log).stat().st_mode) == 0o600
    for berth in others:  # no sibling holds a line of theirs
        berth.line.close()
        assert await over(berth) == "it ended with status 0"


async def test_a_child_is_as_a_fresh_interpreter_is(backend: ProcessBackend, tmp_path: Path) -> None:
    first, second = [await described(backend, wanted(tmp_path, do="describe")) for _ in range(2)]
    usual = 1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1)
    assert (first["ignored"], first["blocked"]) == (usual, 0)
    assert first["threads"] == 1
    assert first["collecting"]
    assert first["chance"] != second["chance"]


async def test_what_is_preloaded_is_there_in_every_child(processes: GuardedProcesses, tmp_path: Path) -> None:
    backend = ProcessBackend(
        processes, SystemClock(), entry=ENTRY, preload=["shoal.core.cron"], log_directory=tmp_path
    )
    said = await described(backend, wanted(tmp_path, do="describe"))
    assert "shoal.core.cron" in said["imported"]
    await backend.aclose()


async def test_sixteen_spawned_at_once_are_sixteen_children_of_one_server(
    backend: ProcessBackend, tmp_path: Path
) -> None:
    berths = await asyncio.gather(
        *(backend.spawn(wanted(tmp_path, f"agent{n}", do="echo")) for n in range(16))
    )
    assert len({berth.pid for berth in berths}) == 16
    for n, berth in enumerate(berths):
        berth.line.send(b"%d" % n)
    assert [await heard(berth) for berth in berths] == [b"%d" % n for n in range(16)]
    parents = {Path(f"/proc/{berth.pid}/stat").read_text().rpartition(")")[2].split()[1] for berth in berths}
    assert parents == {str(backend.server)}
    for berth in berths:
        berth.line.close()
    assert {await over(berth) for berth in berths} == {"it ended with status 0"}


async def test_messages_of_megabytes_come_back_from_a_child(backend: ProcessBackend, tmp_path: Path) -> None:
    berth = await backend.spawn(wanted(tmp_path, do="echo"))
    sent = [os.urandom(6 << 20), b"", os.urandom(2 << 20)]
    for message in sent:
        berth.line.send(message)
    assert [await heard(berth) for _ in sent] == sent
    await berth.stop()


async def test_a_prepared_server_is_the_one_that_serves(backend: ProcessBackend, tmp_path: Path) -> None:
    assert backend.server is None
    await backend.prepare()
    server = backend.server
    assert server is not None
    said = await described(backend, wanted(tmp_path, do="describe"))
    assert said["parent"] == server


async def test_a_child_that_dies_of_an_error_says_where_and_which(
    backend: ProcessBackend, tmp_path: Path
) -> None:
    berth = await backend.spawn(wanted(tmp_path, do="raise"))
    said = await over(berth)
    assert said.startswith("it ended with status 1:\n")
    assert 'raise LookupError("no fish in the net")' in said
    assert said.endswith("LookupError: no fish in the net")
    berth.line.close()
    again = await backend.spawn(wanted(tmp_path, do="exit", status=3))
    assert await over(again) == "it ended with status 3"
    again.line.close()


async def test_a_child_that_dies_at_once_is_told_like_any_other(
    backend: ProcessBackend, tmp_path: Path
) -> None:
    berth = await backend.spawn(wanted(tmp_path, do="die"))
    assert await heard(berth) is None
    assert await over(berth) == "it was killed by signal 9"
    assert not backend.alive(berth)
    berth.line.close()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"cwd": Path("/no/such/place")}, "not started: Cannot work in /no/such/place: No such file"),
        ({"env": {"A": "b\0c"}}, "not started: Embedded null byte"),
        ({"env": {"A": "\ud800"}}, "not started: .*surrogates not allowed"),
        ({"program": ("other",)}, "other runs in a pane"),
    ],
)
async def test_a_child_that_cannot_start_says_why(
    backend: ProcessBackend, tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    with pytest.raises(ProcessError, match=says):
        await backend.spawn(wanted(**{"cwd": tmp_path, "do": "echo", **change}))
    assert (await described(backend, wanted(tmp_path, do="describe")))["cwd"] == str(tmp_path)


async def test_a_server_that_cannot_import_says_why(processes: GuardedProcesses, tmp_path: Path) -> None:
    backend = ProcessBackend(processes, SystemClock(), entry="no_such_module:main", log_directory=tmp_path)
    for _ in range(2):
        with pytest.raises(ProcessError, match="ModuleNotFoundError: No module named 'no_such_module'"):
            await backend.spawn(wanted(tmp_path, do="echo"))
    await backend.aclose()


async def test_a_place_for_logs_that_is_none_is_named(processes: GuardedProcesses, tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    backend = ProcessBackend(processes, SystemClock(), entry=ENTRY, log_directory=tmp_path / "taken")
    with pytest.raises(ProcessError, match=r"fork server .* cannot be started: .*taken"):
        await backend.prepare()


@pytest.mark.spec("USR-08")
@pytest.mark.parametrize("stubborn", [False, True])
async def test_a_stopped_child_and_its_family_are_gone_within_a_second_of_the_grace(
    backend: ProcessBackend, tmp_path: Path, stubborn: bool
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    berth = await backend.spawn(wanted(place, do="wait", stubborn=stubborn, families=[OWN_SESSION]))
    assert await heard(berth) == b"up"
    assert len(processes_in(place)) >= 4
    os.kill(berth.pid, signal.SIGSTOP)
    started = time.monotonic()
    await berth.stop(grace=0.5)
    assert time.monotonic() - started < 1.5
    assert processes_in(place) == []
    assert await over(berth) == f"it was killed by signal {9 if stubborn else 15}"


async def test_stop_of_one_that_is_gone_is_no_error(backend: ProcessBackend, tmp_path: Path) -> None:
    berth = await backend.spawn(wanted(tmp_path, do="die"))
    await over(berth)
    await berth.stop()
    await berth.stop()


async def test_a_cancelled_spawn_leaves_no_process(backend: ProcessBackend, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    await backend.prepare()
    spawning = asyncio.ensure_future(backend.spawn(wanted(place, do="wait")))
    for _ in range(3):
        await asyncio.sleep(0)
    spawning.cancel()
    await asyncio.wait([spawning])
    assert spawning.cancelled()
    # The next order is answered after the one that was cancelled.
    await described(backend, wanted(tmp_path, do="describe"))
    assert await none_left_in(place, within=5)


@pytest.mark.spec("USR-23")
async def test_with_its_fork_server_every_child_ends_and_the_next_spawn_has_a_new_one(
    backend: ProcessBackend, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    berths = [
        await backend.spawn(wanted(place, f"agent{n}", do="wait", stubborn=True, families=[OWN_SESSION]))
        for n in range(3)
    ]
    assert [await heard(berth) for berth in berths] == [b"up"] * 3
    first = backend.server
    assert first is not None
    os.kill(first, signal.SIGKILL)
    for berth in berths:
        assert "fork server" in await over(berth)
        assert not backend.alive(berth)
        await berth.stop()
    assert await none_left_in(place, within=5)
    said = await described(backend, wanted(tmp_path, do="describe"))
    assert said["parent"] == backend.server != first


async def test_with_the_guardian_the_fork_server_and_every_child_end(
    processes: GuardedProcesses, backend: ProcessBackend, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    berth = await backend.spawn(wanted(place, do="wait", stubborn=True, families=[OWN_SESSION]))
    assert await heard(berth) == b"up"
    server = backend.server
    assert processes.guardian is not None
    assert server is not None
    os.kill(processes.guardian, signal.SIGKILL)
    assert "fork server" in await over(berth)
    await ended(server, within=5)
    assert await none_left_in(place, within=5)
    assert (await described(backend, wanted(tmp_path, do="describe")))["parent"] == backend.server
    berth.line.close()


async def test_closing_the_backend_ends_what_it_started(backend: ProcessBackend, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    berths: list[ProcessBerth] = [
        await backend.spawn(wanted(place, "meek", do="wait", families=[OWN_SESSION, DAEMON])),
        await backend.spawn(wanted(place, "stubborn", do="wait", stubborn=True)),
    ]
    assert [await heard(berth) for berth in berths] == [b"up"] * 2
    async with asyncio.timeout(30):
        await backend.aclose()
    assert processes_in(place) == []
    assert [await over(berth) for berth in berths] == [f"it was killed by signal {n}" for n in (15, 9)]
    for berth in berths:
        berth.line.close()
    with pytest.raises(ProcessError, match="session is closed"):
        await backend.spawn(wanted(tmp_path, do="echo"))
