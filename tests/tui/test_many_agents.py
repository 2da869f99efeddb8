"""Fifty agents that stream at once keep nobody from typing, and a long conversation stays short on screen."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from textual.events import Key

from cast import agent
from shoal.core.messages import ToolUse
from shoal.core.requests import Hear, Reply, Request, TextDelta
from shoal.models.scripted import ScriptedModel
from shoal.surfaces.tui import conversation
from tui_rig import sitting

AGENTS = 50
PROMISED = 2.0
"""Seconds in which a line that was typed is on the screen, on a machine that has much else to do."""


class Chatter:
    """Each of the agents says words without end, until the test has seen enough."""

    def __init__(self) -> None:
        self.speaking: set[str] = set()
        self.enough = asyncio.Event()
        self.said = 0
        self._script = ScriptedModel(self._mind)
        self.card = self._script.card

    def _mind(self, request: Request) -> list[ToolUse] | str:
        if request.messages[0].text.startswith("Talker") or len(request.messages) > 1:
            return "that is all"
        return [
            agent(f"Talker{number} talks", f"call-{number}", run_in_background=True)
            for number in range(AGENTS)
        ]

    async def reply(self, request: Request, hear: Hear) -> Reply:
        who = request.messages[0].text
        if who.startswith("Talker"):
            self.speaking.add(who)
            while not self.enough.is_set():
                await hear(TextDelta("word "))
                self.said += 1
                await asyncio.sleep(0.02)
        return await self._script.reply(request, hear)

    async def aclose(self) -> None:
        await self._script.aclose()


@pytest.mark.spec("USR-26", "SRF-01")
async def test_one_types_while_fifty_agents_stream(tmp_path: Path) -> None:
    chatter = Chatter()
    settings = json.dumps({"shoal": {"fan_out_preview": None, "max_concurrent": AGENTS}})
    async with sitting(tmp_path, chatter, skip_permissions=True, settings=settings) as at:
        await at.say("go")
        await at.until(lambda: len(chatter.speaking) == AGENTS, "fifty agents that speak")
        await at.press("f2")
        await at.shows("Agents")
        await at.press("f2")
        before, drawn = chatter.said, at.app.drawings
        async with asyncio.timeout(PROMISED):
            for letter in "typed meanwhile":
                at.app.post_message(Key("space" if letter == " " else letter, letter))
            while at.app.composer.text != "typed meanwhile":
                await asyncio.sleep(0.01)
        await at.shows("typed meanwhile", "50 agents at work")
        await at.until(lambda: chatter.said > before + 10 * AGENTS, "more words")
        assert at.app.drawings - drawn < chatter.said - before, "words are drawn together, not one by one"
        chatter.enough.set()
        await at.until(lambda: not at.session.any_working, "the end of the agents")


async def test_a_long_conversation_keeps_few_blocks_on_the_screen_and_the_rest_at_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounted, step = 30, 12
    monkeypatch.setattr(conversation, "MOUNTED", mounted)
    monkeypatch.setattr(conversation, "STEP", step)
    turns = mounted + step
    async with sitting(tmp_path, ScriptedModel([f"answer {number}" for number in range(turns)])) as at:
        for number in range(turns):
            async for _ in at.session.run(f"prompt {number}"):
                pass
        await at.shows(f"answer {turns - 1}")
        assert len(at.app.view.children) <= mounted + step + 1
        await at.press("f6", "home")
        await at.shows("▴ earlier")
        before = len(at.app.view.children)
        await at.press("home")
        await at.until(lambda: len(at.app.view.children) > before, "earlier blocks")
        session = at.session.id
    async with sitting(tmp_path, ScriptedModel(["more"]), resume=str(session)) as at:
        assert len(at.app.view.children) <= mounted + 1
        await at.shows(f"answer {turns - 1}")
        await at.press("f6")
        for _ in range(12):
            await at.press("home")
        await at.shows("› prompt 0")


async def test_the_newest_stays_in_sight_unless_one_has_scrolled_up(
    tmp_path: Path,
) -> None:
    words = "\n\n".join(f"line {number}" for number in range(60))
    async with sitting(tmp_path, ScriptedModel([words, "second answer", "third answer"])) as at:
        await at.say("talk")
        await at.shows("line 59")
        await at.rests()
        await at.press("pageup")
        await at.until(lambda: not at.app.view.follows, "a look back")
        async for _ in at.session.run("more"):
            pass
        await at.drawn()
        assert "second answer" not in at.text, "what comes does not take the place one reads away"
        for _ in range(4):
            await at.press("pagedown")
        await at.shows("second answer")
        async for _ in at.session.run("and more"):
            pass
        await at.shows("third answer")
