"""Probe of a model: one tiny request that tests answer, streaming, tool call, speed and cost."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from shoal.app.models.choosing import chosen_model
from shoal.app.settings.settings import Settings
from shoal.core.clock import Clock
from shoal.core.errors import StreamStalled
from shoal.core.ids import Ids
from shoal.core.messages import user
from shoal.core.ports import Model
from shoal.core.requests import Delta, Reply, Request, Retrying, Sent, ToolSchema
from shoal.core.usage import Usage

PATIENCE = 10.0
"""Seconds in which requests to a rate-limited or overloaded provider are retried."""
WITHIN = 90.0
"""Seconds for the whole probe; a local server may have to load its model first."""
_ROOM = 2_000
"""Maximum tokens of the answer: a reasoning model thinks before it answers."""
_SYSTEM = "You are being tested. Do just what is asked, in as few words as you can."
_PROMPT = "Say the word ready, and in the same answer call the tool report with number 7."
_REPORT = ToolSchema(
    name="report",
    description="Report a number.",
    input_schema={
        "type": "object",
        "properties": {"number": {"type": "integer"}},
        "required": ["number"],
        "additionalProperties": False,
    },
)


class Trial(Struct, frozen=True, kw_only=True):
    provider: str
    model: str
    answered_as: str
    """Model id in the provider's answer."""
    streamed: bool
    """True if output arrived before the end; a short answer may be a single chunk."""
    called: bool
    """True if it called the tool as requested."""
    first_seconds: float
    """Seconds until the first output."""
    seconds: float
    usage: Usage
    usd: float | None
    attempts: int


class _Ear:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.first: float | None = None
        self.attempts = 1

    async def hear(self, delta: Delta) -> None:
        if isinstance(delta, Retrying):
            self.attempts += 1
            self.first = None
        elif not isinstance(delta, Sent) and self.first is None:
            self.first = self._clock.monotonic()


async def tried(name: str | None, settings: Settings, clock: Clock) -> Trial:
    """Probe a model. Raises the errors of `choose_model`, and every `ModelError`."""
    patient = replace(settings, own=replace(settings.own, outage_patience=PATIENCE))
    model = await chosen_model(name, patient, clock, Ids().random)
    try:
        return await _asked(model, clock)
    finally:
        await model.aclose()


async def _asked(model: Model, clock: Clock) -> Trial:
    card, ear, began = model.card, _Ear(clock), clock.monotonic()
    request = Request(
        system=_SYSTEM,
        messages=[user(_PROMPT)],
        tools=[_REPORT],
        max_tokens=min(_ROOM, card.max_output),
    )
    try:
        async with clock.deadline(WITHIN):
            reply = await model.reply(request, ear.hear)
    except TimeoutError:
        told = f"{card.provider} gave {card.id} no whole answer within {WITHIN:g} s."
        raise StreamStalled(told, provider=card.provider, model=card.id) from None
    ended = clock.monotonic()
    return Trial(
        provider=card.provider,
        model=card.id,
        answered_as=reply.model,
        streamed=ear.first is not None,
        called=_is_called(reply),
        first_seconds=(ended if ear.first is None else ear.first) - began,
        seconds=ended - began,
        usage=reply.usage,
        usd=card.price.of(reply.usage) if card.price is not None and reply.counted else None,
        attempts=ear.attempts,
    )


def _is_called(reply: Reply) -> bool:
    calls = reply.message.tool_uses
    return any(call.name == _REPORT.name and call.input.get("number") == 7 for call in calls)
