"""Compares our HTTP client with httpx and httpcore: same agents, adapters and provider, another client.

The figures of docs/decisions/0005-an-http-client-of-our-own.md come from here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from bench.child_process import measure_import
from bench.figures import Figure, Section
from bench.http_bench import (
    AGENTS_PER_CLIENT,
    APIS,
    HttpBenchSize,
    HttpLoad,
    TimedRun,
    add_retries,
    run_agents,
    run_ours,
    time_in_turn,
)
from bench.mock_provider import run_mock_provider
from bench.stopwatch import TimeSpent, to_milliseconds
from shoal.core.budgets.usage import ModelCard
from shoal.core.clock import SystemClock
from shoal.core.ports import Model
from shoal.models.chat_api import ChatCompletionsApiModel
from shoal.models.chat_body import ChatCompletionsApiDialect
from shoal.models.messages_api import MessagesApiModel
from shoal.models.model_endpoint import ChunkHandler, ProviderHttpTimeouts
from shoal.models.model_errors import ModelRequestTarget

if TYPE_CHECKING:
    import httpcore
    import httpx

_OURS = "asyncio, ssl, shoal.models.messages_api, shoal.models.providers"
_HEADERS: dict[Any, Any] = {
    "User-Agent": "shoal",
    "Content-Type": "application/json",
    "Authorization": "Bearer bench",
    "x-api-key": "bench",
    "anthropic-version": "2023-06-01",
}


class _OtherEndpoint:
    """Replacement for a `ModelEndpoint`, with another HTTP client behind it."""

    def __init__(self, target: ModelRequestTarget) -> None:
        self.target = target
        self._clock = SystemClock()
        self._deadlines = ProviderHttpTimeouts()

    async def post_request(
        self, body: bytes, on_chunk: ChunkHandler, _count_events: Callable[[], int] | None = None
    ) -> None:
        async with self._clock.deadline(self._deadlines.total):
            await self._send_request(body, on_chunk)

    async def _send_request(self, body: bytes, on_chunk: ChunkHandler) -> None:
        raise NotImplementedError


class HttpxEndpoint(_OtherEndpoint):
    def __init__(self, target: ModelRequestTarget) -> None:
        import httpx

        super().__init__(target)
        timeout = httpx.Timeout(self._deadlines.gap, connect=self._deadlines.connect, pool=None)
        limits = httpx.Limits(max_connections=None)
        self._client: httpx.AsyncClient = httpx.AsyncClient(verify=False, timeout=timeout, limits=limits)

    async def _send_request(self, body: bytes, on_chunk: ChunkHandler) -> None:
        async with self._client.stream("POST", self.target.url, content=body, headers=_HEADERS) as response:
            assert response.status_code == 200, response.status_code
            async for chunk in response.aiter_bytes():
                await on_chunk(chunk)

    async def aclose(self) -> None:
        await self._client.aclose()


class HttpcoreEndpoint(_OtherEndpoint):
    def __init__(self, target: ModelRequestTarget) -> None:
        import httpcore

        super().__init__(target)
        self._pool: httpcore.AsyncConnectionPool = httpcore.AsyncConnectionPool(max_connections=1_000)
        self._limits: Any = {"timeout": {"connect": self._deadlines.connect, "read": self._deadlines.gap}}

    async def _send_request(self, body: bytes, on_chunk: ChunkHandler) -> None:
        request = self._pool.stream(
            "POST", self.target.url, content=body, headers=_HEADERS, extensions=self._limits
        )
        async with request as response:
            assert response.status == 200, response.status
            async for chunk in response.aiter_stream():
                await on_chunk(chunk)

    async def aclose(self) -> None:
        await self._pool.aclose()


def _create_model(kind: type[HttpxEndpoint | HttpcoreEndpoint], api: str, base: str) -> Model:
    card = ModelCard(id="mock", provider=APIS[api])
    path = "/v1/messages" if api == "messages" else "/v1/chat/completions"
    endpoint: Any = kind(ModelRequestTarget(provider=APIS[api], model="mock", url=base + path))
    model = (
        MessagesApiModel(card, endpoint)
        if api == "messages"
        else ChatCompletionsApiModel(card, endpoint, ChatCompletionsApiDialect())
    )
    return add_retries(model)


async def _run_with_client(
    kind: type[HttpxEndpoint | HttpcoreEndpoint], clients: int, api: str, load: HttpLoad
) -> TimeSpent:
    return await run_agents([_create_model(kind, api, load.base) for _ in range(clients)], load)


def measure_clients(size: HttpBenchSize) -> list[Section]:
    with run_mock_provider("messages") as base:
        figures = asyncio.run(_measure_figures(base, size))
    before, megabytes = measure_import(_OURS, size.repeats)
    imports, memory = [], []
    for name in ("httpcore", "httpx"):
        spent, peak = measure_import(f"{_OURS}, {name}", size.repeats)
        imports.append(
            Figure(name=f"imports, with {name}", ours=to_milliseconds(before), bare=to_milliseconds(spent))
        )
        memory.append(
            Figure(
                name=f"imports, with {name}", ours=TimeSpent(megabytes, megabytes), bare=TimeSpent(peak, peak)
            )
        )
    other = "the same agents and adapter over the client named"
    rounds = "ms per tool round of the Messages API, streaming, loopback; ms of imports"
    return [
        Section(name="Clients", unit=rounds, other=other, column="other", figures=[*figures, *imports]),
        Section(name="Clients", unit="MB", other=other, column="other", figures=memory, timed=False),
    ]


async def _measure_figures(base: str, size: HttpBenchSize) -> list[Figure]:
    single_load = HttpLoad(base=base, agents=1, rounds=size.rounds)
    slow_load = HttpLoad(base=base, agents=1, rounds=size.rounds, sends_events_apart=True)
    crowd_load = HttpLoad(base=base, agents=size.agents, rounds=size.agents_rounds, sends_events_apart=True)
    single_runs = {
        "httpx": partial(_run_with_client, HttpxEndpoint, 1),
        "httpcore": partial(_run_with_client, HttpcoreEndpoint, 1),
    }
    crowd_runs = {
        "one httpx": partial(_run_with_client, HttpxEndpoint, 1),
        f"httpx for {AGENTS_PER_CLIENT}": partial(
            _run_with_client, HttpxEndpoint, -(-size.agents // AGENTS_PER_CLIENT)
        ),
        "httpx for each": partial(_run_with_client, HttpxEndpoint, size.agents),
        "httpcore for each": partial(_run_with_client, HttpcoreEndpoint, size.agents),
    }
    return [
        *await _compare_clients("one agent", single_load, size.repeats, single_runs),
        *await _compare_clients("one agent, woken for each event", slow_load, size.repeats, single_runs),
        *await _compare_clients(f"{size.agents} agents", crowd_load, size.agents_repeats, crowd_runs),
    ]


async def _compare_clients(
    name: str, load: HttpLoad, repeats: int, others: Mapping[str, TimedRun]
) -> list[Figure]:
    ours, *theirs = await time_in_turn("messages", load, repeats, (run_ours, *others.values()))
    return [
        Figure(name=f"{name}, {client}", ours=ours, bare=spent)
        for client, spent in zip(others, theirs, strict=True)
    ]
