"""A loopback OTLP/HTTP collector that parses the exports it receives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from shoal.testing.http_messages import encode_http_response, read_http_request


class CollectedSpan(Struct, frozen=True, kw_only=True):
    """A span as it was received."""

    name: str
    trace: str
    id: str
    parent: str
    instance: str
    """Id of the process that sent it."""
    attributes: dict[str, Any]


class OtlpCollector:
    def __init__(self) -> None:
        self.url = ""
        self.spans: list[CollectedSpan] = []
        self.metrics: dict[str, list[dict[str, Any]]] = {}
        self.services: set[str] = set()

    def find_spans(self, name: str) -> list[CollectedSpan]:
        return [span for span in self.spans if span.name == name]

    def add_export(self, path: str, content: bytes) -> None:
        if path == "/v1/traces":
            self._add_spans(content)
        elif path == "/v1/metrics":
            self._add_metrics(content)

    def _add_spans(self, content: bytes) -> None:
        for sent in ExportTraceServiceRequest.FromString(content).resource_spans:
            resource = _decode_attributes(sent.resource.attributes)
            self.services.add(resource["service.name"])
            for span in (each for scope in sent.scope_spans for each in scope.spans):
                self.spans.append(
                    CollectedSpan(
                        name=span.name,
                        trace=span.trace_id.hex(),
                        id=span.span_id.hex(),
                        parent=span.parent_span_id.hex(),
                        instance=resource["service.instance.id"],
                        attributes=_decode_attributes(span.attributes),
                    )
                )

    def _add_metrics(self, content: bytes) -> None:
        for sent in ExportMetricsServiceRequest.FromString(content).resource_metrics:
            for metric in (each for scope in sent.scope_metrics for each in scope.metrics):
                points = getattr(metric, metric.WhichOneof("data")).data_points
                self.metrics.setdefault(metric.name, []).extend(
                    _decode_attributes(point.attributes) for point in points
                )


def _decode_attributes(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


@asynccontextmanager
async def run_collector() -> AsyncGenerator[OtlpCollector]:
    collector = OtlpCollector()

    async def handle_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (request := await read_http_request(reader)) is not None:
            content = request.content
            if request.headers.get("content-encoding") == "gzip":
                import gzip

                content = gzip.decompress(content)
            collector.add_export(request.path, content)
            writer.write(encode_http_response(b"{}"))
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle_connection, "127.0.0.1", 0)
    collector.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield collector
