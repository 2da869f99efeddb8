"""Runs that move between files and PostgreSQL, with `shoal store`."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from store_openers import ignore_report, make_services

from postgres_server import get_shared_server
from shoal.core.agents.subagent_metadata import SubagentMetadata
from shoal.core.clock import SystemClock
from shoal.core.errors import SessionNotFound, SettingsError, StateFileError
from shoal.core.ids import AgentId, SessionId
from shoal.core.names import AgentName
from shoal.core.permissions.questions import AllowAnswer
from shoal.core.teams.mail import MailMessage
from shoal.core.teams.tasks import TaskDraft, TaskUpdate
from shoal.stores.files.file_store import FileStore
from shoal.stores.files.home.exported_files import EXPORT_LIST
from shoal.stores.files.home.run_copy import read_run_files, write_run_files
from shoal.stores.postgres import store_admin
from shoal.stores.postgres.database_client import DatabaseClient
from shoal.stores.postgres.postgres_store import PostgresStore
from shoal.stores.stored_run import StoredRun, StoredRunBoard
from shoal.surfaces.cli.store_commands import store_commands
from shoal.testing.contracts.question_contract import make_question
from shoal.testing.contracts.roster_contract import ROOF, create_sample_team, make_new_member
from shoal.testing.contracts.session_contract import (
    append_notes,
    append_text,
    create_used_session,
    open_journal,
    read_notes,
)
from shoal.testing.contracts.work_contract import make_part

pytestmark = pytest.mark.needs("postgres", "asyncpg")
ANN, BOB = AgentName("ann"), AgentName("bob")
SESSION = SessionId("s-1")
WORKER = AgentId("a1")
# Locks, counters of locks and empty directories belong to the machine, not to the run.
_MACHINE_FILES = (
    "lock",
    ".lock",
    "roster.lock",
    "roster.staged",
    "roster.copy",
    "members.staged",
    "control.sock",
)


def run_store_command(*arguments, home, database):
    """Run `shoal store` with a home and a store; return what it prints as JSON."""
    # In a thread, because the command runs an event loop.
    with ThreadPoolExecutor(1) as executor:
        result = executor.submit(
            CliRunner().invoke,
            store_commands,
            [*map(str, arguments), "--store", database, "--json"],
            env={"SHOAL_HOME": str(home)},
            catch_exceptions=False,
            standalone_mode=False,
        ).result()
    return json.loads(result.output), result.return_value


async def fill_home(home: Path) -> None:
    """Make a run with everything that a store keeps."""
    store, services = FileStore(home), make_services()
    session = create_used_session(store, SESSION, cwd="/project")
    append_text(session, "work", WORKER)
    session.save_agent_metadata(WORKER, SubagentMetadata(agent_type="Explore", mode="plan"))
    append_notes(open_journal(session), "one", "two ä")
    session.open_results().save_result("report.bin", b"a long\0report")
    questions = session.open_questions()
    for question_id in ("q-1", "q-2"):
        questions.store_question(make_question(question_id))
    questions.answer("q-1", AllowAnswer())
    for number in (1, 2):
        session.open_work().append_part(make_part(number, agent="../ann", is_first=number == 1))
    rosters = store.open_rosters(clock=SystemClock(), report=ignore_report)
    await create_sample_team(rosters)
    await rosters.add_member(ROOF, make_new_member())
    store.load_signing_key(ROOF)
    mailboxes = store.open_mailboxes(ROOF, **services)
    await mailboxes.open_inbox(ANN)
    await mailboxes.open_inbox(BOB, foreign=True)
    for number in range(40):
        await mailboxes.post(
            ANN, MailMessage(id=f"m{number}", sender=BOB, text=f"{number}", timestamp="2026-01-01T00:00:00Z")
        )
        if number < 30:
            await mailboxes.mark_read(ANN, [f"m{number}"])
    board = store.open_board(ROOF, **services)
    for number in range(4):
        await board.create(TaskDraft(subject=f"task {number}", description="ü", metadata={"k": [number]}))
    await board.update("2", TaskUpdate(add_blocked_by=("1",)), by=ANN)
    await board.update("3", TaskUpdate(status="completed", owner=ANN), by=ANN)
    await board.delete("4")
    other = home / "tasks" / "roof" / "3.json"
    # A field of another program.
    other.write_bytes(other.read_bytes().rstrip()[:-1] + b',"theirs":1.50}')
    await board.aclose()
    await mailboxes.aclose()
    await rosters.aclose()


def read_files(home: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(home)): path.read_bytes()
        for path in sorted(home.rglob("*"))
        if path.is_file()
        and path.name not in (*_MACHINE_FILES, EXPORT_LIST)
        and ".tmp." not in path.name  # of a process that died
        and not {"locks", "staging", "leases", "teams.lock"} & {*path.parts}
        and "shoal/tasks" not in str(path)
    }


async def test_a_torn_last_line_of_a_conversation_does_not_join_the_next_one(tmp_path, database):
    home, other_home = tmp_path / "home", tmp_path / "other"
    await fill_home(home)
    (transcript,) = (home / "projects").rglob(f"{SESSION}.jsonl")
    complete = transcript.read_bytes()
    transcript.write_bytes(complete + b'{"type":"user","uuid":"torn')
    for _ in range(2):  # the second import finds the same run
        imported, _status = run_store_command("import", SESSION, home=home, database=database)
        (damage,) = imported["damage"]
        assert damage.startswith(f"The conversation {transcript} is damaged: its last line is incomplete.")
    client = DatabaseClient(database)
    try:
        append_text(PostgresStore(client, tmp_path / "third").find_session(SESSION), "after it")
    finally:
        client.close()
    exported, _ = run_store_command("export", SESSION, home=other_home, database=database)
    lines = Path(exported["transcript"]).read_bytes().split(b"\n")
    assert lines[: complete.count(b"\n")] == complete.split(b"\n")[:-1]
    assert lines[-3] == b'{"type":"user","uuid":"torn'
    assert json.loads(lines[-2])["message"]["content"] == [{"type": "text", "text": "after it"}]


async def test_a_run_goes_to_the_database_and_back_byte_for_byte(tmp_path, database):
    home, other_home = tmp_path / "home", tmp_path / "other"
    await fill_home(home)
    before = read_files(home)
    imported, _ = run_store_command("import", SESSION, home=home, database=database)
    assert imported == {"session": SESSION, "damage": []}
    assert read_files(home) == before
    exported, _ = run_store_command("export", SESSION, home=other_home, database=database)
    assert Path(exported["transcript"]).is_relative_to(other_home)
    assert read_files(other_home) == before
    problems, code = run_store_command("check", home=home, database=database)
    assert (problems, code) == ({"problems": []}, 0)


async def test_an_imported_run_is_worked_on_in_the_database(tmp_path, database):
    import postgres_helpers

    home = tmp_path / "home"
    await fill_home(home)
    run_store_command("import", "s-", home=home, database=database)
    with postgres_helpers.opened_postgres_store(database, tmp_path / "elsewhere") as store:
        session, services = store.find_session(SESSION), make_services()
        session.acquire_lock()
        assert (session.directory / "results" / "report.bin").read_bytes() == b"a long\0report"
        assert read_notes(open_journal(session)) == ["one", "two ä"]
        assert [each.id for each in session.open_questions().list_open_questions()] == ["q-2"]
        mailboxes, board = store.open_mailboxes(ROOF, **services), store.open_board(ROOF, **services)
        assert [mail.id for mail in await mailboxes.take_unread(ANN)] == [f"m{n}" for n in range(30, 40)]
        assert len(await mailboxes.read_history(ANN)) == 40
        assert (await board.claim("2", by=ANN)).reason == "blocked"
        await board.update("1", TaskUpdate(status="completed"), by=ANN)
        assert (await board.claim("2", by=ANN)).success
        assert (await board.create(TaskDraft(subject="new", description=""))).id == "5"
        assert store.load_signing_key(ROOF) == FileStore(home).load_signing_key(ROOF)


async def test_a_session_that_the_target_has_is_not_overwritten(tmp_path, database):
    home = tmp_path / "home"
    await fill_home(home)
    run_store_command("import", SESSION, home=home, database=database)
    append_notes(open_journal(FileStore(home).find_session(SESSION)), "three")
    before = read_files(home)
    for command, problem in (("import", "already has a different session"), ("export", "already")):
        with pytest.raises(StateFileError, match=problem):
            run_store_command(command, SESSION, home=home, database=database)
    assert read_files(home) == before


def write_and_die(home: Path, run: StoredRun, steps: int) -> bool:
    """Write the run in another process that dies before it changes the disk once more than `steps` times.

    Return True if it did not die.
    """
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    left = steps

    def count_change(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        is_change = event in {"os.rename", "os.mkdir", "os.link", "os.remove", "os.rmdir"}
        if is_change or (event == "open" and int(arguments[2]) & (os.O_WRONLY | os.O_RDWR)):
            left -= 1
            if left < 0:
                os._exit(9)

    try:
        sys.addaudithook(count_change)
        write_run_files(home, run)
        os._exit(0)
    finally:
        traceback.print_exc()
        os._exit(1)


@pytest.fixture
async def filled_home(tmp_path):
    await fill_home(tmp_path / "home")
    return tmp_path / "home"


@pytest.mark.slow
def test_an_export_that_dies_at_any_step_leaves_no_session_and_is_completed_by_the_next(
    filled_home, tmp_path
):
    expected, run = read_files(filled_home), read_run_files(filled_home, SESSION)
    steps, has_died = 0, True
    while has_died:
        home = tmp_path / f"home-{steps}"
        has_died = not write_and_die(home, run, steps)
        try:
            FileStore(home).find_session(SESSION)
        except SessionNotFound:
            assert has_died
        else:
            # Only the note that the copy is unfinished may be left.
            assert {**read_files(home), "shoal/runs/s-1/unfinished-copy.json": b""} == {
                **expected,
                "shoal/runs/s-1/unfinished-copy.json": b"",
            }
        if has_died:
            write_run_files(home, run)
        assert read_files(home) == expected, steps
        shutil.rmtree(home)
        steps += 1
    assert steps > 30


def test_an_export_that_dies_again_and_again_is_completed(filled_home, tmp_path):
    expected, run = read_files(filled_home), read_run_files(filled_home, SESSION)
    # What was in the store at the first try may have been removed since.
    earlier = replace(run, boards={**run.boards, "s-1": StoredRunBoard(highest=1, tasks={1: b"{}"})})
    home = tmp_path / "other"
    assert not write_and_die(home, earlier, 30)
    for steps in range(0, 40, 5):
        assert not write_and_die(home, run, steps)
    write_run_files(home, run)
    assert read_files(home) == expected


@pytest.mark.slow
@pytest.mark.parametrize("mark", [b"", b"4\n", b"1", b"torn", b"-3"])
def test_the_highest_task_id_is_that_of_the_mark_or_of_a_task(filled_home, mark):
    (found,) = filled_home.glob(f"tasks/{ROOF}/.highwatermark")
    found.write_bytes(mark)
    board = read_run_files(filled_home, SESSION).boards[ROOF]
    assert sorted(board.tasks) == [1, 2, 3]
    assert board.highest == (4 if mark == b"4\n" else 3)


def test_an_unfinished_export_is_not_mistaken_for_the_team_of_another_session(filled_home, tmp_path):
    run, home = read_run_files(filled_home, SESSION), tmp_path / "other"
    # The first step with a roster: four at a time, then one at a time.
    end = next(steps for steps in range(0, 500, 4) if has_unfinished_team(home, run, steps))
    assert end
    assert any(has_unfinished_team(home, run, steps) for steps in range(end - 3, end + 1))
    roster = home / "teams" / "roof" / "config.json"
    roster.write_bytes(roster.read_bytes().replace(b'"s-1"', b'"s-2"'))
    before = read_files(home)
    with pytest.raises(StateFileError, match="already has a team roof"):
        write_run_files(home, run)
    assert read_files(home) == before


def has_unfinished_team(home: Path, run: StoredRun, steps: int) -> bool:
    shutil.rmtree(home, ignore_errors=True)
    assert not write_and_die(home, run, steps)
    return (home / "teams" / "roof" / "config.json").exists()


IMPORTED_TABLES = ("sessions", "transcript_lines", "journal_lines", "questions", "tasks", "teams", "mail")


@pytest.mark.parametrize("table", [*IMPORTED_TABLES, "commit"])
async def test_an_import_that_is_killed_leaves_nothing_or_everything_and_is_completed_by_the_next(
    filled_home, tmp_path, database, table
):
    import asyncpg

    run_store_command("migrate", home=filled_home, database=database)
    raw = await asyncpg.connect(database)
    kind, time = ("CONSTRAINT", "DEFERRABLE INITIALLY DEFERRED") if table == "commit" else ("", "")
    name = "sessions" if table == "commit" else table
    try:
        await raw.execute(
            "SELECT pg_advisory_lock(7);"
            "CREATE OR REPLACE FUNCTION wait_for_test() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NULL; END $$;"
            f"CREATE {kind} TRIGGER wait_for_test AFTER INSERT ON shoal.{name} {time} "
            "FOR EACH ROW EXECUTE FUNCTION wait_for_test()"
        )
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "shoal", "store", "import", SESSION, "--store", database),
            env={**os.environ, "SHOAL_HOME": str(filled_home)},
        )
        waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'advisory'"
        async with asyncio.timeout(60):
            while (server_pid := await raw.fetchval(waiting)) is None:
                assert process.returncode is None
                await asyncio.sleep(0.02)
        process.kill()
        await process.wait()
        if table != "commit":
            await raw.execute(f"SELECT pg_terminate_backend({server_pid}, 10000)")
        await raw.execute("SELECT pg_advisory_unlock(7)")
        async with asyncio.timeout(60):
            while await raw.fetchval(f"SELECT true FROM pg_stat_activity WHERE pid = {server_pid}"):
                await asyncio.sleep(0.02)
        await raw.execute(f"DROP TRIGGER wait_for_test ON shoal.{name}")
        counts = {each: await raw.fetchval(f"SELECT count(*) FROM shoal.{each}") for each in IMPORTED_TABLES}
    finally:
        await raw.execute(f"DROP TRIGGER IF EXISTS wait_for_test ON shoal.{name}")
        await raw.close()
    assert all(counts.values()) if table == "commit" else not any(counts.values()), counts
    run_store_command("import", SESSION, home=filled_home, database=database)
    run_store_command("export", SESSION, home=tmp_path / "other", database=database)
    assert read_files(tmp_path / "other") == read_files(filled_home)


async def test_status_and_migrate_tell_the_version_and_check_finds_what_is_wrong(tmp_path, own_server):
    database = own_server.create_empty_database()
    status, _ = run_store_command("status", home=tmp_path, database=database)
    assert (status["version"], status["counts"]) == (0, {})
    assert run_store_command("migrate", home=tmp_path, database=database)[0] == {
        "before": 0,
        "after": status["needed_version"],
    }
    home = tmp_path / "home"
    await fill_home(home)
    run_store_command("import", SESSION, home=home, database=database)
    status, _ = run_store_command("status", home=tmp_path, database=database)
    assert {name: status["counts"][name] for name in ("sessions", "teams", "open tasks", "unread mail")} == {
        "sessions": 1,
        "teams": 1,
        "open tasks": 2,
        "unread mail": 10,
    }
    own_server.execute(
        "UPDATE shoal.tasks SET open_blockers = 7 WHERE number = 1",
        "DELETE FROM shoal.journal_lines WHERE position = 0",
        "DELETE FROM shoal.work_parts WHERE number = 1",
        "INSERT INTO shoal.work_parts VALUES ('gone', 'ben', 1, '{\"is_first\":true}', '')",
        database="shoal",
    )
    problems, code = run_store_command("check", home=home, database=database)
    assert code == 1
    text = "\n".join(problems["problems"])
    assert "roof 1: a task has a wrong number of open blockers." in text
    assert f"{SESSION}: a journal has a gap or an overlap." in text
    assert f"{SESSION} ../ann: the stored work of an agent has a gap." in text
    assert "gone ben: the stored work of an agent has a gap." not in text
    assert "gone: stored work has no session." in text


DAMAGES = {
    "a journal has a gap or an overlap": (
        "UPDATE shoal.journal_lines SET position = position + 1 WHERE position = 0",
        SESSION,
    ),
    "a journal's size differs from the size stored with its session": (
        "UPDATE shoal.sessions SET journal_size = journal_size + 1",
        SESSION,
    ),
    "a transcript has a gap": (
        f"UPDATE shoal.transcript_lines SET number = number + 1000 WHERE agent = '{WORKER}'",
        f"{SESSION} {WORKER}",
    ),
    "a task has a wrong number of open blockers": (
        "UPDATE shoal.tasks SET open_blockers = 7 WHERE number = 1",
        f"{ROOF} 1",
    ),
    "a blocker does not list a task that it blocks": (
        "UPDATE shoal.tasks SET dependents = '{}' WHERE number = 1",
        f"{ROOF} 2",
    ),
    "a claimed task has an unknown lease": (
        "UPDATE shoal.tasks SET status = 'in_progress', attempt = 'gone-1' WHERE number = 1",
        f"{ROOF} 1",
    ),
    "mail has no inbox": (f"DELETE FROM shoal.inboxes WHERE owner = '{ANN}'", f"{ROOF} {ANN}"),
    "the stored work of an agent has a gap": (
        "DELETE FROM shoal.work_parts WHERE number = 1",
        f"{SESSION} ../ann",
    ),
    "stored work has no session": (
        "INSERT INTO shoal.work_parts VALUES ('gone', 'ben', 1, '{\"is_first\":true}', '')",
        "gone",
    ),
    "a lock belongs to a process that has ended": (
        "UPDATE shoal.sessions SET lock_holder = 999999",
        SESSION,
    ),
}
"""By problem: a statement that causes it, and what has the problem."""


@pytest.mark.parametrize("problem", vars(store_admin)["_CHECKS"])
async def test_check_finds_each_kind_of_damage_and_nothing_else(filled_home, database, problem):
    run_store_command("import", SESSION, home=filled_home, database=database)
    assert run_store_command("check", home=filled_home, database=database) == ({"problems": []}, 0)
    statement, name = DAMAGES[problem]
    get_shared_server().execute(statement, database="shoal")
    problems, code = run_store_command("check", home=filled_home, database=database)
    assert (problems, code) == ({"problems": [f"{name}: {problem}."]}, 1)


@pytest.mark.parametrize("state", ["not JSON", "\\xff", '{"agent":"../ann"}'])
async def test_damaged_work_in_the_database_is_named(tmp_path, filled_home, database, state):
    run_store_command("import", SESSION, home=filled_home, database=database)
    get_shared_server().execute(
        f"UPDATE shoal.work_parts SET state = '{state}' WHERE number = 1", database="shoal"
    )
    assert run_store_command("check", home=filled_home, database=database) == (
        {"problems": [f"{SESSION} ../ann: the stored work of an agent has a gap."]},
        1,
    )
    named = rf"The stored work of \.\./ann in the session {SESSION} is not valid: .*shoal store check"
    with pytest.raises(StateFileError, match=named):
        run_store_command("export", SESSION, home=tmp_path / "other", database=database)
    store = PostgresStore(DatabaseClient(database), tmp_path / "home")
    try:
        with pytest.raises(StateFileError, match=named):
            store.find_session(SESSION).open_work().read_parts("../ann")
    finally:
        store.close()


async def test_a_question_with_a_long_id_moves_there_and_back(tmp_path, filled_home, database):
    question_id = "".join(sha256(bytes([number])).hexdigest() for number in range(128))
    FileStore(filled_home).find_session(SESSION).open_questions().store_question(make_question(question_id))
    for _ in range(2):  # the second one finds the same run
        run_store_command("import", SESSION, home=filled_home, database=database)
    other = tmp_path / "other"
    run_store_command("export", SESSION, home=other, database=database)
    assert read_files(other) == read_files(filled_home)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        (b"shoal/runs/s-1/results/\xff.txt", b"", "is not valid UTF-8. Rename it"),
        (b"projects/-project/s-1/subagents/agent-\xff.jsonl", b"", "is not valid UTF-8. Rename it"),
        (b"tasks/roof/.highwatermark", b"9" * 19, "The number in .*/.highwatermark is too large"),
        (b"shoal/teams/roof/spawned", b"9" * 5000, "The number in .*/spawned is too large"),
    ],
)
def test_a_file_that_a_database_cannot_store_is_named(filled_home, database, name, content, problem):
    path = filled_home / os.fsdecode(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    with pytest.raises(StateFileError, match=problem):
        run_store_command("import", SESSION, home=filled_home, database=database)


def test_a_session_name_that_no_session_has_is_reported_as_such(tmp_path, database):
    for name in ("my work", "\u65e5\u672c", "../x"):
        with pytest.raises(SessionNotFound, match="There is no session"):
            run_store_command("import", name, home=tmp_path, database=database)


def test_tables_of_an_unknown_version_are_not_checked(tmp_path, own_server):
    database = own_server.create_empty_database()
    run_store_command("migrate", home=tmp_path, database=database)
    own_server.execute("UPDATE shoal.schema_version SET version = 99", database="shoal")
    with pytest.raises(SettingsError, match="version 99"):
        run_store_command("check", home=tmp_path, database=database)


def test_a_database_that_cannot_store_all_names_is_refused(tmp_path, own_server):
    own_server.execute(
        "DROP DATABASE IF EXISTS latin", "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0"
    )
    with pytest.raises(SettingsError, match=r"encoding of the database is LATIN1.*--encoding UTF8"):
        run_store_command("migrate", home=tmp_path, database=own_server.build_address("latin"))
    status, _ = run_store_command("status", home=tmp_path, database=own_server.build_address("latin"))
    assert status["version"] == 0


def test_a_user_without_rights_reads_what_to_grant_and_who_can_migrate(tmp_path, own_server):
    own_server.execute("DROP ROLE IF EXISTS eve", "CREATE ROLE eve LOGIN")
    own_server.create_empty_database()
    address = own_server.build_address("shoal").replace("shoal@", "eve@")
    for database in (address, own_server.build_address("shoal"), address):
        if database != address:
            run_store_command("migrate", home=tmp_path, database=database)
            continue
        with pytest.raises(StateFileError, match=r"permission denied.*Only the owner.*INSERT") as raised:
            run_store_command("migrate", home=tmp_path, database=database)
        assert "the schema shoal" in str(raised.value)


def export_files(filled_home: Path, home: Path) -> dict[str, Path]:
    """Export the run; return its files by name."""
    write_run_files(home, read_run_files(filled_home, SESSION))
    return {name: home / name for name in read_files(home)}


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def count_rows(database: str) -> list[int]:
    client = DatabaseClient(database)
    try:

        async def count(raw):
            return [await raw.fetchval(f"SELECT count(*) FROM shoal.{table}") for table in IMPORTED_TABLES]

        return client.run(lambda worker: worker.execute(count))
    finally:
        client.close()


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (truncate, "of its"),
        (flip_byte, "has other content than the file that was exported"),
        (Path.unlink, "is missing"),
    ],
)
async def test_a_damaged_file_of_an_export_is_named_and_nothing_is_imported(
    filled_home, tmp_path, database, damage, problem
):
    home = tmp_path / "export"
    files = export_files(filled_home, home)
    # This list of results belongs to the home; the results themselves are checked.
    names = [name for name, path in files.items() if path.name != ".sizes"]
    assert len(names) > 15
    for name in names:
        content = files[name].read_bytes()
        if not content and damage is not Path.unlink:
            continue
        damage(files[name])
        with pytest.raises(StateFileError, match=problem) as raised:
            run_store_command("import", SESSION, home=home, database=database)
        assert f"{name} " in str(raised.value)
        assert "nothing was imported" in str(raised.value)
        files[name].write_bytes(content)
    assert not any(count_rows(database))
    run_store_command("import", SESSION, home=home, database=database)


async def test_a_damaged_list_of_an_export_is_reported_and_can_be_removed(filled_home, tmp_path, database):
    home = tmp_path / "export"
    export_files(filled_home, home)
    path = home / "shoal" / "runs" / SESSION / EXPORT_LIST
    truncate(path)
    with pytest.raises(StateFileError, match=f"remove {path} first"):
        run_store_command("import", SESSION, home=home, database=database)
    path.unlink()
    assert run_store_command("import", SESSION, home=home, database=database)[0]["damage"] == []


async def test_an_exported_session_that_was_resumed_is_imported_unless_its_old_lines_are_damaged(
    filled_home, tmp_path, database
):
    home = tmp_path / "export"
    files = export_files(filled_home, home)
    store = FileStore(home)
    session = store.find_session(SESSION)
    append_text(session, "later")
    board = store.open_board(ROOF, **make_services())
    await board.update("1", TaskUpdate(status="completed"), by=ANN)
    await board.aclose()
    for name in (next(name for name in files if name.endswith("journal.jsonl")), Path(session.transcript)):
        path = home / name
        content = path.read_bytes()
        path.write_bytes(content.replace(b"e", b"f", 1))
        with pytest.raises(StateFileError, match="has other content"):
            run_store_command("import", SESSION, home=home, database=database)
        path.write_bytes(content)
    imported, _ = run_store_command("import", SESSION, home=home, database=database)
    assert imported == {"session": SESSION, "damage": []}


async def test_parts_that_would_be_left_out_are_refused(filled_home, database):
    for name, problem in (("tasks/roof/2.json", "is not a valid task"), ("teams/roof/config.json", "roster")):
        path = filled_home / name
        content = path.read_bytes()
        path.write_bytes(content[:-3])
        with pytest.raises(StateFileError, match=problem) as raised:
            run_store_command("import", SESSION, home=filled_home, database=database)
        assert str(path) in str(raised.value)
        path.write_bytes(content)
    run_store_command("import", SESSION, home=filled_home, database=database)


async def test_lines_that_cannot_be_read_are_imported_as_they_are_and_reported(filled_home, database):
    run = filled_home / "shoal" / "runs" / SESSION
    (transcript,) = (filled_home / "projects").rglob(f"{SESSION}.jsonl")
    for path in (transcript, run / "journal.jsonl"):
        path.write_bytes(b"{\n" + path.read_bytes())
    truncate(run / "results" / "report.bin")
    imported, _ = run_store_command("import", SESSION, home=filled_home, database=database)
    result, conversation, journal = imported["damage"]
    assert "report.bin is damaged: it has 12 of its 13 bytes" in result
    assert conversation == "The conversation of lead has 1 line that cannot be read."
    assert journal == "The journal has 1 line that cannot be read."
