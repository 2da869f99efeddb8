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
`make mutants ARGS="--report docs/mutants.md"` writes this page from the last run of each room, and keeps
what it says of rooms that were not run here; the reasons are in `tests/mutation/reasons.toml`.

A fault that only tests without a record notice, or only tests beyond the seconds of the last column, counts
as a survivor here, unless a new test was tried against it alone afterward. Rooms with fewer than 30 faults
were stopped early.

| room | seed | killed | share | not called | recorded tests | seconds of tests per fault |
|---|---|---|---|---|---|---|
"""


class RoomResult(Struct):
    """The verdicts of one run of one room."""

    room: str
    seed: int
    mutants: dict[str, str] = field(default_factory=dict)
    """Outcome by description of the mutant."""
    seconds: float = 0.0
    """Seconds of tests that were allowed per mutant."""
    recorded: int = 0
    """Number of tests in the record of calls."""

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


def write_report(page: Path) -> None:
    """Write the last results of all rooms; those of rooms without results stay as the page has them."""
    results = load_results()
    reasons: dict[str, str] = tomllib.loads(REASONS.read_text(encoding="utf-8"))
    rows, survivors = _read_page(page.read_text(encoding="utf-8") if page.exists() else "")
    for name, result in results.items():
        rows[name] = _format_row(result)
        survivors[name] = [
            f"- `{mutant.replace('`', ' ')}`: {result.find_reason(mutant, reasons)}"
            for mutant in result.list_survivors()
        ] or ["None."]
    known = [room.name for room in ROOMS if room.name in rows]
    lines = [*(rows[name] for name in known), "", "## Survivors"]
    for name in known:
        lines += ["", f"### {name.capitalize()}", "", *survivors[name]]
    page.write_text(PAGE_HEAD + "\n".join(lines) + "\n", encoding="utf-8")


def _format_row(result: RoomResult) -> str:
    killed = f"{result.killed} of {len(result.mutants)} | {result.share:.0%}"
    tests = f"{result.untested} | {result.recorded:,} | {result.seconds:g}"
    return f"| {result.room} | {result.seed} | {killed} | {tests} |"


def _read_page(text: str) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return the row of each room, and the lines about its survivors."""
    names = {room.name for room in ROOMS}
    rows: dict[str, str] = {}
    survivors: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("### "):
            survivors[line.removeprefix("### ").lower()] = []
        elif line.startswith("| ") and (name := line.split("|")[1].strip()) in names:
            rows[name] = line
        elif line and survivors:
            survivors[next(reversed(survivors))].append(line)
    return rows, survivors
