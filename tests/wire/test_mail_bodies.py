"""Message bodies: their exact keys, and what is plain text instead."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from json_values import few_examples, texts, values

from shoal.core.teams.mail import MailMessage
from shoal.core.teams.mail_bodies import (
    IdleNotificationMail,
    MailedAddDirectoriesUpdate,
    MailedAddPermissionRulesUpdate,
    MailedPermissionGrant,
    MailedPermissionRule,
    MailedSetPermissionModeUpdate,
    PermissionRequestMail,
    PermissionResponseMail,
    PlanApprovalRequestMail,
    PlanApprovalResponseMail,
    ShutdownApprovedMail,
    ShutdownRejectedMail,
    ShutdownRequestMail,
    TaskAssignmentMail,
)
from shoal.wire.mail_body_codec import encode_mail_body, get_authorized_mail_body, parse_mail_body

AT = "2026-02-13T10:13:23.516Z"
SHUTDOWN = "shutdown-1770977603516@ann"
PLAN = "plan_approval-1770979387887@ann@roof"
PERMISSION = "perm-1770980462304-4uqstf5"
SUGGESTIONS = [
    {"type": "addDirectories", "directories": ["/tmp", "/tmp/x"], "destination": "session"},
    {"type": "setMode", "mode": "acceptEdits", "destination": "session"},
    {
        "type": "addRules",
        "rules": [{"toolName": "Read", "ruleContent": "//tmp/**"}, {"toolName": "Glob"}],
        "behavior": "allow",
        "destination": "session",
    },
]
UPDATES = (
    MailedAddDirectoriesUpdate(directories=("/tmp", "/tmp/x"), destination="session"),
    MailedSetPermissionModeUpdate(mode="acceptEdits", destination="session"),
    MailedAddPermissionRulesUpdate(
        rules=(
            MailedPermissionRule(tool_name="Read", rule_content="//tmp/**"),
            MailedPermissionRule(tool_name="Glob"),
        ),
        behavior="allow",
        destination="session",
    ),
)

BODIES = {
    "MSG-01": [
        (
            TaskAssignmentMail(
                task_id="1", subject="Mend", description="it", assigned_by="ann", timestamp=AT
            ),
            {
                "type": "task_assignment",
                "taskId": "1",
                "subject": "Mend",
                "description": "it",
                "assignedBy": "ann",
                "timestamp": AT,
            },
        )
    ],
    "MSG-02": [
        (
            IdleNotificationMail(sender="ann", timestamp=AT, idle_reason="available"),
            {"type": "idle_notification", "from": "ann", "timestamp": AT, "idleReason": "available"},
        ),
        (
            IdleNotificationMail(
                sender="ann",
                timestamp=AT,
                idle_reason="failed",
                summary="[to bob] asks",
                completed_task_id="3",
                completed_status="blocked",
                failure_reason="no model",
                result="all I found",
            ),
            {
                "type": "idle_notification",
                "from": "ann",
                "timestamp": AT,
                "idleReason": "failed",
                "summary": "[to bob] asks",
                "completedTaskId": "3",
                "completedStatus": "blocked",
                "failureReason": "no model",
                "result": "all I found",
            },
        ),
    ],
    "MSG-03": [
        (
            ShutdownRequestMail(request_id=SHUTDOWN, sender="team-lead", reason="done", timestamp=AT),
            {
                "type": "shutdown_request",
                "requestId": SHUTDOWN,
                "from": "team-lead",
                "reason": "done",
                "timestamp": AT,
            },
        )
    ],
    "MSG-04": [
        (
            ShutdownApprovedMail(
                request_id=SHUTDOWN, sender="ann", timestamp=AT, pane_id="%71", backend_type="tmux"
            ),
            {
                "type": "shutdown_approved",
                "requestId": SHUTDOWN,
                "from": "ann",
                "timestamp": AT,
                "paneId": "%71",
                "backendType": "tmux",
            },
        ),
        (
            ShutdownRejectedMail(request_id=SHUTDOWN, sender="ann", reason="not yet", timestamp=AT),
            {
                "type": "shutdown_rejected",
                "requestId": SHUTDOWN,
                "from": "ann",
                "reason": "not yet",
                "timestamp": AT,
            },
        ),
    ],
    "MSG-05": [
        (
            PlanApprovalRequestMail(
                sender="ann",
                timestamp=AT,
                plan_file_path="/home/a/plans/p.md",
                plan_content="# Plan",
                request_id=PLAN,
            ),
            {
                "type": "plan_approval_request",
                "from": "ann",
                "timestamp": AT,
                "planFilePath": "/home/a/plans/p.md",
                "planContent": "# Plan",
                "requestId": PLAN,
            },
        )
    ],
    "MSG-06": [
        (
            PlanApprovalResponseMail(
                request_id=PLAN, approved=True, timestamp=AT, permission_mode="acceptEdits"
            ),
            {
                "type": "plan_approval_response",
                "requestId": PLAN,
                "approved": True,
                "timestamp": AT,
                "permissionMode": "acceptEdits",
            },
        ),
        (
            PlanApprovalResponseMail(request_id=PLAN, approved=False, timestamp=AT, feedback="more tests"),
            {
                "type": "plan_approval_response",
                "requestId": PLAN,
                "approved": False,
                "timestamp": AT,
                "feedback": "more tests",
            },
        ),
    ],
    "MSG-07": [
        (
            PermissionRequestMail(
                request_id=PERMISSION,
                agent_id="ann",
                tool_name="Bash",
                tool_use_id="toolu_1",
                description="Make a directory",
                input={"command": "mkdir -p /tmp/x"},
                permission_suggestions=UPDATES,
            ),
            {
                "type": "permission_request",
                "request_id": PERMISSION,
                "agent_id": "ann",
                "tool_name": "Bash",
                "tool_use_id": "toolu_1",
                "description": "Make a directory",
                "input": {"command": "mkdir -p /tmp/x"},
                "permission_suggestions": SUGGESTIONS,
            },
        ),
    ],
    "MSG-08": [
        (
            PermissionResponseMail(
                request_id=PERMISSION,
                subtype="success",
                response=MailedPermissionGrant(
                    updated_input={"command": "true"}, permission_updates=UPDATES[:1]
                ),
            ),
            {
                "type": "permission_response",
                "request_id": PERMISSION,
                "subtype": "success",
                "response": {"updated_input": {"command": "true"}, "permission_updates": SUGGESTIONS[:1]},
            },
        ),
        (
            PermissionResponseMail(request_id=PERMISSION, subtype="error", error="not there"),
            {
                "type": "permission_response",
                "request_id": PERMISSION,
                "subtype": "error",
                "error": "not there",
            },
        ),
    ],
}
ALL = [(rule, *pair) for rule, pairs in BODIES.items() for pair in pairs]
NAMES = [
    *("assignment", "idle", "failed", "shutdown", "shutdown approved", "shutdown rejected"),
    *("plan", "plan approved", "plan rejected", "permission", "permission granted", "permission refused"),
]
JSONS = {name: found for name, (_, _, found) in zip(NAMES, ALL, strict=True)}


@pytest.mark.parametrize(
    ("body", "found"),
    [pytest.param(body, found, id=found["type"], marks=pytest.mark.spec(rule)) for rule, body, found in ALL],
)
def test_a_body_has_exactly_the_keys_of_the_protocol(body, found):
    assert json.loads(encode_mail_body(body)) == found
    assert parse_mail_body(json.dumps(found)) == body


@pytest.mark.spec("MSG-10")
def test_shutdown_and_plan_bodies_use_camel_case_ids_and_permission_bodies_snake_case():
    for _, body, _ in ALL:
        written = json.loads(encode_mail_body(body))
        names = {"requestId", "request_id"} & set(written)
        if written["type"].startswith(("shutdown", "plan")):
            assert names == {"requestId"}
        elif written["type"].startswith("permission"):
            assert names == {"request_id"}
    swapped = json.dumps({**JSONS["shutdown"], "request_id": SHUTDOWN, "requestId": None})
    assert parse_mail_body(swapped) is None


@pytest.mark.spec("PRM-04")
def test_the_three_suggestion_types_are_read_and_unknown_ones_are_skipped():
    unknown = [{"type": "replaceRules", "rules": []}, "all", {"type": "setMode", "mode": "god"}]
    asked = JSONS["permission"]
    body = parse_mail_body(json.dumps({**asked, "permission_suggestions": [*unknown, *SUGGESTIONS]}))
    assert body.permission_suggestions == UPDATES
    answer = {"type": "permission_response", "request_id": PERMISSION, "subtype": "success"}
    granted = {**answer, "response": {"permission_updates": [*unknown, *SUGGESTIONS]}}
    assert parse_mail_body(json.dumps(granted)).response.permission_updates == UPDATES


def test_unknown_fields_do_not_invalidate_a_body():
    for _, body, found in ALL:
        assert parse_mail_body(json.dumps({**found, "extra": [1], "half \ud83d": "\ud83d"})) == body


REQUIRED = [
    (name, key)
    for name, found in JSONS.items()
    for key in found
    if key
    not in {
        "reason",
        "paneId",
        "backendType",
        "permissionMode",
        "feedback",
        "permission_suggestions",
        "summary",
        "completedTaskId",
        "completedStatus",
        "failureReason",
        "result",
    }
]


@pytest.mark.spec("MSG-11")
@pytest.mark.parametrize(("name", "key"), REQUIRED)
def test_a_body_with_missing_or_invalid_fields_is_plain_text(name, key):
    found = JSONS[name]
    assert parse_mail_body(json.dumps({each: value for each, value in found.items() if each != key})) is None
    assert parse_mail_body(json.dumps({**found, key: 7.5})) is None


@pytest.mark.spec("MSG-11")
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("permission", {"agent_id": "ann@roof"}),
        ("plan", {"planFilePath": "plans/p.md"}),
        ("plan approved", {"permissionMode": "everything"}),
        ("plan rejected", {"permissionMode": "acceptEdits"}),
        ("permission granted", {"error": "and yet"}),
        ("permission refused", {"subtype": "success"}),
        ("permission refused", {"response": {}}),
        ("idle", {"idleReason": "bored"}),
    ],
)
def test_a_body_that_contradicts_itself_is_plain_text(name, change):
    assert parse_mail_body(json.dumps(JSONS[name])) is not None
    assert parse_mail_body(json.dumps({**JSONS[name], **change})) is None


def test_a_termination_notice_is_never_parsed_from_a_message():
    assert parse_mail_body('{"type": "teammate_terminated", "taskId": "1", "status": "completed"}') is None


@few_examples
@given(texts | values.map(json.dumps))
def test_any_other_text_is_plain(text):
    assert parse_mail_body(text) is None


@few_examples
@given(st.dictionaries(texts, values, max_size=3), st.sampled_from(sorted(JSONS)))
def test_no_text_crashes_the_parser(change, name):
    parse_mail_body(json.dumps({**JSONS[name], **change}))
    for key in JSONS[name]:
        for value in change.values():
            parse_mail_body(json.dumps({**JSONS[name], key: value}))


def test_any_text_survives_in_a_body():
    body = ShutdownRequestMail(request_id=SHUTDOWN, sender="team-lead", reason='"\n\ud83d', timestamp=AT)
    assert parse_mail_body(encode_mail_body(body)) == body


def make_mail(text, *, sender="team-lead", summary=None):
    return MailMessage(id="m", sender=sender, text=text, timestamp=AT, summary=summary)


def test_a_body_is_authorized_only_from_an_entitled_sender():
    text = json.dumps(JSONS["shutdown"])
    assert get_authorized_mail_body(make_mail(text)) == parse_mail_body(text)
    assert parse_mail_body(text) is not None
    assert get_authorized_mail_body(make_mail(text, sender="bob")) is None


def test_a_plain_message_is_never_authorized():
    assert get_authorized_mail_body(make_mail(json.dumps(JSONS["permission granted"]))) is not None
    assert (
        get_authorized_mail_body(make_mail(json.dumps(JSONS["permission granted"]), summary="an answer"))
        is None
    )
    assert get_authorized_mail_body(make_mail("hello")) is None
