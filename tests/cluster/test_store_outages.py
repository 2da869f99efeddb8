"""Sessions with teammates elsewhere whose database is unavailable, read-only, full or behind a pooler."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest
from cluster_helpers import (
    CREATE,
    StartTimes,
    assert_no_member_process_is_left,
    has_line,
    open_cluster_session,
    report_done,
    run_turns,
    start_lead,
    wait_for_file,
    wait_for_name,
)

from agent_scripts import call_tool
from postgres_server import PoolerProcess, PostgresServer
from ray_machines import RayMachines
from server_scripts import run_provider
from team_scripts import spawn_member

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.needs("ray", "postgres", "asyncpg"),
    pytest.mark.timeout(600),
]


def interrupt_database(server: PostgresServer, seconds: float, go: Path) -> None:
    server.kill()
    go.touch()
    try:
        time.sleep(seconds)
    finally:
        server.start()


@pytest.mark.parametrize("members_per_process", [1, 10])
async def test_members_that_wait_for_the_database_longer_than_the_limit_for_silence_go_on(
    tmp_path: Path,
    machines: RayMachines,
    own_server: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
    members_per_process: int,
) -> None:
    """The lead has nothing to write meanwhile, so it waits for the members and not for the database."""
    database = own_server.create_empty_database(f"silence{members_per_process}")
    async with run_provider(
        monkeypatch,
        lead=[CREATE, [spawn_member("ann"), spawn_member("ben")], "They work.", "Over."],
        **{
            name: [
                wait_for_name("go", f"{name}-works"),
                call_tool("Bash", "b", command="echo on"),
                report_done(name),
                "Done.",
            ]
            for name in ("ann", "ben")
        },
    ) as server:
        machines.use_provider(server.url)
        settings = json.loads(machines.build_settings(members_per_process=members_per_process))
        settings["shoal"]["stall_after"] = 10
        async with open_cluster_session(
            tmp_path, machines, database, settings=json.dumps(settings)
        ) as session:
            starts = [StartTimes(session, machines, name) for name in ("ann", "ben")]
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(run_turns(session, patience=200))
                await wait_for_file(tmp_path / "ann-works")
                await wait_for_file(tmp_path / "ben-works")
                # In a thread, because the lead runs in this one and may wait for the database too.
                await asyncio.to_thread(interrupt_database, own_server, 45, tmp_path / "go")
            assert [len(each.starts) for each in starts] == [1, 1], starts[0].notes
        for name in ("ann", "ben"):
            assert has_line(server, "lead", f"{name} is done.")
    await assert_no_member_process_is_left(machines)


SESSION = "b0000000-0000-4000-8000-0000000000{}"
BREAK = {
    "read-only": (
        "ALTER SYSTEM SET default_transaction_read_only = on",
        "SELECT pg_reload_conf()",
    ),
    "full": (
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE 'could not extend file' USING ERRCODE = 'disk_full'; END $$",
        *(
            f"CREATE TRIGGER full_disk BEFORE INSERT ON shoal.{table} EXECUTE FUNCTION refuse()"
            for table in ("transcript_lines", "journal_lines", "mail")
        ),
    ),
}
REPAIR = {
    "read-only": (
        "SET default_transaction_read_only = off",
        "ALTER SYSTEM RESET default_transaction_read_only",
        "SELECT pg_reload_conf()",
    ),
    "full": ("DROP FUNCTION refuse() CASCADE",),
}
PROBLEMS = {"read-only": "is read-only", "full": "has no space left"}


@pytest.mark.parametrize("how", ["read-only", "full"])
async def test_a_database_that_refuses_writes_ends_the_run_with_the_reason_and_it_is_resumed(
    tmp_path: Path,
    machines: RayMachines,
    own_server: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
) -> None:
    name = f"database_{how[:4]}"
    monkeypatch.setenv("SHOAL_STORE", own_server.create_empty_database(name))
    async with run_provider(
        monkeypatch,
        lead=[CREATE, [spawn_member("ann"), spawn_member("ben")], "They work.", "Over."],
        **{
            member: [
                wait_for_name("go", f"{member}-works"),
                call_tool("Bash", "b", command="echo on"),
                report_done(member),
                "Done.",
            ]
            for member in ("ann", "ben")
        },
    ) as server:
        machines.use_provider(server.url)
        arguments = ("--settings", machines.build_settings(), "--model", "anthropic:claude-sonnet-4-5")
        arguments += ("--permission-mode", "bypassPermissions")
        session = SESSION.format(31 if how == "full" else 32)
        lead = await start_lead(
            tmp_path, "Go.", "--session-id", session, *arguments, stderr=asyncio.subprocess.PIPE
        )
        await wait_for_file(tmp_path / "ann-works")
        await wait_for_file(tmp_path / "ben-works")
        own_server.execute(*BREAK[how], database=name)
        (tmp_path / "go").touch()
        try:
            async with asyncio.timeout(60):
                _, errors = await lead.communicate()
        finally:
            own_server.execute(*REPAIR[how], database=name)
        assert lead.returncode == 1
        assert PROBLEMS[how] in errors.decode()
        assert "Traceback" not in errors.decode()
        await assert_no_member_process_is_left(machines)
        again = await start_lead(tmp_path, "Continue.", "--resume", session, *arguments)
        async with asyncio.timeout(90):
            assert await again.wait() == 0
        for member in ("ann", "ben"):
            assert has_line(server, "lead", f"{member} is done.")
    await assert_no_member_process_is_left(machines)


@pytest.mark.needs("pgbouncer")
@pytest.mark.parametrize("size", [100, 12])
async def test_a_team_works_behind_a_pooler_in_session_mode(
    tmp_path: Path,
    machines: RayMachines,
    own_server: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
    size: int,
) -> None:
    database = f"pooled{size}"
    own_server.create_empty_database(database)
    names = ("ann", "ben", "cat", "dan")
    with PoolerProcess(own_server, "session", database=database, size=size) as address:
        async with run_provider(
            monkeypatch,
            lead=[CREATE, [spawn_member(name) for name in names], "They work.", "Over."],
            **{
                name: [call_tool("Bash", "b", command="echo on"), report_done(name), "Done."]
                for name in names
            },
        ) as server:
            machines.use_provider(server.url)
            async with open_cluster_session(tmp_path, machines, address) as session:
                await run_turns(session)
            for name in names:
                assert has_line(server, "lead", f"{name} is done.")
    await assert_no_member_process_is_left(machines)


@pytest.mark.needs("pgbouncer")
async def test_a_run_behind_a_pooler_in_transaction_mode_is_refused_with_the_reason(
    tmp_path: Path, own_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_server.create_empty_database("transactions")
    with PoolerProcess(own_server, "transaction", database="transactions") as address:
        monkeypatch.setenv("SHOAL_STORE", address)
        async with run_provider(monkeypatch, lead=["Never."]) as server:
            lead = await start_lead(
                tmp_path, "Go.", "--model", "anthropic:claude-sonnet-4-5", stderr=asyncio.subprocess.PIPE
            )
            async with asyncio.timeout(60):
                _, errors = await lead.communicate()
            assert server.requests == []
    assert lead.returncode == 1
    (line,) = errors.decode().splitlines()
    assert "is behind a connection pooler in transaction or statement mode" in line
    assert "Set pool_mode = session in the pooler" in line
    assert own_server.execute(
        "SELECT count(*) FROM pg_namespace WHERE nspname = 'shoal'", database="transactions"
    ) == [[0]]
