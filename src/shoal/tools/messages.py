"""The SendMessage tool: messages to sub-agents, teammates, the lead, the whole team and other sessions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta, Struct

from shoal.core.agents import OTHER_MACHINE, OTHER_SESSION, Crew, Reached
from shoal.core.errors import AgentRefused
from shoal.core.identity import Identity
from shoal.core.teams import Posted, Teams
from shoal.core.tools import Outcome, Site, Tool, failed
from shoal.tools.define import tool

Abroad: TypeAlias = Callable[[str, str, str, Identity], Awaitable[Reached]]
"""Takes an address, a text, its summary and the sender; raises `AgentRequestRefused`."""
_OLDER = ("type", "recipient", "content", "request_id", "approve")
"""Inputs of the older form: accepted, but hidden."""


class _ShutdownRequest(Struct, frozen=True, tag_field="type", tag="shutdown_request"):
    reason: str = ""


class _ShutdownResponse(Struct, frozen=True, kw_only=True, tag_field="type", tag="shutdown_response"):
    approve: bool
    request_id: str = ""
    reason: str = ""


class _PlanResponse(Struct, frozen=True, kw_only=True, tag_field="type", tag="plan_approval_response"):
    request_id: str
    approve: bool
    feedback: str = ""


class _Fyi(Struct, frozen=True, kw_only=True, tag_field="type", tag="fyi"):
    """Message that wakes nobody. Our extension: other programs see a normal message."""

    text: Annotated[str, Meta(min_length=1)]


_Structured = _ShutdownRequest | _ShutdownResponse | _PlanResponse | _Fyi


class _Letter(Struct, frozen=True, kw_only=True):
    """A call in either form, normalized."""

    to: str
    message: str | _Structured
    summary: str


def message_tool(crew: Crew, teams: Teams, abroad: Abroad) -> Tool:
    @tool(name="SendMessage", deadline=60)
    async def send_message(  # noqa: PLR0913, PLR0917 - two forms of the protocol
        to: Annotated[str, "A name or id, team-lead, * for everyone, or uds:ID for another session"] = "",
        message: Annotated[
            str | dict[str, Any],
            "Text; or an object with type: shutdown_request {reason}, shutdown_response {request_id, "
            "approve, reason}, plan_approval_response {request_id, approve, feedback}, fyi {text}: it wakes "
            "no teammate, each reads it with the next thing that does",
        ] = "",
        summary: Annotated[str | None, "What it is about, in five to ten words; text needs one"] = None,
        type: str | None = None,  # noqa: A002 - the protocol names it
        recipient: str = "",
        content: str = "",
        request_id: str = "",
        approve: bool | None = None,  # noqa: FBT001 - the protocol names it
        *,
        site: Site,
    ) -> Outcome:
        """Say something to another agent. One at work hears it at its next step, an idle teammate is woken
        by it, and a sub-agent that has ended is resumed in the background with it, knowing all it knew.
        What you write elsewhere no agent sees. Write to the one whom it concerns: * reaches everyone, and
        each of them stops to read."""
        if type is not None:
            older = {"request_id": request_id, "approve": approve, "content": content, "summary": summary}
            letter = _from_older(type, recipient or to, older)
            if isinstance(letter, _Letter) and letter.to.startswith((OTHER_SESSION, OTHER_MACHINE)):
                # Rules about other sessions check `to`.
                letter = "Another session is reached with to and message."
        else:
            letter = _from_newer(to, message, summary)
        if isinstance(letter, str):
            return failed(letter)
        if letter.to.startswith((OTHER_SESSION, OTHER_MACHINE)):
            return await _sent_abroad(letter, abroad, site)
        return await _sent(letter, crew, teams, site)

    send_message.show(send_message.inputs_but(*_OLDER), required=("to", "message"))
    return send_message


def _from_newer(to: str, message: str | dict[str, Any], summary: str | None) -> _Letter | str:
    if not to:
        return "Give to: the name of who is to get it."
    if isinstance(message, dict) and to.startswith((OTHER_SESSION, OTHER_MACHINE)):
        return "Only text can be sent to another session."
    if isinstance(message, dict):
        body = _structured(message)
        return body if isinstance(body, str) else _Letter(to=to, message=body, summary=summary or "")
    if not message:
        return "Give message: what you want to say."
    if not summary:
        return "A message needs a summary: what it is about, in five to ten words."
    return _Letter(to=to, message=message, summary=summary)


def _from_older(kind: str, to: str, given: Mapping[str, Any]) -> _Letter | str:
    content = given["content"]
    match kind:
        case "message":
            return _from_newer(to, content, given["summary"])
        case "broadcast":
            return _from_newer("*", content, given["summary"])
        case "shutdown_request":
            return _from_newer(to, {"type": kind, "reason": content}, None)
        case "shutdown_response" | "plan_approval_response":
            said = "reason" if kind == "shutdown_response" else "feedback"
            body = {"type": kind, "request_id": given["request_id"], said: content}
            if given["approve"] is not None:
                body["approve"] = given["approve"]
            return _from_newer(to or "team-lead", body, None)
        case _:
            return (
                f"There is no message of type {kind!r}: message, broadcast, shutdown_request, "
                "shutdown_response or plan_approval_response."
            )


def _structured(message: dict[str, Any]) -> _Structured | str:
    try:
        body: _Structured = msgspec.convert(message, _Structured)
    except msgspec.ValidationError as error:
        return f"The message is none of the protocol's: {error}. Plain text is sent as text."
    return body


async def _sent_abroad(letter: _Letter, abroad: Abroad, site: Site) -> Outcome:
    assert isinstance(letter.message, str)
    reached = await abroad(letter.to, letter.message, letter.summary, site.agent)
    return _reached((reached,), letter.summary)


async def _sent(letter: _Letter, crew: Crew, teams: Teams, site: Site) -> Outcome:
    match letter.message:
        case str(text):
            return await _said(letter, text, crew, teams, site)
        case _Fyi(text=text):
            posted = await teams.send(letter.to, text, letter.summary, site, fyi=True)
            if posted is None:
                raise AgentRefused(f"{letter.to!r} is in no team of yours, and an fyi is for teammates.")
            return _posted(posted, letter, text, " It wakes nobody.")
        case _ if letter.to == "*":
            return failed("Only text can be sent to everyone.")
        case _ShutdownRequest(reason=reason):
            request = await teams.ask_to_end(letter.to, reason, site)
            told = f"{letter.to} is asked to shut down; it is ended if it does not answer."
            return _answered(told, request_id=request, target=letter.to)
        case _ShutdownResponse(request_id=request, approve=approve, reason=reason):
            await teams.answer_end(request, reason, approve=approve, site=site)
            told = "You shut down now." if approve else "The lead is told that you go on."
            return _answered(told, request_id=request)
        case _PlanResponse(request_id=request, approve=approve, feedback=feedback):
            name = await teams.answer_plan(letter.to, request, feedback, approve=approve, site=site)
            told = f"{name} may carry out its plan." if approve else f"{name} is told to change its plan."
            return _answered(told, request_id=request)


async def _said(letter: _Letter, text: str, crew: Crew, teams: Teams, site: Site) -> Outcome:
    posted = await teams.send(letter.to, text, letter.summary, site)
    if posted is not None:
        return _posted(posted, letter, text)
    try:
        return _reached(await crew.send(letter.to, text, letter.summary, site), letter.summary)
    except AgentRefused as refusal:
        there = ", ".join(each.name for each in teams.members())
        also = f" In the team are: team-lead, {there}." if there else ""
        raise AgentRefused(f"{refusal}{also}") from None


def _answered(told: str, **more: str) -> Outcome:
    return Outcome(content=told, data={"success": True, "message": told, **more})


def _posted(posted: tuple[Posted, ...], letter: _Letter, text: str, remark: str = "") -> Outcome:
    sender = posted[0].sender
    names = [each.to for each in posted]
    queued = [each.to for each in posted if each.standing == "queued"]
    behind = f" It waits behind older mail of {', '.join(queued)}." if queued else ""
    told = f"Sent to {', '.join(names)}.{behind}{remark}"
    routing: dict[str, object] = {"sender": sender, "summary": letter.summary, "content": text}
    data: dict[str, object] = {"success": True, "message": told, "routing": routing}
    if letter.to == "*":
        routing["target"] = "@team"
        data["recipients"] = names
    else:
        routing["target"] = f"@{names[0]}"
        if posted[0].color is not None:
            routing["targetColor"] = posted[0].color
    return Outcome(content=told, data=data)


def _reached(reached: tuple[Reached, ...], summary: str) -> Outcome:
    told = [
        f"{each.name} is resumed with it and works in the background; its output is in {each.output}."
        if each.how == "resumed"
        else f"{each.name} hears it at its next step."
        for each in reached
    ]
    targets = [f"@{each.name}" for each in reached]
    return Outcome(
        content="\n".join(told),
        data={
            "success": True,
            "message": " ".join(told),
            "routing": {"target": targets[0] if len(targets) == 1 else targets, "summary": summary},
        },
    )
