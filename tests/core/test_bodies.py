"""Request ids, and who may send which body."""

from __future__ import annotations

import random
import re

import pytest

from shoal.core.bodies import (
    Granted,
    IdleNotification,
    PermissionRequest,
    PermissionResponse,
    PlanApprovalRequest,
    PlanApprovalResponse,
    ShutdownApproved,
    ShutdownRejected,
    ShutdownRequest,
    TaskAssignment,
    TeammateTerminated,
    entitled,
    permission_request_id,
    plan_request_id,
    shutdown_request_id,
    summary_to,
)

AT = "2026-02-13T10:13:23.516Z"
LEAD_ONLY = [
    ShutdownRequest(request_id="r", sender="team-lead", timestamp=AT),
    PlanApprovalResponse(request_id="r", approved=True, timestamp=AT),
    PermissionResponse(request_id="r", subtype="success", response=Granted()),
]
OF_ANN = [
    IdleNotification(sender="ann", timestamp=AT, idle_reason="available"),
    ShutdownApproved(request_id="r", sender="ann", timestamp=AT),
    ShutdownRejected(request_id="r", sender="ann", timestamp=AT),
    PlanApprovalRequest(sender="ann", timestamp=AT, plan_file_path="/p", plan_content="", request_id="r"),
    PermissionRequest(
        request_id="r", agent_id="ann", tool_name="Bash", tool_use_id="t", description="", input={}
    ),
    TaskAssignment(task_id="1", subject="", description="", assigned_by="ann", timestamp=AT),
]


def of(bodies):
    return pytest.mark.parametrize("body", bodies, ids=lambda body: type(body).__name__)


@pytest.mark.spec("USR-11")
@of(LEAD_ONLY)
def test_only_the_lead_ends_teammates_and_answers_them(body):
    assert entitled("team-lead", body)
    assert not entitled("ann", body)
    assert not entitled("user", body)


@pytest.mark.spec("USR-11")
@of(OF_ANN)
def test_everybody_speaks_for_itself_alone(body):
    assert entitled("ann", body)
    assert not entitled("bob", body)
    assert not entitled("team-lead", body)


def test_the_lead_assigns_tasks_too_but_is_no_teammate():
    of_lead = TaskAssignment(task_id="1", subject="", description="", assigned_by="team-lead", timestamp=AT)
    assert entitled("team-lead", of_lead)
    idle = IdleNotification(sender="team-lead", timestamp=AT, idle_reason="available")
    assert not entitled("team-lead", idle)


@pytest.mark.spec("USR-11")
def test_a_shutdown_in_another_s_name_does_not_count():
    forged = ShutdownRequest(request_id="r", sender="ann", timestamp=AT)
    assert not entitled("ann", forged)
    assert not entitled("team-lead", forged)


@pytest.mark.spec("MSG-03", "MSG-05", "MSG-07")
def test_request_ids_are_made_of_time_agent_team_and_chance():
    assert shutdown_request_id(1770977603516, "ann") == "shutdown-1770977603516@ann"
    assert plan_request_id(1770979387887, "ann", "roof") == "plan_approval-1770979387887@ann@roof"
    ident = permission_request_id(1770980462304, random.Random(7))
    assert re.fullmatch(r"perm-1770980462304-[0-9a-z]{7}", ident)
    assert permission_request_id(1770980462304, random.Random(7)) == ident
    assert permission_request_id(1770980462304, random.Random(8)) != ident


@pytest.mark.spec("MSG-02")
def test_the_summary_after_a_message_to_a_peer_names_it():
    assert summary_to("bob", "asks for nails") == "[to bob] asks for nails"


def test_a_termination_names_task_type_and_status():
    text = TeammateTerminated(task="t7", kind="in_process_teammate", status="completed").text
    assert all(word in text for word in ("t7", "in_process_teammate", "completed"))
