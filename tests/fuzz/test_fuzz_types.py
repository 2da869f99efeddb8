"""What we write ourselves is read as it was, for every event, word, question and body there is."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.app.picture.picture import Picture
from shoal.core.bodies import Body
from shoal.core.entries import Compacted, Rewound, Said
from shoal.core.events import Journaled
from shoal.core.ids import AgentId, SessionId
from shoal.core.questions import Answer, Question
from shoal.wire import bodies, control, journal, outpost, questions, transcript
from shoal.wire.content import dump

from . import typed
from .inputs import some

ANY: Any = reduce(or_, Journaled.__subclasses__())


@pytest.mark.parametrize("kind", Journaled.__subclasses__(), ids=lambda kind: kind.__name__)
@some(5)
@given(data=st.data())
def test_an_event_is_in_the_journal_as_it_was(kind: Any, data: st.DataObject) -> None:
    event = data.draw(typed.of(kind))
    line = journal.journal_line(event, 1_770_977_603_516)
    assert line.count(b"\n") == 1
    assert journal.read_event(line) == (1_770_977_603_516, event)
    assert control.read_told(control.event_line(event)) == event


@some(40)
@given(st.lists(typed.of(ANY), max_size=12))
def test_a_picture_is_drawn_of_any_events(events: list[Any]) -> None:
    picture = Picture()
    for number, event in enumerate(events):
        at = 1_770_977_603_516 + number
        picture.record(journal.Recorded(offset=number, next=number + 1, at=at, event=event))
        dump(picture.since(number))
    assert dump(picture.since(0))
    assert len(list(picture.agents())) == len({row.id for row in picture.agents()})
    picture.open_questions()


WORDS: dict[str, tuple[Any, Any, Any]] = {
    "up": (outpost.Up, outpost.word, outpost.up),
    "down": (outpost.Down, outpost.word, outpost.down),
    "question": (Question, questions.question_file, questions.read_question),
    "answer": (Answer, questions.answer_file, questions.read_answer),
    "body": (Body, bodies.body_text, bodies.read_body),
}


@pytest.mark.parametrize(("kind", "write", "read"), WORDS.values(), ids=WORDS)
@some(40)
@given(data=st.data())
def test_what_processes_tell_each_other_is_heard_as_it_was(
    kind: Any, write: Any, read: Any, data: st.DataObject
) -> None:
    said = data.draw(typed.of(kind))
    assert read(write(said)) == said


@some(40)
@given(typed.of(reduce(or_, control.Command.__subclasses__())))
def test_a_command_for_a_run_is_heard_as_it_was(command: Any) -> None:
    heard = control.read_request(control.request_line("r", command))
    assert heard == control.ControlRequest(request_id="r", command=command)


LINES = transcript.Lines(session=SessionId("s"), cwd="/w", version="1", agent=AgentId("a"))


@some(40)
@given(typed.of(Said) | typed.of(Compacted) | typed.of(Rewound))
def test_an_entry_is_in_the_transcript_as_it_was(entry: Any) -> None:
    line = LINES.line(entry)
    assert line.count(b"\n") == 1
    assert transcript.read_line(line).entry == entry
