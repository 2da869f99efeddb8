"""One agent's conversation as blocks: what is said comes live and again as a whole, and stands there once."""

from __future__ import annotations

from shoal.core.events import Discarded, Heard, MessageAdded
from shoal.core.ids import LEAD, EntryId
from shoal.core.messages import Message, Text, Thinking
from shoal.surfaces.tui.script import Script, Words


def words(script: Script) -> list[tuple[str, bool]]:
    return [(block.text, block.broken) for block in script.blocks if isinstance(block, Words)]


def test_an_answer_stands_there_once_however_much_others_do_meanwhile() -> None:
    script = Script()
    script.hear(Heard(agent=LEAD, kind="thinking", text="hm"))
    script.hear(Heard(agent=LEAD, kind="text", text="one "))
    for number in range(9):
        script.remark(f"agent {number} starts")
    script.hear(Heard(agent=LEAD, kind="text", text="two"))
    assert words(script) == [("hm", False), ("one two", False)]
    whole = Message(role="assistant", content=(Thinking(thinking="hm", signature=""), Text(text="one two")))
    script.hear(MessageAdded(agent=LEAD, entry=EntryId("e-1"), message=whole, by="model"))
    assert words(script) == [("hm", False), ("one two", False)]


def test_an_answer_that_is_discarded_is_broken_off_behind_all_that_others_did() -> None:
    script = Script()
    script.hear(Heard(agent=LEAD, kind="text", text="half"))
    for number in range(9):
        script.remark(f"agent {number} starts")
    script.hear(Discarded(agent=LEAD, reason="lost", retry_in=1.0, attempt=1))
    script.hear(Heard(agent=LEAD, kind="text", text="whole"))
    assert words(script) == [("half", True), ("whole", False)]
