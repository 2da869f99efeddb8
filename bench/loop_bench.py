"""Measures the loop with a model that answers at once: the cost of one tool round."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from msgspec import Struct

from bench import bare_loop
from bench.bench_session import open_session, run_prompt, use_empty_home
from bench.figures import Figure, Section
from bench.instant_model import FINAL_TEXT, AddTool, InstantModel
from bench.stopwatch import Stopwatch, TimeSpent, compute_median

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class LoopBenchSize(Struct, frozen=True, kw_only=True):
    short: int = 50
    long: int = 2_000
    repeats: int = 15
    long_repeats: int = 5


def measure_loop(size: LoopBenchSize) -> Section:
    return asyncio.run(_measure_section(size))


async def _measure_section(size: LoopBenchSize) -> Section:
    with use_empty_home() as root:
        figures = []
        for place, persist, target in (("in memory", False, 80.0), ("on disk", True, 150.0)):
            short = await _measure_in_turn(root, size.short, size.repeats, persist=persist)
            figures.append(_make_figure(f"{place}, {size.short:,} rounds", short, target))
            long = await _measure_in_turn(root, size.long, size.long_repeats, persist=persist)
            figures.append(_make_figure(f"{place}, {size.long:,} rounds", long, target))
            growth = [TimeSpent(b.cpu / a.cpu, b.wall / a.wall) for a, b in zip(short, long, strict=True)]
            figures.append(Figure(name="  growth, as a factor", ours=growth[0], bare=growth[1], target=1.1))
    return Section(
        name="The loop",
        unit="µs per tool round, the model answers at once; on disk are transcript and journal",
        other="a loop over dicts",
        figures=figures,
    )


def _make_figure(name: str, spent: tuple[TimeSpent, TimeSpent], target: float) -> Figure:
    ours, plain = (TimeSpent(s.cpu * 1e6, s.wall * 1e6) for s in spent)
    return Figure(name=name, ours=ours, bare=plain, target=target)


async def _measure_in_turn(
    root: Path, rounds: int, repeats: int, *, persist: bool
) -> tuple[TimeSpent, TimeSpent]:
    """Run ours and the bare loop in turn, so that other load affects both."""
    ours: list[TimeSpent] = []
    plain: list[TimeSpent] = []
    for repeat in range(repeats + 1):
        for samples, run in ((ours, _time_shoal), (plain, _time_bare)):
            spent = await run(root, rounds, persist)
            if repeat:  # the first one warms up
                samples.append(spent.divide_by(rounds))
    return compute_median(ours), compute_median(plain)


async def _time_shoal(root: Path, rounds: int, persist: bool) -> TimeSpent:
    add_tool = AddTool()
    async with open_session(InstantModel(rounds), add_tool, root, persist=persist) as session:
        watch = Stopwatch()
        text = await run_prompt(session, "go")
        spent = watch.read_time()
    assert (text, add_tool.calls) == (FINAL_TEXT, rounds), (text, add_tool.calls)
    return spent


async def _time_bare(root: Path, rounds: int, persist: bool) -> TimeSpent:
    add_tool = AddTool()
    file = os.open(root / "bare.jsonl", _FLAGS) if persist else -1
    watch = Stopwatch()
    text = await bare_loop.run_bare_loop(
        "go", bare_loop.create_instant_model(rounds), {"add": add_tool.add}, file
    )
    spent = watch.read_time()
    if persist:
        os.close(file)
    assert (text, add_tool.calls) == (FINAL_TEXT, rounds), (text, add_tool.calls)
    return spent
