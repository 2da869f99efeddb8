"""Printer of one agent of a run: its text and tool calls, and when it is idle, asks or ends."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec.structs import replace

from shoal.core.agents.subagents import AgentResult
from shoal.core.conversation.transcript_entries import TranscriptMessageEntry
from shoal.core.events import (
    AgentEnded,
    AgentStarted,
    AssistantReplied,
    Event,
    MemberWentIdle,
    MemberWoken,
    ModelRequestSent,
    QuestionAsked,
    QueueItemAdded,
    SessionStarted,
    TextStreamed,
)
from shoal.core.ids import LEAD_ID, AgentId, EntryId
from shoal.core.text.text_format import to_one_line
from shoal.stores.files.home.home_paths import open_state_file
from shoal.surfaces.cli.plain.turn_printer import RunEventPrinter
from shoal.surfaces.terminal.screen import TerminalScreen
from shoal.surfaces.terminal.text_styles import BOLD, BOLD_CYAN, DIM, RED, YELLOW, get_agent_style
from shoal.wire.notification_text import MAIL_MESSAGE_PATTERN
from shoal.wire.transcript_codec import parse_transcript_line

ViewStage: TypeAlias = Literal["awaited", "there", "ended"]
_IDLE_TEXTS = {"available": "idle", "interrupted": "idle after an interrupt", "failed": "idle: it failed"}


class TranscriptMessageTailReader:
    """Reads new messages of a transcript in order; they are on disk before the journal mentions them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""
        self._waiting: deque[TranscriptMessageEntry] = deque()

    def take_user_texts(self, until: int) -> list[str]:
        """Return the texts sent to the agent up to this time, in milliseconds, since the last call."""
        self._read_new_entries()
        texts: list[str] = []
        while self._waiting and self._waiting[0].message.role == "user" and self._waiting[0].at <= until:
            entry = self._waiting.popleft()
            if entry.message.text and not entry.meta:
                texts.append(entry.message.text)
        return texts

    def take_answer(self, entry: EntryId) -> str | None:
        """Return the full text of an answer; None if it is not there."""
        self._read_new_entries()
        if all(said.id != entry for said in self._waiting):
            return None
        while (waiting_entry := self._waiting.popleft()).id != entry:
            pass
        return waiting_entry.message.text

    def _read_new_entries(self) -> None:
        try:
            with open_state_file(self._path) as file:
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            try:
                entry = parse_transcript_line(line).entry
            except ValueError:
                continue
            if isinstance(entry, TranscriptMessageEntry):
                self._waiting.append(entry)


class SingleAgentEventPrinter:
    """Prints every event of the run that is about one agent."""

    def __init__(self, target: str, screen: TerminalScreen) -> None:
        self._target = target
        self._screen = screen
        self._printer = RunEventPrinter(screen, is_observer=True)
        self.transcript: TranscriptMessageTailReader | None = None
        self.stage: ViewStage = "awaited"
        self.agent = LEAD_ID if target in ("lead", "team-lead") else AgentId(target)
        self.name = target

    def follow_agent(self, agent: AgentId) -> None:
        self.agent = agent

    def is_about_agent(self, event: Event) -> bool:
        match event:
            case AgentStarted(agent=agent, name=name, team=team):
                return self._target in (agent, name, f"{name}@{team}")
            case _:
                return event.agent == self.agent

    def print_event(self, event: Event, at: int) -> None:
        """Print an event about the agent, recorded at this time."""
        match event:
            case AgentStarted():
                self._print_agent_start(event)
            case SessionStarted(model=model, cwd=cwd):
                self.stage = "there"
                self._print_header("lead", f"{model} · {cwd}", None)
            case AgentEnded(completion=completion):
                self.stage = "ended"
                self._printer.write_note(*_format_agent_end(self.name, completion))
            case ModelRequestSent():
                for text in self.transcript.take_user_texts(at) if self.transcript is not None else ():
                    self._print_incoming_message(text)
            case AssistantReplied(entry=entry, preview=preview):
                full_answer = None if self.transcript is None else self.transcript.take_answer(entry)
                self._print_event_as_lead(
                    TextStreamed(
                        agent=LEAD_ID, kind="text", text=preview if full_answer is None else full_answer
                    )
                )
                self._print_event_as_lead(event)
            case _:
                self._print_agent_state(event)

    def _print_agent_state(self, event: Event) -> None:
        match event:
            case MemberWentIdle(reason=reason, detail=detail):
                text = to_one_line(f"{_IDLE_TEXTS[reason]} {detail}")
                self._printer.write_note(f"○ {text}", RED if reason == "failed" else DIM)
            case MemberWoken():
                self._printer.write_note("● working", DIM)
            case QuestionAsked(question=question):
                self._print_event_as_lead(event)
                self._printer.write_note(f"answer it: shoal ask answer {question.id}", DIM)
            case QueueItemAdded():
                pass  # printed when the agent reads it
            case _:
                self._print_event_as_lead(event)

    def print_note(self, text: str, style: str = DIM) -> None:
        self._printer.write_note(text, style)

    def _print_event_as_lead(self, event: Event) -> None:
        # The printer knows a single speaker, which it calls the lead.
        self._printer.print_event(replace(event, agent=LEAD_ID))

    def _print_agent_start(self, event: AgentStarted) -> None:
        is_restart, self.agent, self.stage = self.stage != "awaited", event.agent, "there"
        self.name = to_one_line(event.name or event.kind)
        if is_restart:
            self._printer.write_note("● continues", DIM)
            return
        team = f" · team {event.team}" if event.team else ""
        self._print_header(self.name, f"{event.kind} · {event.model}{team} · {event.cwd}", event.color)

    def _print_header(self, name: str, title: str, color: str | None) -> None:
        self._screen.end_line()
        self._screen.write(f"● {name}", f"{BOLD};{get_agent_style(color)}")
        self._screen.write(f"  {to_one_line(title)}\n", DIM)

    def _print_incoming_message(self, text: str) -> None:
        with self._printer.open_notice_block():
            for mail_match in MAIL_MESSAGE_PATTERN.finditer(text):
                self._screen.write(f"\n{mail_match['sender']} › ", BOLD_CYAN)
                self._screen.write(f"{mail_match['words'].strip()}\n", DIM)
            if user_text := MAIL_MESSAGE_PATTERN.sub("", text).strip():
                self._screen.write("\n› ", BOLD_CYAN)
                self._screen.write(f"{user_text}\n", BOLD)


def _format_agent_end(name: str, completion: AgentResult) -> tuple[str, str]:
    detail = f": {to_one_line(completion.detail)}" if completion.detail else ""
    match completion.status:
        case "completed":
            return f"✓ {name} has ended{detail}", DIM
        case "killed":
            return f"■ {name} was stopped{detail}", YELLOW
        case _:
            return f"✗ {name} failed{detail}", RED
