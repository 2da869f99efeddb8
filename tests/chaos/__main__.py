"""`python -m tests.chaos [--only mail|ends|teams|endings] [--rounds N] …`: exit 1 where anything was lost."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from tests.chaos.runner import ALL, MAIL, Size, report, run

AT_ONCE = 10
"""Members of a team in each state; more have a team of their own."""


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--processes", type=int, default=50)
    parser.add_argument("--operations", type=int, default=1_000, help="of each process")
    parser.add_argument("--only", choices=["mail", "ends", "teams", "endings"])
    parser.add_argument("--pause", type=float, default=0.1, help="seconds between kills")
    parser.add_argument("--agents", type=int, default=10_000, help="whose ends a lead is to hear of")
    parser.add_argument("--kills", type=int, default=10_000, help="of the lead, at most")
    parser.add_argument("--rounds", type=int, default=100, help="of teams; members in each state to end")
    parser.add_argument("--seed", type=int, default=1, help="of the first round of teams")
    parser.add_argument("--backend", choices=["in-process", "process"], default="in-process")
    parser.add_argument("--seconds", type=float, default=1_200, help="after which no round is begun")
    given = parser.parse_args()
    size = Size(
        processes=given.processes,
        operations=given.operations,
        pause=given.pause,
        kinds=MAIL if given.only == "mail" else ALL,
    )
    # Ended from outside, it still ends its processes and removes its files.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory() as place:
        if given.only == "ends":
            sys.exit(ends(Path(place), given.agents, given.kills))
        if given.only == "teams":
            seeds = range(given.seed, given.seed + given.rounds)
            sys.exit(killed_teams(Path(place), seeds, given.seconds, given.backend))
        if given.only == "endings":
            sys.exit(endings(Path(place).resolve(), given.rounds, given.backend))
        outcome = run(Path(place) / "home", size, say)
    report(outcome)
    sys.exit(bool(outcome.faults))


def ends(place: Path, agents: int, kills: int) -> int:
    from tests.chaos import completions

    tally = completions.run(place, agents, say, kills=kills)
    say(
        f"{tally.started} agents, {tally.ended} ends, {tally.told} told, the lead killed {tally.killed} "
        f"times, {len(tally.faults)} faults ({tally.seconds:.0f} s)"
    )
    for fault in tally.faults[:20]:
        say(f"  {fault}")
    return bool(tally.faults)


def killed_teams(place: Path, seeds: range, seconds: float, backend: str) -> int:
    """A round is played again by `--only teams --rounds 1 --seed N`."""
    from tests.chaos import teams

    tallies = teams.run(place, seeds, say, seconds=seconds, backend=backend)
    wrong = [tally.seed for tally in tallies if tally.faults]
    kills = sum(tally.kills for tally in tallies)
    say(f"{len(tallies)} teams, killed {kills} times, {len(wrong)} with faults: {wrong}")
    return bool(wrong)


def endings(place: Path, each: int, backend: str) -> int:
    import asyncio

    from tests.chaos import endings

    faults, ended, slowest = 0, 0, 0.0
    for at in range(0, each, AT_ONCE):
        tally = asyncio.run(endings.run(place / str(at), min(AT_ONCE, each - at), backend))
        faults, ended = faults + len(tally.faults), ended + tally.ended
        slowest = max(slowest, tally.slowest)
        for fault in tally.faults[:20]:
            say(f"  {fault}")
    say(f"{ended} members were shut down, the slowest in {slowest:.1f} s, {faults} faults")
    return bool(faults)


main()
