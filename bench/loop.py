"""Measures the loop with a model that answers at once: the cost of one tool round."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from msgspec import Struct

from bench import bare
from bench.figures import Figure, Section
from bench.instant import FINAL, Adder, InstantModel
from bench.subject import empty_home, opened, text_of
from bench.timing import Spent, Stopwatch, middle

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Size(Struct, frozen=True, kw_only=True):
    short: int = 50
    long: int = 2_000
    repeats: int = 15
    long_repeats: int = 5


def measure(size: Size) -> Section:
    return asyncio.run(_measure(size))


async def _measure(size: Size) -> Section:
    with empty_home() as root:
        figures = []
        for where, persist, target in (("in memory", False, 80.0), ("on disk", True, 150.0)):
            short = await _beside(root, size.short, size.repeats, persist=persist)
            figures.append(_figure(f"{where}, {size.short:,} rounds", short, target))
            long = await _beside(root, size.long, size.long_repeats, persist=persist)
            figures.append(_figure(f"{where}, {size.long:,} rounds", long, target))
            growth = [Spent(b.cpu / a.cpu, b.wall / a.wall) for a, b in zip(short, long, strict=True)]
            figures.append(Figure(name="  growth, as a factor", ours=growth[0], bare=growth[1], target=1.1))
    return Section(
        name="The loop",
        unit="µs per tool round, the model answers at once; on disk are transcript and journal",
        other="a loop over dicts",
        figures=figures,
    )


def _figure(name: str, spent: tuple[Spent, Spent], target: float) -> Figure:
    ours, plain = (Spent(s.cpu * 1e6, s.wall * 1e6) for s in spent)
    return Figure(name=name, ours=ours, bare=plain, target=target)


async def _beside(root: Path, rounds: int, repeats: int, *, persist: bool) -> tuple[Spent, Spent]:
    """Run ours and the bare loop in turn, so that other load affects both."""
    ours: list[Spent] = []
    plain: list[Spent] = []
    for repeat in range(repeats + 1):
        for samples, run in ((ours, _ours), (plain, _bare)):
            spent = await run(root, rounds, persist)
            if repeat:  # the first one warms up
                samples.append(spent.per(rounds))
    return middle(ours), middle(plain)


async def _ours(root: Path, rounds: int, persist: bool) -> Spent:
    adder = Adder()
    async with opened(InstantModel(rounds), adder, root, persist=persist) as session:
        watch = Stopwatch()
        text = await text_of(session, "go")
        spent = watch.read()
    assert (text, adder.calls) == (FINAL, rounds), (text, adder.calls)
    return spent


async def _bare(root: Path, rounds: int, persist: bool) -> Spent:
    adder = Adder()
    file = os.open(root / "bare.jsonl", _FLAGS) if persist else -1
    watch = Stopwatch()
    text = await bare.loop("go", bare.instant(rounds), {"add": adder.add}, file)
    spent = watch.read()
    if persist:
        os.close(file)
    assert (text, adder.calls) == (FINAL, rounds), (text, adder.calls)
    return spent
