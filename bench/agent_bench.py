"""Measures sub-agents: the cost of a thousand, the memory of an idle one, the time until ten report."""

from __future__ import annotations

import asyncio
import os
import sys
from statistics import median

from msgspec import Struct

import shoal
from bench.bench_session import use_empty_home
from bench.child_process import SOURCES, run_child
from bench.figures import Figure, Section
from bench.http_bench import HttpLoad, create_retrying_model, run_bare, time_in_turn
from bench.instant_model import AddTool
from bench.mock_provider import run_mock_provider
from bench.stopwatch import Stopwatch, TimeSpent, find_minimum, to_milliseconds
from shoal.core.events import AssistantReplied, Event, NotificationDelivered, RunFinished
from shoal.core.ids import LEAD_ID


class AgentBenchSize(Struct, frozen=True, kw_only=True):
    agents: int = 1_000
    rounds: int = 5
    in_a_row: int = 200
    idle: int = 2_000
    repeats: int = 5
    reporting: int = 10
    reporting_rounds: int = 5
    reporting_repeats: int = 7


class _ProcessCost(Struct, frozen=True):
    spent: TimeSpent
    megabytes: float


def measure_agents(size: AgentBenchSize) -> list[Section]:
    return [*_measure_crowd(size), *measure_workflow(size), _measure_reporting(size)]


def measure_workflow(size: AgentBenchSize) -> list[Section]:
    """Compare agents as steps of a workflow with the same agents without one, in processes in turn."""
    workflow, plain = _measure_in_turn(("workflow", "map"), size.agents, 1, size.repeats, persist=True)
    name = f"{size.agents:,} agents of 1 round, on disk"
    relative = f"{size.agents:,} agents, relative to"
    other = "the same agents with session.map"
    return [
        Section(
            name="Agents of a workflow",
            unit="s, the best of several",
            other=other,
            column="map",
            figures=[Figure(name=name, ours=workflow.spent, bare=plain.spent, max_ratio=1.3)],
        ),
        Section(
            name="Memory of a workflow",
            unit="MB",
            other=other,
            column="map",
            figures=[_make_memory_figure(f"{name}: peak", workflow.megabytes, 90.0, plain.megabytes)],
            timed=False,
        ),
        Section(
            name="Time of a workflow",
            unit="times",
            other=other,
            figures=[_make_memory_figure(f"{relative} session.map", _divide(workflow, plain), 1.3)],
            timed=False,
        ),
        _measure_quota(size),
    ]


def _divide(workflow: _ProcessCost, plain: _ProcessCost) -> float:
    return workflow.spent.cpu / plain.spent.cpu


def _measure_quota(size: AgentBenchSize) -> Section:
    """Count agents of a workflow that start after the provider refused a request for quota."""
    output, _ = _run_process("quota", size.agents, 0, persist=True)
    name = f"starts after a quota error, of {size.agents:,}"
    return Section(
        name="Quota of a workflow",
        unit="agents",
        other="none",
        figures=[_make_memory_figure(name, float(output), 0.0)],
        timed=False,
    )


def _measure_crowd(size: AgentBenchSize) -> list[Section]:
    seconds, starts, memory = [], [], []
    for place, persist, target, memory_target in (
        ("in memory", False, 0.8, 60.0),
        ("on disk", True, 1.5, None),
    ):
        crowd, plain = _measure_in_turn(
            ("at-once", "bare-at-once"), size.agents, size.rounds, size.repeats, persist
        )
        name = f"{size.agents:,} agents of {size.rounds} rounds"
        scaled_target = target * size.agents / 1_000
        seconds.append(
            Figure(name=f"{name}, {place}", ours=crowd.spent, bare=plain.spent, target=scaled_target)
        )
        memory.append(
            _make_memory_figure(f"{name}, {place}: peak, MB", crowd.megabytes, memory_target, plain.megabytes)
        )
        for rounds in (0, size.rounds):
            single, plain = _measure_in_turn(
                ("in-a-row", "bare-in-a-row"), size.in_a_row, rounds, size.repeats, persist
            )
            each, bare = (
                to_milliseconds(worked.spent.divide_by(size.in_a_row)) for worked in (single, plain)
            )
            starts.append(Figure(name=f"one agent of {rounds} rounds, {place}", ours=each, bare=bare))
        history_text, idle_target = ("its history on disk", 6.0) if persist else ("with its history", None)
        memory.append(
            _make_memory_figure(
                f"an idle agent, {history_text}, KB", _measure_idle(size, persist=persist), idle_target
            )
        )
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


def _make_memory_figure(
    name: str, megabytes: float, target: float | None, bare: float | None = None
) -> Figure:
    plain = None if bare is None else TimeSpent(bare, bare)
    return Figure(name=name, ours=TimeSpent(megabytes, megabytes), bare=plain, target=target)


def _measure_in_turn(
    works: tuple[str, str], agents: int, rounds: int, repeats: int, persist: bool
) -> list[_ProcessCost]:
    """Measure each in separate processes, in turn: a peak is that of the whole process."""
    costs: dict[str, list[_ProcessCost]] = {work: [] for work in works}
    for _ in range(repeats):
        for work in works:
            output, megabytes = _run_process(work, agents, rounds, persist=persist)
            cpu, wall = map(float, output.split())
            costs[work].append(_ProcessCost(TimeSpent(cpu, wall), megabytes))
    return [
        _ProcessCost(
            find_minimum(each.spent for each in costs[work]), median(each.megabytes for each in costs[work])
        )
        for work in works
    ]


def _measure_idle(size: AgentBenchSize, *, persist: bool) -> float:
    output, _ = _run_process("idle", size.idle, size.rounds, persist=persist)
    return float(output) / 1024


def _run_process(work: str, agents: int, rounds: int, *, persist: bool) -> tuple[str, float]:
    argv = [sys.executable, "-m", "bench.crowd", work, "--agents", str(agents), "--rounds", str(rounds)]
    result = run_child(
        [*argv, *(["--persist"] if persist else [])], env={**os.environ, "PYTHONPATH": SOURCES}
    )
    if result.status:
        raise RuntimeError(f"{' '.join(argv)} ended with {result.status}:\n{result.output}")
    return result.output, result.megabytes


class _ReportTiming(Struct, frozen=True):
    spent: TimeSpent
    requests: int
    """Requests of the lead, including the one that read the last report."""


def _measure_reporting(size: AgentBenchSize) -> Section:
    with run_mock_provider("messages") as base:
        timings, plain = asyncio.run(_time_reports(base, size))
    name = f"{size.reporting} agents of {size.reporting_rounds} rounds in the background"
    usual_requests, max_requests = (float(of(each.requests for each in timings)) for of in (median, max))
    spent = to_milliseconds(find_minimum(each.spent for each in timings))
    return Section(
        name="Agents over HTTP that report",
        unit="ms from the reply that starts them until the lead has all reports; streaming, loopback",
        other="as many loops with httpx, until all are done",
        figures=[
            Figure(name=name, ours=spent, bare=plain, target=250.0, judged="wall"),
            Figure(name="  requests of the lead", ours=TimeSpent(usual_requests, usual_requests), target=3.0),
            Figure(name="  requests of the lead, at most", ours=TimeSpent(max_requests, max_requests)),
        ],
    )


async def _time_reports(base: str, size: AgentBenchSize) -> tuple[list[_ReportTiming], TimeSpent]:
    load = HttpLoad(base=base, agents=size.reporting, rounds=size.reporting_rounds)
    await _time_one_report(load)
    timings = [await _time_one_report(load) for _ in range(size.reporting_repeats)]
    (each_round,) = await time_in_turn("messages", load, size.reporting_repeats, (run_bare,))
    rounds = load.agents * load.rounds
    return timings, TimeSpent(each_round.cpu * rounds, each_round.wall * rounds)


class _LeadWatch:
    """Counts the lead's requests and the reports it receives."""

    def __init__(self) -> None:
        self.requests = self.reports = 0
        self.spent = TimeSpent(0.0, 0.0)
        self._since: Stopwatch | None = None

    def record_event(self, event: Event) -> None:
        if event.agent != LEAD_ID:
            return
        if isinstance(event, AssistantReplied):
            self.requests += 1
            self._since = self._since or Stopwatch()
        elif isinstance(event, NotificationDelivered) and self._since is not None:
            self.reports += 1
            self.spent = self._since.read_time()


async def _time_one_report(load: HttpLoad) -> _ReportTiming:
    adder = AddTool()
    watch = _LeadWatch()
    with use_empty_home() as root:
        async with shoal.open(
            cwd=root,
            model=create_retrying_model("messages", load.base),
            tools=[adder.tool],
            allowed_tools=["add"],
        ) as session:
            session.subscribe(watch.record_event)
            turn = session.run(f"AGENTS={load.agents} {load.prompt}")
            while turn is not None:
                async for event in turn:
                    assert not isinstance(event, RunFinished) or event.reason == "done", event.detail
                turn = await session.next_turn()
    assert adder.calls == load.agents * load.rounds, adder.calls
    assert watch.reports == load.agents, watch.reports
    return _ReportTiming(watch.spent, watch.requests)
