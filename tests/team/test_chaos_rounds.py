"""Agents and teams under faults: kills, stops, full disks, clock and provider failures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SIX = ("kill", "stop", "disk", "clock", "provider", "mixed")


def run_chaos(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", "--only", "rounds", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.exhaustive
@pytest.mark.needs("git")
@pytest.mark.spec("USR-03", "USR-04", "USR-12", "USR-15", "USR-23", "USR-25")
def test_nothing_is_lost_duplicated_or_left_over_under_faults() -> None:
    """Six kinds of trouble over sub-agents, then over teams as time allows; `make chaos` goes on with it.

    The time box ends the loop, however far it came: a busy machine plays fewer rounds.
    """
    troubles = (word for trouble in SIX for word in ("--trouble", trouble))
    backends = ("--backend", "in-process", "--backend", "process")
    output = run_chaos("--seed", "12", "--rounds", "14", "--seconds", "16", *troubles, *backends)
    assert "the first seed is 12" in output
    assert "seed 12: kill over agents" in output


@pytest.mark.slow
@pytest.mark.needs("git")
@pytest.mark.spec("USR-07", "USR-08", "USR-23")
def test_a_hanging_lead_is_killed_and_resumed() -> None:
    output = run_chaos("--seed", "503", "--rounds", "1", "--trouble", "hang", "--work", "agents")
    assert "seed 503: hang over agents: struck 1 times" in output


@pytest.mark.exhaustive
@pytest.mark.needs("git")
@pytest.mark.spec("USR-12", "USR-23", "LIF-04")
def test_a_team_survives_the_death_of_its_guardian_and_fork_server() -> None:
    output = run_chaos(
        "--seed", "2008", "--rounds", "3", "--trouble", "helpers", "--backend", "process", "--work", "team"
    )
    assert "seed 2008: helpers over team (process): struck" in output


@pytest.mark.exhaustive
@pytest.mark.needs("git", "tmux")
@pytest.mark.spec("USR-20", "USR-23", "LIF-05")
def test_a_team_survives_faults_of_its_panes_and_leaves_none() -> None:
    output = run_chaos(
        "--seed", "416", "--rounds", "1", "--trouble", "panes", "--backend", "tmux", "--work", "team"
    )
    assert "seed 416: panes over team (tmux): struck" in output
