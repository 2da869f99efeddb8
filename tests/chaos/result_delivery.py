"""Kills a lead at random while its agents end, restarts it, and counts results that were lost or repeated."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from shoal.core.events import AgentEnded, AgentStarted
from shoal.stores.files.sessions.file_journal import read_journal

_ROOT = Path(__file__).parents[2]


class DeliveryTally(Struct, frozen=True, kw_only=True):
    started: int
    ended: int
    delivered: int
    kills: int
    """Number of times the lead was killed."""
    seconds: float
    faults: tuple[str, ...]


def run_delivery_chaos(
    directory: Path,
    agent_count: int,
    print_line: Callable[[str], None],
    *,
    seed: int = 1,
    kills: int = 10_000,
) -> DeliveryTally:
    rng, session, began = random.Random(seed), str(uuid.UUID(int=seed)), time.monotonic()
    home, project = directory / "home", directory / "project"
    project.mkdir(parents=True)
    killed = 0
    while True:
        lead = _start_lead(home, project, session, agent_count)
        if killed < kills and _has_begun_turns(lead, rng.randint(1, 4)):
            time.sleep(rng.uniform(0, 0.05))
            lead.kill()
        status = lead.wait(timeout=600)
        if status == -signal.SIGKILL:
            killed += 1
            if killed % 20 == 0:
                print_line(
                    f"{killed} kills, {count_deliveries(home, session, killed, began).ended} agents ended"
                )
            continue
        if status:
            raise RuntimeError(f"the lead ended with {status}: {lead.stderr.read() if lead.stderr else ''}")
        return count_deliveries(home, session, killed, began)


def _start_lead(home: Path, project: Path, session: str, wanted: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.chaos.lead", str(project), session, str(wanted)],
        cwd=_ROOT,
        env={**os.environ, "SHOAL_HOME": str(home), "PYTHONPATH": f"{_ROOT}/src"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _has_begun_turns(lead: subprocess.Popen[str], turns: int) -> bool:
    """Return True if the lead began so many turns, False if it ended before."""
    assert lead.stdout is not None
    return all(lead.stdout.readline() for _ in range(turns))


def count_deliveries(home: Path, session: str, kills: int, began: float) -> DeliveryTally:
    started: Counter[str] = Counter()
    ended: dict[str, str] = {}
    ends: Counter[str] = Counter()
    for recorded in read_journal(home / "shoal" / "runs" / session / "journal.jsonl"):
        match recorded.event:
            case AgentStarted(agent=agent):
                started[agent] += 1
            case AgentEnded(completion=completion):
                ended[completion.id] = completion.agent
                ends[completion.agent] += 1
            case _:
                pass
    told = Counter(_list_delivered(home, session))
    faults = [
        *(f"agent {agent} ended {ends[agent]} times" for agent in started if ends[agent] != started[agent]),
        *(
            f"end {end} of {agent} was told {told[end]} times"
            for end, agent in ended.items()
            if told[end] != 1
        ),
        *(f"{end} was told and never happened" for end in told if end not in ended),
    ]
    return DeliveryTally(
        started=len(started),
        ended=len(ended),
        delivered=sum(told.values()),
        kills=kills,
        seconds=time.monotonic() - began,
        faults=tuple(faults),
    )


def _list_delivered(home: Path, session: str) -> list[str]:
    (transcript,) = home.glob(f"projects/*/{session}.jsonl")
    found = []
    for line in transcript.read_bytes().splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # the torn end of a line that was being written
        if "delivered" in entry:
            found.append(entry["delivered"])
    return found
