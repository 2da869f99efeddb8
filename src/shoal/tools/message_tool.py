"""The SendMessage tool: messages to sub-agents, teammates, the lead, the whole team and other sessions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta, Struct

from shoal.core.agents.identity import AgentIdentity
from shoal.core.agents.subagents import (
    OTHER_MACHINE_PREFIX,
    OTHER_SESSION_PREFIX,
    AgentMessageDeliveryReceipt,
    AgentOperations,
)
from shoal.core.conversation.tools import Tool, ToolContext, ToolOutput, create_tool_error_output
from shoal.core.errors import AgentRequestRefused
from shoal.core.teams.team_operations import TeamMessagePostReceipt, TeamOperations
from shoal.tools.builtin_tool import builtin_tool
from shoal.tools.tool_texts import format_tool_text, load_tool_description, load_tool_text

SessionMessageSender: TypeAlias = Callable[
    [str, str, str, AgentIdentity], Awaitable[AgentMessageDeliveryReceipt]
]
"""Takes an address, a text, its summary and the sender; raises `AgentRequestRefused`."""
_OLDER_INPUTS = ("type", "recipient", "content", "request_id", "approve")
"""Inputs of the older form: accepted, but hidden."""


class _ShutdownRequestInput(Struct, frozen=True, tag_field="type", tag="shutdown_request"):
    reason: str = ""


class _ShutdownResponseInput(Struct, frozen=True, kw_only=True, tag_field="type", tag="shutdown_response"):
    approve: bool
    request_id: str = ""
    reason: str = ""


class _PlanApprovalResponseInput(
    Struct, frozen=True, kw_only=True, tag_field="type", tag="plan_approval_response"
):
    request_id: str
    approve: bool
    feedback: str = ""


class _FyiMessageInput(Struct, frozen=True, kw_only=True, tag_field="type", tag="fyi"):
    """Message that does not wake its reader. Our extension: other programs see a normal message."""

    text: Annotated[str, Meta(min_length=1)]


_StructuredMessage = (
    _ShutdownRequestInput | _ShutdownResponseInput | _PlanApprovalResponseInput | _FyiMessageInput
)


class _NormalizedSendMessageCall(Struct, frozen=True, kw_only=True):
    """A call in either form, normalized."""

    to: str
    message: str | _StructuredMessage
    summary: str


def build_send_message_tool(
    supervisor: AgentOperations,
    teams: TeamOperations,
    send_to_session: SessionMessageSender,
    *,
    can_resume: bool = True,
) -> Tool:
    """Build the tool; `can_resume` is False if ended agents cannot be resumed."""
    description = load_tool_description("SendMessage", without="" if can_resume else "in the background")

    @builtin_tool(name="SendMessage", deadline=60, description=description)
    async def send_message(  # noqa: PLR0913, PLR0917 - two forms of the protocol
        to: str = "",
        message: str | dict[str, Any] = "",
        summary: str | None = None,
        type: str | None = None,  # noqa: A002 - the protocol names it
        recipient: str = "",
        content: str = "",
        request_id: str = "",
        approve: bool | None = None,  # noqa: FBT001 - the protocol names it
        *,
        context: ToolContext,
    ) -> ToolOutput:
        if type is not None:
            older_inputs = {
                "request_id": request_id,
                "approve": approve,
                "content": content,
                "summary": summary,
            }
            outgoing = _parse_older_send_message_inputs(type, recipient or to, older_inputs)
            if isinstance(outgoing, _NormalizedSendMessageCall) and outgoing.to.startswith(
                (OTHER_SESSION_PREFIX, OTHER_MACHINE_PREFIX)
            ):
                # Rules about other sessions check `to`.
                outgoing = format_tool_text("SendMessage", "older_form_to_session")
        else:
            outgoing = _parse_current_send_message_inputs(to, message, summary)
        if isinstance(outgoing, str):
            return create_tool_error_output(outgoing)
        if outgoing.to.startswith((OTHER_SESSION_PREFIX, OTHER_MACHINE_PREFIX)):
            return await _send_to_other_session(outgoing, send_to_session, context)
        return await _dispatch_outgoing_message(outgoing, supervisor, teams, context)

    send_message.restrict_inputs(send_message.get_inputs_without(*_OLDER_INPUTS), required=("to", "message"))
    return send_message


def _parse_current_send_message_inputs(
    to: str, message: str | dict[str, Any], summary: str | None
) -> _NormalizedSendMessageCall | str:
    if not to:
        return format_tool_text("SendMessage", "no_recipient")
    if isinstance(message, dict) and to.startswith((OTHER_SESSION_PREFIX, OTHER_MACHINE_PREFIX)):
        return format_tool_text("SendMessage", "text_only_to_session")
    if isinstance(message, dict):
        body = _parse_structured_message(message)
        return (
            body
            if isinstance(body, str)
            else _NormalizedSendMessageCall(to=to, message=body, summary=summary or "")
        )
    if not message:
        return format_tool_text("SendMessage", "no_message")
    if not summary:
        return format_tool_text("SendMessage", "no_summary")
    return _NormalizedSendMessageCall(to=to, message=message, summary=summary)


def _parse_older_send_message_inputs(
    kind: str, to: str, inputs: Mapping[str, Any]
) -> _NormalizedSendMessageCall | str:
    content = inputs["content"]
    match kind:
        case "message":
            return _parse_current_send_message_inputs(to, content, inputs["summary"])
        case "broadcast":
            return _parse_current_send_message_inputs("*", content, inputs["summary"])
        case "shutdown_request":
            return _parse_current_send_message_inputs(to, {"type": kind, "reason": content}, None)
        case "shutdown_response" | "plan_approval_response":
            text_key = "reason" if kind == "shutdown_response" else "feedback"
            body = {"type": kind, "request_id": inputs["request_id"], text_key: content}
            if inputs["approve"] is not None:
                body["approve"] = inputs["approve"]
            return _parse_current_send_message_inputs(to or "team-lead", body, None)
        case _:
            return format_tool_text("SendMessage", "unknown_type", kind=repr(kind))


def _parse_structured_message(message: dict[str, Any]) -> _StructuredMessage | str:
    try:
        body: _StructuredMessage = msgspec.convert(message, _StructuredMessage)
    except msgspec.ValidationError as error:
        return format_tool_text("SendMessage", "invalid_object", error=error)
    return body


async def _send_to_other_session(
    outgoing: _NormalizedSendMessageCall, send_to_session: SessionMessageSender, context: ToolContext
) -> ToolOutput:
    assert isinstance(outgoing.message, str)
    receipt = await send_to_session(outgoing.to, outgoing.message, outgoing.summary, context.agent)
    return _format_delivery_receipts((receipt,), outgoing.summary)


async def _dispatch_outgoing_message(
    outgoing: _NormalizedSendMessageCall,
    supervisor: AgentOperations,
    teams: TeamOperations,
    context: ToolContext,
) -> ToolOutput:
    match outgoing.message:
        case str(text):
            return await _send_text_to_member_or_agent(outgoing, text, supervisor, teams, context)
        case _FyiMessageInput(text=text):
            posted = await teams.send_message(outgoing.to, text, outgoing.summary, context, fyi=True)
            if posted is None:
                raise AgentRequestRefused(
                    format_tool_text("SendMessage", "fyi_to_stranger", name=repr(outgoing.to))
                )
            return _format_posted_messages(posted, outgoing, text, f" {load_tool_text('SendMessage', 'fyi')}")
        case _ if outgoing.to == "*":
            return create_tool_error_output(format_tool_text("SendMessage", "text_only_to_all"))
        case _ShutdownRequestInput(reason=reason):
            request_id = await teams.request_shutdown(outgoing.to, reason, context)
            text_for_caller = format_tool_text("SendMessage", "shutdown_sent", name=outgoing.to)
            return _make_success_output(text_for_caller, request_id=request_id, target=outgoing.to)
        case _ShutdownResponseInput(request_id=request_id, approve=approve, reason=reason):
            await teams.answer_shutdown_request(request_id, reason, approve=approve, context=context)
            text_for_caller = format_tool_text(
                "SendMessage", "shutdown_approved" if approve else "shutdown_rejected"
            )
            return _make_success_output(text_for_caller, request_id=request_id)
        case _PlanApprovalResponseInput(request_id=request_id, approve=approve, feedback=feedback):
            name = await teams.answer_plan_approval_request(
                outgoing.to, request_id, feedback, approve=approve, context=context
            )
            text_for_caller = format_tool_text(
                "SendMessage", "plan_approved" if approve else "plan_rejected", name=name
            )
            return _make_success_output(text_for_caller, request_id=request_id)


async def _send_text_to_member_or_agent(
    outgoing: _NormalizedSendMessageCall,
    text: str,
    supervisor: AgentOperations,
    teams: TeamOperations,
    context: ToolContext,
) -> ToolOutput:
    posted = await teams.send_message(outgoing.to, text, outgoing.summary, context)
    if posted is not None:
        return _format_posted_messages(posted, outgoing, text)
    try:
        return _format_delivery_receipts(
            await supervisor.send_message(outgoing.to, text, outgoing.summary, context), outgoing.summary
        )
    except AgentRequestRefused as refusal:
        members = (*teams.list_members(), *await teams.list_external_members())
        member_names = ", ".join(dict.fromkeys(each.name for each in members))
        hint = f" {format_tool_text('SendMessage', 'members', names=member_names)}" if member_names else ""
        raise AgentRequestRefused(f"{refusal}{hint}") from None


def _make_success_output(text: str, **extra: str) -> ToolOutput:
    return ToolOutput(content=text, data={"success": True, "message": text, **extra})


def _format_posted_messages(
    posted: tuple[TeamMessagePostReceipt, ...],
    outgoing: _NormalizedSendMessageCall,
    text: str,
    remark: str = "",
) -> ToolOutput:
    sender = posted[0].sender
    names = [each.to for each in posted]
    queued = [each.to for each in posted if each.standing == "queued"]
    queue_note = f" {format_tool_text('SendMessage', 'queued', names=', '.join(queued))}" if queued else ""
    message = f"Sent to {', '.join(names)}.{queue_note}{remark}"
    routing: dict[str, object] = {"sender": sender, "summary": outgoing.summary, "content": text}
    data: dict[str, object] = {"success": True, "message": message, "routing": routing}
    if outgoing.to == "*":
        routing["target"] = "@team"
        data["recipients"] = names
    else:
        routing["target"] = f"@{names[0]}"
        if posted[0].color is not None:
            routing["targetColor"] = posted[0].color
    return ToolOutput(content=message, data=data)


def _format_delivery_receipts(receipts: tuple[AgentMessageDeliveryReceipt, ...], summary: str) -> ToolOutput:
    lines = [
        format_tool_text("SendMessage", "resumed", name=each.name, path=each.output)
        if each.how == "resumed"
        else format_tool_text("SendMessage", "delivered", name=each.name)
        for each in receipts
    ]
    targets = [f"@{each.name}" for each in receipts]
    return ToolOutput(
        content="\n".join(lines),
        data={
            "success": True,
            "message": " ".join(lines),
            "routing": {"target": targets[0] if len(targets) == 1 else targets, "summary": summary},
        },
    )
