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
from tests.chaos import member_shutdowns, result_delivery, rounds
from tests.chaos.store_chaos import (
    ALL_OPERATIONS,
    MAIL_OPERATIONS,
    StoreChaosSize,
    print_result,
    run_store_chaos,
)
from tests.chaos.troubles import TROUBLES
from tests.chaos.workloads import WORKLOADS

TEAM_SIZE = 10
"""Members of a team in each state; more members need more teams."""
KINDS = ("records", "mail", "ends", "endings", "teams", "rounds")
SMALL = StoreChaosSize(processes=16, operations=150)


class ChaosRow(Struct, frozen=True):
    """Result of one kind of chaos."""

    name: str
    work_done: str
    faults: int


def print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--seconds", type=float, default=540, help="after which nothing more is begun")
    parser.add_argument("--seed", type=int, help="of the first round; without it one is thrown and printed")
    parser.add_argument("--rounds", type=int, help="of teams and sub-agents; members in each state to end")
    many: dict[str, Any] = {"action": "append"}
    parser.add_argument("--trouble", choices=list(TROUBLES), **many, help="of the rounds; all without it")
    parser.add_argument("--work", choices=list(WORKLOADS), **many, help="of the rounds")
    parser.add_argument("--backend", choices=rounds.BACKENDS, **many, help="where teammates run")
    parser.add_argument("--keep", type=Path, help="where the rounds take place, and their files stay")
    parser.add_argument("--processes", type=int, default=50, help="on one record")
    parser.add_argument("--operations", type=int, default=1_000, help="of each such process")
    parser.add_argument("--pause", type=float, default=0.1, help="seconds between kills of them")
    parser.add_argument("--agents", type=int, default=10_000, help="whose ends a lead is to hear of")
    parser.add_argument("--kills", type=int, default=10_000, help="of that lead, at most")
    return parser.parse_args()


def main() -> None:
    given = parse_arguments()
    # Ended from outside, it still ends its processes and removes its files.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory() as made:
        place = Path(made).resolve()
        rows = run_all(place, given) if given.only is None else ONLY[given.only](place, given)
    width = max(len(row.name) for row in rows) if rows else 0
    for row in rows:
        print_line(f"{row.name:<{width}}  {row.work_done:<60}  {row.faults} faults")
    sys.exit(any(row.faults for row in rows))


def run_all(place: Path, arguments: argparse.Namespace) -> list[ChaosRow]:
    """Run all kinds; those without a fixed size share the remaining time."""
    until = time.monotonic() + arguments.seconds
    rows = [
        *run_record_operations(place / "records", SMALL),
        *run_agent_ends(place / "ends", agents=200, kills=20),
        *run_shutdowns(place / "endings", 10, arguments),
    ]
    arguments.seconds = until - time.monotonic()
    return [*rows, *run_disturbed_rounds(place / "rounds", arguments)]


def run_record_operations(place: Path, size: StoreChaosSize) -> list[ChaosRow]:
    place.mkdir(parents=True, exist_ok=True)
    outcome = run_store_chaos(place / "home", size, print_line)
    print_result(outcome)
    did = f"{outcome.operations:,} operations, {outcome.posts:,} messages posted, {outcome.kills:,} kills"
    return [ChaosRow("one record, many processes", did, len(outcome.faults))]


def run_agent_ends(place: Path, *, agents: int, kills: int) -> list[ChaosRow]:
    tally = result_delivery.run_delivery_chaos(place, agents, print_line, kills=kills)
    print_line(
        f"{tally.started} agents, {tally.ended} ends, {tally.delivered} told, the lead killed {tally.kills} "
        f"times, {len(tally.faults)} faults ({tally.seconds:.0f} s)"
    )
    for fault in tally.faults[:20]:
        print_line(f"  {fault}")
    return [ChaosRow("ends of agents", f"{tally.ended} ends, {tally.kills} kills", len(tally.faults))]


def run_shutdowns(place: Path, members_per_state: int, arguments: argparse.Namespace) -> list[ChaosRow]:
    faults, gone, slowest = 0, 0, 0.0
    backend = arguments.backend[0] if arguments.backend else "in-process"
    for at in range(0, members_per_state, TEAM_SIZE):
        tally = asyncio.run(
            member_shutdowns.run_shutdown_chaos(
                place / str(at), min(TEAM_SIZE, members_per_state - at), backend
            )
        )
        faults, gone = faults + len(tally.faults), gone + tally.ended
        slowest = max(slowest, tally.slowest)
        for fault in tally.faults[:20]:
            print_line(f"  {fault}")
    print_line(f"{gone} members were shut down, the slowest in {slowest:.1f} s, {faults} faults")
    return [ChaosRow("members asked to end", f"{gone} members, the slowest in {slowest:.1f} s", faults)]


def run_disturbed_rounds(place: Path, arguments: argparse.Namespace) -> list[ChaosRow]:
    seed = random.SystemRandom().randrange(1_000_000) if arguments.seed is None else arguments.seed
    print_line(f"the first seed is {seed}")
    planned = rounds.generate_plans(
        seed,
        troubles=arguments.trouble or list(TROUBLES),
        works=arguments.work or list(WORKLOADS),
        backends=arguments.backend or rounds.BACKENDS,
    )
    tallies = rounds.run_rounds(
        arguments.keep or place,
        planned,
        print_line,
        rounds=arguments.rounds or 1_000_000,
        seconds=arguments.seconds,
        keep=arguments.keep is not None,
    )
    for plan in (tally.plan for tally in tallies if tally.faults):
        again = f"--trouble {plan.trouble} --work {plan.work} --backend {plan.backend} --keep DIRECTORY"
        print_line(f"again: python -m tests.chaos --only rounds --rounds 1 --seed {plan.seed} {again}")
    return [
        ChaosRow(
            name,
            f"{len(of)} rounds, struck {sum(each.struck for each in of)} times, "
            f"resumed {sum(each.resumed for each in of)} times",
            sum(len(each.faults) for each in of),
        )
        for name in sorted({str(tally.plan) for tally in tallies})
        if (of := [tally for tally in tallies if str(tally.plan) == name])
    ]


def _run_records(place: Path, arguments: argparse.Namespace, kinds: tuple[str, ...]) -> list[ChaosRow]:
    size = StoreChaosSize(
        processes=arguments.processes, operations=arguments.operations, pause=arguments.pause, kinds=kinds
    )
    return run_record_operations(place, size)


def _run_teams(place: Path, arguments: argparse.Namespace) -> list[ChaosRow]:
    arguments.trouble, arguments.work = ["kill"], ["team"]
    arguments.backend, arguments.seed = (
        arguments.backend or ["in-process"],
        1 if arguments.seed is None else arguments.seed,
    )
    return run_disturbed_rounds(place, arguments)


ONLY: dict[str, Callable[[Path, argparse.Namespace], list[ChaosRow]]] = {
    "records": lambda place, given: _run_records(place, given, ALL_OPERATIONS),
    "mail": lambda place, given: _run_records(place, given, MAIL_OPERATIONS),
    "ends": lambda place, given: run_agent_ends(place, agents=given.agents, kills=given.kills),
    "endings": lambda place, given: run_shutdowns(place, given.rounds or 100, given),
    "teams": _run_teams,
    "rounds": run_disturbed_rounds,
}

main()
