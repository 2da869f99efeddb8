"""Structured mail bodies of the team protocol, and which sender may send which."""

from __future__ import annotations

import random
from typing import Any, Literal, TypeAlias, assert_never

from msgspec import UNSET, Struct, UnsetType

from shoal.core.ids import AgentId
from shoal.core.names import LEAD_NAME, AgentName, TaskId, TeamName
from shoal.core.permissions.permission_decisions import PermissionMode

_CAMEL = {"sender": "from", "request_id": "requestId"}
"""Shutdown and plan bodies use `requestId`, permission bodies `request_id`, as the protocol defines."""
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"


class _MailBody(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """Base class of mail bodies. Timestamps are ISO, UTC, milliseconds."""


class TaskAssignmentMail(_MailBody, frozen=True, tag="task_assignment", rename="camel"):
    task_id: TaskId
    subject: str
    description: str
    assigned_by: AgentName
    timestamp: str


IdleReason: TypeAlias = Literal["available", "interrupted", "failed"]
"""Why a member is idle."""


class IdleNotificationMail(
    _MailBody,
    frozen=True,
    tag="idle_notification",
    rename={
        "sender": "from",
        "idle_reason": "idleReason",
        "completed_task_id": "completedTaskId",
        "completed_status": "completedStatus",
        "failure_reason": "failureReason",
    },
):
    """A teammate went idle. `result` is the final text of the working period; other programs ignore it."""

    sender: AgentName
    timestamp: str
    idle_reason: IdleReason
    summary: str | None = None
    completed_task_id: str | None = None
    completed_status: str | None = None
    failure_reason: str | None = None
    result: str | None = None


class ShutdownRequestMail(
    _MailBody, frozen=True, kw_only=True, omit_defaults=False, tag="shutdown_request", rename=_CAMEL
):
    request_id: str
    sender: AgentName
    reason: str = ""
    timestamp: str


class ShutdownApprovedMail(
    _MailBody,
    frozen=True,
    tag="shutdown_approved",
    rename=_CAMEL | {"pane_id": "paneId", "backend_type": "backendType"},
):
    """A teammate agrees to shut down. `pane_id` is the member's `tmuxPaneId`."""

    request_id: str
    sender: AgentName
    timestamp: str
    pane_id: str | None = None
    backend_type: str | None = None


class ShutdownRejectedMail(
    _MailBody, frozen=True, kw_only=True, omit_defaults=False, tag="shutdown_rejected", rename=_CAMEL
):
    request_id: str
    sender: AgentName
    reason: str = ""
    timestamp: str


class PlanApprovalRequestMail(
    _MailBody,
    frozen=True,
    tag="plan_approval_request",
    rename=_CAMEL | {"plan_file_path": "planFilePath", "plan_content": "planContent"},
):
    sender: AgentName
    timestamp: str
    plan_file_path: str
    plan_content: str
    request_id: str

    def __post_init__(self) -> None:
        if not self.plan_file_path.startswith("/") and self.plan_file_path[1:3] != ":\\":
            raise ValueError("planFilePath is not absolute")


class PlanApprovalResponseMail(
    _MailBody,
    frozen=True,
    tag="plan_approval_response",
    rename=_CAMEL | {"permission_mode": "permissionMode"},
):
    """Answer to a plan: an approval carries the new permission mode, a rejection the feedback."""

    request_id: str
    approved: bool
    timestamp: str
    permission_mode: PermissionMode | None = None
    feedback: str | None = None

    def __post_init__(self) -> None:
        if not self.approved and self.permission_mode is not None:
            raise ValueError("a rejected plan cannot change the permission mode")


class MailedAddDirectoriesUpdate(Struct, frozen=True, kw_only=True, tag_field="type", tag="addDirectories"):
    directories: tuple[str, ...]
    destination: str


class MailedSetPermissionModeUpdate(Struct, frozen=True, kw_only=True, tag_field="type", tag="setMode"):
    mode: PermissionMode
    destination: str


class MailedPermissionRule(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    tool_name: str
    rule_content: str | None = None


class MailedAddPermissionRulesUpdate(Struct, frozen=True, kw_only=True, tag_field="type", tag="addRules"):
    rules: tuple[MailedPermissionRule, ...]
    behavior: Literal["allow", "deny", "ask"]
    destination: str


PermissionUpdate: TypeAlias = (
    MailedAddDirectoriesUpdate | MailedSetPermissionModeUpdate | MailedAddPermissionRulesUpdate
)
"""Permission change beyond the one call that a request suggests or an answer grants."""


class PermissionRequestMail(_MailBody, frozen=True, omit_defaults=False, tag="permission_request"):
    request_id: str
    agent_id: AgentName
    """Bare name of the agent."""
    tool_name: str
    tool_use_id: str
    description: str
    input: dict[str, Any]
    permission_suggestions: tuple[PermissionUpdate, ...] = ()
    subagent_id: AgentId | UnsetType = UNSET
    """Sub-agent of the sender that makes the call; unset if the sender makes it."""

    def __post_init__(self) -> None:
        if "@" in self.agent_id:
            raise ValueError("agent_id must be a name without a team")


class MailedPermissionGrant(Struct, frozen=True, kw_only=True):
    """Granted permission. Without `updated_input` the call runs unchanged."""

    updated_input: dict[str, Any] | UnsetType = UNSET
    permission_updates: tuple[PermissionUpdate, ...] = ()


class PermissionResponseMail(_MailBody, frozen=True, tag="permission_response"):
    """Answer to a permission request: `success` has a response, `error` the reason."""

    request_id: str
    subtype: Literal["success", "error"]
    response: MailedPermissionGrant | None = None
    error: str | None = None

    def __post_init__(self) -> None:
        granted, refused = self.response is not None, self.error is not None
        if (granted, refused) != (self.subtype == "success", self.subtype == "error"):
            raise ValueError(
                "a 'success' needs a response and must have no error; an 'error' needs an error and must "
                "have no response"
            )


MailBody: TypeAlias = (
    TaskAssignmentMail
    | IdleNotificationMail
    | ShutdownRequestMail
    | ShutdownApprovedMail
    | ShutdownRejectedMail
    | PlanApprovalRequestMail
    | PlanApprovalResponseMail
    | PermissionRequestMail
    | PermissionResponseMail
)


class TeammateTerminatedNotice(Struct, frozen=True, kw_only=True):
    """Notice to the lead in a separate turn; it is never in an inbox, so it is not a `MailBody`."""

    task: str
    kind: str
    status: str

    @property
    def text(self) -> str:
        return f"teammate_terminated: task {self.task}, type {self.kind}, status {self.status}"


def format_shutdown_request_id(ms: int, agent: AgentName) -> str:
    return f"shutdown-{ms}@{agent}"


def format_plan_request_id(ms: int, agent: AgentName, team: TeamName) -> str:
    return f"plan_approval-{ms}@{agent}@{team}"


def create_permission_request_id(ms: int, random_source: random.Random) -> str:
    return f"perm-{ms}-{''.join(random_source.choices(_ALPHABET, k=7))}"


def format_peer_message_summary(recipient: AgentName, summary: str) -> str:
    """Return the summary of an idle notification after a message to a peer."""
    return f"[to {recipient}] {summary}"


def can_send_mail_body(sender: AgentName, body: MailBody) -> bool:
    """Return True if this sender may send this body; else it is treated as text.

    Only the lead shuts down teammates and answers their requests; others may only speak for themselves.
    """
    match body:
        case ShutdownRequestMail():
            return sender == body.sender == LEAD_NAME
        case PlanApprovalResponseMail() | PermissionResponseMail():
            return sender == LEAD_NAME
        case (
            IdleNotificationMail()
            | ShutdownApprovedMail()
            | ShutdownRejectedMail()
            | PlanApprovalRequestMail()
        ):
            return sender == body.sender != LEAD_NAME
        case PermissionRequestMail():
            return sender == body.agent_id != LEAD_NAME
        case TaskAssignmentMail():
            return sender == body.assigned_by
        case _:
            assert_never(body)
