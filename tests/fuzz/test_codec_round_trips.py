"""Every event, channel message, question and mail body is decoded as it was encoded."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shoal.app.run_view.run_view import RunView
from shoal.core.conversation.transcript_entries import (
    TranscriptCompactionMarker,
    TranscriptMessageEntry,
    TranscriptRewindMarker,
)
from shoal.core.events import JournaledEvent, JournalRecord
from shoal.core.ids import AgentId, SessionId
from shoal.core.permissions.questions import Answer, Question
from shoal.core.teams.mail_bodies import MailBody
from shoal.wire import (
    control_codec,
    journal_codec,
    mail_body_codec,
    member_channel_codec,
    question_codec,
    transcript_codec,
)
from shoal.wire.json_codec import encode_json

from . import struct_values
from .fuzz_inputs import limit_examples

ANY: Any = reduce(or_, JournaledEvent.__subclasses__())


@pytest.mark.parametrize("kind", JournaledEvent.__subclasses__(), ids=lambda kind: kind.__name__)
@limit_examples(5)
@given(data=st.data())
def test_a_journal_line_is_decoded_as_encoded(kind: Any, data: st.DataObject) -> None:
    event = data.draw(struct_values.values_of(kind))
    line = journal_codec.encode_journal_line(event, 1_770_977_603_516)
    assert line.count(b"\n") == 1
    assert journal_codec.parse_journal_line(line) == (1_770_977_603_516, event)
    assert control_codec.parse_control_output(control_codec.encode_event_for_subscriber(event)) == event


@pytest.mark.slow
@limit_examples(40)
@given(st.lists(struct_values.values_of(ANY), max_size=12))
def test_a_run_view_can_be_computed_from_any_events(events: list[Any]) -> None:
    picture = RunView()
    for number, event in enumerate(events):
        at = 1_770_977_603_516 + number
        picture.apply_record(JournalRecord(offset=number, next=number + 1, at=at, event=event))
        encode_json(picture.get_delta_since(number))
    assert encode_json(picture.get_delta_since(0))
    assert len(list(picture.iter_agent_rows())) == len({row.id for row in picture.iter_agent_rows()})
    picture.list_open_questions()


WORDS: dict[str, tuple[Any, Any, Any]] = {
    "up": (
        member_channel_codec.MessageFromMember,
        member_channel_codec.encode_member_channel_message,
        member_channel_codec.parse_message_from_member,
    ),
    "down": (
        member_channel_codec.MessageFromLead,
        member_channel_codec.encode_member_channel_message,
        member_channel_codec.parse_message_from_lead,
    ),
    "question": (Question, question_codec.encode_question, question_codec.parse_question),
    "answer": (Answer, question_codec.encode_answer, question_codec.parse_answer),
    "body": (MailBody, mail_body_codec.encode_mail_body, mail_body_codec.parse_mail_body),
}


@pytest.mark.parametrize(("kind", "write", "read"), WORDS.values(), ids=WORDS)
@limit_examples(40)
@given(data=st.data())
def test_messages_between_processes_are_decoded_as_encoded(
    kind: Any, write: Any, read: Any, data: st.DataObject
) -> None:
    said = data.draw(struct_values.values_of(kind))
    assert read(write(said)) == said


@limit_examples(40)
@given(struct_values.values_of(reduce(or_, control_codec.RunControlCommand.__subclasses__())))
def test_a_control_command_is_decoded_as_encoded(command: Any) -> None:
    heard = control_codec.parse_control_request(control_codec.encode_control_request("r", command))
    assert heard == control_codec.RunControlRequest(request_id="r", command=command)


LINES = transcript_codec.TranscriptEncoder(session=SessionId("s"), cwd="/w", version="1", agent=AgentId("a"))
YEAR_10000 = 253_402_300_800_000
"""In milliseconds. A transcript holds ISO times, which end before it."""


@limit_examples(40)
@given(
    struct_values.values_of(TranscriptMessageEntry)
    | struct_values.values_of(TranscriptCompactionMarker)
    | struct_values.values_of(TranscriptRewindMarker)
)
def test_a_transcript_line_is_decoded_as_encoded(entry: Any) -> None:
    assume(entry.at < YEAR_10000)
    # Only replies of a model, which are assistant messages, have billing.
    assume(getattr(entry, "billing", None) is None or entry.message.role == "assistant")
    line = LINES.encode_entry(entry)
    assert line.count(b"\n") == 1
    assert transcript_codec.parse_transcript_line(line).entry == entry
