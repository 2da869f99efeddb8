"""Measures rounds over HTTP on loopback, streaming: with one agent, and with many at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import TypeAlias

from msgspec import Struct

from bench import bare_http, bare_loop
from bench.bench_session import open_session, run_prompt, use_empty_home
from bench.figures import Figure, Section
from bench.instant_model import FINAL_TEXT, AddTool
from bench.mock_provider import run_mock_provider
from bench.stopwatch import Stopwatch, TimeSpent, compute_median, to_milliseconds
from shoal.core.budgets.usage import ModelCard
from shoal.core.clock import SystemClock
from shoal.core.ids import IdGenerator
from shoal.core.ports import Model
from shoal.models.providers import ProviderAccess, create_model
from shoal.models.rate_limiter import RateLimiterRegistry, RetryingModel

APIS = {"messages": "anthropic", "chat": "openai"}
_BARE_MODELS = {"messages": bare_http.create_messages_model, "chat": bare_http.create_chat_model}
AGENTS_PER_CLIENT = 10
"""Number of agents that share an httpx client: fewer cost memory, more cost time."""


class HttpBenchSize(Struct, frozen=True, kw_only=True):
    rounds: int = 20
    repeats: int = 5
    agents: int = 200
    agents_rounds: int = 5
    agents_repeats: int = 2


class HttpLoad(Struct, frozen=True, kw_only=True):
    """A number of concurrent agents, each with a number of rounds."""

    base: str
    agents: int
    rounds: int
    sends_events_apart: bool = False
    """True if time passes between the events of an answer."""

    @property
    def prompt(self) -> str:
        return f"ROUNDS={self.rounds} {'APART' if self.sends_events_apart else ''}"


TimedRun: TypeAlias = Callable[[str, HttpLoad], Awaitable[TimeSpent]]


def measure_http(size: HttpBenchSize) -> Section:
    figures = []
    for api in APIS:
        with run_mock_provider(api) as base:
            figures += asyncio.run(_measure_figures(api, base, size))
    return Section(
        name="Over HTTP",
        unit="ms per tool round, streaming, loopback",
        other=f"httpx in the bare loop, a client for {AGENTS_PER_CLIENT} agents",
        figures=figures,
    )


async def _measure_figures(api: str, base: str, size: HttpBenchSize) -> list[Figure]:
    single_load = HttpLoad(base=base, agents=1, rounds=size.rounds)
    slow_load = HttpLoad(base=base, agents=1, rounds=size.rounds, sends_events_apart=True)
    crowd_load = HttpLoad(base=base, agents=size.agents, rounds=size.agents_rounds, sends_events_apart=True)
    crowd_name = f"{api}, {size.agents} agents at once"
    crowd_figure = await _measure_figure(crowd_name, api, crowd_load, size.agents_repeats, 4.0)
    (shared_client_time,) = await time_in_turn(api, crowd_load, 1, (run_bare_shared,))
    return [
        await _measure_figure(f"{api}, one agent", api, single_load, size.repeats, 2.0),
        await _measure_figure(f"{api}, one agent, woken for each event", api, slow_load, size.repeats, None),
        crowd_figure,
        Figure(name=f"{crowd_name}; bare: one client", ours=crowd_figure.ours, bare=shared_client_time),
    ]


async def _measure_figure(name: str, api: str, load: HttpLoad, repeats: int, target: float | None) -> Figure:
    ours, plain = await time_in_turn(api, load, repeats, (run_ours, run_bare))
    return Figure(name=name, ours=ours, bare=plain, target=target)


async def time_in_turn(api: str, load: HttpLoad, repeats: int, runs: tuple[TimedRun, ...]) -> list[TimeSpent]:
    """Return the median of each, in ms per round; they run in turn, so that other load affects all."""
    warm_up = HttpLoad(base=load.base, agents=1, rounds=1)
    for run in runs:
        await run(api, warm_up)
    samples: list[list[TimeSpent]] = [[] for _ in runs]
    for _ in range(repeats):
        for run, run_samples in zip(runs, samples, strict=True):
            run_samples.append((await run(api, load)).divide_by(load.agents * load.rounds))
    return [to_milliseconds(compute_median(own)) for own in samples]


def create_retrying_model(api: str, base: str) -> Model:
    """Create the model as a session uses it, with retries."""
    clock = SystemClock()
    card = ModelCard(id="mock", provider=APIS[api])
    return add_retries(
        create_model(APIS[api], card, ProviderAccess(base_url=base, api_key="bench"), clock=clock)
    )


def add_retries(model: Model) -> Model:
    clock = SystemClock()
    return RetryingModel(
        model,
        RateLimiterRegistry(clock, IdGenerator(7).random).get_limiter(model.card.provider, "mock"),
        clock,
    )


async def run_ours(api: str, load: HttpLoad) -> TimeSpent:
    return await run_agents([create_retrying_model(api, load.base)], load)


async def run_agents(models: Sequence[Model], load: HttpLoad) -> TimeSpent:
    """Time agents of Shoal; the models are shared out evenly among them."""
    add_tool = AddTool()
    with use_empty_home() as root:
        async with AsyncExitStack() as stack:
            sessions = [
                await stack.enter_async_context(
                    open_session(models[number % len(models)], add_tool, root, persist=False)
                )
                for number in range(load.agents)
            ]
            watch = Stopwatch()
            async with asyncio.TaskGroup() as tasks:
                runs = [tasks.create_task(run_prompt(session, load.prompt)) for session in sessions]
            spent = watch.read_time()
    _check_answers([run.result() for run in runs], add_tool, load)
    return spent


async def run_bare(api: str, load: HttpLoad) -> TimeSpent:
    return await run_httpx(api, load, AGENTS_PER_CLIENT)


async def run_bare_shared(api: str, load: HttpLoad) -> TimeSpent:
    return await run_httpx(api, load, load.agents)


async def run_httpx(api: str, load: HttpLoad, agents_per_client: int) -> TimeSpent:
    import httpx

    add_tool = AddTool()
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
                    bare_loop.run_bare_loop(
                        load.prompt,
                        _BARE_MODELS[api](clients[number // agents_per_client], load.base),
                        {"add": add_tool.add},
                    )
                )
                for number in range(load.agents)
            ]
        spent = watch.read_time()
    _check_answers([run.result() for run in runs], add_tool, load)
    return spent


def _check_answers(texts: list[str], add_tool: AddTool, load: HttpLoad) -> None:
    assert set(texts) == {FINAL_TEXT}, set(texts)
    assert add_tool.calls == load.agents * load.rounds, add_tool.calls
