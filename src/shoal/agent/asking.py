"""One model call: emits its events, measures its time and settles its cost."""

from __future__ import annotations

import asyncio

from shoal.agent.agent import Agent
from shoal.core.accounts import Reservation
from shoal.core.caps import Refusal
from shoal.core.errors import BudgetSpent, ModelError, Transient
from shoal.core.events import Discarded, Heard, RequestFailed, RequestSent, RequestSettled
from shoal.core.ids import RequestId
from shoal.core.requests import (
    Delta,
    Reply,
    Request,
    Retrying,
    Sent,
    TextDelta,
    ThinkingDelta,
    ToolInputDelta,
)


class _Ear:
    """Turns the deltas of an answer into events; a retried request is a new request."""

    __slots__ = ("agent", "aloud", "held", "request", "since")

    def __init__(self, agent: Agent, held: Reservation, *, aloud: bool) -> None:
        self.agent = agent
        self.held = held
        self.aloud = aloud
        self.request = RequestId("")
        self.since = 0.0

    async def hear(self, delta: Delta) -> None:
        me, tell = self.agent.identity.agent, self.agent.tell
        match delta:
            case TextDelta() | ThinkingDelta() | ToolInputDelta() if not self.aloud:
                pass
            case TextDelta(text):
                await tell(Heard(agent=me, kind="text", text=text))
            case ThinkingDelta(text):
                await tell(Heard(agent=me, kind="thinking", text=text))
            case ToolInputDelta(name, _):
                await tell(Heard(agent=me, kind="tool_input", text=name))
            case Sent():
                self.request = self.agent.ids.request()
                self.since = self.agent.clock.monotonic()
                await tell(RequestSent(agent=me, request=self.request, model=self.agent.model.card.id))
            case Retrying(reason=reason, delay=delay, attempt=attempt, billed=billed):
                await self.lost(reason, billed=billed, retry_in=delay)
                await tell(Discarded(agent=me, reason=reason, retry_in=delay, attempt=attempt))

    async def lost(self, reason: str, *, billed: bool, retry_in: float | None) -> None:
        if not self.request:
            return
        if billed:
            self.agent.purse.write_off(self.held)
        event = RequestFailed(
            agent=self.agent.identity.agent,
            request=self.request,
            reason=reason,
            billed=billed,
            retry_in=retry_in,
        )
        self.request = RequestId("")
        await self.agent.tell(event)


async def ask(agent: Agent, request: Request, *, aloud: bool = True) -> tuple[Reply, RequestId]:
    """Return the reply and the id of its request. Without `emits_stream` its text is not streamed.

    Raises `BudgetExhausted` if the request may not be sent.
    """
    held = await agent.purse.hold(agent.model.card, agent.context_tokens, request.max_tokens)
    if isinstance(held, Refusal):
        raise BudgetSpent(held)
    try:
        return await _paid(agent, request, _Ear(agent, held, aloud=aloud))
    finally:
        agent.purse.release(held)


async def _paid(agent: Agent, request: Request, ear: _Ear) -> tuple[Reply, RequestId]:
    try:
        reply = await agent.model.reply(request, ear.hear)
    except ModelError as error:
        await ear.lost(str(error), billed=isinstance(error, Transient) and error.billed, retry_in=None)
        raise
    except asyncio.CancelledError:
        if ear.request:
            agent.purse.write_off(ear.held)
        raise
    seconds = agent.clock.monotonic() - ear.since
    agent.api_seconds += seconds
    if not reply.counted:
        request_id = ear.request
        await ear.lost("the provider reported no usage", billed=True, retry_in=None)
        return reply, request_id
    cost = agent.purse.settle(ear.held, reply.usage)
    await agent.tell(
        RequestSettled(
            agent=agent.identity.agent,
            request=ear.request,
            model=reply.model,
            usage=reply.usage,
            cost_usd=cost,
            duration_ms=round(seconds * 1000),
        )
    )
    return reply, ear.request
