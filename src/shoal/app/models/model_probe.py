"""Probe of a model: one tiny request that tests answer, streaming, tool call, speed and cost."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from shoal.app.models.model_choice import choose_model
from shoal.app.settings.settings import Settings
from shoal.core.budgets.usage import Usage
from shoal.core.clock import Clock
from shoal.core.conversation.messages import user_message
from shoal.core.conversation.model_requests import (
    ModelAttemptStartedDelta,
    ModelReply,
    ModelRequest,
    ModelRetryScheduledDelta,
    StreamDelta,
    ToolSchema,
)
from shoal.core.errors import StreamStalled
from shoal.core.ids import IdGenerator
from shoal.core.ports import Model

RETRY_SECONDS = 10.0
"""Seconds during which requests to a rate-limited or overloaded provider are retried."""
PROBE_TIMEOUT = 90.0
"""Time limit in seconds for the whole probe; a local server may have to load its model first."""
_MAX_TOKENS = 2_000
"""Maximum tokens of the answer: a reasoning model thinks before it answers."""
_SYSTEM = "This is a test. Do exactly what is asked, in as few words as possible."
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


class ModelProbeResult(Struct, frozen=True, kw_only=True):
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


class _ProbeStreamTimer:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.first: float | None = None
        self.attempts = 1

    async def on_delta(self, delta: StreamDelta) -> None:
        if isinstance(delta, ModelRetryScheduledDelta):
            self.attempts += 1
            self.first = None
        elif not isinstance(delta, ModelAttemptStartedDelta) and self.first is None:
            self.first = self._clock.monotonic()


async def probe_model(name: str | None, settings: Settings, clock: Clock) -> ModelProbeResult:
    """Probe a model. Raises the errors of `choose_model`, and every `ModelError`."""
    probe_settings = replace(settings, own=replace(settings.own, outage_patience=RETRY_SECONDS))
    model = await choose_model(name, probe_settings, clock, IdGenerator().random)
    try:
        return await _send_probe_request(model, clock)
    finally:
        await model.aclose()


async def _send_probe_request(model: Model, clock: Clock) -> ModelProbeResult:
    card, timer, started = model.card, _ProbeStreamTimer(clock), clock.monotonic()
    request = ModelRequest(
        system=_SYSTEM,
        messages=[user_message(_PROMPT)],
        tools=[_REPORT],
        max_tokens=min(_MAX_TOKENS, card.max_output),
    )
    try:
        async with clock.deadline(PROBE_TIMEOUT):
            reply = await model.generate_reply(request, timer.on_delta)
    except TimeoutError:
        message = f"{card.provider} did not complete a response from {card.id} within {PROBE_TIMEOUT:g} s."
        raise StreamStalled(message, provider=card.provider, model=card.id) from None
    ended = clock.monotonic()
    return ModelProbeResult(
        provider=card.provider,
        model=card.id,
        answered_as=reply.model,
        streamed=timer.first is not None,
        called=_has_called_probe_tool(reply),
        first_seconds=(ended if timer.first is None else timer.first) - started,
        seconds=ended - started,
        usage=reply.usage,
        usd=card.price.compute_cost(reply.usage) if card.price is not None and reply.counted else None,
        attempts=timer.attempts,
    )


def _has_called_probe_tool(reply: ModelReply) -> bool:
    calls = reply.message.tool_uses
    return any(call.name == _REPORT.name and call.input.get("number") == 7 for call in calls)
