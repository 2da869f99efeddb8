"""Teammates on the machines of a real Ray cluster, with a real database."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from cluster_helpers import (
    CREATE,
    PATIENCE,
    StartTimes,
    assert_no_member_process_is_left,
    find_member,
    has_line,
    note_figure,
    open_cluster_session,
    read_rows,
    report_done,
    restore_machine,
    run_git,
    run_turns,
    start_lead,
    wait_for_file,
    wait_for_name,
)

from agent_scripts import call_tool
from elapsed_times import scale_to_load
from git_servers import run_git_daemon
from ray_machines import LEAD_KEY, RayMachines, find_free_port
from server_scripts import find_speaker, join_conversation, list_requests_of, run_provider
from shoal.backends.ray_probe import read_cluster_id
from shoal.core.conversation.messages import ToolUseBlock
from shoal.testing.mock_replies import RequestBody
from team_scripts import send_message, spawn_member

pytestmark = [pytest.mark.exhaustive, pytest.mark.needs("ray", "postgres", "asyncpg")]
SESSION = "b0000000-0000-4000-8000-000000000022"


async def test_members_work_on_other_machines_and_report(
    tmp_path: Path, machines: RayMachines, cluster_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("ann", "ben")
    where = {name: call_tool("Bash", "w", command=f"echo $PPID > {name}.pid; hostname") for name in names}
    async with run_provider(
        monkeypatch,
        lead=[CREATE, spawn_member("ann"), spawn_member("ben"), "They work.", "Over."],
        **{
            name: [where[name], send_message("team-lead", f"{name} is done.", "report"), "Done."]
            for name in names
        },
    ) as server:
        machines.use_provider(server.url)
        monkeypatch.delenv("ANTHROPIC_API_KEY")  # the lead's is in its settings
        async with open_cluster_session(tmp_path, machines, cluster_database) as session:
            await run_turns(session)
            found = {machines.find_machine(find_member(session, name).pid) for name in names}
            assert found <= set(machines.nodes)
            assert len(found) == 2  # spread over the machines
        for name in names:
            assert has_line(server, "lead", f"{name} is done.")
        keys = {find_speaker(each.body): each.headers["x-api-key"] for each in server.requests}
        assert keys["lead"] == LEAD_KEY
        assert {keys["ann"], keys["ben"]} == {"key-1", "key-2"}  # each machine's own
    assert {
        row[0] for row in read_rows(cluster_database, "SELECT DISTINCT agent FROM shoal.transcript_lines")
    } >= {
        "lead",
        "ann@crew",
        "ben@crew",
    }
    await assert_no_member_process_is_left(machines)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"SHOAL_MODEL": "anthropic:claude-opus-4-1"}, "claude-opus-4-1"),
        ({"SHOAL_MODEL": "opus", "ANTHROPIC_DEFAULT_OPUS_MODEL": "claude-opus-4-1"}, "claude-opus-4-1"),
        ({"SHOAL_MODEL": "anthropic:claude-opus-4-1", "SHOAL_SUBAGENT_MODEL": "haiku"}, "claude-haiku"),
    ],
)
async def test_members_use_the_model_that_variables_of_their_lead_choose(
    tmp_path: Path,
    machines: RayMachines,
    cluster_database: str,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    expected: str,
) -> None:
    async with run_provider(
        monkeypatch,
        lead=[CREATE, spawn_member("ann"), "Ann works.", "Over."],
        ann=[report_done("ann"), "Done."],
    ) as server:
        machines.use_provider(server.url)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        async with open_cluster_session(tmp_path, machines, cluster_database, model=None) as session:
            await run_turns(session)
        models = {find_speaker(each.body): str(each.body["model"]) for each in server.requests}
        keys = {find_speaker(each.body): each.headers["x-api-key"] for each in server.requests}
    assert models["lead"].startswith("claude-opus-4-1")
    assert models["ann"].startswith(expected)
    assert keys["lead"] == LEAD_KEY
    assert keys["ann"] in {"key-1", "key-2"}  # each machine's own
    await assert_no_member_process_is_left(machines)


async def test_spending_of_members_on_other_machines_counts_for_the_budget_of_the_session(
    tmp_path: Path, machines: RayMachines, cluster_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(body: RequestBody) -> ToolUseBlock:
        return call_tool("Glob", pattern=f"*{len(body['messages'])}")

    async with run_provider(
        monkeypatch, lead=[CREATE, spawn_member("ann"), "Wait.", "Good."], ann=[look]
    ) as server:
        machines.use_provider(server.url)
        async with open_cluster_session(
            tmp_path, machines, cluster_database, max_total_tokens=40_000
        ) as session:
            await run_turns(session)
            spending = session.spending
        assert 40_000 <= spending.usage.total_tokens < 60_000
        assert len(list_requests_of(server, "ann")) < 30
    reports = read_rows(
        cluster_database, "SELECT convert_from(document, 'UTF8') FROM shoal.mail WHERE owner = 'team-lead'"
    )
    assert "budget" in str(reports)
    await assert_no_member_process_is_left(machines)


async def test_a_member_of_a_killed_machine_continues_on_another(
    tmp_path: Path, machines: RayMachines, cluster_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = call_tool("Bash", "b1", command="echo the first command")
    blocked = call_tool("Bash", "b2", command="touch reached; sleep 600")
    async with run_provider(
        monkeypatch,
        lead=[CREATE, spawn_member("ann"), "Ann works.", "Over."],
        ann=[first, blocked, send_message("team-lead", "I moved.", "report"), "Done."],
    ) as server:
        machines.use_provider(server.url)
        async with open_cluster_session(tmp_path, machines, cluster_database) as session:
            starts = StartTimes(session, machines, "ann")
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(run_turns(session))
                await wait_for_file(tmp_path / "reached")
                await starts.wait_for_start(1)
                before = machines.find_machine(find_member(session, "ann").pid)
                killed_at = time.monotonic()
                before.kill()
                moved = await starts.wait_for_start(2) - killed_at
                after = machines.find_machine(find_member(session, "ann").pid)
            assert after is not before
            note_figure("killed machine, seconds until the member works elsewhere", moved)
            assert moved <= scale_to_load(15)
        last = list_requests_of(server, "ann")[-1]
        assert "the first command" in join_conversation(last)
        assert has_line(server, "lead", "I moved.")
    restore_machine(before)


async def test_a_member_whose_machine_asks_its_process_to_end_is_started_again(
    tmp_path: Path, machines: RayMachines, cluster_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Ray does when a machine is stopped or joins a new head; the member then ends itself in order."""
    async with run_provider(
        monkeypatch,
        lead=[CREATE, spawn_member("ann"), "Ann works.", "Over."],
        ann=[
            call_tool("Bash", "b", command="touch reached; sleep 600"),
            send_message("team-lead", "I moved.", "report"),
            "Done.",
        ],
    ) as server:
        machines.use_provider(server.url)
        async with open_cluster_session(tmp_path, machines, cluster_database) as session:
            starts = StartTimes(session, machines, "ann")
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(run_turns(session))
                await wait_for_file(tmp_path / "reached")
                await starts.wait_for_start(1)
                os.kill(find_member(session, "ann").pid, signal.SIGTERM)
                await starts.wait_for_start(2)
        assert has_line(server, "lead", "I moved.")
    await assert_no_member_process_is_left(machines)


async def test_members_work_without_a_head_and_are_placed_again_by_the_next_one(
    tmp_path: Path, machines: RayMachines, cluster_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_provider(
        monkeypatch,
        lead=[CREATE, spawn_member("ann"), "Ann works.", "Good.", "Over."],
        ann=[
            wait_for_name("go", "reached"),
            send_message("team-lead", "No head, no matter.", "report"),
            wait_for_name("never", "reached-again"),
            send_message("team-lead", "I moved.", "report"),
            "Done.",
        ],
    ) as server:
        machines.use_provider(server.url)
        async with open_cluster_session(tmp_path, machines, cluster_database) as session:
            starts = StartTimes(session, machines, "ann")
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(run_turns(session))
                await wait_for_file(tmp_path / "reached")
                machines.head.kill()
                (tmp_path / "go").touch()
                await wait_for_file(tmp_path / "reached-again")
                assert len(starts.starts) == 1
                replaced_at = time.monotonic()
                machines.head.start()
                placed = await starts.wait_for_start(2) - replaced_at
            note_figure("lost head, seconds from the command until the member is placed again", placed)
            assert placed <= scale_to_load(90)
        assert has_line(server, "lead", "No head, no matter.")
        assert has_line(server, "lead", "I moved.")
    machines.head.wait_until_started()


@contextmanager
def keep_in_directory(directory: Path) -> Iterator[dict[str, str]]:
    """Yield the variables of a head that stores its machines in a directory."""
    yield {"RAY_gcs_storage": "rocksdb", "RAY_gcs_storage_path": str(directory / "stored")}


@contextmanager
def keep_in_redis(directory: Path) -> Iterator[dict[str, str]]:
    """Yield the variables of a head that stores its machines in a Redis server."""
    port = find_free_port()
    settings = {"port": port, "bind": "127.0.0.1", "appendonly": "yes", "dir": directory}
    words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    # The same program, in a package of Debian that does not start a server when it is installed.
    program = shutil.which("redis-check-rdb")
    with subprocess.Popen(["redis-server", *words], executable=program, stdout=subprocess.DEVNULL) as redis:
        try:
            yield {"RAY_REDIS_ADDRESS": f"127.0.0.1:{port}"}
        finally:
            redis.kill()


@pytest.mark.parametrize(
    "keep_machines",
    [keep_in_directory, pytest.param(keep_in_redis, marks=pytest.mark.needs("redis-check-rdb"))],
)
async def test_a_head_that_stores_its_machines_is_replaced_without_a_restart_of_members(
    tmp_path: Path,
    cluster_database: str,
    monkeypatch: pytest.MonkeyPatch,
    keep_machines: Callable[[Path], AbstractContextManager[dict[str, str]]],
) -> None:
    with (
        TemporaryDirectory(prefix="r-", dir="/tmp") as directory,
        keep_machines(Path(directory)) as variables,
    ):
        machines = RayMachines(Path(directory), 1)
        machines.head.variables |= variables
        try:
            machines.start()
            async with run_provider(
                monkeypatch,
                lead=[CREATE, spawn_member("ann"), "Ann works.", spawn_member("ben"), "Over."],
                ann=[wait_for_name("go", "reached"), report_done("ann"), "Done."],
                ben=[report_done("ben"), "Done."],
            ) as server:
                machines.use_provider(server.url)
                async with open_cluster_session(tmp_path, machines, cluster_database) as session:
                    starts = StartTimes(session, machines, "ann")
                    async with asyncio.TaskGroup() as tasks:
                        tasks.create_task(run_turns(session))
                        await wait_for_file(tmp_path / "reached")
                        raylet = machines.nodes[0].raylet_pid
                        cluster = await asyncio.to_thread(read_cluster_id, machines.address)
                        machines.head.kill()
                        machines.head.start()
                        await asyncio.to_thread(machines.head.wait_until_started)
                        assert await asyncio.to_thread(read_cluster_id, machines.address) == cluster != ""
                        (tmp_path / "go").touch()
                    assert len(starts.starts) == 1
                    assert machines.nodes[0].raylet_pid == raylet
                for name in ("ann", "ben"):
                    assert has_line(server, "lead", f"{name} is done.")
            await assert_no_member_process_is_left(machines)
        finally:
            machines.stop()


async def test_members_of_a_killed_lead_end_and_the_session_is_resumed(
    tmp_path: Path, machines: RayMachines, cluster_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_provider(
        monkeypatch,
        lead=[CREATE, spawn_member("ann"), "Ann works.", "Good.", "Over."],
        ann=[wait_for_name("never", "reached"), send_message("team-lead", "I moved.", "report"), "Done."],
    ) as server:
        machines.use_provider(server.url)
        arguments = ("--settings", machines.build_settings(), "--model", "anthropic:claude-sonnet-4-5")
        arguments += ("--permission-mode", "bypassPermissions")
        monkeypatch.setenv("SHOAL_STORE", cluster_database)
        lead = await start_lead(tmp_path, "Go.", "--session-id", SESSION, *arguments)
        await wait_for_file(tmp_path / "reached")
        lead.kill()
        await lead.wait()
        killed_at = time.monotonic()
        await assert_no_member_process_is_left(machines)
        note_figure("killed lead, seconds until no member process is left", time.monotonic() - killed_at)
        again = await start_lead(tmp_path, "Continue.", "--resume", SESSION, *arguments)
        async with asyncio.timeout(PATIENCE):
            assert await again.wait() == 0
        assert has_line(server, "lead", "I moved.")
    await assert_no_member_process_is_left(machines)


async def test_work_of_a_killed_machine_is_in_the_project_and_continues_elsewhere(
    tmp_path: Path, machines: RayMachines, cluster_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "notes.txt").write_text("by the lead\n")
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "first"]):
        run_git(project, *arguments)
    (project / "draft.txt").write_text("not committed\n")
    reached = tmp_path / "reached"
    write = call_tool("Bash", "b1", command="echo half >> notes.txt")
    blocked = call_tool("Bash", "b2", command=f"touch {reached}; sleep 600")
    finish = call_tool("Bash", "b3", command="echo done >> notes.txt")
    report = send_message("team-lead", "I moved.", "report")
    async with run_provider(
        monkeypatch,
        lead=[CREATE, spawn_member("ann"), "Ann works.", "Over."],
        ann=[write, blocked, finish, report, "Done."],
    ) as server:
        machines.use_provider(server.url)
        settings = machines.build_settings(files="git", uncommitted=True)
        async with open_cluster_session(project, machines, cluster_database, settings=settings) as session:
            ref = f"refs/shoal/cluster/{session.id}/ann"
            starts = StartTimes(session, machines, "ann")
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(run_turns(session))
                await wait_for_file(reached)
                await starts.wait_for_start(1)
                async with asyncio.timeout(PATIENCE):
                    while "half" not in run_git(project, "show", f"{ref}:notes.txt", check=False):
                        await asyncio.sleep(0.05)
                before = machines.find_machine(find_member(session, "ann").pid)
                before.kill()
                await starts.wait_for_start(2)
            assert machines.find_machine(find_member(session, "ann").pid) is not before
        assert has_line(server, "lead", "I moved.")
    assert run_git(project, "show", f"{ref}:notes.txt").split("\n") == ["by the lead", "half", "done"]
    assert run_git(project, "show", f"{ref}:draft.txt") == "not committed"
    assert (project / "notes.txt").read_text() == "by the lead\n"
    assert run_git(project, "status", "--porcelain") == "?? draft.txt"
    restore_machine(before)


def hold_fetches(directory: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Let each `git fetch` of the lead wait for a file, and then fail.

    Return the path of the file, and that of one which shows that a fetch waits. With `go.all`, none waits.
    """
    program, go, held = directory / "bin" / "git", directory / "go", directory / "held"
    program.parent.mkdir()
    program.write_text(
        f"""#!/bin/sh
for word in "$@"; do
    if [ "$word" = fetch ] && [ ! -e {go}.all ]; then
        touch {held}
        while [ ! -e {go} ]; do sleep 0.05; done
        exit 1
    fi
done
exec {shutil.which("git")} "$@"
"""
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return go, held


@pytest.mark.parametrize("members_per_process", [1, 10])
async def test_a_task_whose_files_died_with_their_machine_is_done_again(
    tmp_path: Path,
    machines: RayMachines,
    cluster_database: str,
    monkeypatch: pytest.MonkeyPatch,
    members_per_process: int,
) -> None:
    """The machine is killed after the member wrote a file, and before the lead had it."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "notes.txt").write_text("by the lead\n")
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "first"]):
        run_git(project, *arguments)
    go, held = hold_fetches(tmp_path, monkeypatch)

    def work(body: RequestBody) -> Any:
        told = join_conversation(body)
        if "interrupted" in told.lower() and "done again" not in told:
            return call_tool("Bash", "b2", command="echo half >> notes.txt; echo done again")
        return call_tool("TaskUpdate", "u2", taskId="1", status="completed")

    completed = "SELECT count(*) FROM shoal.tasks WHERE status = 'completed'"
    async with run_provider(
        monkeypatch,
        lead=[
            CREATE,
            call_tool("TaskCreate", "t", subject="notes", description="d"),
            spawn_member("ann"),
            "Ann works.",
            "Over.",
        ],
        ann=[
            call_tool("TaskUpdate", "u1", taskId="1", status="in_progress", owner="ann"),
            call_tool("Bash", "b1", command="echo half >> notes.txt"),
            work,
            work,
            report_done("ann"),
            "Done.",
        ],
    ) as server:
        machines.use_provider(server.url)
        settings = machines.build_settings(files="git", members_per_process=members_per_process)
        async with open_cluster_session(project, machines, cluster_database, settings=settings) as session:
            ref = f"refs/shoal/cluster/{session.id}/ann"
            starts = StartTimes(session, machines, "ann")
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(run_turns(session))
                await wait_for_file(held)
                await starts.wait_for_start(1)
                for _ in range(30):  # time for a member that does not wait
                    await asyncio.sleep(0.1)
                    assert read_rows(cluster_database, completed) == [[0]]
                before = machines.find_machine(find_member(session, "ann").pid)
                before.kill()
                Path(f"{go}.all").touch()
                go.touch()
                await starts.wait_for_start(2)
            assert machines.find_machine(find_member(session, "ann").pid) is not before
        assert has_line(server, "lead", "ann is done.")
        assert has_line(server, "ann", "done again")
    assert read_rows(cluster_database, completed) == [[1]]
    assert run_git(project, "show", f"{ref}:notes.txt").split("\n") == ["by the lead", "half"]
    restore_machine(before)


@pytest.mark.parametrize("fetches", [True, False])
async def test_a_member_gets_pushed_commits_from_the_remote_unless_a_setting_forbids_it(
    tmp_path: Path,
    machines: RayMachines,
    cluster_database: str,
    monkeypatch: pytest.MonkeyPatch,
    fetches: bool,
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "notes.txt").write_text("pushed\n")
    run_git(tmp_path, "init", "-q", "--bare", "remote.git")
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "first"]):
        run_git(project, *arguments)
    run_git(project, "remote", "add", "origin", str(tmp_path / "remote.git"))
    run_git(project, "push", "-q", "origin", "HEAD")
    async with run_provider(
        monkeypatch,
        lead=[CREATE, spawn_member("ann"), "Ann works.", "Over."],
        ann=[call_tool("Bash", "b1", command="echo done >> notes.txt"), report_done("ann"), "Done."],
    ) as server:
        machines.use_provider(server.url)
        with run_git_daemon(tmp_path) as remote:
            run_git(project, "config", "remote.origin.url", f"{remote.address}/remote.git")
            options = {} if fetches else {"fetch_from_remote": False}
            settings = machines.build_settings(files="git", **options)
            async with open_cluster_session(
                project, machines, cluster_database, settings=settings
            ) as session:
                await run_turns(session)
                ref = f"refs/shoal/cluster/{session.id}/ann"
            assert (remote.connections > 0) == fetches
        assert has_line(server, "lead", "ann is done.")
    assert run_git(project, "show", f"{ref}:notes.txt").split("\n") == ["pushed", "done"]


async def test_a_member_runs_where_its_resources_are_and_is_refused_where_there_are_none(
    tmp_path: Path, machines: RayMachines, cluster_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    definitions = tmp_path / ".claude" / "agents"
    definitions.mkdir(parents=True)
    (definitions / "second.md").write_text(
        "---\nname: second\ndescription: d\nresources: {labels: {n: '1'}}\n---\nYou work.\n"
    )
    async with run_provider(
        monkeypatch,
        lead=[
            CREATE,
            spawn_member("ann", resources={"cpus": 0.5, "labels": {"n": "0"}}),
            spawn_member("ben", subagent_type="second"),
            spawn_member("cat", subagent_type="second", resources={"labels": {"n": "0"}}),
            spawn_member("dan", resources={"gpus": 8}),
            "They work.",
            "Over.",
            "Over.",
        ],
        ann=[report_done("ann"), "Done."],
        ben=[report_done("ben"), "Done."],
    ) as server:
        machines.use_provider(server.url)
        async with open_cluster_session(tmp_path, machines, cluster_database) as session:
            await run_turns(session)
            places = [machines.find_machine(find_member(session, name).pid) for name in ("ann", "ben")]
            assert places == machines.nodes
            assert {each.name for each in session.teams.list_members()} == {"ann", "ben"}
        assert has_line(server, "lead", "needs a machine with the label n=1, but the call asks for n=0")
        assert has_line(
            server, "lead", "no machine in the cluster has the requested resources (0.1 cpus, 8 gpus)"
        )


TEMPLATE = """\
---
description: Does a job.
roles:
  - {name: ann, prompt: Work., resources: {gpus: 1}}
  - {name: ben, prompt: Work., resources: {memory: 2 TB}}
  - {name: cat, prompt: Work., type: large}
  - {name: dan, prompt: Work., type: first}
---
Lead it.
"""


async def test_members_of_a_template_run_on_the_machine_that_has_their_resources(
    tmp_path: Path, machines: RayMachines, cluster_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents, teams = tmp_path / ".claude" / "agents", tmp_path / ".claude" / "teams"
    agents.mkdir(parents=True)
    teams.mkdir()
    (teams / "crew.md").write_text(TEMPLATE)
    for name, resources in (("large", "cpus: 6, memory: 1 TB, gpus: 1"), ("first", "labels: {n: '0'}")):
        (agents / f"{name}.md").write_text(
            f"---\nname: {name}\ndescription: d\nresources: {{{resources}}}\n---\nYou work.\n"
        )
    names = ("ann", "ben", "cat", "dan")
    monkeypatch.setenv("SHOAL_STORE", cluster_database)
    arguments = ("--settings", machines.build_settings(), "--model", "anthropic:claude-sonnet-4-5")
    arguments += ("--permission-mode", "bypassPermissions")
    with machines.add_node("--cpus", "8", "--gpus", "2", "--memory", "4TB"):
        async with run_provider(
            monkeypatch, lead=["Wait.", "Over."], **{name: [report_done(name), "Done."] for name in names}
        ) as server:
            machines.use_provider(server.url)
            lead = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "shoal", "team", "start", "crew", "Go.", "-p", *arguments),
                cwd=tmp_path,
                stdout=asyncio.subprocess.DEVNULL,
            )
            async with asyncio.timeout(PATIENCE):
                assert await lead.wait() == 0
            for name in names:
                assert has_line(server, "lead", f"{name} is done.")
            places = {find_speaker(each.body): each.headers["x-api-key"] for each in server.requests}
        del places["lead"]
        # Each machine has its own key.
        assert places == {"ann": "key-3", "ben": "key-3", "cat": "key-3", "dan": "key-1"}
    await assert_no_member_process_is_left(machines)


async def test_a_member_that_waits_for_a_machine_says_so(
    tmp_path: Path, machines: RayMachines, cluster_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole_machine = {"cpus": 2, "labels": {"n": "0"}}
    async with run_provider(
        monkeypatch,
        lead=[
            CREATE,
            spawn_member("ann", resources=whole_machine),
            spawn_member("ben", resources=whole_machine),
            "They work.",
            "Over.",
            "Over.",
        ],
        ann=[wait_for_name("never", "reached"), "Done."],
        ben=[report_done("ben"), "Done."],
    ) as server:
        machines.use_provider(server.url)
        async with open_cluster_session(tmp_path, machines, cluster_database) as session:
            starts = StartTimes(session, machines, "ben")
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(run_turns(session))
                await starts.wait_for_note(
                    "ben is not running yet: it waits until a machine has 2 cpus, n=0 free"
                )
                assert not starts.starts
                await session.stop_task("ann")
                await starts.wait_for_start(1)
        assert has_line(server, "lead", "ben is done.")


async def test_a_member_that_waited_when_its_lead_was_killed_takes_no_machine_afterward(
    tmp_path: Path, machines: RayMachines, cluster_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole_machine = {"cpus": 2, "labels": {"n": "0"}}
    async with run_provider(
        monkeypatch,
        lead=[CREATE, [spawn_member(name, resources=whole_machine) for name in ("ann", "ben")], "They work."],
        ann=[wait_for_name("never", "reached")],
        ben=[wait_for_name("never", "reached")],
    ) as server:
        machines.use_provider(server.url)
        arguments = ("--settings", machines.build_settings(), "--model", "anthropic:claude-sonnet-4-5")
        arguments += ("--permission-mode", "bypassPermissions")
        monkeypatch.setenv("SHOAL_STORE", cluster_database)
        lead = await start_lead(tmp_path, "Go.", *arguments, stderr=asyncio.subprocess.PIPE)
        await wait_for_file(tmp_path / "reached")
        assert lead.stderr is not None
        async with asyncio.timeout(PATIENCE):
            while b"is not running yet" not in await lead.stderr.readline():
                pass
        first = set().union(*(machine.member_pids for machine in machines.machines))
        lead.kill()
        await lead.wait()
        async with asyncio.timeout(PATIENCE):
            # Ray starts the process of the other one, which takes the machine that is free now.
            while not (
                others := set().union(*(machine.member_pids for machine in machines.machines)) - first
            ):
                await asyncio.sleep(0.1)
            while any(machine.has_members for machine in machines.machines):
                await asyncio.sleep(0.1)
        assert len(others) == 1
