"""Sessions with teammates on other machines whose database is unavailable, read-only, full or behind a pooler."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

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
        print(lead.returncode, errors.decode())
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
                notes = StartTimes(session, machines, "ann")
                try:
                    await run_turns(session)
                finally:
                    print(notes.notes)
            for name in names:
                assert has_line(server, "lead", f"{name} is done.")
    await assert_no_member_process_is_left(machines)
