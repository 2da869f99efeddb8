"""Agents and the files they share, disturbed at random: exit 1 where anything was lost, doubled or left over.

Without --only each kind of chaos has its part of the time. A round that went wrong prints the line that plays
it again.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct
from tests.chaos import completions, endings, rounds
from tests.chaos.runner import ALL, MAIL, Size, report, run
from tests.chaos.troubles import TROUBLES
from tests.chaos.works import WORKS

AT_ONCE = 10
"""Members of a team in each state; more members need more teams."""
KINDS = ("records", "mail", "ends", "endings", "teams", "rounds")
SMALL = Size(processes=16, operations=150)


class Row(Struct, frozen=True):
    """Result of one kind of chaos."""

    name: str
    did: str
    faults: int


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--seconds", type=float, default=540, help="after which nothing more is begun")
    parser.add_argument("--seed", type=int, help="of the first round; without it one is thrown and printed")
    parser.add_argument("--rounds", type=int, help="of teams and sub-agents; members in each state to end")
    many: dict[str, Any] = {"action": "append"}
    parser.add_argument("--trouble", choices=list(TROUBLES), **many, help="of the rounds; all without it")
    parser.add_argument("--work", choices=list(WORKS), **many, help="of the rounds")
    parser.add_argument("--backend", choices=rounds.BACKENDS, **many, help="where teammates run")
    parser.add_argument("--keep", type=Path, help="where the rounds take place, and their files stay")
    parser.add_argument("--processes", type=int, default=50, help="on one record")
    parser.add_argument("--operations", type=int, default=1_000, help="of each such process")
    parser.add_argument("--pause", type=float, default=0.1, help="seconds between kills of them")
    parser.add_argument("--agents", type=int, default=10_000, help="whose ends a lead is to hear of")
    parser.add_argument("--kills", type=int, default=10_000, help="of that lead, at most")
    return parser.parse_args()


def main() -> None:
    given = parsed()
    # Ended from outside, it still ends its processes and removes its files.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory() as made:
        place = Path(made).resolve()
        rows = everything(place, given) if given.only is None else ONLY[given.only](place, given)
    width = max(len(row.name) for row in rows) if rows else 0
    for row in rows:
        say(f"{row.name:<{width}}  {row.did:<60}  {row.faults} faults")
    sys.exit(any(row.faults for row in rows))


def everything(place: Path, given: argparse.Namespace) -> list[Row]:
    """Run all kinds; those without a fixed size share the remaining time."""
    until = time.monotonic() + given.seconds
    rows = [
        *recorded(place / "records", SMALL),
        *ended(place / "ends", agents=200, kills=20),
        *shut_down(place / "endings", 10, given),
    ]
    given.seconds = until - time.monotonic()
    return [*rows, *disturbed(place / "rounds", given)]


def recorded(place: Path, size: Size) -> list[Row]:
    place.mkdir(parents=True, exist_ok=True)
    outcome = run(place / "home", size, say)
    report(outcome)
    did = f"{outcome.operations:,} operations, {outcome.kills:,} kills"
    return [Row("one record, many processes", did, len(outcome.faults))]


def ended(place: Path, *, agents: int, kills: int) -> list[Row]:
    tally = completions.run(place, agents, say, kills=kills)
    say(
        f"{tally.started} agents, {tally.ended} ends, {tally.told} told, the lead killed {tally.killed} "
        f"times, {len(tally.faults)} faults ({tally.seconds:.0f} s)"
    )
    for fault in tally.faults[:20]:
        say(f"  {fault}")
    return [Row("ends of agents", f"{tally.ended} ends, {tally.killed} kills", len(tally.faults))]


def shut_down(place: Path, each: int, given: argparse.Namespace) -> list[Row]:
    faults, gone, slowest = 0, 0, 0.0
    backend = given.backend[0] if given.backend else "in-process"
    for at in range(0, each, AT_ONCE):
        tally = asyncio.run(endings.run(place / str(at), min(AT_ONCE, each - at), backend))
        faults, gone = faults + len(tally.faults), gone + tally.ended
        slowest = max(slowest, tally.slowest)
        for fault in tally.faults[:20]:
            say(f"  {fault}")
    say(f"{gone} members were shut down, the slowest in {slowest:.1f} s, {faults} faults")
    return [Row("members asked to end", f"{gone} members, the slowest in {slowest:.1f} s", faults)]


def disturbed(place: Path, given: argparse.Namespace) -> list[Row]:
    seed = random.SystemRandom().randrange(1_000_000) if given.seed is None else given.seed
    say(f"the first seed is {seed}")
    planned = rounds.plans(
        seed,
        troubles=given.trouble or list(TROUBLES),
        works=given.work or list(WORKS),
        backends=given.backend or rounds.BACKENDS,
    )
    tallies = rounds.run(
        given.keep or place,
        planned,
        say,
        rounds=given.rounds or 1_000_000,
        seconds=given.seconds,
        keep=given.keep is not None,
    )
    for plan in (tally.plan for tally in tallies if tally.faults):
        again = f"--trouble {plan.trouble} --work {plan.work} --backend {plan.backend} --keep DIRECTORY"
        say(f"again: python -m tests.chaos --only rounds --rounds 1 --seed {plan.seed} {again}")
    return [
        Row(
            name,
            f"{len(of)} rounds, struck {sum(each.struck for each in of)} times, "
            f"resumed {sum(each.resumed for each in of)} times",
            sum(len(each.faults) for each in of),
        )
        for name in sorted({str(tally.plan) for tally in tallies})
        if (of := [tally for tally in tallies if str(tally.plan) == name])
    ]


def _records(place: Path, given: argparse.Namespace, kinds: tuple[str, ...]) -> list[Row]:
    size = Size(processes=given.processes, operations=given.operations, pause=given.pause, kinds=kinds)
    return recorded(place, size)


def _teams(place: Path, given: argparse.Namespace) -> list[Row]:
    given.trouble, given.work = ["kill"], ["team"]
    given.backend, given.seed = given.backend or ["in-process"], 1 if given.seed is None else given.seed
    return disturbed(place, given)


ONLY: dict[str, Callable[[Path, argparse.Namespace], list[Row]]] = {
    "records": lambda place, given: _records(place, given, ALL),
    "mail": lambda place, given: _records(place, given, MAIL),
    "ends": lambda place, given: ended(place, agents=given.agents, kills=given.kills),
    "endings": lambda place, given: shut_down(place, given.rounds or 100, given),
    "teams": _teams,
    "rounds": disturbed,
}

main()
