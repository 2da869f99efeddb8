"""A workflow whose process is killed at any moment repeats no finished step and returns the same value."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from shoal.app.settings.settings import find_process_shoal_home
from shoal.core.events import WorkflowStepFinished, WorkflowStepStarted
from shoal.stores.files.sessions.file_journal import read_journal

PROGRAM = Path(__file__).with_name("workflow_process.py")


class WorkflowProgram:
    def __init__(self, directory: Path, count: int) -> None:
        self.project = directory / "project"
        self.project.mkdir()
        self.record = directory / "calls"
        self.record.touch()
        self.count = count
        self.session = ""

    def start(self, **env: str) -> subprocess.Popen[str]:
        resume = [self.session] if self.session else []
        command = [
            sys.executable,
            str(PROGRAM),
            str(self.project),
            str(self.record),
            str(self.count),
            *resume,
        ]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **env})

    def kill_after(self, steps: int) -> bool:
        """Run the program and kill it when that many more steps have finished; return False if it ended."""
        process = self.start()
        assert process.stdout is not None
        if not self.session:
            self.session = process.stdout.readline().strip()
        for line in process.stdout:
            steps -= line == "step\n"
            if steps < 0:
                process.kill()
                process.communicate()
                return True
        process.communicate()
        return False

    def finish(self) -> dict[str, Any]:
        process = self.start()
        output, _ = process.communicate(timeout=170)
        assert process.returncode == 0
        value: dict[str, Any] = json.loads(output.splitlines()[-1])
        return value

    def read_events(self) -> list[object]:
        journal = find_process_shoal_home() / "shoal" / "runs" / self.session / "journal.jsonl"
        return [record.event for record in read_journal(journal)]

    def read_steps(self) -> list[int]:
        """Return the numbers of the steps that have a result, in order."""
        return [event.step for event in self.read_events() if isinstance(event, WorkflowStepFinished)]

    def read_recorded_values(self) -> list[Any]:
        """Return the times and random numbers in the journal, in order."""
        events = self.read_events()
        plain = {e.step for e in events if isinstance(e, WorkflowStepStarted) and e.child is None}
        return [e.value for e in events if isinstance(e, WorkflowStepFinished) and e.step in plain]


def run_and_kill(directory: Path, *, count: int, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    program = WorkflowProgram(directory, count)
    killed = 0
    for _ in range(kills):
        killed += program.kill_after(chance.randint(0, 2 * count // kills))
    assert killed > kills // 2
    result = program.finish()
    assert result["checks"] == [f"did did file {number}" for number in range(count)]
    started, first, second, ended = program.read_recorded_values()
    assert result["seeds"] == [first, second]
    assert [result["started"], result["ended"]] == [
        datetime.fromtimestamp(at / 1000, UTC).isoformat() for at in (started, ended)
    ]
    assert program.finish() == result
    steps = program.read_steps()
    assert sorted(steps) == list(range(1, 2 * count + 5))
    # An agent that had not answered when the process died is asked again, a finished one never.
    calls = Counter(program.record.read_text().splitlines())
    assert len(calls) == 2 * count
    assert max(calls.values()) <= 1 + killed
    assert sum(calls.values()) <= 2 * count + killed * 8


@pytest.mark.spec("WFL-02")
def test_a_killed_workflow_continues_without_repeating_a_step(tmp_path: Path) -> None:
    run_and_kill(tmp_path, count=12, kills=3, seed=1)


@pytest.mark.exhaustive
@pytest.mark.spec("WFL-02")
def test_a_workflow_of_200_agents_survives_20_kills(tmp_path: Path) -> None:
    run_and_kill(tmp_path, count=100, kills=20, seed=2)


@pytest.mark.spec("WFL-02")
def test_an_agent_that_ended_before_its_step_was_recorded_is_not_asked_again(tmp_path: Path) -> None:
    program = WorkflowProgram(tmp_path, 1)
    for finished_steps in ([1], [1, 2, 3, 4]):
        process = program.start(DIE_AFTER_AGENT="1")
        output, _ = process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL
        program.session = program.session or output.splitlines()[0]
        # The agent has ended, and its step has no result.
        assert program.read_steps() == finished_steps
    assert program.finish()["checks"] == ["did did file 0"]
    assert program.record.read_text().splitlines() == ["file 0", "did file 0"]
