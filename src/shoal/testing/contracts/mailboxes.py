"""Contract of every mail store."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from shoal.core.errors import BadName, NoSuchInbox
from shoal.core.mail import Mail
from shoal.core.names import LEAD_NAME, AgentName
from shoal.core.record import Mailboxes
from shoal.testing.contracts.rules import PROMPT, Doors, Rules, opened, refused, still_waiting, together

RULES = Rules()
ANN, BOB = AgentName("ann"), AgentName("bob")
_AT = "2026-02-13T10:11:35.247Z"


def _mail(ident: str, *, sender: AgentName = BOB, text: str = "") -> Mail:
    return Mail(id=ident, sender=sender, text=text or f"text of {ident}", timestamp=_AT)


def _ids(mails: tuple[Mail, ...]) -> list[str]:
    return [mail.id for mail in mails]


@RULES.shows("BOX-01")
async def mail_is_taken_in_the_order_of_its_posts(doors: Doors[Mailboxes]) -> None:
    async with doors() as boxes:
        await boxes.open(ANN)
        for n in range(5):
            receipt = await boxes.post(ANN, _mail(f"m{n}"))
            assert receipt.id == f"m{n}"
        assert _ids(await boxes.take(ANN)) == ["m0", "m1", "m2", "m3", "m4"]


@RULES.shows("BOX-01")
async def a_message_is_unread_until_it_is_marked_and_read_for_ever_after(doors: Doors[Mailboxes]) -> None:
    async with doors() as boxes:
        await boxes.open(ANN)
        await boxes.post(ANN, replace(_mail("m0"), read=True))
        for _ in range(2):
            assert [(mail.id, mail.read) for mail in await boxes.take(ANN)] == [("m0", False)]
        await boxes.mark(ANN, ["m0"])
        assert await boxes.take(ANN) == ()
        assert [(mail.id, mail.read) for mail in await boxes.history(ANN)] == [("m0", True)]


@RULES.shows("BOX-01")
async def every_field_of_a_message_is_kept(doors: Doors[Mailboxes]) -> None:
    odd = 'line\nline\t"quoted" \\ ä 日本 \U0001f41f \u2028 half \ud83d ' + "x" * 100_000
    mail = Mail(
        id="m0",
        sender=BOB,
        text=odd,
        timestamp=_AT,
        summary="ä, in short",
        color="green",
        signature="0" * 64,
    )
    async with opened(doors, 2) as (boxes, others):
        await boxes.open(ANN)
        await boxes.post(ANN, mail)
        assert await others.take(ANN) == (mail,)


@RULES.shows()
async def marking_some_leaves_the_others_in_order(doors: Doors[Mailboxes]) -> None:
    async with doors() as boxes:
        await boxes.open(ANN)
        for n in range(5):
            await boxes.post(ANN, _mail(f"m{n}"))
        await boxes.mark(ANN, {"m3", "m1"})
        assert _ids(await boxes.take(ANN)) == ["m0", "m2", "m4"]
        await boxes.post(ANN, _mail("m5"))
        assert _ids(await boxes.take(ANN)) == ["m0", "m2", "m4", "m5"]


@RULES.shows()
async def marking_again_or_what_is_not_there_changes_nothing(doors: Doors[Mailboxes]) -> None:
    async with doors() as boxes:
        await boxes.open(ANN)
        for ident in ("m0", "m1"):
            await boxes.post(ANN, _mail(ident))
        for _ in range(2):
            await boxes.mark(ANN, ["m0", "never posted"])
        await boxes.mark(ANN, [])
        assert _ids(await boxes.take(ANN)) == ["m1"]
        assert _ids(await boxes.history(ANN)) == ["m0", "m1"]


@RULES.shows()
async def the_oldest_come_first_when_only_some_are_taken(doors: Doors[Mailboxes]) -> None:
    async with doors() as boxes:
        await boxes.open(ANN)
        for n in range(5):
            await boxes.post(ANN, _mail(f"m{n}"))
        assert _ids(await boxes.take(ANN, limit=2)) == ["m0", "m1"]


@RULES.shows("BOX-01")
async def nothing_of_much_mail_is_lost(doors: Doors[Mailboxes]) -> None:
    """More mail than one batch holds arrives batch by batch in order, and the history has all of it."""
    wanted = [f"m{n}" for n in range(300)]
    taken: list[str] = []
    async with doors() as boxes:
        await boxes.open(ANN)
        for ident in wanted:
            await boxes.post(ANN, _mail(ident))
        while batch := await boxes.take(ANN):
            taken += _ids(batch)
            await boxes.mark(ANN, _ids(batch))
        assert taken == wanted
        assert _ids(await boxes.history(ANN)) == wanted


@RULES.shows()
async def a_foreign_owner_s_mail_is_never_kept_behind(doors: Doors[Mailboxes]) -> None:
    async with doors() as boxes:
        await boxes.open(ANN, foreign=True)
        standings = {(await boxes.post(ANN, _mail(f"m{n}"))).standing for n in range(200)}
        assert standings == {"delivered"}
        assert len(await boxes.take(ANN, limit=1000)) == 200


@RULES.shows()
async def who_is_run_by_another_program_is_known_until_it_is_not(doors: Doors[Mailboxes]) -> None:
    async with opened(doors, 2) as (boxes, others):
        await boxes.open(ANN, foreign=True)
        await boxes.open(BOB)
        assert (others.is_foreign(ANN), others.is_foreign(BOB)) == (True, False)
        await boxes.open(ANN)
        assert not others.is_foreign(ANN)


@RULES.shows()
async def each_inbox_is_its_owner_s_alone(doors: Doors[Mailboxes]) -> None:
    async with doors() as boxes:
        await together(boxes.open(ANN), boxes.open(BOB))
        await boxes.post(ANN, _mail("m0"))
        assert await boxes.take(BOB) == ()
        await boxes.mark(BOB, ["m0"])
        assert _ids(await boxes.take(ANN)) == ["m0"]


@RULES.shows()
async def what_cannot_be_a_name_has_no_inbox(doors: Doors[Mailboxes]) -> None:
    async with doors() as boxes:
        for odd in ("", "../ann", "a/b", ".", "nul\0", "x" * 65):
            await refused(boxes.post(AgentName(odd), _mail("m0")), BadName)
            await refused(boxes.open(AgentName(odd)), BadName)


@RULES.shows()
async def a_post_to_one_without_inbox_is_refused(doors: Doors[Mailboxes]) -> None:
    async with doors() as boxes:
        await boxes.open(ANN)
        for _ in range(2):
            assert "bob" in await refused(boxes.post(BOB, _mail("m0", sender=ANN)), NoSuchInbox)
        await boxes.open(BOB)
        assert await boxes.take(BOB) == ()


@RULES.shows()
async def the_lead_s_inbox_is_made_by_the_first_message_to_it(doors: Doors[Mailboxes]) -> None:
    async with opened(doors, 2) as (boxes, lead):
        await boxes.post(LEAD_NAME, _mail("m0"))
        assert _ids(await lead.take(LEAD_NAME)) == ["m0"]


@RULES.shows()
async def opening_an_inbox_again_keeps_its_mail(doors: Doors[Mailboxes]) -> None:
    async with doors() as boxes:
        await boxes.open(ANN)
        await boxes.post(ANN, _mail("m0"))
    async with doors() as boxes:
        await boxes.open(ANN)
        assert _ids(await boxes.take(ANN)) == ["m0"]


@RULES.shows()
async def waiting_ends_at_once_where_mail_is_unread(doors: Doors[Mailboxes]) -> None:
    async with doors() as boxes:
        await boxes.open(ANN)
        await boxes.post(ANN, _mail("m0"))
        await boxes.wait(ANN)
        await boxes.take(ANN)
        await boxes.wait(ANN)


@RULES.shows()
async def waiting_passes_over_the_mail_that_is_known(doors: Doors[Mailboxes]) -> None:
    async with doors() as boxes:
        await boxes.open(ANN)
        await boxes.post(ANN, _mail("m0"))
        known = {"m0"}
        async with asyncio.timeout(PROMPT), asyncio.TaskGroup() as group:
            waiting = group.create_task(boxes.wait(ANN, beyond=known))
            assert await still_waiting(waiting)
            known.add("m1")
            await boxes.post(ANN, _mail("m1"))
            await boxes.mark(ANN, ["m0"])
            assert await still_waiting(waiting)
            await boxes.post(ANN, _mail("m2"))


@RULES.shows("BOX-04")
async def what_waits_behind_known_mail_is_told_of_when_that_is_marked(doors: Doors[Mailboxes]) -> None:
    wanted = [f"m{n}" for n in range(300)]
    known: set[str] = set()
    taken: list[str] = []
    async with doors() as boxes:
        await boxes.open(ANN)
        for ident in wanted:
            await boxes.post(ANN, _mail(ident))
        async with asyncio.timeout(PROMPT):
            while len(taken) < len(wanted):
                async with asyncio.TaskGroup() as group:
                    group.create_task(boxes.wait(ANN, beyond=known))
                    await asyncio.sleep(0)
                    await boxes.mark(ANN, taken)
                fresh = [ident for ident in _ids(await boxes.take(ANN, limit=1000)) if ident not in known]
                known.update(fresh)
                taken += fresh
    assert taken == wanted


@RULES.shows()
async def a_post_wakes_who_waits_through_any_door(doors: Doors[Mailboxes]) -> None:
    async with opened(doors, 2) as (boxes, others):
        await boxes.open(ANN)
        for n, writer in enumerate((boxes, others)):
            async with asyncio.timeout(PROMPT), asyncio.TaskGroup() as group:
                waiting = group.create_task(boxes.wait(ANN))
                assert await still_waiting(waiting)
                await writer.post(ANN, _mail(f"m{n}"))
            assert _ids(await boxes.take(ANN)) == [f"m{n}"]
            await boxes.mark(ANN, [f"m{n}"])


@RULES.shows()
async def an_inbox_with_mail_that_nobody_has_seen_is_never_called_still(doors: Doors[Mailboxes]) -> None:
    async with opened(doors, 2) as (boxes, others):
        await boxes.open(ANN)
        for n, writer in enumerate((boxes, others)):
            assert boxes.stirred([ANN]) == [ANN], "nobody waits for it"
            async with asyncio.timeout(PROMPT), asyncio.TaskGroup() as group:
                waiting = group.create_task(boxes.wait(ANN))
                assert await still_waiting(waiting)
                await writer.post(ANN, _mail(f"m{n}"))
                # At once, before the waiter has run.
                assert boxes.stirred([ANN]) == [ANN]
            await boxes.mark(ANN, [f"m{n}"])


@RULES.shows()
async def a_wait_given_up_harms_no_other(doors: Doors[Mailboxes]) -> None:
    async with doors() as boxes:
        await boxes.open(ANN)
        async with asyncio.TaskGroup() as group:
            given_up, waiting = (group.create_task(boxes.wait(ANN)) for _ in range(2))
            await still_waiting(given_up, waiting)
            given_up.cancel()
            await boxes.post(ANN, _mail("m0"))
            await waiting
        assert _ids(await boxes.take(ANN)) == ["m0"]


@RULES.shows()
async def many_writers_and_one_reader_lose_double_and_reorder_nothing(doors: Doors[Mailboxes]) -> None:
    writers, each = 6, 40
    taken: list[str] = []

    async def write(boxes: Mailboxes, writer: int) -> None:
        for n in range(each):
            await boxes.post(ANN, _mail(f"{writer}-{n}", sender=AgentName(f"w{writer}")))

    async def read(boxes: Mailboxes) -> None:
        while len(taken) < writers * each:
            await boxes.wait(ANN)
            batch = _ids(await boxes.take(ANN))
            taken.extend(batch)
            await boxes.mark(ANN, batch)

    async with opened(doors, 3) as open_doors:
        await open_doors[0].open(ANN)
        writing = [write(open_doors[writer % 3], writer) for writer in range(writers)]
        await together(read(open_doors[0]), *writing)
        assert await open_doors[1].take(ANN) == ()
        assert sorted(_ids(await open_doors[2].history(ANN))) == sorted(taken)
    for writer in range(writers):
        own = [ident for ident in taken if ident.startswith(f"{writer}-")]
        assert own == [f"{writer}-{n}" for n in range(each)]
