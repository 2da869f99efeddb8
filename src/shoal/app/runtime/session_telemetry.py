"""Connects a session to OpenTelemetry if enabled; otherwise it costs nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from shoal.app.config.session_config import SessionConfig
from shoal.app.runtime.event_bus import EventBus
from shoal.app.settings.settings import Settings
from shoal.core.agents.identity import AgentIdentity
from shoal.runs.running_agents import RunningAgents

if TYPE_CHECKING:
    from shoal.app.telemetry.span_recorder import TelemetrySpanRecorder

INSTALL_COMMAND = "pip install 'shoal[otel]'"
_OTEL_VARIABLES = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
    "OTEL_TRACES_EXPORTER",
    "OTEL_METRICS_EXPORTER",
)
_CONTENT_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


def is_telemetry_enabled(settings: Settings) -> bool:
    """Return True if the setting, or else a standard OpenTelemetry variable, enables telemetry."""
    environ = settings.environ
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    if settings.own.telemetry.enabled is not None:
        return settings.own.telemetry.enabled
    return any(environ.get(name, "none") not in ("", "none") for name in _OTEL_VARIABLES)


def is_content_capture_enabled(settings: Settings) -> bool:
    value = settings.environ.get(_CONTENT_VARIABLE, "").lower()
    return settings.own.telemetry.content or value in ("true", "1", "span_only", "span_and_event")


def open_telemetry(
    config: SessionConfig,
    events: EventBus,
    running_agents: RunningAgents,
    lead: AgentIdentity,
    exit_stack: AsyncExitStack,
) -> tuple[TelemetrySpanRecorder | None, tuple[str, ...]]:
    """Record the session's events if telemetry is enabled; return notes for the user too."""
    options, settings = config.options, config.settings
    if not is_telemetry_enabled(settings):
        return None, ()
    try:
        from shoal.app.telemetry.otlp_export import create_telemetry_pipeline
        from shoal.app.telemetry.span_recorder import TelemetrySpanRecorder
    except ImportError as error:
        # A note, not an error: the variables may be set for other programs.
        return None, (
            f"OpenTelemetry is enabled but not installed ({error.name} is missing). Install it: "
            f"{INSTALL_COMMAND}",
        )
    telemetry = create_telemetry_pipeline(lead.session, settings.environ)
    span_recorder = TelemetrySpanRecorder(
        telemetry,
        session=lead.session,
        lead=lead,
        clock=options.clock,
        provider=_create_provider_lookup(running_agents),
        trace=options.trace or _read_trace_parent(settings.environ),
        secrets=settings.secret_redactor if is_content_capture_enabled(settings) else None,
    )
    exit_stack.push_async_callback(telemetry.aclose)
    exit_stack.callback(span_recorder.close)
    exit_stack.callback(events.subscribe(span_recorder.record_event))
    return span_recorder, ()


def _read_trace_parent(environ: Mapping[str, str]) -> str:
    """Return the trace parent that a parent process passed on."""
    return environ.get("TRACEPARENT") or environ.get("traceparent") or ""


def _create_provider_lookup(running_agents: RunningAgents) -> Callable[[str], str]:
    """Create a lookup of a model's provider: events contain the model name only."""
    from shoal.core.errors import ShoalError
    from shoal.models.catalogue import resolve_model

    providers: dict[str, str] = {}

    def find_provider(model: str) -> str:
        card = running_agents.lead.model.card
        if model not in providers:
            try:
                found = (
                    card.provider
                    if model == card.id
                    else resolve_model(model, provider=card.provider).provider
                )
            except ShoalError:
                found = card.provider
            providers[model] = found.removesuffix("-responses")
        return providers[model]

    return find_provider
