"""Optional fields of mail envelopes by sender and kind."""

from __future__ import annotations

from typing import get_args

import pytest

from shoal.core.mail import MailMessage
from shoal.core.mail_bodies import (
    IdleNotification,
    MailBody,
    PermissionRequest,
    PermissionResponse,
    PlanApprovalRequest,
    PlanApprovalResponse,
    ShutdownApproved,
    ShutdownRejected,
    ShutdownRequest,
    TaskAssignment,
)
from shoal.core.mail_envelopes import EnvelopeFields, abbreviate_text, fields_for_kind, prepare_envelope

NEITHER = EnvelopeFields(summary=False, color=False)
SUMMARY = EnvelopeFields(summary=True, color=False)
COLOR = EnvelopeFields(summary=False, color=True)
BOTH = EnvelopeFields(summary=True, color=True)

MATRIX = [
    ("lead", "prompt", NEITHER),
    ("lead", "message", SUMMARY),
    ("agent", "message", BOTH),
    ("lead", "broadcast", SUMMARY),
    ("agent", "broadcast", BOTH),
    ("lead", "notice", NEITHER),
    ("lead", TaskAssignment, NEITHER),
    ("agent", TaskAssignment, NEITHER),
    ("agent", PlanApprovalRequest, NEITHER),
    ("agent", PermissionRequest, COLOR),
    ("agent", IdleNotification, COLOR),
    ("agent", ShutdownApproved, COLOR),
    ("agent", ShutdownRejected, COLOR),
    ("lead", ShutdownRequest, NEITHER),
    ("lead", PlanApprovalResponse, NEITHER),
    ("lead", PermissionResponse, NEITHER),
]


@pytest.mark.spec("BOX-03")
@pytest.mark.parametrize(("who", "kind", "fields"), MATRIX)
def test_an_envelope_has_the_optional_fields_of_its_kind(who, kind, fields):
    assert fields_for_kind(kind, from_lead=who == "lead") == fields
    mail = MailMessage(id="m", sender="ann", text="hello", timestamp="", summary="greets", color="blue")
    sent = prepare_envelope(mail, kind, from_lead=who == "lead")
    assert (sent.summary is not None, sent.color is not None) == (fields.summary, fields.color)


def test_every_body_is_in_the_matrix_and_the_lead_has_no_colour():
    for kind in get_args(MailBody):
        assert not fields_for_kind(kind, from_lead=False).summary
        assert not fields_for_kind(kind, from_lead=True).color
    assert {kind for _, kind, _ in MATRIX if isinstance(kind, type)} == set(get_args(MailBody))


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="'gossip'"):
        fields_for_kind("gossip", from_lead=False)


def test_a_message_without_summary_is_summarised_by_its_first_words():
    mail = MailMessage(id="m", sender="ann", text="  The roof\nis   mended. " + "x " * 100, timestamp="")
    summary = prepare_envelope(mail, "message", from_lead=True).summary
    assert summary.startswith("The roof is mended. x")
    assert summary.endswith("…")
    assert len(summary) <= 60
    assert abbreviate_text("short") == "short"


def test_even_an_empty_message_has_a_summary():
    mail = MailMessage(id="m", sender="ann", text="", timestamp="")
    assert prepare_envelope(mail, "message", from_lead=True).summary is not None
