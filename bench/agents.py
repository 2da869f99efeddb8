"""Measures sub-agents: the cost of a thousand, the memory of an idle one, the time until ten report."""

from __future__ import annotations

import asyncio
import os
import sys
from statistics import median

from msgspec import Struct

import shoal
from bench.children import SOURCES, run
from bench.figures import Figure, Section
from bench.instant import Adder
from bench.over_http import Load, in_turn, ours, run_bare
from bench.provider import provider
from bench.subject import empty_home
from bench.timing import Spent, Stopwatch, best, ms
from shoal.core.events import AssistantSaid, Event, Finished, Notified
from shoal.core.ids import LEAD


class Size(Struct, frozen=True, kw_only=True):
    agents: int = 1_000
    rounds: int = 5
    in_a_row: int = 200
    idle: int = 2_000
    repeats: int = 5
    reporting: int = 10
    reporting_rounds: int = 5
    reporting_repeats: int = 7


class _Worked(Struct, frozen=True):
    spent: Spent
    megabytes: float


def measure(size: Size) -> list[Section]:
    return [*_crowd(size), _reporting(size)]


def _crowd(size: Size) -> list[Section]:
    seconds, starts, memory = [], [], []
    for where, persist, target, most in (("in memory", False, 0.8, 60.0), ("on disk", True, 1.5, None)):
        many, plain = _beside(("at-once", "bare-at-once"), size.agents, size.rounds, size.repeats, persist)
        name = f"{size.agents:,} agents of {size.rounds} rounds"
        promised = target * size.agents / 1_000
        seconds.append(Figure(name=f"{name}, {where}", ours=many.spent, bare=plain.spent, target=promised))
        memory.append(_held(f"{name}, {where}: peak, MB", many.megabytes, most, plain.megabytes))
        for rounds in (0, size.rounds):
            one, plain = _beside(("in-a-row", "bare-in-a-row"), size.in_a_row, rounds, size.repeats, persist)
            each, bare = (ms(worked.spent.per(size.in_a_row)) for worked in (one, plain))
            starts.append(Figure(name=f"one agent of {rounds} rounds, {where}", ours=each, bare=bare))
        kept, least = ("its history on disk", 6.0) if persist else ("with its history", None)
        memory.append(_held(f"an idle agent, {kept}, KB", _idle(size, persist=persist), least))
    other = "a loop over dicts in an asyncio task for each"
    return [
        Section(name="A crowd of agents", unit="s, the best of several", other=other, figures=seconds),
        Section(
            name="One agent after another",
            unit="ms for each, with the round of the lead that starts it",
            other=other,
            figures=starts,
        ),
        Section(name="Memory of agents", unit="MB and KB", other=other, figures=memory, timed=False),
    ]


def _held(name: str, held: float, target: float | None, bare: float | None = None) -> Figure:
    plain = None if bare is None else Spent(bare, bare)
    return Figure(name=name, ours=Spent(held, held), bare=plain, target=target)


def _beside(works: tuple[str, str], agents: int, rounds: int, repeats: int, persist: bool) -> list[_Worked]:
    """Measure each in separate processes, in turn: a peak is that of the whole process."""
    seen: dict[str, list[_Worked]] = {work: [] for work in works}
    for _ in range(repeats):
        for work in works:
            output, megabytes = _process(work, agents, rounds, persist=persist)
            cpu, wall = map(float, output.split())
            seen[work].append(_Worked(Spent(cpu, wall), megabytes))
    return [
        _Worked(best(each.spent for each in seen[work]), median(each.megabytes for each in seen[work]))
        for work in works
    ]


def _idle(size: Size, *, persist: bool) -> float:
    output, _ = _process("idle", size.idle, size.rounds, persist=persist)
    return float(output) / 1024


def _process(work: str, agents: int, rounds: int, *, persist: bool) -> tuple[str, float]:
    argv = [sys.executable, "-m", "bench.crowd", work, "--agents", str(agents), "--rounds", str(rounds)]
    ran = run([*argv, *(["--persist"] if persist else [])], env={**os.environ, "PYTHONPATH": SOURCES})
    if ran.status:
        raise RuntimeError(f"{' '.join(argv)} ended with {ran.status}:\n{ran.output}")
    return ran.output, ran.megabytes


class _Reported(Struct, frozen=True):
    spent: Spent
    requests: int
    """Requests of the lead, including the one that read the last report."""


def _reporting(size: Size) -> Section:
    with provider("messages") as base:
        seen, plain = asyncio.run(_reports(base, size))
    who = f"{size.reporting} agents of {size.reporting_rounds} rounds in the background"
    usual, most = (float(of(each.requests for each in seen)) for of in (median, max))
    spent = ms(best(each.spent for each in seen))
    return Section(
        name="Agents over HTTP that report",
        unit="ms from the reply that starts them until the lead has all reports; streaming, loopback",
        other="as many loops with httpx, until all are done",
        figures=[
            Figure(name=who, ours=spent, bare=plain, target=250.0, judged="wall"),
            Figure(name="  requests of the lead", ours=Spent(usual, usual), target=3.0),
            Figure(name="  requests of the lead, at most", ours=Spent(most, most)),
        ],
    )


async def _reports(base: str, size: Size) -> tuple[list[_Reported], Spent]:
    load = Load(base=base, agents=size.reporting, rounds=size.reporting_rounds)
    await _reported(load)
    seen = [await _reported(load) for _ in range(size.reporting_repeats)]
    (each_round,) = await in_turn("messages", load, size.reporting_repeats, (run_bare,))
    rounds = load.agents * load.rounds
    return seen, Spent(each_round.cpu * rounds, each_round.wall * rounds)


class _Watch:
    """Counts the lead's requests and the reports it receives."""

    def __init__(self) -> None:
        self.requests = self.reports = 0
        self.spent = Spent(0.0, 0.0)
        self._since: Stopwatch | None = None

    def see(self, event: Event) -> None:
        if event.agent != LEAD:
            return
        if isinstance(event, AssistantSaid):
            self.requests += 1
            self._since = self._since or Stopwatch()
        elif isinstance(event, Notified) and self._since is not None:
            self.reports += 1
            self.spent = self._since.read()


async def _reported(load: Load) -> _Reported:
    adder = Adder()
    watch = _Watch()
    with empty_home() as root:
        async with shoal.open(
            cwd=root, model=ours("messages", load.base), tools=[adder.tool], allowed_tools=["add"]
        ) as session:
            session.watch(watch.see)
            turn = session.run(f"AGENTS={load.agents} {load.prompt}")
            while turn is not None:
                async for event in turn:
                    assert not isinstance(event, Finished) or event.reason == "done", event.detail
                turn = await session.next_turn()
    assert adder.calls == load.agents * load.rounds, adder.calls
    assert watch.reports == load.agents, watch.reports
    return _Reported(watch.spent, watch.requests)
