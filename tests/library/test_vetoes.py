"""Answers of a program's hook functions: one that has no effect at its event blocks instead of being lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.testing import make_tool_call


def write_by_model(path: Path) -> shoal.ScriptedModel:
    return shoal.ScriptedModel([make_tool_call("Write", file_path=str(path), content="x"), "Done."])


@pytest.mark.spec("API-07")
@pytest.mark.parametrize(
    "answer",
    [
        {"hookSpecificOutput": {"permissionDecision": "deny"}},
        {"hookSpecificOutput": {"updatedInput": {}}},
        {"hookSpecificOutput": {"decision": {"behavior": "deny"}}},
        {"hookSpecificOutput": {"updatedToolOutput": "[removed]"}},
        shoal.HookDecision(decision="deny"),
        shoal.HookDecision(updated_input={}),
        shoal.HookDecision(updated_output=""),
    ],
)
async def test_a_veto_in_the_form_of_another_event_blocks(tmp_path: Path, answer: Any) -> None:
    hooks: Any = {"UserPromptSubmit": [lambda _: answer]}
    model = write_by_model(tmp_path / "written")
    with pytest.raises(shoal.RunFailed, match="has no effect for UserPromptSubmit"):
        await shoal.run("go", cwd=tmp_path, model=model, hooks=hooks, mode="acceptEdits")
    assert not (tmp_path / "written").exists()


@pytest.mark.spec("API-07")
@pytest.mark.parametrize(
    "answer",
    [
        {"reason": "not on Fridays"},
        {"decision": None, "reason": "not on Fridays"},
        {"stopReason": "not on Fridays"},
        {"continue": True, "stopReason": "not on Fridays"},
        {"hookSpecificOutput": {"permissionDecisionReason": "not on Fridays"}},
    ],
)
async def test_a_veto_with_a_reason_but_without_a_decision_blocks(tmp_path: Path, answer: Any) -> None:
    hooks: Any = {"PreToolUse": [("Write", lambda _: answer)]}
    model = write_by_model(tmp_path / "written")
    await shoal.run("go", cwd=tmp_path, model=model, hooks=hooks, mode="acceptEdits")
    assert not (tmp_path / "written").exists()


CREATE = make_tool_call("TaskCreate", subject="Paint", description="the hull")


@pytest.mark.spec("API-07")
@pytest.mark.parametrize(
    ("event", "replies"),
    [
        ("TaskCreated", [CREATE, "Done."]),
        ("TaskCompleted", [CREATE, make_tool_call("TaskUpdate", taskId="1", status="completed"), "Done."]),
    ],
)
async def test_a_hook_of_a_task_can_end_the_turn(tmp_path: Path, event: str, replies: list[Any]) -> None:
    hooks: Any = {event: [lambda _: {"continue": False, "stopReason": "the harbour is closed"}]}
    async with shoal.open(cwd=tmp_path, model=shoal.ScriptedModel(replies), hooks=hooks) as session:
        result = await session.run("go").wait()
        tasks = await session.open_board(session.id).list_tasks()
    assert result.reason == "blocked"
    assert "the harbour is closed" in result.detail
    assert [task.status for task in tasks] == ([] if event == "TaskCreated" else ["pending"])


@pytest.mark.spec("API-07")
async def test_a_hook_at_the_start_of_a_session_can_stop_the_run(tmp_path: Path) -> None:
    hooks: Any = {"SessionStart": [lambda _: {"continue": False, "stopReason": "not today"}]}
    model = write_by_model(tmp_path / "written")
    with pytest.raises(shoal.RunFailed, match="a SessionStart hook stopped it: not today"):
        await shoal.run("go", cwd=tmp_path, model=model, hooks=hooks, mode="acceptEdits")
    assert not (tmp_path / "written").exists()


@pytest.mark.spec("API-07")
async def test_an_answer_that_cannot_stop_anything_is_reported(tmp_path: Path) -> None:
    notes: list[str] = []

    def on_event(event: shoal.Event) -> None:
        if isinstance(event, shoal.events.NoteAdded):
            notes.append(event.text)

    hooks: Any = {"InstructionsLoaded": [lambda _: {"continue": False}]}
    (tmp_path / "AGENTS.md").write_text("Be brief.")
    async with shoal.open(cwd=tmp_path, model=shoal.ScriptedModel(["ok"]), hooks=hooks) as session:
        session.subscribe(on_event)
        await session.run("go")
    assert any("'continue', which has no effect for InstructionsLoaded" in note for note in notes), notes
