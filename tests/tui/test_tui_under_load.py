"""Typing stays fast while fifty agents stream, and a long conversation has few blocks on the screen."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from textual.events import Key

from agent_scripts import spawn_agent
from shoal.core.conversation.messages import ToolUseBlock
from shoal.core.conversation.model_requests import DeltaListener, ModelReply, ModelRequest, TextDelta
from shoal.models.scripted_model import ScriptedModel
from shoal.surfaces.tui import conversation_view
from tui_driver import drive_tui

AGENTS = 50
TYPING_TIMEOUT = 2.0
"""Seconds in which a typed line must be on the screen, on a busy machine."""


class StreamingModel:
    """Streams text to every agent until the test stops it."""

    def __init__(self) -> None:
        self.streaming_agents: set[str] = set()
        self.is_stopped = asyncio.Event()
        self.delta_count = 0
        self._script = ScriptedModel(self._choose_reply)
        self.card = self._script.card

    def _choose_reply(self, request: ModelRequest) -> list[ToolUseBlock] | str:
        if request.messages[0].text.startswith("Talker") or len(request.messages) > 1:
            return "that is all"
        return [
            spawn_agent(f"Talker{number} talks", f"call-{number}", run_in_background=True)
            for number in range(AGENTS)
        ]

    async def generate_reply(self, request: ModelRequest, on_delta: DeltaListener) -> ModelReply:
        prompt = request.messages[0].text
        if prompt.startswith("Talker"):
            self.streaming_agents.add(prompt)
            while not self.is_stopped.is_set():
                await on_delta(TextDelta("word "))
                self.delta_count += 1
                await asyncio.sleep(0.02)
        return await self._script.generate_reply(request, on_delta)

    async def aclose(self) -> None:
        await self._script.aclose()


@pytest.mark.slow
@pytest.mark.spec("USR-26", "SRF-01")
async def test_typing_stays_fast_while_fifty_agents_stream(tmp_path: Path) -> None:
    model = StreamingModel()
    settings = json.dumps({"shoal": {"fan_out_preview": None, "max_concurrent": AGENTS}})
    async with drive_tui(tmp_path, model, skip_permissions=True, settings=settings) as at:
        await at.submit_text("go")
        await at.wait_until(lambda: len(model.streaming_agents) == AGENTS, "fifty agents that speak")
        await at.press_keys("f2")
        await at.wait_for_text("Agents")
        await at.press_keys("f2")
        before, drawn = model.delta_count, at.app.draw_count
        async with asyncio.timeout(TYPING_TIMEOUT):
            for letter in "typed meanwhile":
                at.app.post_message(Key("space" if letter == " " else letter, letter))
            while at.app.composer.text != "typed meanwhile":
                await asyncio.sleep(0.01)
        await at.wait_for_text("typed meanwhile", "50 agents at work")
        await at.wait_until(lambda: model.delta_count > before + 10 * AGENTS, "more words")
        assert at.app.draw_count - drawn < model.delta_count - before, (
            "words are drawn together, not one by one"
        )
        model.is_stopped.set()
        await at.wait_until(lambda: not at.session.has_working_agents, "the end of the agents")


@pytest.mark.slow
async def test_a_long_conversation_mounts_few_blocks_and_loads_earlier_ones_on_demand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounted, step = 30, 12
    monkeypatch.setattr(conversation_view, "MOUNTED", mounted)
    monkeypatch.setattr(conversation_view, "STEP", step)
    turns = mounted + step
    async with drive_tui(tmp_path, ScriptedModel([f"answer {number}" for number in range(turns)])) as at:
        for number in range(turns):
            async for _ in at.session.run(f"prompt {number}"):
                pass
        await at.wait_for_text(f"answer {turns - 1}")
        assert len(at.app.view.children) <= mounted + step + 1
        await at.press_keys("f6", "home")
        await at.wait_for_text("▴ earlier")
        before = len(at.app.view.children)
        await at.press_keys("home")
        await at.wait_until(lambda: len(at.app.view.children) > before, "earlier blocks")
        session = at.session.id
    async with drive_tui(tmp_path, ScriptedModel(["more"]), resume=str(session)) as at:
        assert len(at.app.view.children) <= mounted + 1
        await at.wait_for_text(f"answer {turns - 1}")
        await at.press_keys("f6")
        for _ in range(12):
            await at.press_keys("home")
        await at.wait_for_text("› prompt 0")


async def test_the_view_follows_new_text_unless_it_was_scrolled_up(
    tmp_path: Path,
) -> None:
    text = "\n\n".join(f"line {number}" for number in range(60))
    async with drive_tui(tmp_path, ScriptedModel([text, "second answer", "third answer"])) as at:
        await at.submit_text("talk")
        await at.wait_for_text("line 59")
        await at.wait_until_idle()
        await at.press_keys("pageup")
        await at.wait_until(lambda: not at.app.view.is_following, "a look back")
        async for _ in at.session.run("more"):
            pass
        await at.wait_for_redraw()
        assert "second answer" not in at.screen_text, "new text does not scroll the view"
        for _ in range(4):
            await at.press_keys("pagedown")
        await at.wait_for_text("second answer")
        async for _ in at.session.run("and more"):
            pass
        await at.wait_for_text("third answer")
