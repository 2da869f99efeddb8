"""A conversation that goes on for days: what is kept in memory is bounded, and all of it can be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.core.entries import Said
from shoal.core.events import AssistantSaid, Event, MessageAdded
from shoal.core.ids import LEAD, EntryId, SessionId
from shoal.core.messages import Message, Text, ToolResult, ToolUse
from shoal.models.scripted import ScriptedModel
from shoal.surfaces.tui.blocks import PromptBlock
from shoal.surfaces.tui.script import MOST, Call, Script, Shown, Words
from shoal.surfaces.tui.stage import Conversation
from shoal.surfaces.tui.transcripts import Transcript
from shoal.wire.transcript import Lines
from tui_rig import sitting

ROUNDS = 2 * MOST


class Talk:
    """An agent that calls a tool in each of its answers."""

    def __init__(self, place: Path, *, live: bool) -> None:
        self._place = place
        self._live = live
        self._lines = Lines(session=SessionId("s"), cwd="/", version="1")
        self.conversation = Conversation(LEAD, Transcript(place), "")
        self.most = 0

    def go(self, rounds: int) -> None:
        for number in range(rounds):
            call = ToolUse(id=f"c{number}", name="Read", input={"file_path": f"{number}.py"})
            said = Message(role="assistant", content=(Text(text=f"word {number}"), call))
            got = ToolResult(tool_use_id=call.id, content=f"line {number}")
            self._say(f"a{number}", said)
            self._say(f"u{number}", Message(role="user", content=(got,)))
            self.most = max(self.most, len(self.conversation.script.blocks))

    def _say(self, entry: str, message: Message) -> None:
        ident = EntryId(entry)
        with self._place.open("ab") as file:
            file.write(self._lines.line(Said(id=ident, parent=None, at=0, message=message)))
        event: Event = AssistantSaid(agent=LEAD, entry=ident, preview="", tool_uses=1)
        if self._live:
            by = "model" if message.role == "assistant" else "tool"
            event = MessageAdded(agent=LEAD, entry=ident, message=message, by=by)
        self.conversation.hear(event)


def told(block: Shown) -> str:
    match block:
        case Words(text=text):
            return text
        case Call(text=text, done=True):
            return text
        case _:
            return f"unfinished: {block}"


@pytest.mark.parametrize("live", [True, False], ids=["told-whole", "read-from-the-transcript"])
def test_a_long_conversation_is_kept_in_part_and_read_again_as_a_whole(tmp_path: Path, live: bool) -> None:
    talk = Talk(tmp_path / "t.jsonl", live=live)
    talk.go(ROUNDS)
    conversation = talk.conversation
    assert talk.most < MOST * 3 / 2
    assert told(conversation.script.blocks[-1]) == f"line {ROUNDS - 1}"
    while conversation.has_older:
        conversation.older()
    expected = [f"{what} {number}" for number in range(ROUNDS) for what in ("word", "line")]
    assert [told(block) for block in conversation.script.blocks] == expected
    numbers = [block.number for block in conversation.script.blocks]
    assert numbers == sorted(set(numbers))


def test_what_a_person_looks_at_is_not_taken_from_under_them(tmp_path: Path) -> None:
    talk = Talk(tmp_path / "t.jsonl", live=True)
    talk.conversation.is_shown = True
    talk.go(MOST)
    assert len(talk.conversation.script.blocks) == 2 * MOST


def test_of_thousands_of_remarks_in_one_turn_the_oldest_go() -> None:
    script = Script()
    script.said("e", Message(role="user", content=(Text(text="go"),)))
    for number in range(3 * MOST):
        script.remark(f"agent {number} starts")
        if script.is_long:
            script.let_go()
    assert len(script.blocks) < MOST * 3 / 2
    assert script.blocks[0].number == 1, "what was said stays"


async def test_the_screen_lets_go_of_what_is_far_above_and_leads_back_to_the_rest(
    tmp_path: Path,
) -> None:
    async with sitting(tmp_path, ScriptedModel(["yes"])) as at:
        view, script = at.app.view, at.app.seat.stage.conversation(LEAD).script
        for number in range(2 * MOST):
            script.said(f"e{number}", Message(role="user", content=(Text(text=f"said {number}"),)))
            if number % 100 == 99:
                at.app.stir()
                await at.until(lambda: not at.app.is_behind, "all is drawn")
        assert len(script.blocks) < MOST * 3 / 2
        await at.shows(f"said {2 * MOST - 1}")
        for _ in range(3):
            await view.show_earlier()
        mounted = len(view.query(PromptBlock))
        assert mounted > 300
        view.scroll_home(animate=False)
        await at.shows(f"said {2 * MOST - mounted}")
