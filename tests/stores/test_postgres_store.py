"""A store in PostgreSQL beyond the contract: leases, lost connections, poolers, versions, refusals."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from postgres_server import PoolerProcess, PostgresServer
from ray_machines import find_free_port
from setup_env import find_program
from shoal.core.clock import SystemClock
from shoal.core.errors import SessionNotFound, SettingsError, StateFileError, TeamNotFound
from shoal.core.events import NoteAdded
from shoal.core.ids import LEAD_ID
from shoal.core.names import LEAD_NAME
from shoal.core.teams.mail import MailMessage
from shoal.core.teams.tasks import TaskDraft, TaskUpdate
from shoal.core.text.redaction import KEY_SHAPE_REDACTOR
from shoal.stores.postgres.schema import MIGRATIONS
from shoal.stores.postgres.store_admin import find_store_problems, migrate_store, run_on_connection
from shoal.stores.store_choice import open_store
from shoal.testing.contracts.board_contract import ANN, BOB, create_tasks
from shoal.testing.contracts.roster_contract import ROOF, create_sample_team, make_new_member
from shoal.testing.contracts.session_contract import (
    FIRST,
    append_text,
    create_used_session,
    make_entry,
    read_entry_ids,
    read_notes,
)

pytestmark = pytest.mark.needs("postgres", "asyncpg")
HERE = Path(__file__).parent


@pytest.fixture
def helpers():
    import postgres_helpers

    return postgres_helpers


def make_mail(mail_id, text="hello"):
    return MailMessage(id=mail_id, sender=ANN, text=text, timestamp="2026-01-01T00:00:00Z")


@pytest.mark.slow
async def test_a_paused_process_that_lost_its_lease_can_no_longer_write(database, home, helpers):
    with helpers.opened_postgres_store(database, home, lease=1.0) as store:
        board = store.open_board("roof", **helpers.make_services())
        await create_tasks(board, 2)
        mailboxes = store.open_mailboxes("roof", **helpers.make_services())
        await mailboxes.open_inbox(BOB)
        await mailboxes.post(BOB, make_mail("m0"))
        process = subprocess.Popen(
            [sys.executable, HERE / "lease_process.py", database, home],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        try:
            assert process.stdout.readline().strip() == "1"
            assert (await board.claim("1", by=BOB)).reason == "already_claimed"
            process.send_signal(signal.SIGSTOP)
            session = store.find_session(FIRST)
            await helpers.wait_for(lambda: try_to_lock(session))
            claim = await board.claim("1", by=BOB)
            assert claim.success
            process.send_signal(signal.SIGCONT)
            output, _ = process.communicate("write\n", timeout=30)
        finally:
            process.kill()
            process.wait()
        assert output.split() == [
            word
            for name in ("update", "claim", "post", "read", "transcript", "title", "journal")
            for word in (name, "StoreLeaseLost")
        ]
        tasks = {task.id: (task.subject, task.owner) for task in await board.list_tasks()}
        assert tasks == {"1": ("task 0", BOB), "2": ("task 1", None)}
        assert read_entry_ids(session) == ["entry-hello"]
        with pytest.raises(SessionNotFound):
            store.find_session("late")


async def test_a_process_that_hangs_in_a_transaction_loses_its_lease_and_its_locks(database, home, helpers):
    with helpers.opened_postgres_store(database, home, lease=1.0) as store:
        board = store.open_board("roof", **helpers.make_services())
        await create_tasks(board, 1)
        process = subprocess.Popen(
            [sys.executable, HERE / "transaction_process.py", database, home],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        try:
            assert process.stdout.readline() == "locked\n"
            process.send_signal(signal.SIGSTOP)
            async with asyncio.timeout(helpers.WAIT_SECONDS):
                await create_tasks(board, 1)

            async def has_ended():
                query = "SELECT count(*) FROM shoal.holders"
                return await store.client.call(lambda w: w.execute(lambda raw: raw.fetchval(query))) == 1

            await helpers.wait_for(has_ended)
            process.send_signal(signal.SIGCONT)
            output, _ = process.communicate("continue\n", timeout=30)
        finally:
            process.kill()
            process.wait()
        assert output == "StoreLeaseLost\n"
        assert [task.id for task in await board.list_tasks()] == ["1", "2"]


async def test_defaults_of_a_database_do_not_change_how_the_store_works(own_server, home, helpers):
    database = own_server.create_empty_database("defaults")
    for setting in (
        "default_transaction_isolation = 'serializable'",
        "statement_timeout = '100ms'",
        "lock_timeout = '100ms'",
        "synchronous_commit = off",
    ):
        own_server.execute(f"ALTER DATABASE defaults SET {setting}")
    with helpers.opened_postgres_store(database, home) as store:
        board = store.open_board("roof", **helpers.make_services())
        await create_tasks(board, 1)
        shown = (
            "SELECT current_setting('transaction_isolation') || ' ' || current_setting('synchronous_commit')"
        )

        async def read_settings_late(raw):
            await raw.execute("SELECT pg_sleep(0.2)")
            return await raw.fetchval(shown)

        settings = await store.client.call(lambda worker: worker.execute(read_settings_late))
        assert settings == "read committed on"
        # Commands such as `shoal store migrate` have connections of their own.
        assert run_on_connection(database, read_settings_late) == "read committed on"


class TcpServer(PostgresServer):
    """A server at a port, as on another machine."""

    def __init__(self) -> None:
        self._port = find_free_port()
        super().__init__(listen_addresses="127.0.0.1", port=str(self._port))

    def build_address(self, database: str) -> str:
        return f"postgresql://shoal@127.0.0.1:{self._port}/{database}"


async def test_the_server_closes_the_connections_of_a_lost_machine_soon(home, helpers):
    """Otherwise they would count for `max_connections` for two hours."""
    server = TcpServer()
    try:
        server.start()
        with helpers.opened_postgres_store(server.create_empty_database(), home) as store:

            async def read_settings(raw):
                names = ("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count")
                return [int(await raw.fetchval("SELECT current_setting($1)", name)) for name in names]

            idle, interval, count = await store.client.call(lambda worker: worker.execute(read_settings))
        assert 0 < idle + interval * count <= 20
    finally:
        server.remove()


async def test_a_teammate_opens_a_session_whose_lead_has_written_nothing_and_leaves_it_in_place(
    database, home, helpers
):
    with (
        helpers.opened_postgres_store(database, home) as store,
        helpers.opened_postgres_store(database, home) as other,
    ):
        with pytest.raises(SessionNotFound, match=FIRST):
            other.open_member_session(FIRST)
        session = store.create_session(FIRST, cwd="/work")
        session.acquire_lock()
        with pytest.raises(SessionNotFound):
            other.find_session(FIRST)
        other.open_member_session(FIRST).release_lock(unused=True)
        append_text(session, "hello")
        assert read_entry_ids(other.find_session(FIRST)) == ["entry-hello"]


async def try_to_lock(session):
    try:
        await asyncio.to_thread(session.acquire_lock)
    except StateFileError:
        return False
    return True


async def test_the_lease_of_a_killed_process_of_this_machine_ends_at_once(database, home, helpers):
    with helpers.opened_postgres_store(database, home, lease=600.0) as store:
        board = store.open_board("roof", **helpers.make_services())
        await create_tasks(board, 1)
        process = subprocess.Popen(
            [sys.executable, HERE / "lease_process.py", database, home],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert process.stdout.readline().strip() == "1"
        session = store.find_session(FIRST)
        with pytest.raises(StateFileError, match=f"in use by process {process.pid}"):
            session.acquire_lock()
        process.kill()
        process.communicate()
        session.acquire_lock()
        assert (await board.claim("1", by=BOB)).success


@pytest.mark.slow
async def test_a_session_of_a_process_elsewhere_that_was_just_killed_is_taken_when_its_lease_ends(
    own_server, home, helpers
):
    database = own_server.create_empty_database("elsewhere")
    with helpers.opened_postgres_store(database, home, lease=1.0) as store:
        await create_tasks(store.open_board("roof", **helpers.make_services()), 1)
        process = subprocess.Popen(
            [sys.executable, HERE / "lease_process.py", database, home],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert process.stdout.readline().strip() == "1"
        own_server.execute(
            "UPDATE shoal.holders SET host = 'far boot 1' "
            "WHERE epoch = (SELECT lock_holder FROM shoal.sessions WHERE lock_holder IS NOT NULL)",
            database="elsewhere",
        )
        session = store.find_session(FIRST)
        with pytest.raises(StateFileError, match=f"in use by process {process.pid} on far"):
            session.acquire_lock()
        process.kill()
        process.communicate()
        session.acquire_lock()


async def test_a_missed_notification_costs_at_most_the_safety_poll(database, home, helpers):
    with (
        helpers.opened_postgres_store(database, home, poll=0.2) as store,
        helpers.opened_postgres_store(database, home) as other,
    ):
        mailboxes = store.open_mailboxes("roof", **helpers.make_services())
        board = store.open_board("roof", **helpers.make_services())
        await mailboxes.open_inbox(BOB)
        await board.create(TaskDraft(subject="s", description=""))
        claim = await board.claim_next(by=ANN)
        async with asyncio.timeout(helpers.WAIT_SECONDS), asyncio.TaskGroup() as group:
            group.create_task(mailboxes.wait_for_mail(BOB))
            group.create_task(board.wait_for_claimable())
            await asyncio.sleep(0.1)
            # As a process that dies between its commit and its notification.
            other.client.run(drop_notifications)
            await other.open_mailboxes("roof", **helpers.make_services()).post(BOB, make_mail("m1"))
            await other.open_board("roof", **helpers.make_services()).release("1", attempt=claim.attempt)


async def drop_notifications(worker):
    worker.notify = lambda *_, **__: None


async def test_a_claim_whose_caller_was_canceled_is_released(database, home, helpers):
    with helpers.opened_postgres_store(database, home) as store:
        board = store.open_board("roof", **helpers.make_services())
        await create_tasks(board, 1)
        first = await board.claim("1", by=ANN)  # creates the lease, so that the next claim is one statement
        assert await board.release("1", attempt=first.attempt)
        for _ in range(5):
            claiming = asyncio.create_task(board.claim_next(by=ANN))
            await asyncio.sleep(0)
            claiming.cancel()
            with pytest.raises(asyncio.CancelledError):
                await claiming

            async def is_free():
                task = await board.get("1")
                return task.owner is None and task.status == "pending"

            await helpers.wait_for(is_free)


async def test_another_process_sees_a_claim_without_its_safety_poll(database, home, helpers):
    with (
        helpers.opened_postgres_store(database, home, poll=600) as store,
        helpers.opened_postgres_store(database, home) as other,
    ):
        board = other.open_board("roof", **helpers.make_services())
        await create_tasks(board, 1)
        seen = asyncio.Event()
        viewed = store.open_board("roof", **helpers.make_services())
        watch = viewed.watch_changes(seen.set)
        await helpers.wait_for(lambda: read_owner(viewed, seen, None))
        seen.clear()
        await board.claim("1", by=BOB)
        async with asyncio.timeout(helpers.WAIT_SECONDS):
            await seen.wait()
        assert (await viewed.get("1")).owner == BOB
        watch.close()


async def read_owner(board, seen, owner):
    """Return True when the board shows this owner and no notification is on its way."""
    seen.clear()
    await asyncio.sleep(0.2)
    return not seen.is_set() and (await board.get("1")).owner == owner


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["stopped", "crashed"])
async def test_work_goes_on_after_an_outage_and_nothing_is_lost_or_doubled(own_server, home, helpers, how):
    database = own_server.create_empty_database()
    services = helpers.make_services()
    with helpers.opened_postgres_store(database, home, lease=1.0) as store:
        board, mailboxes = store.open_board("roof", **services), store.open_mailboxes("roof", **services)
        await mailboxes.open_inbox(BOB)
        await create_tasks(board, 40)
        session = create_used_session(store, FIRST)
        session.acquire_lock()
        journal = session.open_journal(services["clock"], secrets=KEY_SHAPE_REDACTOR)
        transcript = session.open_transcript(LEAD_ID, cwd="/project", version="0")
        claimed, stopped = [], asyncio.Event()

        async def claim_and_complete(name):
            while (claim := await board.claim_next(by=name)) is not None:
                claimed.append(claim.task.id)
                update = TaskUpdate(status="completed", attempt=claim.attempt)
                await board.update(claim.task.id, update, by=name)
                if len(claimed) >= 10:
                    stopped.set()

        async def post_all():
            for number in range(60):
                await mailboxes.post(BOB, make_mail(f"m{number}"))

        def write_all():
            for number in range(60):
                journal.append(NoteAdded(agent=LEAD_ID, text=f"{number}"))
                transcript.append(make_entry(f"{number}"))

        async def stop_and_start():
            await stopped.wait()
            await asyncio.to_thread(own_server.stop, how)
            # Longer than the lease: nobody else could have taken it.
            await asyncio.sleep(1.5)
            await asyncio.to_thread(own_server.start)

        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for number in range(4):
                group.create_task(claim_and_complete(f"agent-{number}"))
            group.create_task(post_all())
            group.create_task(asyncio.to_thread(write_all))
            group.create_task(stop_and_start())
        assert sorted(claimed, key=int) == [str(number) for number in range(1, 41)]
        assert {task.status for task in await board.list_tasks()} == {"completed"}
        assert [mail.id for mail in await mailboxes.read_history(BOB)] == [f"m{n}" for n in range(60)]
        assert read_notes(journal) == [f"{number}" for number in range(60)]
        assert read_entry_ids(session) == ["entry-hello", *(f"entry-{number}" for number in range(60))]


@pytest.mark.slow
async def test_a_waiter_hears_of_mail_after_an_outage(own_server, home, helpers):
    database = own_server.create_empty_database()
    with (
        helpers.opened_postgres_store(database, home, poll=600.0) as store,
        helpers.opened_postgres_store(database, home) as other,
    ):
        mailboxes = store.open_mailboxes("roof", **helpers.make_services())
        await mailboxes.open_inbox(BOB)
        async with asyncio.timeout(helpers.WAIT_SECONDS), asyncio.TaskGroup() as group:
            waiting = group.create_task(mailboxes.wait_for_mail(BOB))
            await asyncio.wait([waiting], timeout=0.2)
            await asyncio.to_thread(own_server.stop)
            await asyncio.to_thread(own_server.start)
            await other.open_mailboxes("roof", **helpers.make_services()).post(BOB, make_mail("m1"))


def test_an_unreachable_server_is_reported_at_once_without_the_password(home, helpers):
    with (
        helpers.opened_postgres_store("postgresql://ann:secret@127.0.0.1:1/none", home) as store,
        pytest.raises(
            StateFileError, match=r"Cannot reach the store postgresql://ann@127\.0\.0\.1:1/none"
        ) as raised,
    ):
        store.find_session("x")
    assert "secret" not in str(raised.value)


async def test_a_read_only_database_is_a_clear_error(own_server, home, helpers):
    database = own_server.create_empty_database()
    with helpers.opened_postgres_store(database, home) as store:
        await create_tasks(store.open_board("roof", **helpers.make_services()), 1)
    own_server.execute("ALTER DATABASE shoal SET default_transaction_read_only = on")
    with (
        helpers.opened_postgres_store(database, home) as store,
        pytest.raises(StateFileError, match="is read-only: it is a standby"),
    ):
        store.create_session(FIRST, cwd="/")


@pytest.mark.slow
async def test_a_database_that_is_read_only_for_a_while_gets_no_more_connections(own_server, home, helpers):
    database = own_server.create_empty_database("refusing")
    count_open = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'refusing'"
    count_all = "SELECT sessions FROM pg_stat_database WHERE datname = 'refusing'"

    async def have_many_attempts_failed():
        return own_server.execute(count_all)[0][0] > 8

    with helpers.opened_postgres_store(database, home, lease=0.3) as store:
        board = store.open_board("roof", **helpers.make_services())
        await create_tasks(board, 1)
        own_server.execute("ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
        try:
            await helpers.wait_for(have_many_attempts_failed)
            # One for notifications and one for statements, and one that is just being closed.
            assert own_server.execute(count_open)[0][0] <= 3
        finally:
            own_server.execute(
                "SET default_transaction_read_only = off",
                "ALTER SYSTEM RESET default_transaction_read_only",
                "SELECT pg_reload_conf()",
            )

        async def is_claimed():
            with suppress(StateFileError):
                return (await board.claim("1", by=BOB)).success

        await helpers.wait_for(is_claimed)


async def test_a_full_database_is_a_clear_error_and_the_rest_is_left_intact(own_server, home, helpers):
    database = own_server.create_empty_database()
    with helpers.opened_postgres_store(database, home) as store:
        session = create_used_session(store, FIRST)
        own_server.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE 'could not extend file' USING ERRCODE = 'disk_full'; END $$",
            "CREATE TRIGGER full_disk BEFORE INSERT ON shoal.transcript_lines EXECUTE FUNCTION refuse()",
            database="shoal",
        )
        transcript = session.open_transcript(LEAD_ID, cwd="/project", version="0")
        with pytest.raises(StateFileError, match="has no space left"):
            transcript.append(make_entry("two"))
        own_server.execute("DROP TRIGGER full_disk ON shoal.transcript_lines", database="shoal")
        transcript.append(make_entry("two"))
        assert read_entry_ids(session) == ["entry-hello", "entry-two"]


@pytest.mark.slow
@pytest.mark.needs("pgbouncer")
@pytest.mark.parametrize("mode", ["session", "transaction", "statement"])
async def test_a_pooler_is_used_in_session_mode_and_refused_in_others(own_server, home, helpers, mode):
    own_server.create_empty_database()
    with PoolerProcess(own_server, mode) as address, helpers.opened_postgres_store(address, home) as store:
        if mode != "session":
            with pytest.raises(SettingsError, match="pooler in transaction or statement mode"):
                store.find_session("x")
            return
        mailboxes = store.open_mailboxes("roof", **helpers.make_services())
        await mailboxes.open_inbox(BOB)
        async with asyncio.timeout(helpers.WAIT_SECONDS), asyncio.TaskGroup() as group:
            group.create_task(mailboxes.wait_for_mail(BOB))
            with helpers.opened_postgres_store(address, home) as other:
                await other.open_mailboxes("roof", **helpers.make_services()).post(BOB, make_mail("m1"))


@pytest.mark.needs("pgbouncer")
async def test_a_process_that_gets_few_connections_goes_on_with_those(own_server, home, helpers):
    own_server.create_empty_database("few")
    with (
        PoolerProcess(own_server, "session", database="few", size=3) as address,
        helpers.opened_postgres_store(address, home) as store,
    ):
        # One connection is for notifications, and two operations work at the same time.
        board = store.open_board("roof", **helpers.make_services())
        async with asyncio.timeout(helpers.WAIT_SECONDS), asyncio.TaskGroup() as group:
            for _ in range(12):
                group.create_task(store.client.call(wait_in_database))
            group.create_task(create_tasks(board, 3))
        assert len(await board.list_tasks()) == 3


async def wait_in_database(worker):
    await worker.execute(lambda raw: raw.execute("SELECT pg_sleep(0.2)"))


async def test_connections_that_a_process_no_longer_uses_are_closed(own_server, home, helpers):
    database = own_server.create_empty_database("unused")
    count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'shoal' AND datname = 'unused'"
    with helpers.opened_postgres_store(database, home, poll=0.1, unused=0.1) as store:
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(store.client.call(wait_in_database))

        async def has_two_connections():
            return own_server.execute(count) == [[2]]

        await helpers.wait_for(has_two_connections)
        for _ in range(3):
            await store.client.call(wait_in_database)
        assert own_server.execute(count) == [[2]]


async def test_tables_of_a_newer_version_are_refused_and_of_an_older_one_need_migration(
    own_server, home, helpers
):
    database = own_server.create_empty_database()
    with helpers.opened_postgres_store(database, home) as store:
        create_used_session(store, FIRST)
    own_server.execute("UPDATE shoal.schema_version SET version = 99", database="shoal")
    with (
        helpers.opened_postgres_store(database, home) as store,
        pytest.raises(
            SettingsError, match="are at version 99, but this version of Shoal supports only versions up to"
        ),
    ):
        store.find_session(FIRST)
    # There is no way back.
    with pytest.raises(SettingsError, match="are at version 99"):
        migrate_store(database)
    assert own_server.execute("SELECT version FROM shoal.schema_version", database="shoal") == [[99]]


async def test_a_claim_does_not_wait_for_a_task_that_another_process_is_about_to_change(
    database, home, helpers
):
    import asyncpg

    with helpers.opened_postgres_store(database, home) as store:
        board = store.open_board("roof", **helpers.make_services())
        await create_tasks(board, 4)
        other = await asyncpg.connect(database)
        try:
            async with asyncio.timeout(helpers.WAIT_SECONDS), other.transaction():
                await other.execute("SELECT 1 FROM shoal.tasks WHERE number IN (1, 3) FOR UPDATE")
                claims = await asyncio.gather(*(board.claim_next(by=name) for name in (ANN, BOB)))
                assert sorted(claim.task.id for claim in claims) == ["2", "4"]
        finally:
            await other.close()
        assert (await board.claim_next(by=ANN)).task.id == "1"


async def test_a_team_of_the_first_version_keeps_its_members_and_gets_new_ones(own_server, home, helpers):
    database = own_server.create_empty_database("first")
    own_server.execute(
        "CREATE SCHEMA shoal",
        "CREATE TABLE shoal.schema_version (version int NOT NULL)",
        "INSERT INTO shoal.schema_version VALUES (1)",
        *(statement for statement in MIGRATIONS[0].split(";") if statement.strip()),
        database="first",
    )
    ann = {"name": "ann", "agentId": "ann@roof", "isActive": True, "theirs": 1}
    document = {"name": "roof", "leadSessionId": FIRST, "members": [{"name": LEAD_NAME}, ann]}
    own_server.execute(
        f"INSERT INTO shoal.teams VALUES ('roof', convert_to('{json.dumps(document)}', 'UTF8'), 1)",
        database="first",
    )
    with (
        helpers.opened_postgres_store(database, home) as store,
        pytest.raises(SettingsError, match="shoal store migrate"),
    ):
        store.find_session(FIRST)
    assert migrate_store(database) == (1, len(MIGRATIONS))
    with helpers.opened_postgres_store(database, home) as store:
        rosters = store.open_rosters(clock=SystemClock(), report=str)
        bob = await rosters.add_member(ROOF, make_new_member("Ann"))
        assert bob.name == "Ann-2"  # the name is taken in the document
        await rosters.update_member(ROOF, "ann", model="other")
        await rosters.set_active_members(ROOF, {"ann": False, bob.name: False})
        members = (await rosters.read_team_roster(ROOF)).members
        assert [(each.name, each.is_active) for each in members[1:]] == [("ann", False), ("Ann-2", False)]
        assert members[1].model == "other"
        assert await rosters.remove_member(ROOF, "ann")
        assert [each.name for each in (await rosters.read_team_roster(ROOF)).members] == [LEAD_NAME, "Ann-2"]


async def test_processes_that_start_on_an_empty_database_at_once_create_its_tables_once(
    own_server, home, helpers
):
    database = own_server.create_empty_database()
    stores = [helpers.open_postgres_store(database, home) for _ in range(8)]
    try:
        async with asyncio.timeout(helpers.WAIT_SECONDS):
            keys = await asyncio.gather(
                *(asyncio.to_thread(store.load_signing_key, "roof") for store in stores)
            )
    finally:
        for store in stores:
            store.close()
    assert len(set(keys)) == 1


def test_a_missing_extra_names_the_command_that_installs_it(home, monkeypatch):
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(SettingsError, match=r"pip install 'shoal\[postgres\]'"):
        open_store("postgresql://db/shoal", home=home)


def test_users_of_files_do_not_load_the_driver(home):
    code = (
        "import sys, pathlib; from shoal.stores.store_choice import open_store; "
        "open_store(pathlib.Path(sys.argv[1])).create_session('s', cwd='/'); "
        "print([name for name in sys.modules if 'stores.postgres' in name "
        "or name.partition('.')[0] in ('asyncpg', 'greenlet', 'ray', 'uvloop')])"
    )
    done = subprocess.run([sys.executable, "-c", code, home], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_programs_of_the_server_are_found_where_debian_puts_them():
    assert find_program("postgres")


async def test_members_of_one_process_write_their_activity_together(own_server, home, helpers):
    database = own_server.create_empty_database("activity")
    with helpers.opened_postgres_store(database, home) as store:
        rosters = [store.open_rosters(clock=SystemClock(), report=str) for _ in range(30)]
        await create_sample_team(rosters[0])
        names = [(await rosters[0].add_member(ROOF, make_new_member(f"m{n}"))).name for n in range(30)]
        own_server.execute(
            "CREATE TABLE public.writes (number int)",
            "CREATE FUNCTION public.note_write() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN INSERT INTO public.writes VALUES (1); RETURN NEW; END $$",
            "CREATE TRIGGER note_write AFTER UPDATE ON shoal.team_members FOR EACH STATEMENT "
            "EXECUTE FUNCTION public.note_write()",
            database="activity",
        )
        calls = zip(rosters, names, strict=True)
        await asyncio.gather(*(each.set_active_members(ROOF, {name: False}) for each, name in calls))
        team = await rosters[0].read_team_roster(ROOF)
        assert [member.is_active for member in team.members if member.name in names] == [False] * 30
        (row,) = own_server.execute("SELECT count(*) FROM public.writes", database="activity")
        assert 0 < int(str(row[0])) < len(names) / 3
        with pytest.raises(TeamNotFound):
            await rosters[0].set_active_members("cellar", {names[0]: True})


async def test_a_new_member_is_one_row_and_the_document_of_its_team_stays(own_server, home, helpers):
    database = own_server.create_empty_database("members")
    read_document = "SELECT document FROM shoal.teams"
    with (
        helpers.opened_postgres_store(database, home) as store,
        helpers.opened_postgres_store(database, home) as other,
    ):
        rosters, others = (each.open_rosters(clock=SystemClock(), report=str) for each in (store, other))
        await create_sample_team(rosters)
        before = own_server.execute(read_document, database="members")
        names = [(await rosters.add_member(ROOF, make_new_member(f"m{n}"))).name for n in range(5)]
        assert [each.name for each in (await others.read_team_roster(ROOF)).members][-5:] == names
        await rosters.update_member(ROOF, names[1], model="other")
        await rosters.set_active_members(ROOF, {names[2]: False})
        await rosters.remove_member(ROOF, names[0])
        again = await others.add_member(ROOF, make_new_member(names[0]))
        assert again.name == names[0]
        assert own_server.execute(read_document, database="members") == before
        for each in (rosters, others):
            members = (await each.read_team_roster(ROOF)).members
            assert [member.name for member in members][-5:] == [*names[1:], names[0]]
            assert [member.model for member in members if member.name == names[1]] == ["other"]
            assert [member.is_active for member in members if member.name == names[2]] == [False]


async def test_one_new_task_wakes_one_of_the_members_of_a_process(database, home, helpers):
    with helpers.opened_postgres_store(database, home, poll=0.2) as store:
        boards = [store.open_board("roof", **helpers.make_services()) for _ in range(20)]
        waits = [asyncio.create_task(board.wait_for_claimable()) for board in boards]

        async def are_all_waiting():
            return len(boards[0]._view._waiters) == len(boards)

        await helpers.wait_for(are_all_waiting)
        (task,) = await create_tasks(boards[0], 1)
        done, _ = await asyncio.wait(waits, timeout=helpers.WAIT_SECONDS, return_when="FIRST_COMPLETED")
        assert len(done) == 1
        claimant = boards[waits.index(done.pop())]
        assert (await claimant.claim_next(by=BOB)).task.id == task
        assert sum(wait.done() for wait in waits) == 1
        # The next one wakes another member, and those that have closed their board get nothing.
        for wait, board in zip(waits[:10], boards[:10], strict=True):
            wait.cancel()
            await board.aclose()
        await create_tasks(boards[-1], 1)
        async with asyncio.timeout(helpers.WAIT_SECONDS):
            await asyncio.wait(waits[10:], return_when="FIRST_COMPLETED")
        for wait, board in zip(waits[10:], boards[10:], strict=True):
            wait.cancel()
            await board.aclose()


@pytest.mark.needs("greenlet")
async def test_lines_of_many_members_are_stored_by_few_commits_and_in_order(own_server, home, helpers):
    from shoal.stores.postgres.suspended_tasks import create_member_context, install_suspendable_tasks

    members, lines = 40, 5
    database = own_server.create_empty_database("lines")
    with (
        helpers.opened_postgres_store(database, home) as store,
        helpers.opened_postgres_store(database, home) as other,
    ):
        session = create_used_session(store, FIRST)
        journal = session.open_journal(SystemClock(), secrets=KEY_SHAPE_REDACTOR)
        seen_by_others = []

        async def write_lines(member):
            agent = f"m{member}"
            transcript = session.open_transcript(agent, cwd="/", version="0")
            for number in range(lines):
                transcript.append(make_entry(f"{agent}-{number}"))
                journal.append(NoteAdded(agent=LEAD_ID, text=f"{agent}-{number}"))
            if member == 0:
                # Everything is stored when the call returns: another process has it.
                seen_by_others.extend(read_entry_ids(other.find_session(FIRST), agent))

        loop = asyncio.get_running_loop()
        install_suspendable_tasks(loop)
        try:
            tasks = [
                loop.create_task(write_lines(n), context=create_member_context()) for n in range(members)
            ]
            async with asyncio.timeout(helpers.WAIT_SECONDS):
                await asyncio.gather(*tasks)
        finally:
            loop.set_task_factory(None)
        assert seen_by_others == [f"entry-m0-{number}" for number in range(lines)]
        notes = read_notes(journal)
        for member in range(members):
            expected = [f"m{member}-{number}" for number in range(lines)]
            assert [note for note in notes if note.split("-")[0] == f"m{member}"] == expected
            assert read_entry_ids(session, f"m{member}") == [f"entry-{text}" for text in expected]
        (row,) = own_server.execute(
            "SELECT count(DISTINCT xmin::text) FROM shoal.journal_lines", database="lines"
        )
        assert int(str(row[0])) < members * lines / 4
    assert not find_store_problems(database)
