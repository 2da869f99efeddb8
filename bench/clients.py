"""Compares our HTTP client with httpx and httpcore: same agents, adapters and provider, another client.

The figures of docs/decisions/0005-an-http-client-of-our-own.md come from here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from bench.children import import_cost
from bench.figures import Figure, Section
from bench.over_http import AGENTS_PER_CLIENT, APIS, Load, Run, Size, in_turn, patient, run_agents, run_ours
from bench.provider import provider
from bench.timing import Spent, ms
from shoal.core.clock import SystemClock
from shoal.core.ports import Model
from shoal.core.usage import ModelCard
from shoal.models.chat_api import ChatModel
from shoal.models.chat_body import Dialect
from shoal.models.faults import Asked
from shoal.models.http import Deadlines, Take
from shoal.models.messages_api import MessagesModel

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


class _Foreign:
    """Replacement for a `ModelEndpoint`, with another HTTP client behind it."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self._clock = SystemClock()
        self._deadlines = Deadlines()

    async def ask(self, body: bytes, take: Take) -> None:
        async with self._clock.deadline(self._deadlines.total):
            await self._exchange(body, take)

    async def _exchange(self, body: bytes, take: Take) -> None:
        raise NotImplementedError


class HttpxEndpoint(_Foreign):
    def __init__(self, asked: Asked) -> None:
        import httpx

        super().__init__(asked)
        timeout = httpx.Timeout(self._deadlines.gap, connect=self._deadlines.connect, pool=None)
        limits = httpx.Limits(max_connections=None)
        self._client: httpx.AsyncClient = httpx.AsyncClient(verify=False, timeout=timeout, limits=limits)

    async def _exchange(self, body: bytes, take: Take) -> None:
        async with self._client.stream("POST", self.asked.url, content=body, headers=_HEADERS) as response:
            assert response.status_code == 200, response.status_code
            async for piece in response.aiter_bytes():
                await take(piece)

    async def aclose(self) -> None:
        await self._client.aclose()


class HttpcoreEndpoint(_Foreign):
    def __init__(self, asked: Asked) -> None:
        import httpcore

        super().__init__(asked)
        self._pool: httpcore.AsyncConnectionPool = httpcore.AsyncConnectionPool(max_connections=1_000)
        self._limits: Any = {"timeout": {"connect": self._deadlines.connect, "read": self._deadlines.gap}}

    async def _exchange(self, body: bytes, take: Take) -> None:
        asked = self._pool.stream(
            "POST", self.asked.url, content=body, headers=_HEADERS, extensions=self._limits
        )
        async with asked as response:
            assert response.status == 200, response.status
            async for piece in response.aiter_stream():
                await take(piece)

    async def aclose(self) -> None:
        await self._pool.aclose()


def _model(kind: type[HttpxEndpoint | HttpcoreEndpoint], api: str, base: str) -> Model:
    card = ModelCard(id="mock", provider=APIS[api])
    path = "/v1/messages" if api == "messages" else "/v1/chat/completions"
    endpoint: Any = kind(Asked(provider=APIS[api], model="mock", url=base + path))
    made = MessagesModel(card, endpoint) if api == "messages" else ChatModel(card, endpoint, Dialect())
    return patient(made)


async def _run(kind: type[HttpxEndpoint | HttpcoreEndpoint], clients: int, api: str, load: Load) -> Spent:
    return await run_agents([_model(kind, api, load.base) for _ in range(clients)], load)


def measure(size: Size) -> list[Section]:
    with provider("messages") as base:
        figures = asyncio.run(_figures(base, size))
    before, held = import_cost(_OURS, size.repeats)
    imports, memory = [], []
    for name in ("httpcore", "httpx"):
        spent, peak = import_cost(f"{_OURS}, {name}", size.repeats)
        imports.append(Figure(name=f"imports, with {name}", ours=ms(before), bare=ms(spent)))
        memory.append(Figure(name=f"imports, with {name}", ours=Spent(held, held), bare=Spent(peak, peak)))
    other = "the same agents and adapter over the client named"
    rounds = "ms per tool round of the Messages API, streaming, loopback; ms of imports"
    return [
        Section(name="Clients", unit=rounds, other=other, column="other", figures=[*figures, *imports]),
        Section(name="Clients", unit="MB", other=other, column="other", figures=memory, timed=False),
    ]


async def _figures(base: str, size: Size) -> list[Figure]:
    one = Load(base=base, agents=1, rounds=size.rounds)
    slow = Load(base=base, agents=1, rounds=size.rounds, apart=True)
    many = Load(base=base, agents=size.agents, rounds=size.agents_rounds, apart=True)
    single = {"httpx": partial(_run, HttpxEndpoint, 1), "httpcore": partial(_run, HttpcoreEndpoint, 1)}
    several = {
        "one httpx": partial(_run, HttpxEndpoint, 1),
        f"httpx for {AGENTS_PER_CLIENT}": partial(_run, HttpxEndpoint, -(-size.agents // AGENTS_PER_CLIENT)),
        "httpx for each": partial(_run, HttpxEndpoint, size.agents),
        "httpcore for each": partial(_run, HttpcoreEndpoint, size.agents),
    }
    return [
        *await _compared("one agent", one, size.repeats, single),
        *await _compared("one agent, woken for each event", slow, size.repeats, single),
        *await _compared(f"{size.agents} agents", many, size.agents_repeats, several),
    ]


async def _compared(name: str, load: Load, repeats: int, others: Mapping[str, Run]) -> list[Figure]:
    ours, *theirs = await in_turn("messages", load, repeats, (run_ours, *others.values()))
    return [
        Figure(name=f"{name}, {client}", ours=ours, bare=spent)
        for client, spent in zip(others, theirs, strict=True)
    ]
