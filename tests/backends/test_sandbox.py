"""Commands in a sandbox: restrictions and unchanged behaviour."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace
from sandbox_harness import TIMEOUT, SandboxHarness

from process_search import find_processes_in
from shoal.backends.guarded_processes import GuardedProcesses
from shoal.backends.sandbox.bubblewrap import BubblewrapDriver
from shoal.backends.sandbox.landlock import LandlockDriver


@pytest.fixture
def plain(tmp_path: Path, processes: GuardedProcesses) -> SandboxHarness:
    return SandboxHarness(tmp_path / "plain", processes, None)


@pytest.fixture
def bubble(tmp_path: Path, processes: GuardedProcesses) -> SandboxHarness:
    kind = BubblewrapDriver(os.environ["PATH"])
    assert kind.find_problem() is None
    return SandboxHarness(tmp_path / "confined", processes, kind)


def find_landlock() -> LandlockDriver:
    kind = LandlockDriver()
    if trouble := kind.find_problem():
        pytest.skip(trouble)
    return kind


@pytest.fixture(params=[pytest.param("bwrap", marks=pytest.mark.needs("bwrap")), "landlock"])
def rig(request: pytest.FixtureRequest, tmp_path: Path, processes: GuardedProcesses) -> SandboxHarness:
    kind = BubblewrapDriver(os.environ["PATH"]) if request.param == "bwrap" else find_landlock()
    return SandboxHarness(tmp_path / "confined", processes, kind)


async def test_a_command_writes_in_the_project_and_nowhere_else(rig: SandboxHarness) -> None:
    outside = rig.home / "made"
    status, said = await rig.run_command(
        f"echo in > made; mkdir d; echo out > {outside}; rm -f {rig.home}/notes.txt; cat made"
    )
    assert said.endswith("in\n")
    assert "denied" in said or "Read-only" in said
    assert (rig.project / "made").read_text() == "in\n"
    assert not outside.exists()
    assert (rig.home / "notes.txt").exists()
    assert status == 0


async def test_hidden_files_are_not_readable_and_their_neighbours_are(rig: SandboxHarness) -> None:
    _, said = await rig.run_command(
        "cat ~/.ssh/id ~/.netrc ~/.ssh/../.ssh/id /proc/self/root$HOME/.ssh/id; cat ~/notes.txt"
    )
    assert "secret" not in said
    assert said.endswith("plain notes\n")


async def test_a_link_in_the_project_does_not_reach_hidden_files(rig: SandboxHarness) -> None:
    (rig.project / "link").symlink_to(rig.home / ".ssh")
    _, said = await rig.run_command(
        "cat link/id; ln -s ~/.netrc here; cat here; ln ~/.netrc hard; cat hard; echo x >> here"
    )
    assert "secret" not in said
    assert (rig.home / ".netrc").read_text() == "secret password\n"


COMMANDS = (
    "true",
    "exit 7",
    "nosuchprogram",
    "echo out; echo err >&2; printf 'no newline'",
    "cat; echo end of input",
    "pwd; echo $0; echo ${HOME##*/}",
    "kill -TERM $$; sleep 5",
    "yes | head -n 2; echo ${PIPESTATUS[0]}",
    "sleep 0.01 & wait; echo waited",
    "printf 'a\\0b\\377' | od -c",
    "umask; ulimit -n; tty",
    "echo x > /dev/null; echo to stdout > /dev/stdout; cat < /dev/zero | head -c 3 | od -c",
    "python3 -c 'import multiprocessing as m; print(m.Lock().acquire())'",
    "trap 'echo bye' EXIT; exit 3",
)


@pytest.mark.parametrize("command", COMMANDS)
async def test_output_and_exit_code_are_those_of_the_plain_command(
    plain: SandboxHarness, rig: SandboxHarness, command: str
) -> None:
    expected = await plain.run_command(command)
    status, said = await rig.run_command(command)
    assert said.replace("/confined/", "/plain/") == expected[1]
    # In a PID namespace, death by a signal is reported as 128 plus its number.
    assert status in (expected[0], 128 - expected[0] if expected[0] < 0 else expected[0])


async def test_a_directory_of_the_project_is_the_working_directory(rig: SandboxHarness) -> None:
    (rig.project / "a dir").mkdir()
    rig.project = rig.project / "a dir"
    assert (await rig.run_command("pwd"))[1] == f"{rig.project}\n"


@pytest.mark.needs("bwrap")
async def test_without_network_a_command_cannot_even_reach_localhost(bubble: SandboxHarness) -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1")
    port = server.sockets[0].getsockname()[1]
    knock = f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo reached"
    try:
        assert (await bubble.run_command(knock))[1] == "reached\n"
        bubble.change_policy(network=False)
        status, said = await bubble.run_command(knock)
        assert status != 0
        assert "reached" not in said
    finally:
        server.close()


@pytest.mark.needs("bwrap")
async def test_a_command_sees_only_its_own_processes(
    bubble: SandboxHarness, processes: GuardedProcesses
) -> None:
    _, said = await bubble.run_command(
        "cat /proc/[0-9]*/cmdline | tr '\\0' ' '; echo; ls -d /proc/[0-9]* | wc -l"
    )
    assert "guardian.py" not in said
    assert int(said.split()[-1]) < 10


async def test_a_command_cannot_signal_a_process_outside(rig: SandboxHarness) -> None:
    with subprocess.Popen(["sleep", "60"]) as outsider:
        try:
            status, _ = await rig.run_command(f"kill -KILL {outsider.pid}")
            assert status != 0
            assert outsider.poll() is None
        finally:
            outsider.kill()


async def test_a_command_does_not_read_the_environment_of_the_session(rig: SandboxHarness) -> None:
    with subprocess.Popen(["sleep", "60"], env={"SECRET_OF_SESSION": "sesame"}) as outsider:
        try:
            _, said = await rig.run_command(
                f"cat /proc/{outsider.pid}/environ; cat /proc/[0-9]*/environ | tr '\\0' '\\n'"
            )
            assert "sesame" not in said
        finally:
            outsider.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="shows what root cannot do")
async def test_root_cannot_undo_the_sandbox_or_set_up_the_machine(rig: SandboxHarness) -> None:
    before = Path("/proc/sys/kernel/core_pattern").read_text()
    status, _ = await rig.run_command(
        "mount -o remount,rw / || mount -t tmpfs none /mnt || mknod device b 254 0 || head -c1 /dev/vda "
        f"|| echo {before.strip()} > /proc/sys/kernel/core_pattern || unshare -m true"
    )
    assert status != 0
    assert Path("/proc/sys/kernel/core_pattern").read_text() == before


async def test_a_stopped_command_may_clean_up(rig: SandboxHarness) -> None:
    process, reader = await rig.start_command(
        "trap 'sleep 0.3; echo finished > finished; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    )
    async with asyncio.timeout(TIMEOUT):
        assert await reader.readline() == b"ready\n"
        await process.stop(grace=5)
    assert (rig.project / "finished").read_text() == "finished\n"
    assert find_processes_in(rig.project) == []


async def test_a_command_that_ignores_signals_is_killed_with_its_children(rig: SandboxHarness) -> None:
    process, reader = await rig.start_command(
        "trap '' TERM; setsid sleep 300 & (sleep 300 &); echo ready; while :; do sleep 1; done"
    )
    async with asyncio.timeout(TIMEOUT):
        assert await reader.readline() == b"ready\n"
        assert len(find_processes_in(rig.project)) >= 3
        assert await process.stop(grace=0.1) == -signal.SIGKILL
        while find_processes_in(rig.project):
            await asyncio.sleep(0.01)


async def test_a_command_ends_with_its_session(rig: SandboxHarness) -> None:
    _, reader = await rig.start_command("setsid sleep 300 & echo ready; sleep 300")
    async with asyncio.timeout(TIMEOUT):
        assert await reader.readline() == b"ready\n"
        await rig.processes.aclose()
        while find_processes_in(rig.project):
            await asyncio.sleep(0.01)


async def test_a_command_dies_with_its_parent_however_that_ends(rig: SandboxHarness) -> None:
    """Like a session and guardian that are killed at the same time."""
    words = rig.build_launch("echo ready; exec sleep 300").argv
    with subprocess.Popen(
        ["/bin/bash", "-c", '"$@" & wait', "bash", *words], cwd=rig.project, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        parent.kill()
        parent.wait()
        async with asyncio.timeout(TIMEOUT):
            while find_processes_in(rig.project):
                await asyncio.sleep(0.01)


@pytest.mark.needs("bwrap")
async def test_read_only_paths_cannot_be_written_moved_or_replaced(bubble: SandboxHarness) -> None:
    hooks = bubble.project / "repo/.git/hooks"
    hooks.mkdir(parents=True)
    config = hooks.parent / "config"
    config.write_text("[core]\n")
    bubble.change_policy(read_only=(hooks, config))
    await bubble.run_command(
        "cd repo; echo evil > .git/hooks/pre-commit; echo evil >> .git/config; echo evil > c; "
        "mv c .git/config; "
        "mv .git/hooks .git/h2; mv .git .git2; mv ../repo ../repo2; rm -rf .git; mkdir -p .git/hooks; "
        "echo evil > .git/hooks/post-commit"
    )
    assert list(hooks.iterdir()) == []
    assert config.read_text() == "[core]\n"


@pytest.mark.needs("bwrap")
async def test_hidden_paths_in_the_project_stay_hidden_for_the_next_command(
    bubble: SandboxHarness,
) -> None:
    secret = bubble.project / "a/b/secret"
    secret.mkdir(parents=True)
    (secret / "key").write_text("sesame")
    (bubble.project / "a/.env").write_text("sesame")
    bubble.change_policy(hidden=(secret, bubble.project / "a/.env"))
    _, said = await bubble.run_command(
        "mv a elsewhere; mv a/b b; cat a/.env a/b/secret/key elsewhere/b/secret/key; touch a/new"
    )
    _, again = await bubble.run_command("cat $(find . -type f)")
    assert "sesame" not in said + again
    assert (bubble.project / "a/new").exists()
    assert (secret / "key").read_text() == "sesame"


@pytest.mark.needs("bwrap")
async def test_a_readable_path_in_a_hidden_directory_is_read_only(bubble: SandboxHarness) -> None:
    for name in ("results", "keys"):
        (bubble.home / "shoal" / name).mkdir(parents=True)
        (bubble.home / "shoal" / name / "file").write_text(name)
    bubble.change_policy(hidden=(bubble.home / "shoal",), readable=(bubble.home / "shoal/results",))
    _, said = await bubble.run_command(
        "cat ~/shoal/results/file; ls ~/shoal; touch ~/shoal/results/new ~/shoal/new"
    )
    assert said.startswith("resultsresults\n")
    assert "keys" not in said
    assert not (bubble.home / "shoal/results/new").exists()


@pytest.mark.needs("bwrap")
async def test_hidden_sockets_cannot_be_reached(bubble: SandboxHarness) -> None:
    door = bubble.project / "agent.sock"
    server = await asyncio.start_unix_server(lambda _, writer: writer.close(), door)
    knock = (
        "python3 -c 'import socket,sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1]); "
        'print("reached")\' agent.sock'
    )
    try:
        assert "reached" in (await bubble.run_command(knock))[1]
        bubble.change_policy(hidden_sockets=(door,))
        assert "reached\n" not in (await bubble.run_command(knock))[1]
    finally:
        server.close()
    assert (await bubble.run_command("find /run -type s"))[1] == ""


async def test_the_guardian_applies_landlock_without_another_interpreter(
    tmp_path: Path, processes: GuardedProcesses
) -> None:
    rig = SandboxHarness(tmp_path / "confined", processes, find_landlock())
    with (rig.project / "out").open("wb") as out:
        launch = rig.build_launch("cat ~/.netrc; env -u PWD -u SHLVL -u _ env | sort", out.fileno())
        assert Path(launch.argv[0]).is_absolute()
        process = await processes.start_process(replace(launch, argv=("/nowhere/python", *launch.argv[1:])))
        assert await process.wait() == 0
    said = (rig.project / "out").read_text()
    assert "denied" in said
    assert said.splitlines()[1:] == [f"HOME={rig.home}", f"PATH={os.environ['PATH']}"]


def test_landlock_names_what_it_cannot_enforce(plain: SandboxHarness) -> None:
    kind, confines = LandlockDriver(), plain.policy
    assert kind.find_unsupported(confines) is None
    plain.change_policy(network=False)
    assert "network" in str(kind.find_unsupported(plain.policy))
    (plain.project / "secret").mkdir()
    plain.change_policy(network=True, hidden=(plain.project / "secret",))
    assert str(plain.project / "secret") in str(kind.find_unsupported(plain.policy))
