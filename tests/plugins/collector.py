"""A loopback OTLP/HTTP collector that parses the exports it receives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from shoal.testing.http import read_request, whole


class Told(Struct, frozen=True, kw_only=True):
    """A span as it was received."""

    name: str
    trace: str
    id: str
    parent: str
    instance: str
    """Id of the process that sent it."""
    attributes: dict[str, Any]


class Collector:
    def __init__(self) -> None:
        self.url = ""
        self.spans: list[Told] = []
        self.metrics: dict[str, list[dict[str, Any]]] = {}
        self.services: set[str] = set()

    def named(self, name: str) -> list[Told]:
        return [span for span in self.spans if span.name == name]

    def take(self, path: str, content: bytes) -> None:
        if path == "/v1/traces":
            self._take_spans(content)
        elif path == "/v1/metrics":
            self._take_metrics(content)

    def _take_spans(self, content: bytes) -> None:
        for sent in ExportTraceServiceRequest.FromString(content).resource_spans:
            resource = _attributes(sent.resource.attributes)
            self.services.add(resource["service.name"])
            for span in (each for scope in sent.scope_spans for each in scope.spans):
                self.spans.append(
                    Told(
                        name=span.name,
                        trace=span.trace_id.hex(),
                        id=span.span_id.hex(),
                        parent=span.parent_span_id.hex(),
                        instance=resource["service.instance.id"],
                        attributes=_attributes(span.attributes),
                    )
                )

    def _take_metrics(self, content: bytes) -> None:
        for sent in ExportMetricsServiceRequest.FromString(content).resource_metrics:
            for metric in (each for scope in sent.scope_metrics for each in scope.metrics):
                points = getattr(metric, metric.WhichOneof("data")).data_points
                self.metrics.setdefault(metric.name, []).extend(
                    _attributes(point.attributes) for point in points
                )


def _attributes(given: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in given}


@asynccontextmanager
async def collecting() -> AsyncGenerator[Collector]:
    collector = Collector()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (request := await read_request(reader)) is not None:
            content = request.content
            if request.headers.get("content-encoding") == "gzip":
                import gzip

                content = gzip.decompress(content)
            collector.take(request.path, content)
            writer.write(whole(b"{}"))
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    collector.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield collector
