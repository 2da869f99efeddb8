"""The matrix of optional fields, entry by entry."""

from __future__ import annotations

from typing import get_args

import pytest

from shoal.core.bodies import (
    Body,
    IdleNotification,
    PermissionRequest,
    PermissionResponse,
    PlanApprovalRequest,
    PlanApprovalResponse,
    ShutdownApproved,
    ShutdownRejected,
    ShutdownRequest,
    TaskAssignment,
)
from shoal.core.envelopes import Carried, carried, enveloped, first_words
from shoal.core.mail import Mail

NEITHER = Carried(summary=False, color=False)
SUMMARY = Carried(summary=True, color=False)
COLOR = Carried(summary=False, color=True)
BOTH = Carried(summary=True, color=True)

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
def test_an_envelope_carries_what_the_matrix_says(who, kind, fields):
    assert carried(kind, from_lead=who == "lead") == fields
    mail = Mail(id="m", sender="ann", text="hello", timestamp="", summary="greets", color="blue")
    sent = enveloped(mail, kind, from_lead=who == "lead")
    assert (sent.summary is not None, sent.color is not None) == (fields.summary, fields.color)


def test_every_body_has_its_place_in_the_matrix_and_the_lead_no_colour():
    for kind in get_args(Body):
        assert not carried(kind, from_lead=False).summary
        assert not carried(kind, from_lead=True).color
    assert {kind for _, kind, _ in MATRIX if isinstance(kind, type)} == set(get_args(Body))


def test_what_is_no_kind_is_refused():
    with pytest.raises(ValueError, match="'gossip'"):
        carried("gossip", from_lead=False)


def test_a_message_without_summary_gets_its_first_words():
    mail = Mail(id="m", sender="ann", text="  The roof\nis   mended. " + "x " * 100, timestamp="")
    summary = enveloped(mail, "message", from_lead=True).summary
    assert summary.startswith("The roof is mended. x")
    assert summary.endswith("…")
    assert len(summary) <= 60
    assert first_words("short") == "short"


def test_even_an_empty_message_has_a_summary():
    mail = Mail(id="m", sender="ann", text="", timestamp="")
    assert enveloped(mail, "message", from_lead=True).summary is not None
