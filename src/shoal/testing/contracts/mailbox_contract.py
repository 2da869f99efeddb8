"""Contract of every mail store."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from shoal.core.errors import InboxNotFound, InvalidName
from shoal.core.names import LEAD_NAME, AgentName
from shoal.core.teams.mail import MailMessage
from shoal.core.teams.team_storage import MailboxStore
from shoal.testing.contracts.contract_rules import (
    WAKE_SECONDS,
    ContractRules,
    StoreOpener,
    expect_refusal,
    list_unfinished_asyncio_tasks,
    open_store_handles,
    run_calls_concurrently,
)

RULES = ContractRules()
ANN, BOB = AgentName("ann"), AgentName("bob")
_AT = "2026-02-13T10:11:35.247Z"


def _make_mail(mail_id: str, *, sender: AgentName = BOB, text: str = "") -> MailMessage:
    return MailMessage(id=mail_id, sender=sender, text=text or f"text of {mail_id}", timestamp=_AT)


def _list_mail_ids(mails: tuple[MailMessage, ...]) -> list[str]:
    return [mail.id for mail in mails]


@RULES.add_rule("BOX-01")
async def mail_is_taken_in_the_order_of_its_posts(open_store: StoreOpener[MailboxStore]) -> None:
    async with open_store() as mailboxes:
        await mailboxes.open_inbox(ANN)
        for n in range(5):
            receipt = await mailboxes.post(ANN, _make_mail(f"m{n}"))
            assert receipt.id == f"m{n}"
        assert _list_mail_ids(await mailboxes.take_unread(ANN)) == ["m0", "m1", "m2", "m3", "m4"]


@RULES.add_rule("BOX-01")
async def a_message_is_unread_until_it_is_marked_and_read_for_ever_after(
    open_store: StoreOpener[MailboxStore],
) -> None:
    async with open_store() as mailboxes:
        await mailboxes.open_inbox(ANN)
        await mailboxes.post(ANN, replace(_make_mail("m0"), read=True))
        for _ in range(2):
            assert [(mail.id, mail.read) for mail in await mailboxes.take_unread(ANN)] == [("m0", False)]
        await mailboxes.mark_read(ANN, ["m0"])
        assert await mailboxes.take_unread(ANN) == ()
        assert [(mail.id, mail.read) for mail in await mailboxes.read_history(ANN)] == [("m0", True)]


@RULES.add_rule("BOX-01")
async def every_field_of_a_message_is_kept(open_store: StoreOpener[MailboxStore]) -> None:
    unusual_text = 'line\nline\t"quoted" \\ ä 日本 \U0001f41f \u2028 half \ud83d ' + "x" * 100_000
    mail = MailMessage(
        id="m0",
        sender=BOB,
        text=unusual_text,
        timestamp=_AT,
        summary="ä, in short",
        color="green",
        signature="0" * 64,
    )
    async with open_store_handles(open_store, 2) as (mailboxes, others):
        await mailboxes.open_inbox(ANN)
        await mailboxes.post(ANN, mail)
        assert await others.take_unread(ANN) == (mail,)


@RULES.add_rule()
async def marking_some_mail_read_keeps_order(open_store: StoreOpener[MailboxStore]) -> None:
    async with open_store() as mailboxes:
        await mailboxes.open_inbox(ANN)
        for n in range(5):
            await mailboxes.post(ANN, _make_mail(f"m{n}"))
        await mailboxes.mark_read(ANN, {"m3", "m1"})
        assert _list_mail_ids(await mailboxes.take_unread(ANN)) == ["m0", "m2", "m4"]
        await mailboxes.post(ANN, _make_mail("m5"))
        assert _list_mail_ids(await mailboxes.take_unread(ANN)) == ["m0", "m2", "m4", "m5"]


@RULES.add_rule()
async def marking_read_or_unknown_mail_is_no_op(open_store: StoreOpener[MailboxStore]) -> None:
    async with open_store() as mailboxes:
        await mailboxes.open_inbox(ANN)
        for mail_id in ("m0", "m1"):
            await mailboxes.post(ANN, _make_mail(mail_id))
        for _ in range(2):
            await mailboxes.mark_read(ANN, ["m0", "never posted"])
        await mailboxes.mark_read(ANN, [])
        assert _list_mail_ids(await mailboxes.take_unread(ANN)) == ["m1"]
        assert _list_mail_ids(await mailboxes.read_history(ANN)) == ["m0", "m1"]


@RULES.add_rule()
async def limited_take_returns_oldest_mail(open_store: StoreOpener[MailboxStore]) -> None:
    async with open_store() as mailboxes:
        await mailboxes.open_inbox(ANN)
        for n in range(5):
            await mailboxes.post(ANN, _make_mail(f"m{n}"))
        assert _list_mail_ids(await mailboxes.take_unread(ANN, limit=2)) == ["m0", "m1"]


@RULES.add_rule()
async def taken_mail_that_stays_unread_can_be_skipped(open_store: StoreOpener[MailboxStore]) -> None:
    """A reader that keeps mail unread gets only the mail that it does not have; a new reader gets all."""
    async with open_store() as mailboxes:
        await mailboxes.open_inbox(ANN)
        known: set[str] = set()
        for n in range(6):
            await mailboxes.post(ANN, _make_mail(f"m{n}"))
            assert _list_mail_ids(await mailboxes.take_unread(ANN, beyond=known)) == [f"m{n}"]
            known.add(f"m{n}")
            assert await mailboxes.take_unread(ANN, beyond=known) == ()
        await mailboxes.mark_read(ANN, ["m0", "m3"])
        known -= {"m0", "m3"}
        for n in (6, 7, 8):
            await mailboxes.post(ANN, _make_mail(f"m{n}"))
        assert _list_mail_ids(await mailboxes.take_unread(ANN, limit=2, beyond=known)) == ["m6", "m7"]
        assert _list_mail_ids(await mailboxes.take_unread(ANN, beyond=known | {"m7"})) == ["m6", "m8"]
        assert _list_mail_ids(await mailboxes.take_unread(ANN, beyond=set())) == [
            f"m{n}" for n in (1, 2, 4, 5, 6, 7, 8)
        ]


@RULES.add_rule("BOX-01")
async def large_mail_backlog_is_not_lost(open_store: StoreOpener[MailboxStore]) -> None:
    """More mail than one batch holds arrives batch by batch in order, and the history has all of it."""
    expected_ids = [f"m{n}" for n in range(300)]
    taken_ids: list[str] = []
    async with open_store() as mailboxes:
        await mailboxes.open_inbox(ANN)
        for mail_id in expected_ids:
            await mailboxes.post(ANN, _make_mail(mail_id))
        while batch := await mailboxes.take_unread(ANN):
            taken_ids += _list_mail_ids(batch)
            await mailboxes.mark_read(ANN, _list_mail_ids(batch))
        assert taken_ids == expected_ids
        assert _list_mail_ids(await mailboxes.read_history(ANN)) == expected_ids


@RULES.add_rule()
async def foreign_inbox_mail_is_never_held_back(open_store: StoreOpener[MailboxStore]) -> None:
    async with open_store() as mailboxes:
        await mailboxes.open_inbox(ANN, foreign=True)
        delivery_states = {(await mailboxes.post(ANN, _make_mail(f"m{n}"))).standing for n in range(200)}
        assert delivery_states == {"delivered"}
        assert len(await mailboxes.take_unread(ANN, limit=1000)) == 200


@RULES.add_rule()
async def inbox_foreign_flag_can_be_changed(
    open_store: StoreOpener[MailboxStore],
) -> None:
    async with open_store_handles(open_store, 2) as (mailboxes, others):
        await mailboxes.open_inbox(ANN, foreign=True)
        await mailboxes.open_inbox(BOB)
        assert (others.is_foreign_inbox(ANN), others.is_foreign_inbox(BOB)) == (True, False)
        await mailboxes.open_inbox(ANN)
        assert not others.is_foreign_inbox(ANN)


@RULES.add_rule()
async def inboxes_of_owners_are_separate(open_store: StoreOpener[MailboxStore]) -> None:
    async with open_store() as mailboxes:
        await run_calls_concurrently(mailboxes.open_inbox(ANN), mailboxes.open_inbox(BOB))
        await mailboxes.post(ANN, _make_mail("m0"))
        assert await mailboxes.take_unread(BOB) == ()
        await mailboxes.mark_read(BOB, ["m0"])
        assert _list_mail_ids(await mailboxes.take_unread(ANN)) == ["m0"]


@RULES.add_rule()
async def invalid_name_gets_no_inbox(open_store: StoreOpener[MailboxStore]) -> None:
    async with open_store() as mailboxes:
        for invalid_name in ("", "../ann", "a/b", ".", "nul\0", "x" * 65):
            await expect_refusal(mailboxes.post(AgentName(invalid_name), _make_mail("m0")), InvalidName)
            await expect_refusal(mailboxes.open_inbox(AgentName(invalid_name)), InvalidName)


@RULES.add_rule()
async def post_without_inbox_is_refused(open_store: StoreOpener[MailboxStore]) -> None:
    async with open_store() as mailboxes:
        await mailboxes.open_inbox(ANN)
        for _ in range(2):
            assert "bob" in await expect_refusal(
                mailboxes.post(BOB, _make_mail("m0", sender=ANN)), InboxNotFound
            )
        await mailboxes.open_inbox(BOB)
        assert await mailboxes.take_unread(BOB) == ()


@RULES.add_rule()
async def the_lead_s_inbox_is_made_by_the_first_message_to_it(open_store: StoreOpener[MailboxStore]) -> None:
    async with open_store_handles(open_store, 2) as (mailboxes, lead):
        await mailboxes.post(LEAD_NAME, _make_mail("m0"))
        assert _list_mail_ids(await lead.take_unread(LEAD_NAME)) == ["m0"]


@RULES.add_rule()
async def opening_an_inbox_again_keeps_its_mail(open_store: StoreOpener[MailboxStore]) -> None:
    async with open_store() as mailboxes:
        await mailboxes.open_inbox(ANN)
        await mailboxes.post(ANN, _make_mail("m0"))
    async with open_store() as mailboxes:
        await mailboxes.open_inbox(ANN)
        assert _list_mail_ids(await mailboxes.take_unread(ANN)) == ["m0"]


@RULES.add_rule()
async def wait_ends_at_once_if_mail_is_unread(open_store: StoreOpener[MailboxStore]) -> None:
    async with open_store() as mailboxes:
        await mailboxes.open_inbox(ANN)
        await mailboxes.post(ANN, _make_mail("m0"))
        await mailboxes.wait_for_mail(ANN)
        await mailboxes.take_unread(ANN)
        await mailboxes.wait_for_mail(ANN)


@RULES.add_rule()
async def wait_for_mail_ignores_known_mail(open_store: StoreOpener[MailboxStore]) -> None:
    async with open_store() as mailboxes:
        await mailboxes.open_inbox(ANN)
        await mailboxes.post(ANN, _make_mail("m0"))
        known_ids = {"m0"}
        async with asyncio.timeout(WAKE_SECONDS), asyncio.TaskGroup() as group:
            waiting = group.create_task(mailboxes.wait_for_mail(ANN, beyond=known_ids))
            assert await list_unfinished_asyncio_tasks(waiting)
            known_ids.add("m1")
            await mailboxes.post(ANN, _make_mail("m1"))
            await mailboxes.mark_read(ANN, ["m0"])
            assert await list_unfinished_asyncio_tasks(waiting)
            await mailboxes.post(ANN, _make_mail("m2"))


@RULES.add_rule("BOX-04")
async def marking_known_mail_reveals_queued_mail(
    open_store: StoreOpener[MailboxStore],
) -> None:
    expected_ids = [f"m{n}" for n in range(300)]
    known_ids: set[str] = set()
    taken_ids: list[str] = []
    async with open_store() as mailboxes:
        await mailboxes.open_inbox(ANN)
        for mail_id in expected_ids:
            await mailboxes.post(ANN, _make_mail(mail_id))
        async with asyncio.timeout(WAKE_SECONDS):
            while len(taken_ids) < len(expected_ids):
                async with asyncio.TaskGroup() as group:
                    group.create_task(mailboxes.wait_for_mail(ANN, beyond=known_ids))
                    await asyncio.sleep(0)
                    await mailboxes.mark_read(ANN, taken_ids)
                new_ids = [
                    ident
                    for ident in _list_mail_ids(await mailboxes.take_unread(ANN, limit=1000))
                    if ident not in known_ids
                ]
                known_ids.update(new_ids)
                taken_ids += new_ids
    assert taken_ids == expected_ids


@RULES.add_rule()
async def post_from_any_handle_wakes_a_waiter(open_store: StoreOpener[MailboxStore]) -> None:
    async with open_store_handles(open_store, 2) as (mailboxes, others):
        await mailboxes.open_inbox(ANN)
        for n, writer in enumerate((mailboxes, others)):
            async with asyncio.timeout(WAKE_SECONDS), asyncio.TaskGroup() as group:
                waiting = group.create_task(mailboxes.wait_for_mail(ANN))
                assert await list_unfinished_asyncio_tasks(waiting)
                await writer.post(ANN, _make_mail(f"m{n}"))
            assert _list_mail_ids(await mailboxes.take_unread(ANN)) == [f"m{n}"]
            await mailboxes.mark_read(ANN, [f"m{n}"])


@RULES.add_rule()
async def unseen_mail_marks_inbox_as_changed(
    open_store: StoreOpener[MailboxStore],
) -> None:
    async with open_store_handles(open_store, 2) as (mailboxes, others):
        await mailboxes.open_inbox(ANN)
        for n, writer in enumerate((mailboxes, others)):
            assert mailboxes.find_changed_inboxes([ANN]) == [ANN], "nobody waits for it"
            async with asyncio.timeout(WAKE_SECONDS), asyncio.TaskGroup() as group:
                waiting = group.create_task(mailboxes.wait_for_mail(ANN))
                assert await list_unfinished_asyncio_tasks(waiting)
                await writer.post(ANN, _make_mail(f"m{n}"))
                # At once, before the waiter has run.
                assert mailboxes.find_changed_inboxes([ANN]) == [ANN]
            await mailboxes.mark_read(ANN, [f"m{n}"])


@RULES.add_rule()
async def cancelled_mail_wait_harms_no_other(open_store: StoreOpener[MailboxStore]) -> None:
    async with open_store() as mailboxes:
        await mailboxes.open_inbox(ANN)
        async with asyncio.TaskGroup() as group:
            cancelled_wait, other_wait = (group.create_task(mailboxes.wait_for_mail(ANN)) for _ in range(2))
            await list_unfinished_asyncio_tasks(cancelled_wait, other_wait)
            cancelled_wait.cancel()
            await mailboxes.post(ANN, _make_mail("m0"))
            await other_wait
        assert _list_mail_ids(await mailboxes.take_unread(ANN)) == ["m0"]


@RULES.add_rule()
async def many_writers_and_one_reader_lose_double_and_reorder_nothing(
    open_store: StoreOpener[MailboxStore],
) -> None:
    writers, mails_per_writer = 6, 40
    taken_ids: list[str] = []

    async def post_all(mailboxes: MailboxStore, writer: int) -> None:
        for n in range(mails_per_writer):
            await mailboxes.post(ANN, _make_mail(f"{writer}-{n}", sender=AgentName(f"w{writer}")))

    async def take_all(mailboxes: MailboxStore) -> None:
        while len(taken_ids) < writers * mails_per_writer:
            await mailboxes.wait_for_mail(ANN)
            batch = _list_mail_ids(await mailboxes.take_unread(ANN))
            taken_ids.extend(batch)
            await mailboxes.mark_read(ANN, batch)

    async with open_store_handles(open_store, 3) as stores:
        await stores[0].open_inbox(ANN)
        writing = [post_all(stores[writer % 3], writer) for writer in range(writers)]
        await run_calls_concurrently(take_all(stores[0]), *writing)
        assert await stores[1].take_unread(ANN) == ()
        assert sorted(_list_mail_ids(await stores[2].read_history(ANN))) == sorted(taken_ids)
    for writer in range(writers):
        ids_of_writer = [ident for ident in taken_ids if ident.startswith(f"{writer}-")]
        assert ids_of_writer == [f"{writer}-{n}" for n in range(mails_per_writer)]
