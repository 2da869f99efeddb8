"""Connects a session to OpenTelemetry if enabled; otherwise it costs nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from shoal.app.settings.settings import Settings

if TYPE_CHECKING:
    from shoal.app.session.session import Session

INSTALL = "pip install 'shoal[otel]'"
_SIGNALS = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
    "OTEL_TRACES_EXPORTER",
    "OTEL_METRICS_EXPORTER",
)
_CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


def is_wanted(settings: Settings) -> bool:
    """Return True if the setting, or else a standard OpenTelemetry variable, enables telemetry."""
    environ = settings.environ
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    if settings.own.telemetry.enabled is not None:
        return settings.own.telemetry.enabled
    return any(environ.get(name, "none") not in ("", "none") for name in _SIGNALS)


def shows_content(settings: Settings) -> bool:
    said = settings.environ.get(_CONTENT, "").lower()
    return settings.own.telemetry.content or said in ("true", "1", "span_only", "span_and_event")


def attach(session: Session, leave: AsyncExitStack, *, trace: str) -> None:
    """Attach telemetry if it is enabled; `trace` is the parent of its trace."""
    settings = session.parts.settings
    if not is_wanted(settings):
        return
    try:
        from shoal.app.telemetry.exporting import exporters
        from shoal.app.telemetry.spans import Spans
    except ImportError as error:
        # A note, not an error: the variables may be set for other programs.
        told = f"OpenTelemetry is wanted and cannot be had ({error.name} is missing). Install it: {INSTALL}"
        session.notes.append(told)
        return
    exports = exporters(session.id, settings.environ)
    spans = Spans(
        exports,
        session=session.id,
        lead=session.agent.identity,
        clock=session.agent.clock,
        provider=_provider_of(session),
        trace=trace or _from_environment(settings.environ),
        secrets=settings.secrets if shows_content(settings) else None,
    )
    leave.push_async_callback(exports.aclose)
    leave.callback(spans.close)
    leave.callback(session.watch(spans.take))
    session.parts.trace = spans.handed


def _from_environment(environ: Mapping[str, str]) -> str:
    """Return the trace parent that a parent process passed on."""
    return environ.get("TRACEPARENT") or environ.get("traceparent") or ""


def _provider_of(session: Session) -> Callable[[str], str]:
    """Create a lookup of a model's provider: events contain the model name only."""
    from shoal.core.errors import ShoalError
    from shoal.models.catalogue import resolve

    known: dict[str, str] = {}

    def provider_of(model: str) -> str:
        card = session.agent.model.card
        if model not in known:
            try:
                found = card.provider if model == card.id else resolve(model, provider=card.provider).provider
            except ShoalError:
                found = card.provider
            known[model] = found.removesuffix("-responses")
        return known[model]

    return provider_of
