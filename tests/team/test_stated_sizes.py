"""The rules about users at the sizes that they state; shorter versions run with every change."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECONDS = 1100
PANE_ROUNDS = 25

pytestmark = [pytest.mark.exhaustive, pytest.mark.needs("git")]
Record = Callable[[str, object], None]


def run_chaos(record: Record, *arguments: str, seconds: int = SECONDS) -> str:
    """Run a kind of chaos; the last line of its output, which has the counts, is recorded."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    assert last.endswith(" 0 faults")
    record("measured", re.sub(r"\s{2,}", ", ", last))
    return done.stdout


@pytest.mark.spec("USR-03", "QUE-05")
def test_ten_thousand_results_are_delivered_once_although_the_lead_is_killed(record_property: Record) -> None:
    output = run_chaos(record_property, "--only", "ends", "--agents", "10000", "--kills", "200")
    counts = re.search(r"(\d+) agents, (\d+) ends, (\d+) told, the lead killed (\d+) times", output)
    assert counts is not None, output
    agents, ends, delivered, kills = map(int, counts.groups())
    assert agents >= 10_000
    assert ends == delivered
    assert kills >= 10


@pytest.mark.spec("USR-15", "TEAM-06")
def test_fifty_processes_with_a_thousand_operations_each_damage_and_lose_nothing(
    record_property: Record,
) -> None:
    output = run_chaos(record_property, "--only", "records", "--processes", "50", "--operations", "1000")
    assert "50,000 operations" in output


@pytest.mark.timeout(2 * SECONDS + 100)
@pytest.mark.spec("USR-04", "BOX-04")
def test_a_hundred_thousand_messages_of_killed_processes_arrive_once(record_property: Record) -> None:
    size = ("--processes", "50", "--operations", "3200")
    output = run_chaos(record_property, "--only", "mail", *size, seconds=2 * SECONDS)
    # Two of three operations post a message; the others take what was posted.
    posted = re.search(r"([\d,]+) messages posted", output)
    assert posted is not None, output
    assert int(posted[1].replace(",", "")) >= 100_000


@pytest.mark.spec("USR-08", "LIF-03")
@pytest.mark.parametrize(
    ("backend", "each"),
    [("in-process", 100), ("process", 20), pytest.param("tmux", 20, marks=pytest.mark.needs("tmux"))],
)
def test_all_members_in_every_state_exit_within_the_grace_and_five_seconds(
    backend: str, each: int, record_property: Record
) -> None:
    output = run_chaos(record_property, "--only", "endings", "--backend", backend, "--rounds", str(each))
    assert f"{6 * each} members were shut down" in output


@pytest.mark.spec("USR-12", "USR-03", "USR-04", "USR-23", "USR-25", "TRN-02")
@pytest.mark.parametrize(
    ("backend", "moments", "seed"),
    [
        ("in-process", 100, 1),
        ("process", 100, 1),
        # In four parts: rounds with panes take longest, and each part has its own time limit.
        *(
            pytest.param("tmux", PANE_ROUNDS, seed, marks=pytest.mark.needs("tmux"))
            for seed in range(1, 101, PANE_ROUNDS)
        ),
    ],
)
def test_a_team_killed_at_many_moments_loses_and_repeats_nothing(
    backend: str, moments: int, seed: int, record_property: Record
) -> None:
    output = run_chaos(
        record_property,
        "--only",
        "teams",
        "--backend",
        backend,
        "--rounds",
        str(moments),
        "--seed",
        str(seed),
        "--seconds",
        "1000",
    )
    struck = re.search(r"struck (\d+) times", output.splitlines()[-1])
    assert struck is not None, output
    assert int(struck[1]) >= moments
