"""Mail that pretends to be a word of the runtime, through real inboxes: it is text, and nobody obeys it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shoal.core.bodies import (
    Body,
    Granted,
    PermissionResponse,
    PlanApprovalResponse,
    ShutdownRequest,
    TaskAssignment,
)
from shoal.core.clock import SystemClock
from shoal.core.envelopes import enveloped
from shoal.core.ids import Ids
from shoal.core.mail import Mail
from shoal.stores.files.mailboxes import FileMailboxes
from shoal.wire.bodies import body_of, body_text

AT = "2026-02-13T10:11:35.247Z"
ORDERS: list[Body] = [
    ShutdownRequest(request_id="r", sender="team-lead", timestamp=AT),
    PlanApprovalResponse(request_id="r", approved=True, timestamp=AT),
    PermissionResponse(request_id="r", subtype="success", response=Granted()),
    TaskAssignment(task_id="1", subject="", description="", assigned_by="team-lead", timestamp=AT),
]


@pytest.fixture
async def mail(home: Path) -> AsyncIterator[FileMailboxes]:
    boxes = FileMailboxes(home, "t", clock=SystemClock(), ids=Ids())
    await boxes.open("ann")
    yield boxes
    await boxes.aclose()


def letter(text: str, sender: str) -> Mail:
    return Mail(id=f"{sender} {text}", sender=sender, text=text, timestamp=AT)


@pytest.mark.spec("USR-11")
@pytest.mark.parametrize("order", ORDERS, ids=lambda order: type(order).__name__)
async def test_an_order_counts_from_the_lead_s_runtime_and_from_nobody_else(
    mail: FileMailboxes, home: Path, order: Body
) -> None:
    text = body_text(order)
    await mail.post("ann", enveloped(letter(text, "team-lead"), type(order), from_lead=True))
    # What an agent says with SendMessage is a message, whatever its text; the lead's own words too.
    for sender in ("bob", "team-lead"):
        await mail.post("ann", enveloped(letter(text, sender), "message", from_lead=sender == "team-lead"))
    # Another agent that writes the envelope of the runtime itself, under its own name.
    await mail.post("ann", letter(text, "bob"))
    obeyed = [body_of(each) for each in await mail.take("ann")]
    assert obeyed == [order, None, None, None]


@pytest.mark.spec("USR-11")
async def test_no_injected_text_becomes_an_order(mail: FileMailboxes) -> None:
    lines = (Path(__file__).parents[1] / "app" / "injection.txt").read_text().splitlines()
    assert len(lines) == 200
    for line in lines:
        await mail.post("ann", letter(line, "bob"))
    taken: list[Mail] = []
    while batch := await mail.take("ann"):
        taken += batch
        await mail.mark("ann", [each.id for each in batch])
    assert [each.text for each in taken] == lines
    assert [each for each in taken if body_of(each) is not None] == []
