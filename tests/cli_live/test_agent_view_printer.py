"""What the view of one agent prints for its events and its transcript."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from shoal.core.agents.subagents import AgentResult
from shoal.core.conversation.messages import Message, TextBlock, user_message
from shoal.core.conversation.transcript_entries import TranscriptMessageEntry
from shoal.core.events import (
    AgentEnded,
    AgentStarted,
    AssistantReplied,
    Event,
    MemberWentIdle,
    MemberWoken,
    ModelRequestSent,
    NoteAdded,
    QuestionAsked,
    QueueItemAdded,
    SessionStarted,
    ToolStarted,
)
from shoal.core.ids import LEAD_ID, AgentId, EntryId, RequestId, SessionId
from shoal.core.permissions.questions import PermissionQuestion
from shoal.surfaces.cli.plain.agent_view_printer import SingleAgentEventPrinter, TranscriptMessageTailReader
from shoal.surfaces.terminal.screen import PlainTerminalScreen
from shoal.wire.transcript_codec import TranscriptEncoder

JOE = AgentId("a1")


def make_start(**facts: Any) -> AgentStarted:
    known: dict[str, Any] = {
        "agent": JOE,
        "kind": "plumber",
        "name": "joe",
        "description": "mend",
        "parent": LEAD_ID,
        "call": "c",
        "depth": 1,
        "model": "m",
        "mode": "default",
        "background": False,
        "cwd": "/w",
    }
    return AgentStarted(**known | facts)


def make_end(status: Any, detail: str = "") -> AgentEnded:
    result = AgentResult(
        id="r",
        agent=JOE,
        status=status,
        kind="plumber",
        description="d",
        report_to=LEAD_ID,
        call="c",
        detail=detail,
    )
    return AgentEnded(agent=JOE, completion=result)


def make_session_start() -> SessionStarted:
    return SessionStarted(
        agent=LEAD_ID, session=SessionId("s"), cwd="/w", model="m", mode="default", tools=()
    )


QUESTION = PermissionQuestion(id="q1", agent=JOE, tool_use_id="t", tool="Bash", input={}, reason="r")
SENT = ModelRequestSent(agent=JOE, request=RequestId("r"), model="m")


def make_reply(entry: str, preview: str) -> AssistantReplied:
    return AssistantReplied(agent=JOE, entry=EntryId(entry), preview=preview, tool_uses=0)


class View:
    def __init__(self, target: str = "joe") -> None:
        self.stream = io.StringIO()
        self.printer = SingleAgentEventPrinter(target, PlainTerminalScreen(self.stream))

    def print_events(self, *events: Event, at: int = 10) -> str:
        before = len(self.stream.getvalue())
        for event in events:
            self.printer.print_event(event, at)
        return self.stream.getvalue()[before:]


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (make_start(), "● joe  plumber · m · /w\n"),
        (make_start(name=""), "● plumber  plumber · m · /w\n"),
        (make_start(team="roof"), "● joe  plumber · m · team roof · /w\n"),
        (make_session_start(), "● lead  m · /w\n"),
        (make_end("completed"), "  ✓ joe has ended\n"),
        (make_end("completed", "all\ndone"), "  ✓ joe has ended: all done\n"),
        (make_end("killed"), "  ■ joe was stopped\n"),
        (make_end("failed", "why"), "  ✗ joe failed: why\n"),
        (MemberWentIdle(agent=JOE, reason="available"), "  ○ idle\n"),
        (MemberWentIdle(agent=JOE, reason="failed", detail="a\nb"), "  ○ idle: it failed a b\n"),
        (MemberWoken(agent=JOE), "  ● working\n"),
        (
            QuestionAsked(agent=JOE, question=QUESTION),
            "  ? waiting for an answer: may Bash run?\n  answer it: shoal ask answer q1\n",
        ),
        (QueueItemAdded(agent=JOE, item="i", by="user", text="later"), ""),
        (NoteAdded(agent=JOE, text="noted"), "  noted\n"),
        (make_reply("e1", "the answer"), "\nthe answer"),
        (SENT, ""),
        (ToolStarted(agent=JOE, call="c", tool="Bash", preview="make"), "● Bash make"),
    ],
)
def test_each_event_is_printed(event: Event, text: str) -> None:
    assert View().print_events(event) == text


def test_the_stage_follows_start_end_and_a_second_start() -> None:
    view = View()
    assert view.printer.stage == "awaited"
    view.print_events(make_start())
    assert (view.printer.stage, view.printer.agent, view.printer.name) == ("there", JOE, "joe")
    view.print_events(make_end("failed"))
    assert view.printer.stage == "ended"
    assert view.print_events(make_start()) == "  ● continues\n"
    assert view.printer.stage == "there"
    lead = View("lead")
    lead.print_events(make_session_start())
    assert lead.printer.stage == "there"
    view.printer.print_note("by hand")
    assert view.stream.getvalue().endswith("  by hand\n")


@pytest.mark.parametrize(
    ("target", "event", "is_about"),
    [
        ("joe", make_start(), True),
        ("a1", make_start(), True),
        ("joe@roof", make_start(team="roof"), True),
        ("ann", make_start(), False),
        ("a1", NoteAdded(agent=JOE, text=""), True),
        ("joe", NoteAdded(agent=JOE, text=""), False),
        ("lead", NoteAdded(agent=LEAD_ID, text=""), True),
        ("team-lead", NoteAdded(agent=LEAD_ID, text=""), True),
        ("lead", NoteAdded(agent=JOE, text=""), False),
    ],
)
def test_events_of_the_agent_are_recognized(target: str, event: Event, is_about: bool) -> None:
    assert View(target).printer.is_about_agent(event) is is_about


def test_an_agent_can_be_followed_by_its_id() -> None:
    view = View()
    view.printer.follow_agent(JOE)
    assert view.printer.is_about_agent(NoteAdded(agent=JOE, text=""))


class Transcript:
    """A transcript that grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._encoder = TranscriptEncoder(session=SessionId("s"), cwd="/", version="1", agent=JOE)
        self._last: EntryId | None = None

    def encode(self, entry: str, message: Message, at: int, *, meta: bool = False) -> bytes:
        ident = EntryId(entry)
        line = self._encoder.encode_entry(
            TranscriptMessageEntry(id=ident, parent=self._last, at=at, message=message, meta=meta)
        )
        self._last = ident
        return line

    def append(self, data: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(data)

    def add_user_text(self, entry: str, text: str, at: int, *, meta: bool = False) -> None:
        self.append(self.encode(entry, user_message(text), at, meta=meta))

    def add_answer(self, entry: str, text: str, at: int) -> None:
        self.append(self.encode(entry, Message(role="assistant", content=(TextBlock(text=text),)), at))


def test_new_messages_of_a_transcript_are_read_once_and_in_order(tmp_path: Path) -> None:
    transcript = Transcript(tmp_path / "t.jsonl")
    reader = TranscriptMessageTailReader(transcript.path)
    assert reader.take_user_texts(99) == []
    assert reader.take_answer(EntryId("e3")) is None
    transcript.add_user_text("e1", "first", 1)
    transcript.add_user_text("e2", "from the runtime", 2, meta=True)
    transcript.append(b"damaged\n")
    line = transcript.encode("e3", user_message("third"), 3)
    transcript.append(line[:9])
    assert reader.take_user_texts(0) == []
    assert reader.take_user_texts(2) == ["first"]
    transcript.append(line[9:])
    transcript.add_answer("e4", "an answer", 4)
    transcript.add_user_text("e5", "after", 5)
    assert reader.take_user_texts(2) == []
    assert reader.take_user_texts(3) == ["third"]
    assert reader.take_user_texts(9) == []
    assert reader.take_answer(EntryId("e9")) is None
    assert reader.take_answer(EntryId("e4")) == "an answer"
    assert reader.take_user_texts(9) == ["after"]


def test_an_answer_before_others_that_were_skipped_is_found(tmp_path: Path) -> None:
    transcript = Transcript(tmp_path / "t.jsonl")
    transcript.add_answer("e1", "one", 1)
    transcript.add_user_text("e2", "two", 2)
    transcript.add_answer("e3", "three", 3)
    reader = TranscriptMessageTailReader(transcript.path)
    assert reader.take_answer(EntryId("e3")) == "three"
    assert reader.take_answer(EntryId("e1")) is None


def test_incoming_texts_and_full_answers_come_from_the_transcript(tmp_path: Path) -> None:
    transcript = Transcript(tmp_path / "t.jsonl")
    view = View()
    view.printer.transcript = TranscriptMessageTailReader(transcript.path)
    mail = '<teammate-message teammate_id="ann" x="y">\n hello \n</teammate-message>'
    transcript.add_user_text("e1", f"{mail}\n\nmy own words", 1)
    assert view.print_events(SENT) == "\nann › hello\n\n› my own words\n"
    transcript.add_user_text("e2", mail, 2)
    assert view.print_events(SENT) == "\nann › hello\n"
    transcript.add_answer("e3", "the full answer", 3)
    assert view.print_events(make_reply("e3", "the full…")) == "\nthe full answer"
    assert view.print_events(make_reply("e4", "only a preview")) == "\n\nonly a preview"
