"""Runs in processes of their own that outlive the process that started them."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import sys
from pathlib import Path

import pytest

from server_scripts import run_provider
from shoal.app.run_access.background_runs import START_WAIT, BackgroundRunFlags, BackgroundRunManager
from shoal.app.run_access.run_handle import RunHandle
from shoal.core.clock import Clock, SystemClock
from shoal.core.errors import AgentRequestRefused, SessionNotFound
from shoal.core.events import QuestionAsked, TurnEnded
from shoal.core.ids import LEAD_ID, IdGenerator, SessionId
from shoal.core.permissions.questions import PermissionQuestion
from shoal.stores.files.locks.pid_locks import SessionLock
from shoal.stores.files.sessions.file_journal import FileJournal
from shoal.testing.fake_clock import FakeClock, run_until_idle
from team_scripts import get_home

MODEL = "anthropic:claude-sonnet-4-5"
LEFT = "6f1c0f0a-0000-4000-8000-0000000000ac"


def create_manager(
    tmp_path: Path, flags: BackgroundRunFlags | None = None, clock: Clock | None = None
) -> BackgroundRunManager:
    return BackgroundRunManager(
        get_home(),
        tmp_path / "output",
        cwd=tmp_path,
        flags=flags or BackgroundRunFlags(model=MODEL, max_concurrent=1),
        ids=IdGenerator(),
        clock=clock or SystemClock(),
    )


def write_output(tmp_path: Path, out: str, err: str = "") -> Path:
    """Leave the files of a run that another process started."""
    directory = tmp_path / "output"
    directory.mkdir(exist_ok=True)
    (directory / f"{LEFT}.err").write_text(err)
    path = directory / f"{LEFT}.out"
    path.write_text(out)
    return path


async def has_not_begun() -> bool:
    return False


@pytest.mark.parametrize(
    ("flags", "requested", "arguments"),
    [
        (BackgroundRunFlags(), None, []),
        (BackgroundRunFlags(model="m", mode="plan"), None, ["--model", "m", "--permission-mode", "plan"]),
        (BackgroundRunFlags(skip_permissions=True), None, ["--dangerously-skip-permissions"]),
        (
            BackgroundRunFlags(allowed=("Read", "Bash(ls)"), disallowed=("Edit",)),
            None,
            ["--allowedTools", "Read", "--allowedTools", "Bash(ls)", "--disallowedTools", "Edit"],
        ),
        (BackgroundRunFlags(settings="{}"), 2.0, ["--max-budget-usd", "2.0", "--settings", "{}"]),
        (BackgroundRunFlags(max_budget_usd=0.0), 2.0, ["--max-budget-usd", "0.0"]),
        (BackgroundRunFlags(max_budget_usd=1.5), 0.5, ["--max-budget-usd", "0.5"]),
        (
            BackgroundRunFlags(plugin_dirs=(Path("/a"), Path("/b"))),
            None,
            ["--plugin-dir", "/a", "--plugin-dir", "/b"],
        ),
    ],
)
def test_the_limits_of_the_user_are_flags_of_each_run(
    flags: BackgroundRunFlags, requested: float | None, arguments: list[str]
) -> None:
    assert flags.to_cli_arguments(requested) == arguments


async def test_a_run_is_started_awaited_and_read_also_by_a_later_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_provider(monkeypatch, lead=["All is done."]):
        manager = create_manager(tmp_path)
        run = manager.start_prompt_run("Go.", max_budget_usd=5.0)
        assert manager.is_running(run) is True
        with pytest.raises(AgentRequestRefused, match="1"):
            manager.start_prompt_run("Go.")
        await manager.wait_until_begun(run, lambda: manager.has_session_begun(run))
        result = await manager.wait_for_result(run, wait=60)
        await manager.wait_until_begun(run, has_not_begun)  # it ended without an error
    assert (result.state, result.text, result.detail) == ("done", "All is done.", "")
    assert result.cost_usd is not None
    status = manager.get_status(run)
    assert (status.state, status.exit_code, status.turns, status.asks) == ("done", 0, 1, 0)
    assert status.detail == "the last turn ended: done"
    assert manager.is_running(run) is False
    later = create_manager(tmp_path)
    assert (later.is_running(run), later.get_exit_code(run)) == (False, None)
    assert await later.wait_for_result(run, wait=60) == result
    assert await later.has_session_begun(run)


async def test_a_run_that_cannot_start_is_refused_with_its_reason(tmp_path: Path) -> None:
    manager = create_manager(tmp_path, BackgroundRunFlags(model=MODEL, settings="{no"))
    run = manager.start_prompt_run("Go.")
    with pytest.raises(AgentRequestRefused, match="--settings"):
        await manager.wait_until_begun(run, lambda: manager.has_session_begun(run))
    status = manager.get_status(run)
    assert (status.state, status.exit_code, status.turns) == ("failed", 1, 0)
    assert "--settings" in status.detail
    assert create_manager(tmp_path).get_status(run).state == "failed"


@pytest.mark.fresh_interpreter
async def test_a_run_that_starts_slowly_is_awaited_and_then_called_unstarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, program, clock = tmp_path / "gate", tmp_path / "slow", FakeClock()
    os.mkfifo(gate)
    program.write_text(f"#!/bin/sh\nread line < {gate}\necho 'There is no agent scout.' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    manager = create_manager(tmp_path, clock=clock)
    run = manager.start_prompt_run("Go.")
    waiting = asyncio.create_task(manager.wait_until_begun(run, lambda: manager.has_session_begun(run)))
    await clock.advance(40.0)
    assert not waiting.done()
    await clock.advance(START_WAIT)
    assert await waiting is False
    waiting = asyncio.create_task(manager.wait_until_begun(run, lambda: manager.has_session_begun(run)))
    await run_until_idle()
    gate.write_text("\n")
    while manager.is_running(run):
        await asyncio.to_thread(os.sched_yield)
    await clock.advance(1.0)
    with pytest.raises(AgentRequestRefused, match="There is no agent scout"):
        await waiting


async def test_a_run_of_another_process_is_running_while_its_output_is_locked(tmp_path: Path) -> None:
    path, manager = write_output(tmp_path, ""), create_manager(tmp_path)
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert manager.is_running(LEFT) is True
        assert manager.get_status(LEFT).state == "running"
        result = await manager.wait_for_result(LEFT, wait=0.05)
        assert (result.state, result.text) == ("running", "")
        assert "still working" in result.detail
    assert manager.is_running(LEFT) is False


def test_the_status_of_a_run_that_was_not_started_here_is_that_of_its_journal(tmp_path: Path) -> None:
    manager, run = create_manager(tmp_path), RunHandle(session=SessionId(LEFT), home=get_home())
    lock = SessionLock(run.home, run.session)
    journal = FileJournal(run.journal_path, SystemClock())
    question = PermissionQuestion(id="q", agent=LEAD_ID, tool_use_id="t", tool="Bash", input={}, reason="r")
    for event in (
        TurnEnded(agent=LEAD_ID, turn=1, reason="done", requests=1, detail="", duration_ms=1),
        QuestionAsked(agent=LEAD_ID, question=question),
        QuestionAsked(agent=LEAD_ID, question=question),
        TurnEnded(agent=LEAD_ID, turn=2, reason="interrupted", requests=1, detail="", duration_ms=1),
        QuestionAsked(agent=LEAD_ID, question=question),
    ):
        journal.append(event)
    journal.close()
    assert manager.is_running(LEFT) is None
    status = manager.get_status(LEFT)
    assert (status.state, status.turns, status.asks, status.exit_code) == ("running", 2, 3, None)
    assert status.detail == "the last turn ended: interrupted"
    lock.release()
    assert manager.get_status(LEFT).state == "died"


@pytest.mark.parametrize(
    ("out", "state", "text", "detail"),
    [
        ("", "died", "", "e" * 2000),
        ("[1]", "died", "", "e" * 2000),
        (json.dumps({"is_error": True, "result": "no"}), "failed", "no", "e" * 2000),
        (json.dumps({"result": "yes"}), "done", "yes", ""),
        (json.dumps({"result": 5, "total_cost_usd": "much"}), "done", "", ""),
    ],
)
async def test_the_end_of_a_run_of_another_process_is_read_from_its_output(
    tmp_path: Path, out: str, state: str, text: str, detail: str
) -> None:
    write_output(tmp_path, out, "f" + "e" * 2000 + "\n")
    manager = create_manager(tmp_path)
    result = await manager.wait_for_result(LEFT, wait=0)
    assert (result.state, result.text, result.cost_usd) == (state, text, None)
    assert result.detail.strip("e") == ""
    assert len(result.detail) in ({0} if not detail else {1999, 2000})
    assert await manager.has_session_begun(LEFT) is (state == "done")


@pytest.mark.parametrize(
    "name", ["6f1c0f0a-0000-4000-8000-0000000000ad", "../out", ".hidden", "a\n", "x" * 61]
)
async def test_an_unknown_run_is_not_found(tmp_path: Path, name: str) -> None:
    write_output(tmp_path, "")
    with pytest.raises(SessionNotFound):
        create_manager(tmp_path).get_status(name)
