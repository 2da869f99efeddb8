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

from git_repository import GitRepository
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
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env={**os.environ, **env}
        )

    def run_until(self, steps: int) -> subprocess.Popen[str]:
        """Run the program until that many more steps have finished; it waits in the last of them."""
        process = self.start(LOCKSTEP="1")
        assert process.stdout is not None
        assert process.stdin is not None
        if not self.session:
            self.session = process.stdout.readline().strip()
        for line in process.stdout:
            steps -= line == "step\n"
            if steps <= 0:
                return process
            process.stdin.write("\n")
            process.stdin.flush()
        raise AssertionError(process.communicate()[1])

    def kill_after(self, steps: int, moment: int) -> bool:
        """Run the program until steps have finished, let it continue, and kill it; return False if it ended.

        `moment` is a number of loops: the program is anywhere after the step when it dies.
        """
        process = self.run_until(steps)
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        for _ in range(moment):
            pass
        process.kill()
        process.communicate()
        return process.returncode == -signal.SIGKILL

    def finish(self) -> dict[str, Any]:
        process = self.start()
        output, errors = process.communicate(timeout=170)
        assert process.returncode == 0, errors
        value: dict[str, Any] = json.loads(output.splitlines()[-1])
        return value

    def read_events(self) -> list[object]:
        journal = find_process_shoal_home() / "shoal" / "runs" / self.session / "journal.jsonl"
        return [record.event for record in read_journal(journal)]

    def read_steps(self) -> list[int]:
        """Return the numbers of the steps that have a result, in order."""
        return [event.step for event in self.read_events() if isinstance(event, WorkflowStepFinished)]

    def read_finished_prompts(self) -> set[str]:
        """Return the prompts of agents whose steps have a result."""
        done = set(self.read_steps())
        steps = (event for event in self.read_events() if isinstance(event, WorkflowStepStarted))
        return {event.preview for event in steps if event.step in done and event.child is not None}

    def read_recorded_values(self) -> list[Any]:
        """Return the times and random numbers in the journal, in order."""
        events = self.read_events()
        plain = {e.step for e in events if isinstance(e, WorkflowStepStarted) and e.child is None}
        return [e.value for e in events if isinstance(e, WorkflowStepFinished) and e.step in plain]


def run_and_kill(directory: Path, *, count: int, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    program = WorkflowProgram(directory, count)
    killed = 0
    finished: dict[str, int] = {}
    for _ in range(kills):
        killed += program.kill_after(chance.randint(1, 3 * count // (2 * kills)), chance.randint(0, 100_000))
        calls = Counter(program.record.read_text().splitlines())
        finished = {prompt: calls[prompt] for prompt in program.read_finished_prompts()} | finished
    assert killed == kills
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
    assert {prompt: calls[prompt] for prompt in finished} == finished
    assert len(calls) == 2 * count
    assert max(calls.values()) <= 1 + killed
    assert sum(calls.values()) <= 2 * count + killed * 8


@pytest.mark.slow
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


@pytest.mark.spec("WFL-05")
def test_a_second_process_cannot_resume_a_workflow_that_runs(tmp_path: Path) -> None:
    program = WorkflowProgram(tmp_path, 4)
    first = program.run_until(3)
    second = program.start()
    _, errors = second.communicate(timeout=120)
    assert second.returncode == 1
    assert f"The session {program.session} is in use by process {first.pid}." in errors, errors
    recorded = program.record.read_text().splitlines()
    # The first process is not disturbed.
    output, errors = first.communicate("\n" * 100, timeout=120)
    assert first.returncode == 0, errors
    assert json.loads(output.splitlines()[-1])["checks"] == [f"did did file {n}" for n in range(4)]
    assert len(recorded) < 8
    assert sorted(Counter(program.record.read_text().splitlines()).values()) == [1] * 8


WORKTREE_PROGRAM = """
import asyncio, os, signal, sys
import shoal
from shoal.testing import make_tool_call

writer = shoal.Agent("writer", prompt="You write.", mode="acceptEdits")

@shoal.workflow
async def write_files(flow: shoal.Workflow) -> list[str]:
    await flow.map(writer, ["a.txt", "b.txt"], at_once=1, isolation="worktree")
    return [work.ref for work in flow.worktrees]

def reply(request):
    if len(request.messages) > 1:
        return "written"
    return make_tool_call("Write", file_path=request.messages[0].text.splitlines()[-1], content="new")

def die(event):
    if isinstance(event, shoal.events.AgentEnded):
        os.kill(os.getpid(), signal.SIGKILL)

async def main():
    resumed = sys.argv[2:]
    options = {"resume": resumed[0]} if resumed else {}
    model = shoal.ScriptedModel(reply)
    async with shoal.open(cwd=sys.argv[1], model=model, mode="acceptEdits", **options) as session:
        if resumed:
            print(*await write_files.resume(session))
        else:
            print(session.id, flush=True)
            session.subscribe(die)
            await write_files.run(session)

asyncio.run(main())
"""


@pytest.mark.spec("WFL-01")
@pytest.mark.needs("git", "bwrap")
def test_a_kill_before_a_worktree_is_settled_loses_no_work(tmp_path: Path) -> None:
    repository = GitRepository(tmp_path)
    command = [sys.executable, "-c", WORKTREE_PROGRAM, str(repository.top)]
    killed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    resumed = subprocess.run([*command, killed.stdout.strip()], capture_output=True, text=True, check=False)
    assert len(resumed.stdout.split()) == 2, resumed.stderr
