"""A workflow whose process is killed at any moment repeats no finished step and returns the same value."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("workflow_process.py")


class WorkflowProgram:
    def __init__(self, directory: Path, count: int) -> None:
        self.project = directory / "project"
        self.project.mkdir()
        self.record = directory / "calls"
        self.record.touch()
        self.steps = directory / "calls.steps"
        self.steps.touch()
        self.count = count
        self.session = ""

    def start(self) -> subprocess.Popen[str]:
        resume = [self.session] if self.session else []
        command = [
            sys.executable,
            str(PROGRAM),
            str(self.project),
            str(self.record),
            str(self.count),
            *resume,
        ]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

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

    def finish(self) -> str:
        process = self.start()
        output, _ = process.communicate(timeout=170)
        assert process.returncode == 0
        return output.splitlines()[-1]

    def read_steps(self) -> list[str]:
        return self.steps.read_text().splitlines()


def run_and_kill(directory: Path, *, count: int, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    program = WorkflowProgram(directory, count)
    killed = 0
    for _ in range(kills):
        killed += program.kill_after(chance.randint(0, 2 * count // kills))
    assert killed > kills // 2
    assert program.finish().endswith(f"{count} did did file {count - 1}")
    steps = program.read_steps()
    assert sorted(map(int, steps)) == list(range(1, 2 * count + 2))
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
