"""OTLP exporters and resources that use the variables of a session.

OpenTelemetry reads the variables of the process. A session with other variables must send nothing to the
process's collector, and none of the process's credentials to its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias
from urllib.parse import unquote

import requests
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from requests.structures import CaseInsensitiveDict

from shoal.app.settings.proxy_variables import ProxyVariables, read_proxy_variables
from shoal.core.user_environment import get_user_environment

Signal: TypeAlias = Literal["traces", "metrics"]
_DEFAULT_ENDPOINT = "http://localhost:4318"
_DEFAULT_SECONDS = 10.0
_OWN_HEADERS = frozenset(
    {"accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type"}
    | {"user-agent"}
)
"""Headers of a request that are not credentials."""


def create_span_exporter(environ: Mapping[str, str]) -> OTLPSpanExporter:
    if not _differs_from_process(environ):
        return OTLPSpanExporter()
    return OTLPSpanExporter(**_build_options(environ, "traces"))


def create_metric_exporter(environ: Mapping[str, str]) -> OTLPMetricExporter:
    if not _differs_from_process(environ):
        return OTLPMetricExporter()
    return OTLPMetricExporter(**_build_options(environ, "metrics"))


def create_resource(environ: Mapping[str, str], attributes: Mapping[str, str]) -> Resource:
    if not _differs_from_process(environ):
        return Resource.create(dict(attributes))
    return Resource({**_parse_pairs(environ.get("OTEL_RESOURCE_ATTRIBUTES", "")), **attributes})


def _differs_from_process(environ: Mapping[str, str]) -> bool:
    """Return True if the session has other variables for telemetry or for requests than the process."""

    def select_variables(variables: Mapping[str, str]) -> dict[str, str]:
        return {
            name: value
            for name, value in variables.items()
            if name.startswith("OTEL_") or name.lower().endswith("_proxy")
        }

    return select_variables(environ) != select_variables(get_user_environment().variables)


def _build_options(environ: Mapping[str, str], signal: Signal) -> dict[str, Any]:
    def read(name: str) -> str:
        own = environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_{name}", "")
        return own or environ.get(f"OTEL_EXPORTER_OTLP_{name}", "")

    endpoint = environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT") or (
        f"{(environ.get('OTEL_EXPORTER_OTLP_ENDPOINT') or _DEFAULT_ENDPOINT).rstrip('/')}/v1/{signal}"
    )
    certificate, key = read("CLIENT_CERTIFICATE"), read("CLIENT_KEY")
    return {
        "endpoint": endpoint,
        "timeout": _parse_seconds(read("TIMEOUT")),
        "compression": _parse_compression(read("COMPRESSION")),
        "session": _SessionOfVariables(
            headers=_parse_pairs(read("HEADERS")),
            proxies=read_proxy_variables(environ, {}),
            verify=read("CERTIFICATE") or True,
            cert=((certificate, key) if key else certificate) if certificate else None,
        ),
    }


class _SessionOfVariables(requests.Session):
    """Sends requests without the headers, certificates and proxies of the process's variables."""

    def __init__(
        self,
        *,
        headers: Mapping[str, str],
        proxies: ProxyVariables,
        verify: bool | str,
        cert: str | tuple[str, str] | None,
    ) -> None:
        super().__init__()
        self.trust_env = False
        self._own_headers = headers
        self._own_proxies = proxies
        self._own_verify = verify
        self._own_cert = cert

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        # The exporter adds the headers of the process's variables to each request.
        kept = {name: value for name, value in request.headers.items() if name.lower() in _OWN_HEADERS}
        request.headers = CaseInsensitiveDict({**kept, **self._own_headers})
        url = request.url or ""
        proxy = self._own_proxies.find_proxy(url)
        options["proxies"] = {} if proxy is None else {url.partition(":")[0]: proxy}
        options["verify"], options["cert"] = self._own_verify, self._own_cert
        return super().send(request, **options)


def _parse_pairs(text: str) -> dict[str, str]:
    """Return `NAME=VALUE,…` as a mapping; parts in another form are left out."""
    pairs = (part.partition("=") for part in text.split(","))
    return {
        unquote(name.strip()): unquote(value.strip())
        for name, equals, value in pairs
        if equals and name.strip()
    }


def _parse_seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return _DEFAULT_SECONDS


def _parse_compression(text: str) -> Compression:
    try:
        return Compression(text.strip().lower() or "none")
    except ValueError:
        return Compression.NoCompression
