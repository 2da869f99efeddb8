"""Spans and metrics from the events of a run, following the conventions for generative AI."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from shoal.app.telemetry.otlp_export import TelemetryPipeline
from shoal.core.agents.identity import AgentIdentity
from shoal.core.budgets.usage import Usage
from shoal.core.clock import Clock
from shoal.core.conversation.messages import Message, extract_tool_result_text
from shoal.core.events import (
    AgentEnded,
    AgentStarted,
    Event,
    MemberWentIdle,
    MessageAdded,
    ModelRequestFailed,
    ModelRequestSent,
    ModelRequestSettled,
    PermissionDenied,
    SessionEnded,
    ToolFinished,
    ToolOutputReturned,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from shoal.core.ids import AgentId
from shoal.core.text.redaction import SecretRedactor

SpanAttributes: TypeAlias = dict[str, Any]
_SUCCESSFUL_ENDS = ("done", "interrupted")
_CANCELLED = "cancelled"


class _AgentSpanState:
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


class TelemetrySpanRecorder:
    """Records events in order. An agent in another process is recorded by that process."""

    def __init__(
        self,
        pipeline: TelemetryPipeline,
        *,
        session: str,
        lead: AgentIdentity,
        clock: Clock,
        provider: Callable[[str], str],
        trace: str = "",
        secrets: SecretRedactor | None = None,
    ) -> None:
        """`trace` is a `traceparent`. With `secrets`, contents are recorded too, without the secrets."""
        self._tracer = pipeline.tracer
        self._session = session
        self._lead = lead
        self._clock = clock
        self._provider = provider
        self._secrets = secrets
        self._origin = TraceContextTextMapPropagator().extract({"traceparent": trace}, Context())
        self._agents: dict[AgentId, _AgentSpanState] = {}
        self._remote_agents: set[AgentId] = set()
        meter = pipeline.meter
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage", "{token}", "Tokens used by requests."
        )
        self._seconds = meter.create_histogram(
            "gen_ai.client.operation.duration", "s", "Duration of requests."
        )
        self._cost = meter.create_counter("shoal.cost", "{USD}", "Dollars spent on requests.")

    def record_event(self, event: Event) -> None:
        if event.agent in self._remote_agents:
            return
        handler = _HANDLERS.get(type(event))
        if handler is not None:
            handler(self, event)

    def hand_off_agent_trace(self, agent: AgentId, call: str) -> str:
        """Return the `traceparent` for an agent in another process, started by this call."""
        self._remote_agents.add(agent)
        caller = next((each for each, spans in self._agents.items() if call in spans.calls), self._lead.agent)
        carrier: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(carrier, self._get_parent_context(caller, call))
        return carrier.get("traceparent", "")

    def close(self) -> None:
        """End all open spans."""
        for agent in list(self._agents.values()):
            self._end_agent_spans(agent, _CANCELLED)

    def _get_time_ns(self) -> int:
        return self._clock.now() * 1_000_000

    def _get_agent_spans(self, agent: AgentId) -> _AgentSpanState:
        """Return the agent; an unknown one, such as this process itself, gets the original parent."""
        if agent not in self._agents:
            is_own = agent == self._lead.agent
            name = self._lead.name if is_own else str(agent).partition("@")[0]
            self._agents[agent] = _AgentSpanState(name, self._origin)
        return self._agents[agent]

    def _ensure_agent_span(self, agent: AgentId, model: str = "") -> _AgentSpanState:
        agent_spans = self._get_agent_spans(agent)
        agent_spans.model = agent_spans.model or model
        if agent_spans.span is None:
            agent_spans.usage = Usage()
            agent_spans.span = self._tracer.start_span(
                f"invoke_agent {agent_spans.name}",
                agent_spans.parent,
                SpanKind.INTERNAL,
                {"gen_ai.operation.name": "invoke_agent", **self._build_agent_attributes(agent, agent_spans)},
                start_time=self._get_time_ns(),
            )
        return agent_spans

    def _build_agent_attributes(self, agent: AgentId, agent_spans: _AgentSpanState) -> SpanAttributes:
        attributes: SpanAttributes = {
            "gen_ai.agent.id": str(agent),
            "gen_ai.agent.name": agent_spans.name,
            "gen_ai.conversation.id": self._session,
        }
        return attributes | (self._build_model_attributes(agent_spans.model) if agent_spans.model else {})

    def _build_model_attributes(self, model: str) -> SpanAttributes:
        provider = self._provider(model)
        # `gen_ai.system` is the name used until 2025; many collectors know only that.
        return {
            "gen_ai.provider.name": provider,
            "gen_ai.system": provider,
            "gen_ai.request.model": model,
        }

    def _get_parent_context(self, agent: AgentId, call: str) -> Context:
        """Return the context for something that a call of the agent started."""
        agent_spans = self._agents.get(agent)
        if agent_spans is None:
            return self._origin
        span = agent_spans.calls.get(call) or agent_spans.span
        return agent_spans.parent if span is None else set_span_in_context(span, Context())

    def _end_agent_spans(self, agent: _AgentSpanState, error: str = "", detail: str = "") -> None:
        for span in (*agent.calls.values(), *(span for span, _ in agent.requests.values())):
            self._finish_span(span, _CANCELLED)
        agent.calls.clear()
        agent.requests.clear()
        if agent.span is not None:
            agent.span.set_attributes(_build_usage_attributes(agent.usage))
            self._finish_span(agent.span, error, detail)
            agent.span = None

    def _finish_span(self, span: Span, error: str = "", detail: str = "") -> None:
        if error:
            span.set_attribute("error.type", error)
            # A provider or a tool may repeat its input.
            description = self._secrets.redact_text(detail) if self._secrets is not None else None
            span.set_status(StatusCode.ERROR, description)
        span.end(self._get_time_ns())

    def _on_turn_started(self, event: TurnStarted) -> None:
        self._ensure_agent_span(event.agent)

    def _on_turn_ended(self, event: TurnEnded) -> None:
        agent_spans = self._agents.get(event.agent)
        if agent_spans is not None:
            self._end_agent_spans(
                agent_spans, "" if event.reason in _SUCCESSFUL_ENDS else event.reason, event.detail
            )

    def _on_agent_started(self, event: AgentStarted) -> None:
        if event.parent in self._remote_agents:
            self._remote_agents.add(event.agent)
            return
        if event.resumed and event.agent in self._agents:
            self._end_agent_spans(self._agents[event.agent], _CANCELLED)
        parent = self._get_parent_context(event.parent, event.call)
        self._agents[event.agent] = _AgentSpanState(
            event.name or event.kind, parent, event.model.rpartition(":")[2]
        )
        self._ensure_agent_span(event.agent)

    def _on_agent_ended(self, event: AgentEnded) -> None:
        agent_spans = self._agents.pop(event.agent, None)
        if agent_spans is not None:
            status = event.completion.status
            self._end_agent_spans(
                agent_spans, "" if status == "completed" else status, event.completion.detail
            )

    def _on_member_went_idle(self, event: MemberWentIdle) -> None:
        agent_spans = self._agents.get(event.agent)
        if agent_spans is not None:
            self._end_agent_spans(agent_spans, event.reason if event.reason == "failed" else "", event.detail)

    def _on_model_request_sent(self, event: ModelRequestSent) -> None:
        agent_spans = self._ensure_agent_span(event.agent, event.model)
        span = self._tracer.start_span(
            f"chat {event.model}",
            self._get_parent_context(event.agent, ""),
            SpanKind.CLIENT,
            {
                **self._build_agent_attributes(event.agent, agent_spans),
                **self._build_model_attributes(event.model),
                "gen_ai.operation.name": "chat",
            },
            start_time=self._get_time_ns(),
        )
        agent_spans.requests[event.request] = span, event.model

    def _on_model_request_settled(self, event: ModelRequestSettled) -> None:
        agent_spans = self._get_agent_spans(event.agent)
        span, model = agent_spans.requests.pop(event.request, (None, event.model))
        agent_spans.usage += event.usage
        attributes = {
            **self._build_model_attributes(model),
            "gen_ai.operation.name": "chat",
            "gen_ai.agent.id": str(event.agent),
            "gen_ai.agent.name": agent_spans.name,
        }
        for kind, tokens in (("input", event.usage.prompt_tokens), ("output", event.usage.output_tokens)):
            self._tokens.record(tokens, {**attributes, "gen_ai.token.type": kind})
        self._seconds.record(event.duration_ms / 1000, attributes)
        if event.cost_usd is not None:
            self._cost.add(event.cost_usd, attributes)
        if span is not None:
            span.set_attributes(
                {"gen_ai.response.model": event.model, **_build_usage_attributes(event.usage)}
            )
            if event.cost_usd is not None:
                span.set_attribute("shoal.cost_usd", event.cost_usd)
            self._finish_span(span)

    def _on_model_request_failed(self, event: ModelRequestFailed) -> None:
        span, _ = self._get_agent_spans(event.agent).requests.pop(event.request, (None, ""))
        if span is not None:
            span.set_attribute("shoal.retried", event.retry_in is not None)
            self._finish_span(span, "_OTHER", event.reason)

    def _on_tool_started(self, event: ToolStarted) -> None:
        agent_spans = self._ensure_agent_span(event.agent)
        agent_spans.calls[event.call] = self._tracer.start_span(
            f"execute_tool {event.tool}",
            self._get_parent_context(event.agent, ""),
            SpanKind.INTERNAL,
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": event.tool,
                "gen_ai.tool.call.id": event.call,
                "gen_ai.tool.type": "function",
                "gen_ai.agent.id": str(event.agent),
                "gen_ai.agent.name": agent_spans.name,
                "gen_ai.conversation.id": self._session,
            },
            start_time=self._get_time_ns(),
        )
        self._set_text_attribute(agent_spans.calls[event.call], "gen_ai.tool.call.arguments", event.preview)

    def _on_permission_denied(self, event: PermissionDenied) -> None:
        self._get_agent_spans(event.agent).denied.add(event.call)

    def _on_tool_finished(self, event: ToolFinished) -> None:
        agent_spans = self._get_agent_spans(event.agent)
        span = agent_spans.calls.pop(event.call, None)
        is_denied = event.call in agent_spans.denied
        agent_spans.denied.discard(event.call)
        if span is not None:
            error = "tool_error" if event.is_error else ""
            self._finish_span(span, "permission_denied" if is_denied else error, event.preview)

    def _on_tool_output_returned(self, event: ToolOutputReturned) -> None:
        span = self._get_agent_spans(event.agent).calls.get(event.call)
        if span is not None:
            self._set_text_attribute(span, "gen_ai.tool.call.result", extract_tool_result_text(event.result))

    def _on_message_added(self, event: MessageAdded) -> None:
        span = self._get_agent_spans(event.agent).span
        if span is not None and event.by in ("person", "agent", "model") and self._secrets is not None:
            direction = "output" if event.by == "model" else "input"
            self._set_text_attribute(
                span, f"gen_ai.{direction}.messages", _encode_message_for_span(event.message)
            )

    def _set_text_attribute(self, span: Span, name: str, text: str) -> None:
        """Set a text attribute, only if the user wants message contents recorded."""
        if self._secrets is not None:
            span.set_attribute(name, self._secrets.redact_text(text))

    def _on_session_ended(self, _: SessionEnded) -> None:
        self.close()


def _build_usage_attributes(usage: Usage) -> SpanAttributes:
    """Return token counts; tokens read from and written to a cache are part of the input."""
    return {
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read_input_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_creation_input_tokens,
    }


def _encode_message_for_span(message: Message) -> str:
    text = {"type": "text", "content": message.text}
    calls = [
        {"type": "tool_call", "id": use.id, "name": use.name, "arguments": use.input}
        for use in message.tool_uses
    ]
    parts = [*([text] if message.text else []), *calls]
    return msgspec.json.encode([{"role": message.role, "parts": parts}]).decode()


_HANDLERS: dict[type[Event], Callable[[TelemetrySpanRecorder, Any], None]] = {
    TurnStarted: TelemetrySpanRecorder._on_turn_started,
    TurnEnded: TelemetrySpanRecorder._on_turn_ended,
    AgentStarted: TelemetrySpanRecorder._on_agent_started,
    AgentEnded: TelemetrySpanRecorder._on_agent_ended,
    MemberWentIdle: TelemetrySpanRecorder._on_member_went_idle,
    ModelRequestSent: TelemetrySpanRecorder._on_model_request_sent,
    ModelRequestSettled: TelemetrySpanRecorder._on_model_request_settled,
    ModelRequestFailed: TelemetrySpanRecorder._on_model_request_failed,
    ToolStarted: TelemetrySpanRecorder._on_tool_started,
    PermissionDenied: TelemetrySpanRecorder._on_permission_denied,
    ToolFinished: TelemetrySpanRecorder._on_tool_finished,
    ToolOutputReturned: TelemetrySpanRecorder._on_tool_output_returned,
    MessageAdded: TelemetrySpanRecorder._on_message_added,
    SessionEnded: TelemetrySpanRecorder._on_session_ended,
}
