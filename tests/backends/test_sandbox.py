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

from process_search import find_processes_in, wait_for_processes_in
from shoal.backends.guarded_processes import GuardedProcessLauncher
from shoal.backends.sandbox.bubblewrap import BubblewrapSandboxDriver
from shoal.backends.sandbox.landlock import LandlockSandboxDriver


@pytest.fixture
def plain_harness(tmp_path: Path, processes: GuardedProcessLauncher) -> SandboxHarness:
    return SandboxHarness(tmp_path / "plain", processes, None)


@pytest.fixture
def bubblewrap_harness(tmp_path: Path, processes: GuardedProcessLauncher) -> SandboxHarness:
    driver = BubblewrapSandboxDriver(os.environ["PATH"])
    assert driver.explain_unavailable() is None
    return SandboxHarness(tmp_path / "confined", processes, driver)


def find_landlock_driver() -> LandlockSandboxDriver:
    driver = LandlockSandboxDriver()
    if problem := driver.explain_unavailable():
        pytest.skip(problem)
    return driver


@pytest.fixture(params=[pytest.param("bwrap", marks=pytest.mark.needs("bwrap")), "landlock"])
def harness(
    request: pytest.FixtureRequest, tmp_path: Path, processes: GuardedProcessLauncher
) -> SandboxHarness:
    driver = (
        BubblewrapSandboxDriver(os.environ["PATH"]) if request.param == "bwrap" else find_landlock_driver()
    )
    return SandboxHarness(tmp_path / "confined", processes, driver)


async def test_a_command_writes_in_the_project_and_nowhere_else(harness: SandboxHarness) -> None:
    outside = harness.home / "made"
    status, output = await harness.run_command(
        f"echo in > made; mkdir d; echo out > {outside}; rm -f {harness.home}/notes.txt; cat made"
    )
    assert output.endswith("in\n")
    assert "denied" in output or "Read-only" in output
    assert (harness.project / "made").read_text() == "in\n"
    assert not outside.exists()
    assert (harness.home / "notes.txt").exists()
    assert status == 0


async def test_hidden_files_are_not_readable_and_their_neighbours_are(harness: SandboxHarness) -> None:
    _, output = await harness.run_command(
        "cat ~/.ssh/id ~/.netrc ~/.ssh/../.ssh/id /proc/self/root$HOME/.ssh/id; cat ~/notes.txt"
    )
    assert "secret" not in output
    assert output.endswith("plain notes\n")


async def test_a_link_in_the_project_does_not_reach_hidden_files(harness: SandboxHarness) -> None:
    (harness.project / "link").symlink_to(harness.home / ".ssh")
    _, output = await harness.run_command(
        "cat link/id; ln -s ~/.netrc here; cat here; ln ~/.netrc hard; cat hard; echo x >> here"
    )
    assert "secret" not in output
    assert (harness.home / ".netrc").read_text() == "secret password\n"


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
    plain_harness: SandboxHarness, harness: SandboxHarness, command: str
) -> None:
    expected = await plain_harness.run_command(command)
    status, output = await harness.run_command(command)
    assert output.replace("/confined/", "/plain/") == expected[1]
    # In a PID namespace, death by a signal is reported as 128 plus its number.
    assert status in (expected[0], 128 - expected[0] if expected[0] < 0 else expected[0])


async def test_a_directory_of_the_project_is_the_working_directory(harness: SandboxHarness) -> None:
    (harness.project / "a dir").mkdir()
    harness.project = harness.project / "a dir"
    assert (await harness.run_command("pwd"))[1] == f"{harness.project}\n"


@pytest.mark.needs("bwrap")
async def test_without_network_a_command_cannot_even_reach_localhost(
    bubblewrap_harness: SandboxHarness,
) -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1")
    port = server.sockets[0].getsockname()[1]
    knock = f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo reached"
    try:
        assert (await bubblewrap_harness.run_command(knock))[1] == "reached\n"
        bubblewrap_harness.change_policy(network=False)
        status, output = await bubblewrap_harness.run_command(knock)
        assert status != 0
        assert "reached" not in output
    finally:
        server.close()


@pytest.mark.fresh_interpreter
@pytest.mark.needs("bwrap")
async def test_a_command_sees_only_its_own_processes(
    bubblewrap_harness: SandboxHarness, processes: GuardedProcessLauncher
) -> None:
    _, output = await bubblewrap_harness.run_command(
        "cat /proc/[0-9]*/cmdline | tr '\\0' ' '; echo; ls -d /proc/[0-9]* | wc -l"
    )
    assert "guardian.py" not in output
    assert int(output.split()[-1]) < 10


async def test_a_command_cannot_signal_a_process_outside(harness: SandboxHarness) -> None:
    with subprocess.Popen(["sleep", "60"]) as outsider:
        try:
            status, _ = await harness.run_command(f"kill -KILL {outsider.pid}")
            assert status != 0
            assert outsider.poll() is None
        finally:
            outsider.kill()


async def test_a_command_does_not_read_the_environment_of_the_session(harness: SandboxHarness) -> None:
    with subprocess.Popen(["sleep", "60"], env={"SECRET_OF_SESSION": "sesame"}) as outsider:
        try:
            _, output = await harness.run_command(
                f"cat /proc/{outsider.pid}/environ; cat /proc/[0-9]*/environ | tr '\\0' '\\n'"
            )
            assert "sesame" not in output
        finally:
            outsider.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="shows what root cannot do")
async def test_root_cannot_undo_the_sandbox_or_set_up_the_machine(harness: SandboxHarness) -> None:
    before = Path("/proc/sys/kernel/core_pattern").read_text()
    status, _ = await harness.run_command(
        "mount -o remount,rw / || mount -t tmpfs none /mnt || mknod device b 254 0 || head -c1 /dev/vda "
        f"|| echo {before.strip()} > /proc/sys/kernel/core_pattern || unshare -m true"
    )
    assert status != 0
    assert Path("/proc/sys/kernel/core_pattern").read_text() == before


async def test_a_stopped_command_may_clean_up(harness: SandboxHarness) -> None:
    process, reader = await harness.start_command(
        "trap 'sleep 0.3; echo finished > finished; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    )
    async with asyncio.timeout(TIMEOUT):
        assert await reader.readline() == b"ready\n"
        await process.stop(grace=5)
    assert (harness.project / "finished").read_text() == "finished\n"
    assert find_processes_in(harness.project) == []


async def test_a_command_that_ignores_signals_is_killed_with_its_children(harness: SandboxHarness) -> None:
    process, reader = await harness.start_command(
        "trap '' TERM; setsid sleep 300 & (sleep 300 &); echo ready; while :; do sleep 1; done"
    )
    async with asyncio.timeout(TIMEOUT):
        assert await reader.readline() == b"ready\n"
        wait_for_processes_in(harness.project, 3)
        assert await process.stop(grace=0.1) == -signal.SIGKILL
        while find_processes_in(harness.project):
            await asyncio.sleep(0.01)


async def test_a_command_ends_with_its_session(harness: SandboxHarness) -> None:
    _, reader = await harness.start_command("setsid sleep 300 & echo ready; sleep 300")
    async with asyncio.timeout(TIMEOUT):
        assert await reader.readline() == b"ready\n"
        await harness.processes.aclose()
        while find_processes_in(harness.project):
            await asyncio.sleep(0.01)


async def test_a_command_dies_with_its_parent_however_that_ends(harness: SandboxHarness) -> None:
    """Like a session and guardian that are killed at the same time."""
    words = harness.build_launch("echo ready; exec sleep 300").argv
    with subprocess.Popen(
        ["/bin/bash", "-c", '"$@" & wait', "bash", *words], cwd=harness.project, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        parent.kill()
        parent.wait()
        async with asyncio.timeout(TIMEOUT):
            while find_processes_in(harness.project):
                await asyncio.sleep(0.01)


@pytest.mark.needs("bwrap")
async def test_read_only_paths_cannot_be_written_moved_or_replaced(
    bubblewrap_harness: SandboxHarness,
) -> None:
    hooks = bubblewrap_harness.project / "repo/.git/hooks"
    hooks.mkdir(parents=True)
    config = hooks.parent / "config"
    config.write_text("[core]\n")
    bubblewrap_harness.change_policy(read_only=(hooks, config))
    await bubblewrap_harness.run_command(
        "cd repo; echo evil > .git/hooks/pre-commit; echo evil >> .git/config; echo evil > c; "
        "mv c .git/config; "
        "mv .git/hooks .git/h2; mv .git .git2; mv ../repo ../repo2; rm -rf .git; mkdir -p .git/hooks; "
        "echo evil > .git/hooks/post-commit"
    )
    assert list(hooks.iterdir()) == []
    assert config.read_text() == "[core]\n"


@pytest.mark.needs("bwrap")
async def test_hidden_paths_in_the_project_stay_hidden_for_the_next_command(
    bubblewrap_harness: SandboxHarness,
) -> None:
    secret = bubblewrap_harness.project / "a/b/secret"
    secret.mkdir(parents=True)
    (secret / "key").write_text("sesame")
    (bubblewrap_harness.project / "a/.env").write_text("sesame")
    bubblewrap_harness.change_policy(hidden=(secret, bubblewrap_harness.project / "a/.env"))
    _, output = await bubblewrap_harness.run_command(
        "mv a elsewhere; mv a/b b; cat a/.env a/b/secret/key elsewhere/b/secret/key; touch a/new"
    )
    _, again = await bubblewrap_harness.run_command("cat $(find . -type f)")
    assert "sesame" not in output + again
    assert (bubblewrap_harness.project / "a/new").exists()
    assert (secret / "key").read_text() == "sesame"


@pytest.mark.needs("bwrap")
async def test_a_readable_path_in_a_hidden_directory_is_read_only(bubblewrap_harness: SandboxHarness) -> None:
    for name in ("results", "keys"):
        (bubblewrap_harness.home / "shoal" / name).mkdir(parents=True)
        (bubblewrap_harness.home / "shoal" / name / "file").write_text(name)
    bubblewrap_harness.change_policy(
        hidden=(bubblewrap_harness.home / "shoal",), readable=(bubblewrap_harness.home / "shoal/results",)
    )
    _, output = await bubblewrap_harness.run_command(
        "cat ~/shoal/results/file; ls ~/shoal; touch ~/shoal/results/new ~/shoal/new"
    )
    assert output.startswith("resultsresults\n")
    assert "keys" not in output
    assert not (bubblewrap_harness.home / "shoal/results/new").exists()


@pytest.mark.needs("bwrap")
async def test_hidden_sockets_cannot_be_reached(
    bubblewrap_harness: SandboxHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    door = bubblewrap_harness.project / "agent.sock"
    monkeypatch.chdir(door.parent)  # its whole path may be too long for a socket
    server = await asyncio.start_unix_server(lambda _, writer: writer.close(), door.name)
    knock = (
        "python3 -c 'import socket,sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1]); "
        'print("reached")\' agent.sock'
    )
    try:
        assert "reached" in (await bubblewrap_harness.run_command(knock))[1]
        bubblewrap_harness.change_policy(hidden_sockets=(door,))
        assert "reached\n" not in (await bubblewrap_harness.run_command(knock))[1]
    finally:
        server.close()
    assert (await bubblewrap_harness.run_command("find /run -type s"))[1] == ""


async def test_the_guardian_applies_landlock_without_another_interpreter(
    tmp_path: Path, processes: GuardedProcessLauncher
) -> None:
    harness = SandboxHarness(tmp_path / "confined", processes, find_landlock_driver())
    with (harness.project / "out").open("wb") as out:
        launch = harness.build_launch("cat ~/.netrc; env -u PWD -u SHLVL -u _ env | sort", out.fileno())
        assert Path(launch.argv[0]).is_absolute()
        process = await processes.start_process(replace(launch, argv=("/nowhere/python", *launch.argv[1:])))
        assert await process.wait() == 0
    output = (harness.project / "out").read_text()
    assert "denied" in output
    assert output.splitlines()[1:] == [f"HOME={harness.home}", f"PATH={os.environ['PATH']}"]


def test_landlock_names_what_it_cannot_enforce(plain_harness: SandboxHarness) -> None:
    driver, confines = LandlockSandboxDriver(), plain_harness.policy
    assert driver.find_unsupported_policy_part(confines) is None
    plain_harness.change_policy(network=False)
    assert "network" in str(driver.find_unsupported_policy_part(plain_harness.policy))
    (plain_harness.project / "secret").mkdir()
    plain_harness.change_policy(network=True, hidden=(plain_harness.project / "secret",))
    assert str(plain_harness.project / "secret") in str(
        driver.find_unsupported_policy_part(plain_harness.policy)
    )
