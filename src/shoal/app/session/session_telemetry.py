"""Connects a session to OpenTelemetry if enabled; otherwise it costs nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from shoal.app.settings.settings import Settings

if TYPE_CHECKING:
    from shoal.app.session.session import Session

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


def attach_telemetry(session: Session, exit_stack: AsyncExitStack, *, trace: str) -> None:
    """Attach telemetry if it is enabled; `trace` is the parent of its trace."""
    settings = session.runtime.settings
    if not is_telemetry_enabled(settings):
        return
    try:
        from shoal.app.telemetry.otlp_export import create_telemetry_pipeline
        from shoal.app.telemetry.span_recorder import TelemetrySpanRecorder
    except ImportError as error:
        # A note, not an error: the variables may be set for other programs.
        session.notes.append(
            f"OpenTelemetry is enabled but not installed ({error.name} is missing). Install it: "
            f"{INSTALL_COMMAND}"
        )
        return
    telemetry = create_telemetry_pipeline(session.id, settings.environ)
    span_recorder = TelemetrySpanRecorder(
        telemetry,
        session=session.id,
        lead=session.agent.identity,
        clock=session.agent.clock,
        provider=_create_provider_lookup(session),
        trace=trace or _read_trace_parent(settings.environ),
        secrets=settings.secret_redactor if is_content_capture_enabled(settings) else None,
    )
    exit_stack.push_async_callback(telemetry.aclose)
    exit_stack.callback(span_recorder.close)
    exit_stack.callback(session.subscribe(span_recorder.record_event))
    session.runtime.agents.trace_parents.use_recorder(span_recorder)


def _read_trace_parent(environ: Mapping[str, str]) -> str:
    """Return the trace parent that a parent process passed on."""
    return environ.get("TRACEPARENT") or environ.get("traceparent") or ""


def _create_provider_lookup(session: Session) -> Callable[[str], str]:
    """Create a lookup of a model's provider: events contain the model name only."""
    from shoal.core.errors import ShoalError
    from shoal.models.catalogue import resolve_model

    providers: dict[str, str] = {}

    def find_provider(model: str) -> str:
        card = session.agent.model.card
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
