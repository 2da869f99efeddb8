"""Spans and metrics from the events of a run, following the conventions for generative AI."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from shoal.app.telemetry.exporting import Exports
from shoal.core.clock import Clock
from shoal.core.events import (
    AgentEnded,
    AgentStarted,
    Event,
    MemberRested,
    MessageAdded,
    PermissionDenied,
    RequestFailed,
    RequestSent,
    RequestSettled,
    SessionEnded,
    ToolFinished,
    ToolReturned,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from shoal.core.identity import Identity
from shoal.core.ids import AgentId
from shoal.core.messages import Message, result_text
from shoal.core.secrets import Secrets
from shoal.core.usage import Usage

Attributes: TypeAlias = dict[str, Any]
_GOOD_ENDS = ("done", "interrupted")
_CUT_OFF = "cancelled"


class _Agent:
    """One agent and its open spans."""

    def __init__(self, name: str, parent: Context, model: str = "") -> None:
        self.name = name
        self.parent = parent
        self.model = model
        self.span: Span | None = None
        self.usage = Usage()
        self.requests: dict[str, tuple[Span, str]] = {}
        """Open requests, each with its model."""
        self.calls: dict[str, Span] = {}
        self.denied: set[str] = set()


class Spans:
    """Records events in order. An agent in another process is recorded by that process."""

    def __init__(
        self,
        exports: Exports,
        *,
        session: str,
        lead: Identity,
        clock: Clock,
        provider: Callable[[str], str],
        trace: str = "",
        secrets: Secrets | None = None,
    ) -> None:
        """`trace` is a `traceparent`. With `secrets`, contents are recorded too, without the secrets."""
        self._tracer = exports.tracer
        self._session = session
        self._lead = lead
        self._clock = clock
        self._provider = provider
        self._secrets = secrets
        self._origin = TraceContextTextMapPropagator().extract({"traceparent": trace}, Context())
        self._agents: dict[AgentId, _Agent] = {}
        self._elsewhere: set[AgentId] = set()
        meter = exports.meter
        self._tokens = meter.create_histogram("gen_ai.client.token.usage", "{token}", "Tokens of requests.")
        self._seconds = meter.create_histogram("gen_ai.client.operation.duration", "s", "Time of requests.")
        self._cost = meter.create_counter("shoal.cost", "{USD}", "Dollars spent on requests.")

    def take(self, event: Event) -> None:
        if event.agent in self._elsewhere:
            return
        known = _TAKEN.get(type(event))
        if known is not None:
            known(self, event)

    def handed(self, agent: AgentId, call: str) -> str:
        """Return the `traceparent` for an agent in another process, started by this call."""
        self._elsewhere.add(agent)
        caller = next((each for each, known in self._agents.items() if call in known.calls), self._lead.agent)
        carrier: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(carrier, self._within(caller, call))
        return carrier.get("traceparent", "")

    def close(self) -> None:
        """End all open spans."""
        for agent in list(self._agents.values()):
            self._end(agent, _CUT_OFF)

    def _now(self) -> int:
        return self._clock.now() * 1_000_000

    def _known(self, agent: AgentId) -> _Agent:
        """Return the agent; an unknown one, such as this process itself, gets the original parent."""
        if agent not in self._agents:
            own = agent == self._lead.agent
            name = self._lead.name if own else str(agent).partition("@")[0]
            self._agents[agent] = _Agent(name, self._origin)
        return self._agents[agent]

    def _at_work(self, agent: AgentId, model: str = "") -> _Agent:
        known = self._known(agent)
        known.model = known.model or model
        if known.span is None:
            known.usage = Usage()
            known.span = self._tracer.start_span(
                f"invoke_agent {known.name}",
                known.parent,
                SpanKind.INTERNAL,
                {"gen_ai.operation.name": "invoke_agent", **self._whose(agent, known)},
                start_time=self._now(),
            )
        return known

    def _whose(self, agent: AgentId, known: _Agent) -> Attributes:
        whose: Attributes = {
            "gen_ai.agent.id": str(agent),
            "gen_ai.agent.name": known.name,
            "gen_ai.conversation.id": self._session,
        }
        return whose | (self._asked(known.model) if known.model else {})

    def _asked(self, model: str) -> Attributes:
        provider = self._provider(model)
        # `gen_ai.system` is the name used until 2025; many collectors know only that.
        return {
            "gen_ai.provider.name": provider,
            "gen_ai.system": provider,
            "gen_ai.request.model": model,
        }

    def _within(self, agent: AgentId, call: str) -> Context:
        """Return the context for something that a call of the agent started."""
        known = self._agents.get(agent)
        if known is None:
            return self._origin
        span = known.calls.get(call) or known.span
        return known.parent if span is None else set_span_in_context(span, Context())

    def _end(self, agent: _Agent, error: str = "", detail: str = "") -> None:
        for span in (*agent.calls.values(), *(span for span, _ in agent.requests.values())):
            self._finish(span, _CUT_OFF)
        agent.calls.clear()
        agent.requests.clear()
        if agent.span is not None:
            agent.span.set_attributes(_counted(agent.usage))
            self._finish(agent.span, error, detail)
            agent.span = None

    def _finish(self, span: Span, error: str = "", detail: str = "") -> None:
        if error:
            span.set_attribute("error.type", error)
            # A provider or a tool may repeat its input.
            told = self._secrets.redacted(detail) if self._secrets is not None else None
            span.set_status(StatusCode.ERROR, told)
        span.end(self._now())

    def _turn_started(self, event: TurnStarted) -> None:
        self._at_work(event.agent)

    def _turn_ended(self, event: TurnEnded) -> None:
        known = self._agents.get(event.agent)
        if known is not None:
            self._end(known, "" if event.reason in _GOOD_ENDS else event.reason, event.detail)

    def _agent_started(self, event: AgentStarted) -> None:
        if event.parent in self._elsewhere:
            self._elsewhere.add(event.agent)
            return
        if event.resumed and event.agent in self._agents:
            self._end(self._agents[event.agent], _CUT_OFF)
        within = self._within(event.parent, event.call)
        self._agents[event.agent] = _Agent(event.name or event.kind, within, event.model.rpartition(":")[2])
        self._at_work(event.agent)

    def _agent_ended(self, event: AgentEnded) -> None:
        known = self._agents.pop(event.agent, None)
        if known is not None:
            status = event.completion.status
            self._end(known, "" if status == "completed" else status, event.completion.detail)

    def _rested(self, event: MemberRested) -> None:
        known = self._agents.get(event.agent)
        if known is not None:
            self._end(known, event.reason if event.reason == "failed" else "", event.detail)

    def _sent(self, event: RequestSent) -> None:
        known = self._at_work(event.agent, event.model)
        span = self._tracer.start_span(
            f"chat {event.model}",
            self._within(event.agent, ""),
            SpanKind.CLIENT,
            {
                **self._whose(event.agent, known),
                **self._asked(event.model),
                "gen_ai.operation.name": "chat",
            },
            start_time=self._now(),
        )
        known.requests[event.request] = span, event.model

    def _settled(self, event: RequestSettled) -> None:
        known = self._known(event.agent)
        span, model = known.requests.pop(event.request, (None, event.model))
        known.usage += event.usage
        whose = {
            **self._asked(model),
            "gen_ai.operation.name": "chat",
            "gen_ai.agent.id": str(event.agent),
            "gen_ai.agent.name": known.name,
        }
        for kind, tokens in (("input", event.usage.prompt_tokens), ("output", event.usage.output_tokens)):
            self._tokens.record(tokens, {**whose, "gen_ai.token.type": kind})
        self._seconds.record(event.duration_ms / 1000, whose)
        if event.cost_usd is not None:
            self._cost.add(event.cost_usd, whose)
        if span is not None:
            span.set_attributes({"gen_ai.response.model": event.model, **_counted(event.usage)})
            if event.cost_usd is not None:
                span.set_attribute("shoal.cost_usd", event.cost_usd)
            self._finish(span)

    def _failed(self, event: RequestFailed) -> None:
        span, _ = self._known(event.agent).requests.pop(event.request, (None, ""))
        if span is not None:
            span.set_attribute("shoal.retried", event.retry_in is not None)
            self._finish(span, "_OTHER", event.reason)

    def _tool_started(self, event: ToolStarted) -> None:
        known = self._at_work(event.agent)
        known.calls[event.call] = self._tracer.start_span(
            f"execute_tool {event.tool}",
            self._within(event.agent, ""),
            SpanKind.INTERNAL,
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": event.tool,
                "gen_ai.tool.call.id": event.call,
                "gen_ai.tool.type": "function",
                "gen_ai.agent.id": str(event.agent),
                "gen_ai.agent.name": known.name,
                "gen_ai.conversation.id": self._session,
            },
            start_time=self._now(),
        )
        self._say(known.calls[event.call], "gen_ai.tool.call.arguments", event.preview)

    def _denied(self, event: PermissionDenied) -> None:
        self._known(event.agent).denied.add(event.call)

    def _tool_finished(self, event: ToolFinished) -> None:
        known = self._known(event.agent)
        span = known.calls.pop(event.call, None)
        denied = event.call in known.denied
        known.denied.discard(event.call)
        if span is not None:
            failed = "tool_error" if event.is_error else ""
            self._finish(span, "permission_denied" if denied else failed, event.preview)

    def _returned(self, event: ToolReturned) -> None:
        span = self._known(event.agent).calls.get(event.call)
        if span is not None:
            self._say(span, "gen_ai.tool.call.result", result_text(event.result))

    def _added(self, event: MessageAdded) -> None:
        span = self._known(event.agent).span
        if span is not None and event.by in ("person", "agent", "model") and self._secrets is not None:
            side = "output" if event.by == "model" else "input"
            self._say(span, f"gen_ai.{side}.messages", _as_json(event.message))

    def _say(self, span: Span, name: str, text: str) -> None:
        """Set a text attribute, only if the user wants message contents recorded."""
        if self._secrets is not None:
            span.set_attribute(name, self._secrets.redacted(text))

    def _session_ended(self, _: SessionEnded) -> None:
        self.close()


def _counted(usage: Usage) -> Attributes:
    """Return token counts; tokens read from and written to a cache are part of the input."""
    return {
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read_input_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_creation_input_tokens,
    }


def _as_json(message: Message) -> str:
    text = {"type": "text", "content": message.text}
    calls = [
        {"type": "tool_call", "id": use.id, "name": use.name, "arguments": use.input}
        for use in message.tool_uses
    ]
    parts = [*([text] if message.text else []), *calls]
    return msgspec.json.encode([{"role": message.role, "parts": parts}]).decode()


_TAKEN: dict[type[Event], Callable[[Spans, Any], None]] = {
    TurnStarted: Spans._turn_started,
    TurnEnded: Spans._turn_ended,
    AgentStarted: Spans._agent_started,
    AgentEnded: Spans._agent_ended,
    MemberRested: Spans._rested,
    RequestSent: Spans._sent,
    RequestSettled: Spans._settled,
    RequestFailed: Spans._failed,
    ToolStarted: Spans._tool_started,
    PermissionDenied: Spans._denied,
    ToolFinished: Spans._tool_finished,
    ToolReturned: Spans._returned,
    MessageAdded: Spans._added,
    SessionEnded: Spans._session_ended,
}
