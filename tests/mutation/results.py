"""The last result of each room, and the page that lists the survivors with their reasons."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

import msgspec
from msgspec import Struct, field
from tests.mutation.rooms import ROOMS, ROOT

GOAL = 0.85
_PLACE = re.compile(r":\d+:\d+")
RESULTS = ROOT / ".mutation" / "results.json"
REASONS = Path(__file__).with_name("reasons.toml")
PAGE_HEAD = """# Mutation tests

`make mutants` puts small faults into the program, one at a time, and runs the tests that call the changed
function. A fault that makes a test fail or hang is *killed*; the others are *survivors*.
[CONTRIBUTING.md](../CONTRIBUTING.md#mutation-tests) describes how to run it.
`make mutants ARGS="--report docs/mutants.md"` writes this page from the last run of each room;
the reasons are in `tests/mutation/reasons.toml`.
"""


class RoomResult(Struct):
    """The verdicts of one run of one room."""

    room: str
    seed: int
    mutants: dict[str, str] = field(default_factory=dict)
    """Outcome by description of the mutant."""
    seconds: float = 0.0
    """Seconds of tests that were allowed per mutant."""

    @property
    def killed(self) -> int:
        return sum(outcome in {"killed", "timeout"} for outcome in self.mutants.values())

    @property
    def share(self) -> float:
        return self.killed / max(len(self.mutants), 1)

    def describe(self) -> str:
        return f"{self.room:12} {self.killed} of {len(self.mutants)} killed ({self.share:.0%})"

    @property
    def untested(self) -> int:
        return sum(outcome == "untested" for outcome in self.mutants.values())

    def list_survivors(self) -> list[str]:
        return [mutant for mutant, outcome in self.mutants.items() if outcome in {"survived", "untested"}]

    def find_reason(self, mutant: str, reasons: dict[str, str]) -> str:
        if (reason := reasons.get(_PLACE.sub("", mutant, count=1))) is not None:
            return reason
        if self.mutants[mutant] == "untested":
            return "No recorded test calls the function."
        return "No test notices it yet."


def load_results() -> dict[str, RoomResult]:
    if not RESULTS.exists():
        return {}
    return msgspec.json.decode(RESULTS.read_bytes(), type=dict[str, RoomResult])


def save_result(result: RoomResult) -> None:
    results = load_results() | {result.room: result}
    # Rooms may be tried at the same time.
    partial = RESULTS.with_name(f"{RESULTS.name}.{os.getpid()}")
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(results)))
    partial.replace(RESULTS)


def write_report(page: Path, recorded_tests: int) -> None:
    results = load_results()
    reasons: dict[str, str] = tomllib.loads(REASONS.read_text(encoding="utf-8"))
    known = [results[room.name] for room in ROOMS if room.name in results]
    lines = [
        PAGE_HEAD,
        f"{recorded_tests:,} tests were recorded. A fault that only others notice, or only tests beyond the",
        "seconds of the last column, counts as a survivor here.",
        "Rooms with fewer than 30 faults were stopped early.",
        "",
        "| room | seed | killed | share | not called | seconds of tests per fault |",
        "|---|---|---|---|---|---|",
    ]
    for each in known:
        killed = f"{each.killed} of {len(each.mutants)} | {each.share:.0%}"
        lines.append(f"| {each.room} | {each.seed} | {killed} | {each.untested} | {each.seconds:g} |")
    lines += ["", "## Survivors"]
    for result in known:
        lines += ["", f"### {result.room.capitalize()}", ""]
        lines += [
            f"- `{mutant.replace('`', ' ')}`: {result.find_reason(mutant, reasons)}"
            for mutant in result.list_survivors()
        ] or ["None."]
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")
