"""Commands of a person while teammates run elsewhere, and the cluster on one machine to try."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import pytest
from cluster_helpers import (
    CREATE,
    PATIENCE,
    assert_no_member_process_is_left,
    has_line,
    report_done,
    run_shoal,
    start_lead,
    wait_for_file,
    wait_for_name,
)

import shoal
from agent_scripts import call_tool
from elapsed_times import scale_to_load
from network_namespaces import explain_no_namespaces
from ray_machines import RayMachine, RayMachines
from server_scripts import run_provider
from shoal.backends.guardian import collect_descendant_pids, read_process_tree
from shoal.backends.program_directory import remove_abandoned_directories
from shoal.stores.postgres.store_admin import run_on_connection
from team_scripts import spawn_member
from web_client import BEARER, TIMEOUT, TOKEN, PageState, WebTestClient

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.needs("ray", "postgres", "asyncpg"),
    pytest.mark.timeout(300),
]
SESSION = "b0000000-0000-4000-8000-000000000041"
LIVE_SESSION = "b0000000-0000-4000-8000-000000000042"


async def wait_for_question(name: str, cwd: Path, home: Path) -> str:
    """Return the id of the open question of a member."""
    async with asyncio.timeout(PATIENCE):
        while True:
            for question in json.loads(await run_shoal("ask", "ls", "--json", cwd=cwd, home=home)):
                if name in json.dumps(question):
                    return str(question["id"])


async def test_commands_reach_members_on_other_machines(
    tmp_path: Path, machines: RayMachines, cluster_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other_home = tmp_path / "other-home"
    async with run_provider(
        monkeypatch,
        lead=[CREATE, [spawn_member("ann"), spawn_member("ben")], "They work.", "Heard."],
        ann=[call_tool("Bash", "b", command="touch allowed"), report_done("ann"), "Done.", "Heard."],
        ben=[wait_for_name("never", "reached"), "never"],
    ) as server:
        machines.use_provider(server.url)
        monkeypatch.setenv("SHOAL_STORE", cluster_database)
        rules = ("--allowedTools", "Bash(touch reached:*),Bash(while:*),Bash(sleep:*),Bash([:*)")
        lead = await start_lead(
            tmp_path,
            "Go.",
            *("--session-id", SESSION, "--model", "anthropic:claude-sonnet-4-5", *rules),
            *("--settings", json.dumps(read_settings_with_patience(machines))),
        )
        # A question of a member is answered on another machine than the lead's.
        question = await wait_for_question("ann", tmp_path, other_home)
        assert "continues" in await run_shoal("ask", "answer", question, "yes", cwd=tmp_path, home=other_home)
        await wait_for_file(tmp_path / "allowed")
        await wait_for_file(tmp_path / "reached")
        assert "ann" in await run_shoal("team", "send", "crew", "ann", "Are you there?", cwd=tmp_path)
        async with asyncio.timeout(PATIENCE):
            while not has_line(server, "ann", "Are you there?"):
                await asyncio.sleep(0.1)
        for home in (None, other_home):
            cost = await run_shoal("cost", SESSION, cwd=tmp_path, home=home)
            assert re.search(r"ann .*requests.*\$0\.0*[1-9]", cost), cost
            shown = await run_shoal("team", "show", "crew", cwd=tmp_path, home=home)
            assert re.search(r"ben\s+working", shown), shown
        await run_shoal("stop", SESSION, "ben", cwd=tmp_path)
        async with asyncio.timeout(PATIENCE):
            while "ben" in await run_shoal("cluster", "status", "--address", machines.address, cwd=tmp_path):
                pass
        await run_shoal("stop", SESSION, cwd=tmp_path)
        async with asyncio.timeout(PATIENCE):
            await lead.wait()
        watched = await run_shoal("watch", SESSION, cwd=tmp_path, home=other_home)
        assert "agent ann was stopped" in watched
    await assert_no_member_process_is_left(machines)


async def test_live_views_follow_and_steer_members_on_other_machines(
    tmp_path: Path, machines: RayMachines, cluster_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_provider(
        monkeypatch,
        lead=[CREATE, [spawn_member("ann"), spawn_member("ben")], "They work.", "Heard."],
        ann=[wait_for_name("go", "ann-works"), wait_for_name("never", "ann-again"), "never"],
        ben=[wait_for_name("go", "ben-works"), "Ready."],
    ) as server:
        machines.use_provider(server.url)
        monkeypatch.setenv("SHOAL_STORE", cluster_database)
        lead = await start_lead(
            tmp_path,
            "Go.",
            *("--session-id", LIVE_SESSION, "--model", "anthropic:claude-sonnet-4-5"),
            *("--settings", machines.build_settings(), "--permission-mode", "bypassPermissions"),
        )
        await wait_for_file(tmp_path / "ann-works")
        await wait_for_file(tmp_path / "ben-works")
        path = f"/runs/{LIVE_SESSION}"
        async with (
            watch_frames(tmp_path, tmp_path / "other-home") as watched,
            serve_web(tmp_path) as web,
            web.open_stream(f"{path}/frames") as stream,
        ):
            views: list[tuple[Callable[[], Awaitable[Any]], PageState]] = [
                (watched, PageState()),
                (lambda: stream.read_until(lambda _: True), PageState()),
            ]
            await read_until_states(views, ann="working", ben="working")
            sent = await web.post_json(f"{path}/send", {"to": "ann", "text": "Leave the tests alone."})
            assert sent["ok"]
            (tmp_path / "go").touch()
            await wait_for_file(tmp_path / "ann-again")
            assert has_line(server, "ann", "Leave the tests alone.")
            await read_until_states(views, ann="working", ben="idle")
            await web.post_json(f"{path}/kill", {"agent": "ann@crew"})
            await read_until_states(views, ann="killed")
            async with asyncio.timeout(PATIENCE):
                await lead.wait()
    await assert_no_member_process_is_left(machines)


@asynccontextmanager
async def watch_frames(cwd: Path, home: Path) -> AsyncIterator[Callable[[], Awaitable[Any]]]:
    """Run `shoal watch` on another machine than the lead's; yield a function that returns its next frame."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "shoal", "watch", LIVE_SESSION, "--frames"),
        cwd=cwd,
        env=os.environ | {"SHOAL_HOME": str(home)},
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 24,
    )
    assert process.stdout is not None
    output = process.stdout

    async def read_frame() -> Any:
        return json.loads(await output.readline())

    yield read_frame
    async with asyncio.timeout(PATIENCE):
        await output.read()
        assert await process.wait() == 0  # it ends with the run


@asynccontextmanager
async def serve_web(cwd: Path) -> AsyncIterator[WebTestClient]:
    """Run `shoal web` on the machine of the lead."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "shoal", "web", "--port", "0", "--token", TOKEN, "--json"),
        cwd=cwd,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            started = ""
            while "}" not in started:
                started += (await process.stdout.readline()).decode()
        address = str(json.loads(started)["url"])
        base = address.partition("/?")[0]
        async with httpx.AsyncClient(base_url=base, headers=BEARER, timeout=TIMEOUT) as client:
            yield WebTestClient(address, client, asyncio.Event())
    finally:
        process.terminate()
        await process.wait()


async def read_until_states(
    views: Sequence[tuple[Callable[[], Awaitable[Any]], PageState]], **states: str
) -> None:
    for read_frame, page in views:
        async with asyncio.timeout(PATIENCE):
            while not states.items() <= page.map_agent_states().items():
                page.apply_frame(await read_frame())


def read_settings_with_patience(machines: RayMachines) -> dict[str, object]:
    settings: dict[str, dict[str, object]] = json.loads(machines.build_settings())
    settings["shoal"]["question_patience"] = PATIENCE
    return dict(settings)


async def test_the_head_prints_the_command_that_joins_it(machines: RayMachines) -> None:
    assert f"shoal cluster join {machines.address}\n" in machines.head.read_output()


@pytest.mark.needs("ip")
def test_a_head_is_found_by_its_name_in_the_hosts_file_if_no_name_server_answers(tmp_path: Path) -> None:
    if reason := explain_no_namespaces():
        pytest.skip(reason)
    (tmp_path / "hosts").write_text("127.0.0.1 localhost\n192.0.2.10 head-of-the-cluster\n")
    (tmp_path / "resolv.conf").write_text("nameserver 192.0.2.10\n")
    script = (
        "ip link set lo up; ip addr add 192.0.2.10/24 dev lo; "
        "mount --bind $0/hosts /etc/hosts; mount --bind $0/resolv.conf /etc/resolv.conf; "
        'exec "$@"'
    )
    with TemporaryDirectory(prefix="r-", dir="/tmp") as directory, ExitStack() as stack:
        head = RayMachine(
            Path(directory),
            ("head", "--host", "192.0.2.10", "--cpus", "0"),
            started="The head is running",
            prefix=("unshare", "--net", "--mount", "sh", "-c", script, str(tmp_path)),
        )
        head.start()
        stack.callback(head.stop)
        head.wait_until_started()
        inside = ("nsenter", "--target", str(head.raylet_pid), "--net", "--mount")
        silent_server = "import socket, time; s = socket.socket(type=2); s.bind(('', 53)); time.sleep(600)"
        server = stack.enter_context(subprocess.Popen([*inside, sys.executable, "-c", silent_server]))
        stack.callback(server.kill)
        status = ("cluster", "status", "--address", "head-of-the-cluster:6379")
        found = subprocess.run(
            [*inside, sys.executable, "-m", "shoal", *status],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE + 30,
            check=False,
        )
    assert "192.0.2.10 (head)  alive" in found.stdout, found.stderr


@pytest.mark.needs("git", "rg", "bwrap")
async def test_the_doctor_names_what_each_machine_lacks_and_what_to_type(
    tmp_path: Path, machines: RayMachines, cluster_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("git", "sh"):
        (programs / name).symlink_to(str(shutil.which(name)))
    machines.use_provider("http://127.0.0.1:1")  # gives each machine a key
    with machines.add_node(variables={"PATH": str(programs)}) as poor:
        poor.write_settings({})
        command = ("cluster", "doctor", "--address", machines.address)
        monkeypatch.setenv("SHOAL_STORE", cluster_database)
        lines = (await run_shoal(*command, cwd=tmp_path)).splitlines()
        versions = f"(Shoal {shoal.__version__}, Python {sys.version_info.major}.{sys.version_info.minor})"
        assert sum(line.endswith(f" {versions}: nothing is missing") for line in lines) == 3
        at = lines.index(f"127.0.0.4 {versions}: ")
        problems = list(itertools.takewhile(lambda line: line.startswith("  "), lines[at + 1 :]))
        # Without bubblewrap, the sandbox works only if the kernel of this machine has Landlock.
        assert [problem for problem in problems if "sandbox" not in problem] == [
            "  no rg: install ripgrep",
            "  no model key: run `shoal setup` there, or set a key before the machine joins the cluster",
        ]
        assert lines[-1] == f"{len(problems)} problems on 4 machines."
        monkeypatch.setenv("SHOAL_STORE", "postgresql://ann:secret@127.0.0.1:1/none")
        told = await run_shoal(*command, cwd=tmp_path)
        assert (
            told.count("it cannot use the store: Cannot reach the store postgresql://ann@127.0.0.1:1/") == 4
        )
        assert "secret" not in told


async def test_the_status_shows_a_machine_that_has_died_without_members(
    tmp_path: Path, machines: RayMachines
) -> None:
    """Its row stays, and those of machines that other tests have stopped."""

    async def read_rows_of(address: str) -> list[list[str]]:
        told = await run_shoal("cluster", "status", "--address", machines.address, cwd=tmp_path)
        return [line.split() for line in told.splitlines() if line.startswith(f"{address} ")]

    with machines.add_node("--cpus", "2") as lost:
        before = await read_rows_of("127.0.0.4")
        assert [row[1:4] for row in before if row[1] != "dead"] == [["alive", "-", "2"]]
        lost.kill()
        async with asyncio.timeout(PATIENCE):
            while any(row[1] != "dead" for row in await read_rows_of("127.0.0.4")):
                await asyncio.sleep(0.1)
    rows = await read_rows_of("127.0.0.4")
    assert len(rows) == len(before)
    assert {tuple(row[1:7]) for row in rows} == {("dead", "-", "0", "0", "0.0", "GiB")}
    for address in ("127.0.0.2", "127.0.0.3"):
        assert [row[1] for row in await read_rows_of(address)] == ["alive"]


async def test_a_team_does_a_task_on_the_cluster_to_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_provider(
        monkeypatch,
        lead=[
            CREATE,
            call_tool("TaskCreate", "t", subject="the roof", description="Build it."),
            spawn_member("ann"),
            "Ann works.",
            "Heard.",
        ],
        ann=[
            call_tool("TaskUpdate", "u1", taskId="1", status="in_progress", owner="ann"),
            wait_for_name("go", "reached"),
            [call_tool("TaskUpdate", "u2", taskId="1", status="completed"), report_done("ann")],
            "Done.",
        ],
    ) as server:
        async with run_cluster_to_try(tmp_path) as (_, address, store):
            monkeypatch.setenv("SHOAL_STORE", store)
            own = {"teammate_mode": "ray", "cluster": {"address": address, "files": "shared"}}
            lead = await start_lead(
                tmp_path,
                "Go.",
                *("--settings", json.dumps({"shoal": own}), "--model", "anthropic:claude-sonnet-4-5"),
                *("--permission-mode", "bypassPermissions"),
            )
            await wait_for_file(tmp_path / "reached")
            status = json.loads(
                await run_shoal("cluster", "status", "--address", address, "--json", cwd=tmp_path)
            )
            assert [each for machine in status for each in machine["members"]] == ["ann@crew"]
            (tmp_path / "go").touch()
            async with asyncio.timeout(PATIENCE):
                assert await lead.wait() == 0
            tasks = run_on_connection(store, lambda raw: raw.fetch("SELECT status, owner FROM shoal.tasks"))
            assert [tuple(row) for row in tasks] == [("completed", "ann")]
        assert has_line(server, "lead", "ann is done.")


@asynccontextmanager
async def run_cluster_to_try(cwd: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, str, str]]:
    """Run `shoal cluster try`; yield it with the addresses of the head and of the database."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "shoal", "cluster", "try"),
        cwd=cwd,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        text = ""
        async with asyncio.timeout(120):
            while "Press Ctrl-C" not in text:
                line = await process.stdout.readline()
                assert line, text
                text += line.decode()
        address = re.search(r"--address (\S+)", text)
        store = re.search(r"SHOAL_STORE=(\S+)", text)
        assert address is not None
        assert store is not None
        yield process, address[1], store[1]
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
            async with asyncio.timeout(30):
                await process.wait()


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
async def test_a_cluster_to_try_starts_and_leaves_nothing(tmp_path: Path, end: signal.Signals) -> None:
    """The directories of a killed one are removed by the next one."""
    left = "from shoal.backends.program_directory import ProgramDirectory as D; print(D('pg').path)"
    abandoned = Path(subprocess.check_output([sys.executable, "-c", left], text=True).strip())
    assert abandoned.is_dir()
    async with run_cluster_to_try(tmp_path) as (process, address, store):
        assert not abandoned.exists()
        status = json.loads(
            await run_shoal("cluster", "status", "--address", address, "--json", cwd=tmp_path)
        )
        assert [machine["state"] for machine in status] == ["alive"] * 3
        assert "PostgreSQL" in await run_shoal("store", "status", "--store", store, cwd=tmp_path)
        started = collect_descendant_pids(process.pid, read_process_tree())
        assert len(started) > 6
        directories = find_own_directories(started)
        assert len(directories) == 4  # of the database and of three nodes
        assert all(path.is_dir() for path in directories)
        process.send_signal(end)
        async with asyncio.timeout(30):
            await process.wait()
    deadline = time.monotonic() + scale_to_load(10)
    while left := [pid for pid in started if is_running(pid)]:
        assert time.monotonic() < deadline, left
        await asyncio.sleep(0.1)
    if end == signal.SIGKILL:
        # Cluster commands of tests that run at the same time remove them, too.
        async with asyncio.timeout(30):  # a process of them may still be about to end
            while any(path.exists() for path in directories):
                remove_abandoned_directories()
                await asyncio.sleep(0.1)
    assert not any(path.exists() for path in directories)


def find_own_directories(pids: Iterable[int]) -> set[Path]:
    """Return the temporary directories that the commands of processes name."""
    commands = b"\0".join(Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids).decode()
    return {Path(each) for each in re.findall(r"/tmp/shoal-(?:pg|ray)-\w+", commands)}


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
