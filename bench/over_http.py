"""Measures rounds over HTTP on loopback, streaming: with one agent, and with many at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import TypeAlias

from msgspec import Struct

from bench import bare, bare_http
from bench.figures import Figure, Section
from bench.instant import FINAL, Adder
from bench.provider import provider
from bench.subject import empty_home, opened, text_of
from bench.timing import Spent, Stopwatch, middle, ms
from shoal.core.clock import SystemClock
from shoal.core.ids import Ids
from shoal.core.ports import Model
from shoal.core.usage import ModelCard
from shoal.models.limiter import Limiters, PatientModel
from shoal.models.providers import Access, make_model

APIS = {"messages": "anthropic", "chat": "openai"}
_BARE = {"messages": bare_http.messages, "chat": bare_http.chat}
AGENTS_PER_CLIENT = 10
"""Number of agents that share an httpx client: fewer cost memory, more cost time."""


class Size(Struct, frozen=True, kw_only=True):
    rounds: int = 20
    repeats: int = 5
    agents: int = 200
    agents_rounds: int = 5
    agents_repeats: int = 2


class Load(Struct, frozen=True, kw_only=True):
    """A number of concurrent agents, each with a number of rounds."""

    base: str
    agents: int
    rounds: int
    apart: bool = False
    """True if time passes between the events of an answer."""

    @property
    def prompt(self) -> str:
        return f"ROUNDS={self.rounds} {'APART' if self.apart else ''}"


Run: TypeAlias = Callable[[str, Load], Awaitable[Spent]]


def measure(size: Size) -> Section:
    figures = []
    for api in APIS:
        with provider(api) as base:
            figures += asyncio.run(_figures(api, base, size))
    return Section(
        name="Over HTTP",
        unit="ms per tool round, streaming, loopback",
        other=f"httpx in the bare loop, a client for {AGENTS_PER_CLIENT} agents",
        figures=figures,
    )


async def _figures(api: str, base: str, size: Size) -> list[Figure]:
    one = Load(base=base, agents=1, rounds=size.rounds)
    slow = Load(base=base, agents=1, rounds=size.rounds, apart=True)
    many = Load(base=base, agents=size.agents, rounds=size.agents_rounds, apart=True)
    crowd = f"{api}, {size.agents} agents at once"
    together = await _figure(crowd, api, many, size.agents_repeats, 4.0)
    (shared,) = await in_turn(api, many, 1, (run_bare_shared,))
    return [
        await _figure(f"{api}, one agent", api, one, size.repeats, 2.0),
        await _figure(f"{api}, one agent, woken for each event", api, slow, size.repeats, None),
        together,
        Figure(name=f"{crowd}; bare: one client", ours=together.ours, bare=shared),
    ]


async def _figure(name: str, api: str, load: Load, repeats: int, target: float | None) -> Figure:
    ours, plain = await in_turn(api, load, repeats, (run_ours, run_bare))
    return Figure(name=name, ours=ours, bare=plain, target=target)


async def in_turn(api: str, load: Load, repeats: int, runs: tuple[Run, ...]) -> list[Spent]:
    """Return the median of each, in ms per round; they run in turn, so that other load affects all."""
    warm = Load(base=load.base, agents=1, rounds=1)
    for run in runs:
        await run(api, warm)
    samples: list[list[Spent]] = [[] for _ in runs]
    for _ in range(repeats):
        for run, own in zip(runs, samples, strict=True):
            own.append((await run(api, load)).per(load.agents * load.rounds))
    return [ms(middle(own)) for own in samples]


def ours(api: str, base: str) -> Model:
    """Create the model as a session uses it, with retries."""
    clock = SystemClock()
    card = ModelCard(id="mock", provider=APIS[api])
    return patient(make_model(APIS[api], card, Access(base_url=base, api_key="bench"), clock=clock))


def patient(model: Model) -> Model:
    clock = SystemClock()
    return PatientModel(model, Limiters(clock, Ids(7).random).of(model.card.provider, "mock"), clock)


async def run_ours(api: str, load: Load) -> Spent:
    return await run_agents([ours(api, load.base)], load)


async def run_agents(models: Sequence[Model], load: Load) -> Spent:
    """Time agents of Shoal; the models are shared out evenly among them."""
    adder = Adder()
    with empty_home() as root:
        async with AsyncExitStack() as stack:
            sessions = [
                await stack.enter_async_context(
                    opened(models[number % len(models)], adder, root, persist=False)
                )
                for number in range(load.agents)
            ]
            watch = Stopwatch()
            async with asyncio.TaskGroup() as tasks:
                runs = [tasks.create_task(text_of(session, load.prompt)) for session in sessions]
            spent = watch.read()
    _check([run.result() for run in runs], adder, load)
    return spent


async def run_bare(api: str, load: Load) -> Spent:
    return await run_httpx(api, load, AGENTS_PER_CLIENT)


async def run_bare_shared(api: str, load: Load) -> Spent:
    return await run_httpx(api, load, load.agents)


async def run_httpx(api: str, load: Load, agents_per_client: int) -> Spent:
    import httpx

    adder = Adder()
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(
                httpx.AsyncClient(verify=False, timeout=120, limits=httpx.Limits(max_connections=None))
            )
            for _ in range(0, load.agents, agents_per_client)
        ]
        watch = Stopwatch()
        async with asyncio.TaskGroup() as tasks:
            runs = [
                tasks.create_task(
                    bare.loop(
                        load.prompt,
                        _BARE[api](clients[number // agents_per_client], load.base),
                        {"add": adder.add},
                    )
                )
                for number in range(load.agents)
            ]
        spent = watch.read()
    _check([run.result() for run in runs], adder, load)
    return spent


def _check(texts: list[str], adder: Adder, load: Load) -> None:
    assert set(texts) == {FINAL}, set(texts)
    assert adder.calls == load.agents * load.rounds, adder.calls
