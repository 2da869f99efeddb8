"""The notes of a session: written by a fork nobody hears, kept small, given to whoever goes on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import shoal
from cast import all_turns, recorded
from shoal.app.basis.session_memory import MOST, SessionMemory
from shoal.core.errors import ModelError
from shoal.core.events import Heard, Noted
from shoal.core.requests import Request
from shoal.models.scripted import ScriptedModel

ON = '{"shoal": {"session_memory": true}}'


class Mind:
    """Answers in order, and notes what it is told to note."""

    def __init__(self, notes: Any = "- the person wants tea") -> None:
        self.notes = notes
        self.asked_to_note: list[str] = []
        self.noting: list[Request] = []
        self.seen: list[Request] = []

    def __call__(self, request: Request) -> Any:
        last = request.messages[-1].text
        if "You keep notes about this session" in last:
            self.asked_to_note.append(last)
            self.noting.append(request)
            if isinstance(self.notes, Exception):
                raise self.notes
            return self.notes
        if "about to be replaced by a summary" in last:
            return "a summary"
        self.seen.append(request)
        return "yes"


def opened(tmp_path: Path, mind: Mind, **options: Any) -> shoal.Session:
    return shoal.open(cwd=tmp_path, model=ScriptedModel(mind), **{"settings": ON, **options})


def memory(session: shoal.Session) -> SessionMemory:
    found = session.agent.remember
    assert isinstance(found, SessionMemory)
    return found


@pytest.mark.spec("FRK-07")
async def test_a_compaction_brings_them_up_to_date_and_goes_on_with_them(tmp_path: Path) -> None:
    mind = Mind()
    async with opened(tmp_path, mind) as session:
        await all_turns(session, "make tea")
        before = list(session.agent.conversation.messages)
        await session.compact()
        # From where the agent stands, so that a cache holds all but the directive.
        assert list(mind.noting[0].messages[:-1]) == before
        assert (mind.noting[0].system, mind.noting[0].tools) == (mind.seen[0].system, mind.seen[0].tools)
        kept = Path(os.environ["SHOAL_HOME"]) / "shoal/runs" / session.id / "memory.md"
        assert kept.read_text() == "- the person wants tea\n"
        assert len(before) > 1
        (opening,) = session.agent.conversation.messages
        assert "a summary" in opening.text
        assert "- the person wants tea" in opening.text
        mind.notes = "- the person had tea"
        await all_turns(session, "more")
        await session.compact()
        assert "- the person wants tea" in mind.asked_to_note[-1]
        assert kept.read_text() == "- the person had tea\n"
        (opening,) = session.agent.conversation.messages
        assert "- the person had tea" in opening.text
        assert opening.text.endswith("more")
    # The fork is nobody's answer: only its caller heard it.
    assert not [each for each in recorded(session) if isinstance(each, Heard) and "tea" in each.text]


@pytest.mark.spec("FRK-07")
async def test_a_resumed_session_is_given_them_once(tmp_path: Path) -> None:
    mind = Mind()
    async with opened(tmp_path, mind) as session:
        await all_turns(session, "make tea")
        assert await memory(session).save(session.agent)
        assert "person wants tea" not in str(session.agent.conversation.messages)
    for _ in range(2):
        async with opened(tmp_path, mind, resume=session.id) as again:
            await all_turns(again, "go on")
            said = "\n".join(message.text for message in again.agent.conversation.messages)
            assert said.count("- the person wants tea") == 1
    async with opened(tmp_path, mind, resume=session.id, settings="{}") as again:
        assert again.agent.remember is None


async def test_they_are_bounded_and_a_fork_that_fails_leaves_them(tmp_path: Path) -> None:
    mind = Mind("x" * 3 * MOST)
    async with opened(tmp_path, mind) as session:
        await all_turns(session, "make tea")
        await memory(session).save(session.agent)
        assert len(memory(session).text()) == MOST
        mind.notes = ModelError("the provider is gone")
        await session.compact()
        assert memory(session).text() == "x" * MOST
        assert "a summary" in session.agent.conversation.messages[0].text
    notes = [event.text for event in recorded(session) if isinstance(event, Noted)]
    assert any("could not be brought up to date" in text for text in notes)


async def test_they_are_off_unless_a_setting_says_so(tmp_path: Path) -> None:
    mind = Mind()
    async with opened(tmp_path, mind, settings="{}") as session:
        await all_turns(session, "make tea")
        await session.compact()
    assert mind.asked_to_note == []
