"""The lead is told that plan mode started or ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.core.conversation.messages import ToolUseBlock
from shoal.core.conversation.model_requests import ModelRequest
from shoal.models.scripted_model import ScriptedModel

pytestmark = pytest.mark.spec("PLN-06")
STARTED, ENDED = "You are in plan mode", "The user ended plan mode"


class Recorder:
    """Model that records the texts of each request, and answers with the given replies."""

    def __init__(self, *replies: Any) -> None:
        self._replies = [*replies]
        self.requests: list[list[str]] = []
        self.model = ScriptedModel(self._reply)

    def _reply(self, request: ModelRequest) -> Any:
        self.requests.append([message.text for message in request.messages])
        return self._replies.pop(0) if self._replies else "yes"

    def count(self, text: str) -> list[int]:
        """Return how often each request contains the text."""
        return [sum(text in message for message in request) for request in self.requests]


async def run_prompt(session: shoal.Session, prompt: str) -> None:
    async for _ in session.run(prompt):
        pass


async def test_the_lead_is_told_once_that_it_must_plan_after_the_prompt(tmp_path: Path) -> None:
    recorder = Recorder()
    async with shoal.open(cwd=tmp_path, model=recorder.model, mode="plan") as session:
        await run_prompt(session, "first")
        await run_prompt(session, "second")
    assert recorder.count(STARTED) == [1, 1]
    (text,) = recorder.requests[0]
    assert text.startswith("first")
    assert text.index("<system-reminder>") < text.index(STARTED)


async def test_the_lead_is_told_that_the_user_changed_the_mode(tmp_path: Path) -> None:
    recorder = Recorder()
    async with shoal.open(cwd=tmp_path, model=recorder.model) as session:
        await run_prompt(session, "one")
        session.set_mode("plan")
        await run_prompt(session, "two")
        session.set_mode("acceptEdits")
        session.set_mode("default")
        await run_prompt(session, "three")
        await run_prompt(session, "four")
        session.set_mode("plan")
        await run_prompt(session, "five")
    assert recorder.count(STARTED) == [0, 1, 1, 1, 2]
    assert recorder.count(ENDED) == [0, 0, 1, 1, 1]


async def test_results_of_the_plan_tools_are_not_repeated(tmp_path: Path) -> None:
    enter = ToolUseBlock(id="c1", name="EnterPlanMode", input={})
    leave = ToolUseBlock(id="c2", name="ExitPlanMode", input={"plan": "Do it."})
    recorder = Recorder(enter, leave, "done")
    settings = {"shoal": {"plan_approver": "auto"}}
    async with shoal.open(cwd=tmp_path, model=recorder.model, settings=settings) as session:
        await run_prompt(session, "go")
        await run_prompt(session, "again")
    assert recorder.count(STARTED) == [0, 0, 0, 0]
    assert recorder.count(ENDED) == [0, 0, 0, 0]


async def test_the_lead_is_told_again_after_a_compaction(tmp_path: Path) -> None:
    recorder = Recorder("yes", "summary", "yes")
    async with shoal.open(cwd=tmp_path, model=recorder.model, mode="plan") as session:
        await run_prompt(session, "first")
        await session.compact()
        await run_prompt(session, "second")
    assert recorder.count(STARTED)[-1] == 1
