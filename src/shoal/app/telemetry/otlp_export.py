"""Export of spans and metrics: through the program's own OpenTelemetry if it has one, else over OTLP/HTTP."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from opentelemetry import metrics, trace
from opentelemetry.metrics import Meter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Tracer

import shoal
from shoal.app.telemetry.otlp_exporters import create_metric_exporter, create_resource, create_span_exporter

CLOSE_TIMEOUT = 3.0
"""Seconds allowed for sending the rest at the end; an unreachable collector must not delay a run."""


class TelemetryPipeline:
    """Tracer and meter, with their shutdown."""

    def __init__(self, tracer: Tracer, meter: Meter, closers: tuple[Callable[[], object], ...] = ()) -> None:
        self.tracer = tracer
        self.meter = meter
        self._closers = closers

    async def aclose(self) -> None:
        # One thread each: sending cannot be interrupted, only abandoned.
        threads = [threading.Thread(target=close, daemon=True) for close in self._closers]
        for thread in threads:
            thread.start()
        await asyncio.to_thread(_join_exporter_threads, threads, CLOSE_TIMEOUT)


def _join_exporter_threads(threads: Sequence[threading.Thread], timeout: float) -> None:
    deadline = time.monotonic() + timeout
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))


def create_telemetry_pipeline(session: str, environ: Mapping[str, str]) -> TelemetryPipeline:
    resource = create_resource(
        environ,
        {
            "service.name": environ.get("OTEL_SERVICE_NAME") or "shoal",
            "service.version": shoal.__version__,
            # Each process of a session counts separately.
            "service.instance.id": f"{session}-{os.getpid()}",
        },
    )
    # Without any handler, errors of an exporter would be printed over the screen.
    logging.getLogger("opentelemetry").addHandler(logging.NullHandler())
    closers: list[Callable[[], object]] = []
    tracer_provider = trace.get_tracer_provider()
    if not isinstance(tracer_provider, TracerProvider):
        tracer_provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        closers.append(tracer_provider.shutdown)
        if environ.get("OTEL_TRACES_EXPORTER") != "none":
            from opentelemetry.sdk.trace.export import BatchSpanProcessor

            tracer_provider.add_span_processor(BatchSpanProcessor(create_span_exporter(environ)))
    meter_provider = metrics.get_meter_provider()
    if not isinstance(meter_provider, MeterProvider):
        meter_provider = _create_meter_provider(resource, environ)
        closers.append(meter_provider.shutdown)
    name, version = "shoal", shoal.__version__
    return TelemetryPipeline(
        tracer_provider.get_tracer(name, version), meter_provider.get_meter(name, version), tuple(closers)
    )


def _create_meter_provider(resource: Resource, environ: Mapping[str, str]) -> MeterProvider:
    if environ.get("OTEL_METRICS_EXPORTER") == "none":
        return MeterProvider(resource=resource, shutdown_on_exit=False)
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    reader = PeriodicExportingMetricReader(create_metric_exporter(environ))
    return MeterProvider(resource=resource, metric_readers=[reader], shutdown_on_exit=False)
