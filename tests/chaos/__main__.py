"""`python -m tests.chaos [--only mail|ends] [--processes N] …`: exit 1 where anything was lost."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from tests.chaos.runner import ALL, MAIL, Size, report, run


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--processes", type=int, default=50)
    parser.add_argument("--operations", type=int, default=1_000, help="of each process")
    parser.add_argument("--only", choices=["mail", "ends"])
    parser.add_argument("--pause", type=float, default=0.1, help="seconds between kills")
    parser.add_argument("--agents", type=int, default=10_000, help="whose ends a lead is to hear of")
    parser.add_argument("--kills", type=int, default=10_000, help="of the lead, at most")
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


main()
