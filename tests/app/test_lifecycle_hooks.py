"""Hooks of the start and the end of a session, of its instructions and of waiting for a person."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import shoal
from agent_scripts import call_tool
from session_helpers import collect_events
from shoal.app.session.lifecycle_hooks import END_GRACE, IDLE_DELAY
from shoal.core.events import RunFinished
from shoal.core.permissions.questions import ChoiceAnswer, DenyAnswer
from shoal.models.scripted_model import ScriptedModel
from shoal.testing import FakeClock

EVENTS = ("SessionStart", "SessionEnd", "Notification", "InstructionsLoaded", "UserPromptSubmit")


class HookCalls:
    """Hook functions that record what they get."""

    def __init__(self) -> None:
        self.inputs: list[dict[str, Any]] = []

    async def record(self, fields: dict[str, Any]) -> None:
        self.inputs.append(fields)

    def make_hooks(self) -> dict[str, list[Any]]:
        return {event: [self.record] for event in EVENTS}

    def list_fields(self, event: str, *names: str) -> list[tuple[Any, ...]]:
        chosen = [each for each in self.inputs if each["hook_event_name"] == event]
        return [tuple(each.get(name) for name in names) for each in chosen]


@pytest.fixture
def calls() -> HookCalls:
    return HookCalls()


@pytest.mark.spec("HOK-01")
async def test_start_and_end_hooks_run_once_each_with_their_reason(tmp_path: Path, calls: HookCalls) -> None:
    options: dict[str, Any] = {"cwd": tmp_path, "hooks": calls.make_hooks()}
    model = ScriptedModel(["one", "two", "three", "four"])
    async with shoal.open(model=model, **options) as first:
        await collect_events(first.run("a"))
        await collect_events(first.run("b"))
    async with shoal.open(model=model, resume=first.id, **options) as resumed:
        await collect_events(resumed.run("r"))
        resumed.set_end_reason("clear")
    async with shoal.open(model=model, resume=first.id, fork=True, **options) as fork:
        await collect_events(fork.run("c"))
        fork.set_end_reason("prompt_input_exit")
    assert calls.list_fields("SessionStart", "source", "model") == [
        (source, first.model_card.id) for source in ("startup", "resume", "fork")
    ]
    assert calls.list_fields("SessionEnd", "reason", "session_id") == [
        ("other", first.id),
        ("clear", first.id),
        ("prompt_input_exit", fork.id),
    ]
    names = [each["hook_event_name"] for each in calls.inputs]
    assert names[:4] == ["SessionStart", "UserPromptSubmit", "UserPromptSubmit", "SessionEnd"]
    assert calls.list_fields("Notification") == []


async def test_start_hooks_that_still_run_do_not_delay_the_end(tmp_path: Path) -> None:
    ended: list[str] = []

    async def hang(_: dict[str, Any]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("start")

    hooks = {"SessionStart": [hang], "SessionEnd": [lambda _: ended.append("end")]}
    async with asyncio.timeout(30):
        async with shoal.open(cwd=tmp_path, model=ScriptedModel([]), hooks=hooks):
            await asyncio.sleep(0)
    assert sorted(ended) == ["end", "start"]


async def test_a_start_hook_can_stop_the_first_turn_only(tmp_path: Path) -> None:
    hooks = {"SessionStart": [lambda _: {"continue": False, "stopReason": "not on Sundays"}]}
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(["done"]), hooks=hooks) as session:
        ends = [(await collect_events(session.run("go")))[-1] for _ in range(2)]
    assert all(isinstance(end, RunFinished) for end in ends)
    assert [end.reason for end in ends] == ["blocked", "done"]
    assert "not on Sundays" in ends[0].detail
    assert "SessionStart" in ends[0].detail


async def test_each_instruction_file_has_its_hook_which_the_end_awaits_for_a_while(
    tmp_path: Path, calls: HookCalls
) -> None:
    (tmp_path / "CLAUDE.md").write_text("Be brief.\n")
    clock, started = FakeClock(), asyncio.Event()

    async def hang(fields: dict[str, Any]) -> None:
        await calls.record(fields)
        started.set()
        await asyncio.Event().wait()

    hooks = {"InstructionsLoaded": [hang], "SessionEnd": [calls.record]}
    session = shoal.open(cwd=tmp_path, model=ScriptedModel([]), hooks=hooks, clock=clock)
    await session.__aenter__()
    async with asyncio.timeout(30):
        await started.wait()
        end = asyncio.create_task(session.__aexit__(None, None, None))
        before = clock.monotonic()
        while not end.done():
            await clock.advance(END_GRACE / 4)
        await end
    assert clock.monotonic() - before >= END_GRACE
    ((file,),) = calls.list_fields("InstructionsLoaded", "file_path")
    assert file == str(tmp_path / "CLAUDE.md")
    assert len(calls.list_fields("SessionEnd")) == 1


@pytest.mark.parametrize("attended", [True, False])
async def test_only_a_person_who_attends_is_told_once_that_the_session_is_idle(
    tmp_path: Path, calls: HookCalls, attended: bool
) -> None:
    clock, model = FakeClock(), ScriptedModel(["one", "two"])
    options: dict[str, Any] = {"attended": attended, "hooks": calls.make_hooks(), "clock": clock}
    async with shoal.open(cwd=tmp_path, model=model, **options) as session:
        await collect_events(session.run("a"))
        await clock.advance(IDLE_DELAY - 1)
        # The next turn starts the time again.
        await collect_events(session.run("b"))
        await clock.advance(IDLE_DELAY - 1)
        assert calls.list_fields("Notification") == []
        for _ in range(3):
            await clock.advance(IDLE_DELAY)
        expected = [("Shoal is waiting for your input", "Shoal", "idle_prompt")]
        found = calls.list_fields("Notification", "message", "title", "notification_type")
        assert found == (expected if attended else [])


@pytest.mark.parametrize(
    ("call", "answer", "message", "kind"),
    [
        (
            call_tool("Write", "w1", file_path="made", content="x"),
            DenyAnswer(reason="no"),
            "Shoal needs your permission to use Write",
            "permission_prompt",
        ),
        (
            call_tool(
                "AskUserQuestion",
                "q1",
                questions=[
                    {
                        "question": "Which?",
                        "header": "Which",
                        "multiSelect": False,
                        "options": [
                            {"label": "A", "description": "a"},
                            {"label": "B", "description": "b"},
                        ],
                    }
                ],
            ),
            ChoiceAnswer(answers={"Which?": "A"}),
            "An agent has a question for you",
            "elicitation_dialog",
        ),
        (
            [call_tool("EnterPlanMode", "p0"), call_tool("ExitPlanMode", "p1", plan="Do it.")],
            DenyAnswer(reason="no"),
            "A plan is waiting for your approval",
            "permission_prompt",
        ),
    ],
)
async def test_each_kind_of_question_has_its_notification(
    tmp_path: Path, calls: HookCalls, call: Any, answer: Any, message: str, kind: str
) -> None:
    replies = [*(call if isinstance(call, list) else [call]), "done"]
    hooks = {"Notification": [calls.record]}
    model = ScriptedModel(replies)
    async with (
        asyncio.timeout(30),
        shoal.open(cwd=tmp_path, model=model, attended=True, hooks=hooks) as session,
    ):
        turn = session.run("begin")
        question = await anext(session.runtime.question_broker.watch_questions())
        while not calls.inputs:
            await asyncio.sleep(0)
        session.runtime.question_broker.submit_answer(question.id, answer)
        await collect_events(turn)
    fields = ("message", "title", "notification_type", "agent_id")
    assert calls.list_fields("Notification", *fields) == [(message, "Shoal", kind, None)]
