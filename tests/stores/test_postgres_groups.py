"""Calls of many members of one process on a database: they are executed together and stay exact."""

from __future__ import annotations

import asyncio
import json

import pytest

from shoal.core.errors import StateFileError, TaskUpdateRefused
from shoal.core.names import LEAD_NAME
from shoal.core.teams.mail import MailMessage
from shoal.core.teams.tasks import TaskUpdate
from shoal.stores.postgres.task_rows import CLAIM_NEXT, CLAIM_SEVERAL
from shoal.testing.contracts.board_contract import ANN, BOB, create_tasks

pytestmark = pytest.mark.needs("postgres", "asyncpg")
MEMBERS = 60


@pytest.fixture
def helpers():
    import postgres_helpers

    return postgres_helpers


def make_mail(mail_id):
    return MailMessage(id=mail_id, sender=ANN, text="hello", timestamp="2026-01-01T00:00:00Z")


def count_transactions(server, database, column):
    """Return how many transactions wrote the present rows of tasks."""
    (row,) = server.execute(f"SELECT count(DISTINCT {column}) FROM shoal.tasks", database=database)
    return int(str(row[0]))


async def test_members_of_one_process_claim_and_complete_with_few_commits(own_server, home, helpers):
    address = own_server.create_empty_database("groups")
    with helpers.opened_postgres_store(address, home) as store:
        boards = [store.open_board("roof", **helpers.make_services()) for _ in range(MEMBERS)]
        await create_tasks(boards[0], MEMBERS + 5)
        # Each has its lease first, so that only the claims are counted.
        await asyncio.gather(*(board._ensure_lease() for board in boards))
        claims = await asyncio.gather(*(board.claim_next(by=f"m{n}") for n, board in enumerate(boards)))
        numbers = sorted(int(claim.task.id) for claim in claims)
        assert numbers == list(range(1, MEMBERS + 1))
        assert [claim.task.owner for claim in claims] == [f"m{n}" for n in range(MEMBERS)]
        assert len({claim.attempt for claim in claims}) == MEMBERS
        created = count_transactions(own_server, "groups", "xmin::text")
        assert created - 5 < MEMBERS / 4
        updates = await asyncio.gather(
            *(
                board.update(
                    claim.task.id, TaskUpdate(status="completed", attempt=claim.attempt), by=claim.task.owner
                )
                for board, claim in zip(boards, claims, strict=True)
            )
        )
        assert {(before.status, after.status) for before, after in updates} == {("in_progress", "completed")}
        assert count_transactions(own_server, "groups", "xmin::text") - 5 < MEMBERS / 4
        tasks = await asyncio.gather(
            *(board.get(claim.task.id) for board, claim in zip(boards, claims, strict=True))
        )
        assert tasks == [after for _, after in updates]
        # More members than free tasks.
        rest = await asyncio.gather(*(board.claim_next(by=f"m{n}") for n, board in enumerate(boards)))
        assert sum(claim is not None for claim in rest) == 5
        for board in boards:
            await board.aclose()


async def test_each_change_of_a_group_has_its_own_result(database, home, helpers):
    with (
        helpers.opened_postgres_store(database, home) as store,
        helpers.opened_postgres_store(database, home) as other,
    ):
        board = store.open_board("roof", **helpers.make_services())
        others = other.open_board("roof", **helpers.make_services())
        await create_tasks(board, 5)
        await board.update("2", TaskUpdate(add_blocked_by=("1",)), by=ANN)
        lost = await others.claim("4", by=BOB)
        await others.release("4", attempt=lost.attempt)
        changes = [
            ("1", TaskUpdate(status="completed")),  # it unblocks another one, under the lock of the board
            ("2", TaskUpdate(status="in_progress", owner=ANN)),  # blocked
            ("3", TaskUpdate(subject="first")),
            ("3", TaskUpdate(description="second")),
            ("4", TaskUpdate(status="completed", attempt=lost.attempt)),  # lost its claim
            ("99", TaskUpdate(status="completed")),
        ]
        results = await asyncio.gather(
            *(board.update(task, change, by=ANN) for task, change in changes), return_exceptions=True
        )
        assert results[0][1].status == "completed"
        assert [isinstance(result, TaskUpdateRefused) for result in results] == [
            False, True, False, False, True, True,
        ]  # fmt: skip
        third = await others.get("3")
        assert (third.subject, third.description) == ("first", "second")
        await board.update("2", TaskUpdate(status="in_progress", owner=ANN), by=ANN)
        await board.aclose()
        await others.aclose()


async def test_two_processes_that_change_the_same_tasks_lose_no_change(database, home, helpers):
    with (
        helpers.opened_postgres_store(database, home) as store,
        helpers.opened_postgres_store(database, home) as other,
    ):
        stores = (store, other)
        boards = [each.open_board("roof", **helpers.make_services()) for each in stores for _ in range(10)]
        await create_tasks(boards[0], 8)
        await asyncio.gather(
            *(
                board.update(str(task), TaskUpdate(metadata={f"by{n}": True}), by=ANN)
                for n, board in enumerate(boards)
                for task in range(1, 9)
            )
        )
        for task in await boards[0].list_tasks():
            assert {key for key in task.metadata if key.startswith("by")} == {
                f"by{n}" for n in range(len(boards))
            }
        for board in boards:
            await board.aclose()


async def test_a_process_without_its_lease_can_neither_claim_nor_change(database, home, helpers):
    with (
        helpers.opened_postgres_store(database, home) as store,
        helpers.opened_postgres_store(database, home) as other,
    ):
        boards = [store.open_board("roof", **helpers.make_services()) for _ in range(4)]
        others = other.open_board("roof", **helpers.make_services())
        await create_tasks(boards[0], 8)
        await asyncio.gather(*(board._ensure_lease() for board in boards))
        epoch = store.client.epoch
        await other.client.call(lambda worker: worker.end_holder(epoch))
        for attempts in (
            [board.claim_next(by=ANN) for board in boards],
            [board.update(str(n + 1), TaskUpdate(subject="x"), by=ANN) for n, board in enumerate(boards)],
        ):
            for error in await asyncio.gather(*attempts, return_exceptions=True):
                assert isinstance(error, StateFileError)
        assert {task.status for task in await others.list_tasks()} == {"pending"}
        assert "x" not in {task.subject for task in await others.list_tasks()}
        await others.aclose()


async def test_mail_that_is_committed_late_is_found_behind_a_higher_number(own_server, home, helpers):
    """The number of mail is given before its commit, so a reader must not only look for higher ones."""
    import asyncpg

    address = own_server.create_empty_database("late")
    with helpers.opened_postgres_store(address, home) as store:
        mailboxes = store.open_mailboxes("roof", **helpers.make_services())
        await mailboxes.open_inbox(LEAD_NAME)
        await mailboxes.post(LEAD_NAME, make_mail("first"))
        slow = await asyncpg.connect(address)
        transaction = slow.transaction()
        await transaction.start()
        await slow.execute(
            "INSERT INTO shoal.mail (team, owner, id, document) "
            "SELECT team, owner, 'late', document FROM shoal.mail WHERE id = 'first'"
        )
        known = set()
        for n in range(5):
            await mailboxes.post(LEAD_NAME, make_mail(f"m{n}"))
            known |= {mail.id for mail in await mailboxes.take_unread(LEAD_NAME, beyond=known)}
        assert known == {"first", *(f"m{n}" for n in range(5))}
        waiting = asyncio.create_task(mailboxes.wait_for_mail(LEAD_NAME, beyond=known))
        await transaction.commit()
        await slow.close()
        (late,) = await mailboxes.take_unread(LEAD_NAME, beyond=known)
        assert late.id == "late"
        async with asyncio.timeout(helpers.WAIT_SECONDS):
            await waiting
        known.add("late")
        # From now on, nothing that is known is read again.
        for n in range(5, 8):
            await mailboxes.post(LEAD_NAME, make_mail(f"m{n}"))
            known |= {mail.id for mail in await mailboxes.take_unread(LEAD_NAME, beyond=known)}
            assert not await mailboxes.take_unread(LEAD_NAME, beyond=known)
        assert mailboxes._cursors[LEAD_NAME].overlap <= 1


@pytest.mark.slow
async def test_a_claim_reads_as_few_pages_of_a_large_board_as_of_a_small_one(database, home, helpers):
    import asyncpg

    pages = []
    with helpers.opened_postgres_store(database, home) as store:
        board = store.open_board("roof", **helpers.make_services())
        await create_tasks(board, 1)
        raw = await asyncpg.connect(database)
        try:
            for first, last in ((2, 1_000), (1_001, 100_000)):
                await raw.execute(
                    "INSERT INTO shoal.tasks (board, number, document, status, rank) "
                    "SELECT board, n, document, 'pending', rank + n FROM shoal.tasks, "
                    f"generate_series({first}, {last}) AS n WHERE number = 1"
                )
                await raw.execute("ANALYZE shoal.tasks")
                for statement, claimant in (
                    (CLAIM_NEXT, (ANN, "a-1")),
                    (CLAIM_SEVERAL, ([ANN], ["a-2"], 1)),
                ):
                    plan = await raw.fetchval(
                        f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}",
                        *(store.client.epoch, "roof", *claimant),
                    )
                    top = json.loads(plan)[0]["Plan"]
                    assert top["Actual Rows"] == 1
                    pages.append(top["Shared Hit Blocks"] + top["Shared Read Blocks"])
        finally:
            await raw.close()
    small, large = pages[:2], pages[2:]
    assert all(after <= 1.5 * before + 4 for before, after in zip(small, large, strict=True)), pages
