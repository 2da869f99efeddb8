"""Hook points of one agent: before and after tool calls, on prompts, and when it stops."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from shoal.agent.agent import Agent
from shoal.core.arrivals import Item
from shoal.core.errors import StoreError
from shoal.core.events import Noted, Speaker, Withdrawn
from shoal.core.hooks import IN_A_ROW, UNMOVED, HookEvent, Verdict
from shoal.core.messages import Message, Text, ToolUse, user
from shoal.core.neutral import neutral
from shoal.core.tools import Outcome


async def told(agent: Agent, event: HookEvent, **fields: Any) -> Verdict:
    verdict = await agent.hooks.run(event, fields)
    if verdict.stop is not None and not agent.halted:
        agent.halted = f"a {event} hook stopped it: {verdict.stop}"
    return verdict


async def before_call(agent: Agent, call: ToolUse) -> Verdict:
    return await told(agent, "PreToolUse", **_facts(call))


async def permission_asked(agent: Agent, call: ToolUse) -> Verdict:
    return await told(agent, "PermissionRequest", **_facts(call))


async def after_call(agent: Agent, event: HookEvent, call: ToolUse, outcome: Outcome) -> Outcome:
    """Return the output with the hooks' objections and context appended."""
    text = outcome.text
    if outcome.is_error:
        verdict = await told(agent, event, **_facts(call), error=text)
    else:
        response = {**(outcome.data or {}), "content": text}
        verdict = await told(agent, event, **_facts(call), tool_response=response)
    if verdict.blocked is not None:
        outcome = extended(outcome, f"[A {event} hook objects: {verdict.blocked}]")
    return with_context(outcome, event, verdict)


def with_context(outcome: Outcome, event: HookEvent, verdict: Verdict) -> Outcome:
    if not verdict.context:
        return outcome
    return extended(outcome, f"[A {event} hook adds: {verdict.context}]")


def extended(outcome: Outcome, text: str) -> Outcome:
    if isinstance(outcome.content, str):
        whole = f"{outcome.content}\n\n{text}" if outcome.content else text
        return replace(outcome, content=whole)
    return replace(outcome, content=(*outcome.content, Text(text=text)))


async def enter_prompt(agent: Agent, prompt: Message, *, by: Speaker) -> str | None:
    """Add a prompt to the conversation; return the reason if a hook blocks a person's prompt."""
    if by != "person" or not agent.hooks.wants("UserPromptSubmit"):
        await agent.hear(prompt, by=by)
        return None
    verdict = await told(agent, "UserPromptSubmit", prompt=prompt.text)
    if verdict.blocked is not None:
        return await _erased(agent, verdict.blocked)
    await agent.hear(prompt, by=by)
    await add_context(agent, "UserPromptSubmit", verdict)
    return None


async def enter_item(agent: Agent, item: Item) -> str | None:
    """Add an inbox item in the same way; an item that could not be added goes back to the inbox."""
    message = Message(role="user", content=item.content)
    verdict = UNMOVED
    if item.by == "person" and agent.hooks.wants("UserPromptSubmit"):
        try:
            verdict = await told(agent, "UserPromptSubmit", prompt=message.text)
        except BaseException:
            agent.inlet.put_back(item)
            raise
    if verdict.blocked is not None:
        await agent.tell(Withdrawn(agent=agent.identity.agent, item=item.id))
        agent.inlet.entered(item)
        return await _erased(agent, verdict.blocked)
    before = agent.conversation.last
    try:
        await agent.hear(message, by=item.by, delivered=item.id)
    except BaseException:
        # An item in the conversation counts as delivered, even if the event could not be emitted.
        if agent.conversation.last == before:
            agent.inlet.put_back(item)
        else:
            with suppress(StoreError):
                agent.inlet.entered(item)
        raise
    agent.inlet.entered(item)
    await add_context(agent, "UserPromptSubmit", verdict)
    return None


async def _erased(agent: Agent, reason: str) -> str:
    why = f"a UserPromptSubmit hook erased the prompt: {reason}"
    await note(agent, f"{why[0].upper()}{why[1:]}")
    return why


async def add_context(agent: Agent, event: HookEvent, verdict: Verdict) -> None:
    if verdict.context:
        await agent.hear(user(context_text(event, verdict)), by="runtime")


def context_text(event: HookEvent, verdict: Verdict) -> str:
    return f"[A {event} hook adds:]\n{neutral(verdict.context)}"


async def sent_back(agent: Agent, said: str, times: int) -> bool:
    """Run the stop hooks; return True if one sends the agent back to work. `times` counts earlier returns."""
    event: HookEvent = "Stop" if agent.identity.is_lead else "SubagentStop"
    if not agent.hooks.wants(event):
        return False
    verdict = await told(agent, event, stop_hook_active=times > 0, last_assistant_message=said)
    if verdict.blocked is None or agent.halted:
        return False
    if times >= IN_A_ROW:
        await note(agent, f"The {event} hooks sent it back {times} times in a row; it stops all the same.")
        return False
    await agent.hear(
        user(f"[A {event} hook sends you back to work:]\n{neutral(verdict.blocked)}"), by="runtime"
    )
    return True


async def note(agent: Agent, text: str) -> None:
    await agent.tell(Noted(agent=agent.identity.agent, text=text))


def _facts(call: ToolUse) -> dict[str, Any]:
    return {"tool_name": call.name, "tool_input": call.input, "tool_use_id": call.id}
