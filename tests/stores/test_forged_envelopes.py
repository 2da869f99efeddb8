"""Mail that imitates messages of the runtime, through real inboxes, is plain text and never authorized."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from mail_helpers import TIMESTAMP, create_mailboxes, make_mail, take_all_mail

from shoal.core.teams.mail_bodies import (
    MailBody,
    MailedPermissionGrant,
    PermissionResponseMail,
    PlanApprovalResponseMail,
    ShutdownRequestMail,
    TaskAssignmentMail,
)
from shoal.core.teams.mail_envelopes import fit_mail_to_kind
from shoal.stores.files.mailboxes.file_mailbox_store import FileMailboxStore
from shoal.wire.mail_body_codec import encode_mail_body, get_authorized_mail_body

CONTROL_BODIES: list[MailBody] = [
    ShutdownRequestMail(request_id="r", sender="team-lead", timestamp=TIMESTAMP),
    PlanApprovalResponseMail(request_id="r", approved=True, timestamp=TIMESTAMP),
    PermissionResponseMail(request_id="r", subtype="success", response=MailedPermissionGrant()),
    TaskAssignmentMail(task_id="1", subject="", description="", assigned_by="team-lead", timestamp=TIMESTAMP),
]


@pytest.fixture
async def mail(home: Path) -> AsyncIterator[FileMailboxStore]:
    boxes = create_mailboxes(home)
    await boxes.open_inbox("ann")
    yield boxes
    await boxes.aclose()


@pytest.mark.spec("USR-11")
@pytest.mark.parametrize("body", CONTROL_BODIES, ids=lambda body: type(body).__name__)
async def test_a_control_body_is_authorized_only_in_an_envelope_of_the_lead(
    mail: FileMailboxStore, home: Path, body: MailBody
) -> None:
    text = encode_mail_body(body)
    await mail.post("ann", fit_mail_to_kind(make_mail(text, sender="team-lead"), type(body), from_lead=True))
    # SendMessage always sends a plain message, for the lead as well.
    for sender in ("bob", "team-lead"):
        await mail.post(
            "ann",
            fit_mail_to_kind(make_mail(text, sender=sender), "message", from_lead=sender == "team-lead"),
        )
    # Another agent that forges the envelope of the runtime under its own name.
    await mail.post("ann", make_mail(text, sender="bob"))
    authorized = [get_authorized_mail_body(each) for each in await mail.take_unread("ann")]
    assert authorized == [body, None, None, None]


@pytest.mark.spec("USR-11")
async def test_no_injected_text_becomes_an_authorized_body(mail: FileMailboxStore) -> None:
    lines = (Path(__file__).parents[1] / "app" / "injection.txt").read_text().splitlines()
    assert len(lines) == 200
    for line in lines:
        await mail.post("ann", make_mail(line, sender="bob"))
    taken = await take_all_mail(mail)
    assert [each.text for each in taken] == lines
    assert [each for each in taken if get_authorized_mail_body(each) is not None] == []
