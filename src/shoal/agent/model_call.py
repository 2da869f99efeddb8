"""One model call: emits its events, measures its time and settles its cost."""

from __future__ import annotations

import asyncio
from typing import Any, get_args

from msgspec.structs import replace

from shoal.agent.agent_runner import BYTES_PER_TOKEN, AgentLoopState, AgentRunner, estimate_block_tokens
from shoal.core.budgets.agent_budgets import BudgetReservation
from shoal.core.budgets.usage import Usage
from shoal.core.conversation.messages import Message, user_message
from shoal.core.conversation.model_requests import (
    ModelAttemptStartedDelta,
    ModelReply,
    ModelRequest,
    ModelRetryScheduledDelta,
    StopReason,
    StreamDelta,
    TextDelta,
    ThinkingDelta,
    ToolInputProgressDelta,
)
from shoal.core.errors import BudgetExhausted, ModelError, QuotaExceeded, TransientModelError
from shoal.core.events import (
    ModelRequestFailed,
    ModelRequestSent,
    ModelRequestSettled,
    NoteAdded,
    PartialReplyDiscarded,
    TextStreamed,
)
from shoal.core.ids import RequestId
from shoal.core.ports import Model
from shoal.core.text.name_suggestions import suggest_name

_STOP_REASONS: tuple[str, ...] = get_args(StopReason)
_OTHER_MODEL_MAX_TOKENS = 2_048


class _ModelStreamListener:
    """Turns the deltas of an answer into events; a retried request is a new request.

    `reservation` covers the current attempt.
    """

    __slots__ = ("agent", "emits_stream", "max_tokens", "model", "request", "reservation", "started_at")

    def __init__(
        self,
        agent: AgentRunner,
        model: Model,
        reservation: BudgetReservation,
        max_tokens: int | None,
        *,
        emits_stream: bool,
    ) -> None:
        self.agent = agent
        self.model = model
        self.reservation = reservation
        self.max_tokens = max_tokens
        self.emits_stream = emits_stream
        self.request = RequestId("")
        self.started_at = 0.0

    async def handle_delta(self, delta: StreamDelta) -> None:
        agent, environment = self.agent, self.agent.environment
        agent_id, emit = agent.identity.agent, environment.emit
        match delta:
            # The most frequent cases first: a pattern that does not match costs the most.
            case TextDelta():
                if self.emits_stream:
                    await emit(TextStreamed(agent=agent_id, kind="text", text=delta.text, reply=delta.reply))
            case ModelAttemptStartedDelta():
                if self.request:
                    await self.report_request_failure(
                        "the end of this attempt was not reported", billed=True, retry_in=0.0
                    )
                    await self._renew_reservation()
                self.request = environment.ids.new_request_id()
                self.started_at = environment.clock.monotonic()
                await emit(
                    ModelRequestSent(
                        agent=agent_id,
                        request=self.request,
                        model=self.model.card.id,
                        reserved_usd=round(self.reservation.usd, 9),
                        reserved_tokens=self.reservation.tokens,
                    )
                )
            case ThinkingDelta():
                if self.emits_stream:
                    await emit(
                        TextStreamed(agent=agent_id, kind="thinking", text=delta.text, reply=delta.reply)
                    )
            case ToolInputProgressDelta():
                if self.emits_stream:
                    await emit(TextStreamed(agent=agent_id, kind="tool_input", text=delta.name))
            case ModelRetryScheduledDelta():
                await self._prepare_retry(delta)

    async def _prepare_retry(self, delta: ModelRetryScheduledDelta) -> None:
        """Report the failed attempt, and reserve the next one if it needs its own reservation."""
        await self.report_request_failure(delta.reason, billed=delta.billed, retry_in=delta.delay)
        await self.agent.environment.emit(
            PartialReplyDiscarded(
                agent=self.agent.identity.agent,
                reason=delta.reason,
                retry_in=delta.delay,
                attempt=delta.attempt,
                status=delta.status,
            )
        )
        # Before the pause: nobody waits for an attempt without budget. A fallback has its own price.
        if delta.billed or self.model.card != self.reservation.card:
            await self._renew_reservation()

    async def _renew_reservation(self) -> None:
        """Reserve another attempt. Raises `BudgetExhausted` if it may not be sent."""
        agent = self.agent
        agent.budget.release(self.reservation)
        self.reservation = await _reserve_attempt(agent, self.model, self.max_tokens)

    async def report_missing_usage(self, reply: ModelReply) -> None:
        """Count a reply by estimate, because the provider reported no plausible usage."""
        agent, reservation = self.agent, self.reservation
        estimated_usage = Usage(
            input_tokens=agent.state.context_tokens,
            output_tokens=max(1, sum(map(estimate_block_tokens, reply.message.content))),
        )
        usd, tokens = agent.budget.estimate_usage_cost(reservation.card, estimated_usage)
        agent.budget.write_off(reservation, estimated_usage)
        await agent.environment.emit(
            ModelRequestFailed(
                agent=agent.identity.agent,
                request=self.request,
                reason="the provider reported no usage",
                billed=True,
                estimated_usd=usd,
                estimated_tokens=tokens,
            )
        )
        if not agent.state.has_noted_missing_usage:
            agent.state.has_noted_missing_usage = True
            text = (
                f"The provider reports no usage for {reservation.card.id}, "
                "so Shoal estimates the usage of its requests."
            )
            await agent.environment.emit(NoteAdded(agent=agent.identity.agent, text=text))

    async def report_request_failure(
        self, reason: str, *, billed: bool, retry_in: float | None, quota: bool = False
    ) -> None:
        # A program's own model may raise before it reports an attempt; a workflow must still see the refusal.
        if not self.request and not quota:
            return
        if billed:
            self.agent.budget.write_off(self.reservation)
        event = ModelRequestFailed(
            agent=self.agent.identity.agent,
            request=self.request,
            reason=reason,
            billed=billed,
            retry_in=retry_in,
            quota=quota,
        )
        self.request = RequestId("")
        await self.agent.environment.emit(event)


async def call_model(
    agent: AgentRunner, request: ModelRequest, *, emits_stream: bool = True
) -> tuple[ModelReply, RequestId]:
    """Return the reply and the id of its request. Without `emits_stream` its text is not streamed.

    Raises `BudgetExhausted` if the request may not be sent.
    """
    model = agent.current_model
    reservation = await _reserve_attempt(agent, model, request.max_tokens)
    listener = _ModelStreamListener(agent, model, reservation, request.max_tokens, emits_stream=emits_stream)
    try:
        return await _call_model_and_settle_cost(agent, model, request, listener)
    finally:
        agent.budget.release(listener.reservation)


async def _reserve_attempt(agent: AgentRunner, model: Model, max_tokens: int | None) -> BudgetReservation:
    """Reserve one attempt. Raises `BudgetExhausted` if it may not be sent."""
    reservation = await agent.budget.wait_and_reserve(model.card, agent.state.context_tokens, max_tokens)
    if not isinstance(reservation, BudgetReservation):
        raise BudgetExhausted(reservation)
    return reservation


async def ask_other_model(agent: AgentRunner, model: Model, *, system: str, text: str) -> str:
    """Return the answer of a model to one message, outside the agent's conversation and at its cost.

    Raises what `call_model` raises.
    """
    asking = replace(agent, model=model, system=system, tools={}, state=AgentLoopState())
    asking.state.context_tokens = (len(system) + len(text)) // BYTES_PER_TOKEN
    request = ModelRequest(
        system=system, messages=[user_message(text)], tools=(), max_tokens=_OTHER_MODEL_MAX_TOKENS
    )
    reply, _ = await call_model(asking, request, emits_stream=False)
    agent.state.api_seconds += asking.state.api_seconds
    return reply.message.text.strip()


def _check_reply(model: Model, reply: Any) -> ModelReply:
    """Return the reply. Raises `TypeError` if a program's own model returned something else."""
    if not isinstance(reply, ModelReply):
        raise TypeError(f"The model {model.card.id} returned {reply!r:.80} instead of a shoal.ModelReply.")
    message: Any = reply.message
    usage: Any = reply.usage
    if not isinstance(message, Message) or not isinstance(usage, Usage):
        raise TypeError(
            f"The model {model.card.id} returned a ModelReply whose message is not a shoal.Message, or "
            "whose usage is not a shoal.Usage."
        )
    if reply.stop_reason not in _STOP_REASONS:
        raise TypeError(
            f"The model {model.card.id} returned a ModelReply with the unknown stop_reason "
            f"{reply.stop_reason!r}.{suggest_name(str(reply.stop_reason), _STOP_REASONS)}"
        )
    return reply


def _is_plausible_usage(reply: ModelReply) -> bool:
    """Return True if the usage can be the count of this reply; an empty reply may cost nothing."""
    usage = reply.usage
    if usage.is_count_of_reply or reply.message.content:
        return usage.is_count_of_reply
    counts = (usage.input_tokens, usage.cache_creation_input_tokens, usage.cache_read_input_tokens)
    return min(*counts, usage.output_tokens) >= 0


async def _call_model_and_settle_cost(
    agent: AgentRunner, model: Model, request: ModelRequest, listener: _ModelStreamListener
) -> tuple[ModelReply, RequestId]:
    try:
        reply = _check_reply(model, await model.generate_reply(request, listener.handle_delta))
    except ModelError as error:
        await listener.report_request_failure(
            str(error),
            billed=isinstance(error, TransientModelError) and error.billed,
            retry_in=None,
            quota=isinstance(error, QuotaExceeded),
        )
        raise
    except asyncio.CancelledError:
        if listener.request:
            agent.budget.write_off(listener.reservation)
        raise
    except BudgetExhausted:
        raise
    except Exception as error:  # a program's own model can raise anything, and its cost is unknown
        await listener.report_request_failure(f"{type(error).__name__}: {error}", billed=True, retry_in=None)
        raise
    seconds = agent.environment.clock.monotonic() - listener.started_at
    agent.state.api_seconds += seconds
    if not reply.counted or not _is_plausible_usage(reply):
        await listener.report_missing_usage(reply)
        return reply, listener.request
    cost = agent.budget.settle(listener.reservation, reply.usage)
    await agent.environment.emit(
        ModelRequestSettled(
            agent=agent.identity.agent,
            request=listener.request,
            model=reply.model,
            usage=reply.usage,
            cost_usd=cost,
            duration_ms=round(seconds * 1000),
        )
    )
    return reply, listener.request
