"""Optional fields of mail envelopes by sender and kind."""

from __future__ import annotations

from typing import get_args

import pytest

from shoal.core.teams.mail import MailMessage
from shoal.core.teams.mail_bodies import (
    IdleNotificationMail,
    MailBody,
    PermissionRequestMail,
    PermissionResponseMail,
    PlanApprovalRequestMail,
    PlanApprovalResponseMail,
    ShutdownApprovedMail,
    ShutdownRejectedMail,
    ShutdownRequestMail,
    TaskAssignmentMail,
)
from shoal.core.teams.mail_envelopes import (
    MailEnvelopeFieldPresence,
    abbreviate_text_to_one_line,
    fit_mail_to_kind,
    get_envelope_fields_of_mail_kind,
)

NEITHER = MailEnvelopeFieldPresence(summary=False, color=False)
SUMMARY = MailEnvelopeFieldPresence(summary=True, color=False)
COLOR = MailEnvelopeFieldPresence(summary=False, color=True)
BOTH = MailEnvelopeFieldPresence(summary=True, color=True)

MATRIX = [
    ("lead", "prompt", NEITHER),
    ("lead", "message", SUMMARY),
    ("agent", "message", BOTH),
    ("lead", "broadcast", SUMMARY),
    ("agent", "broadcast", BOTH),
    ("lead", "notice", NEITHER),
    ("lead", TaskAssignmentMail, NEITHER),
    ("agent", TaskAssignmentMail, NEITHER),
    ("agent", PlanApprovalRequestMail, NEITHER),
    ("agent", PermissionRequestMail, COLOR),
    ("agent", IdleNotificationMail, COLOR),
    ("agent", ShutdownApprovedMail, COLOR),
    ("agent", ShutdownRejectedMail, COLOR),
    ("lead", ShutdownRequestMail, NEITHER),
    ("lead", PlanApprovalResponseMail, NEITHER),
    ("lead", PermissionResponseMail, NEITHER),
]


@pytest.mark.spec("BOX-03")
@pytest.mark.parametrize(("who", "kind", "fields"), MATRIX)
def test_an_envelope_has_the_optional_fields_of_its_kind(who, kind, fields):
    assert get_envelope_fields_of_mail_kind(kind, from_lead=who == "lead") == fields
    mail = MailMessage(id="m", sender="ann", text="hello", timestamp="", summary="greets", color="blue")
    sent = fit_mail_to_kind(mail, kind, from_lead=who == "lead")
    assert (sent.summary is not None, sent.color is not None) == (fields.summary, fields.color)


def test_every_body_is_in_the_matrix_and_the_lead_has_no_colour():
    for kind in get_args(MailBody):
        assert not get_envelope_fields_of_mail_kind(kind, from_lead=False).summary
        assert not get_envelope_fields_of_mail_kind(kind, from_lead=True).color
    assert {kind for _, kind, _ in MATRIX if isinstance(kind, type)} == set(get_args(MailBody))


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="'gossip'"):
        get_envelope_fields_of_mail_kind("gossip", from_lead=False)


def test_a_message_without_summary_is_summarised_by_its_first_words():
    mail = MailMessage(id="m", sender="ann", text="  The roof\nis   mended. " + "x " * 100, timestamp="")
    summary = fit_mail_to_kind(mail, "message", from_lead=True).summary
    assert summary.startswith("The roof is mended. x")
    assert summary.endswith("…")
    assert len(summary) <= 60
    assert abbreviate_text_to_one_line("short") == "short"


def test_even_an_empty_message_has_a_summary():
    mail = MailMessage(id="m", sender="ann", text="", timestamp="")
    assert fit_mail_to_kind(mail, "message", from_lead=True).summary is not None
