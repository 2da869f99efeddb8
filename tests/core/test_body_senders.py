"""Request ids and permitted senders of mail bodies."""

from __future__ import annotations

import random
import re

import pytest

from shoal.core.teams.mail_bodies import (
    IdleNotificationMail,
    MailedPermissionGrant,
    PermissionRequestMail,
    PermissionResponseMail,
    PlanApprovalRequestMail,
    PlanApprovalResponseMail,
    ShutdownApprovedMail,
    ShutdownRejectedMail,
    ShutdownRequestMail,
    TaskAssignmentMail,
    TeammateTerminatedNotice,
    can_send_mail_body,
    create_permission_request_id,
    format_peer_message_summary,
    format_plan_request_id,
    format_shutdown_request_id,
)

AT = "2026-02-13T10:13:23.516Z"
LEAD_ONLY = [
    ShutdownRequestMail(request_id="r", sender="team-lead", timestamp=AT),
    PlanApprovalResponseMail(request_id="r", approved=True, timestamp=AT),
    PermissionResponseMail(request_id="r", subtype="success", response=MailedPermissionGrant()),
]
MEMBER_BODIES = [
    IdleNotificationMail(sender="ann", timestamp=AT, idle_reason="available"),
    ShutdownApprovedMail(request_id="r", sender="ann", timestamp=AT),
    ShutdownRejectedMail(request_id="r", sender="ann", timestamp=AT),
    PlanApprovalRequestMail(sender="ann", timestamp=AT, plan_file_path="/p", plan_content="", request_id="r"),
    PermissionRequestMail(
        request_id="r", agent_id="ann", tool_name="Bash", tool_use_id="t", description="", input={}
    ),
    TaskAssignmentMail(task_id="1", subject="", description="", assigned_by="ann", timestamp=AT),
]


def parametrize_bodies(bodies):
    return pytest.mark.parametrize("body", bodies, ids=lambda body: type(body).__name__)


@pytest.mark.spec("USR-11")
@parametrize_bodies(LEAD_ONLY)
def test_only_the_lead_may_send_these_bodies(body):
    assert can_send_mail_body("team-lead", body)
    assert not can_send_mail_body("ann", body)
    assert not can_send_mail_body("user", body)


@pytest.mark.spec("USR-11")
@parametrize_bodies(MEMBER_BODIES)
def test_a_member_may_send_these_bodies_only_in_its_own_name(body):
    assert can_send_mail_body("ann", body)
    assert not can_send_mail_body("bob", body)
    assert not can_send_mail_body("team-lead", body)


def test_the_lead_may_assign_tasks_but_not_report_idle():
    of_lead = TaskAssignmentMail(
        task_id="1", subject="", description="", assigned_by="team-lead", timestamp=AT
    )
    assert can_send_mail_body("team-lead", of_lead)
    idle = IdleNotificationMail(sender="team-lead", timestamp=AT, idle_reason="available")
    assert not can_send_mail_body("team-lead", idle)


@pytest.mark.spec("USR-11")
def test_a_shutdown_request_in_the_name_of_another_member_is_rejected():
    forged = ShutdownRequestMail(request_id="r", sender="ann", timestamp=AT)
    assert not can_send_mail_body("ann", forged)
    assert not can_send_mail_body("team-lead", forged)


@pytest.mark.spec("MSG-03", "MSG-05", "MSG-07")
def test_request_ids_contain_time_agent_team_and_random_characters():
    assert format_shutdown_request_id(1770977603516, "ann") == "shutdown-1770977603516@ann"
    assert format_plan_request_id(1770979387887, "ann", "roof") == "plan_approval-1770979387887@ann@roof"
    ident = create_permission_request_id(1770980462304, random.Random(7))
    assert re.fullmatch(r"perm-1770980462304-[0-9a-z]{7}", ident)
    assert create_permission_request_id(1770980462304, random.Random(7)) == ident
    assert create_permission_request_id(1770980462304, random.Random(8)) != ident


@pytest.mark.spec("MSG-02")
def test_the_peer_summary_names_the_recipient():
    assert format_peer_message_summary("bob", "asks for nails") == "[to bob] asks for nails"


def test_the_termination_text_names_task_type_and_status():
    text = TeammateTerminatedNotice(task="t7", kind="in_process_teammate", status="completed").text
    assert all(word in text for word in ("t7", "in_process_teammate", "completed"))
