"""Printer of one agent of a run: its text and tool calls, and when it is idle, asks or ends."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec.structs import replace

from shoal.core.agents import Completion
from shoal.core.entries import Said
from shoal.core.events import (
    AgentEnded,
    AgentStarted,
    Asked,
    AssistantSaid,
    Event,
    Heard,
    MemberRested,
    MemberWoken,
    Queued,
    RequestSent,
    SessionStarted,
)
from shoal.core.ids import LEAD, AgentId, EntryId
from shoal.core.wording import one_line
from shoal.surfaces.cli.plain.telling import Telling
from shoal.surfaces.terminal.paint import BOLD, BOLD_CYAN, DIM, RED, YELLOW, style_of
from shoal.surfaces.terminal.screen import Screen
from shoal.wire.notices import LETTER
from shoal.wire.transcript import read_line

Stage: TypeAlias = Literal["awaited", "there", "ended"]
_RESTS = {"available": "idle", "interrupted": "idle: it was interrupted", "failed": "idle: it failed"}


class Words:
    """Reads new messages of a transcript in order; they are on disk before the journal mentions them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""
        self._waiting: deque[Said] = deque()

    def heard(self, until: int) -> list[str]:
        """Return the texts sent to the agent up to this time, in milliseconds, since the last call."""
        self._read()
        found: list[str] = []
        while self._waiting and self._waiting[0].message.role == "user" and self._waiting[0].at <= until:
            said = self._waiting.popleft()
            if said.message.text and not said.meta:
                found.append(said.message.text)
        return found

    def answer(self, entry: EntryId) -> str | None:
        """Return the full text of an answer; None if it is not there."""
        self._read()
        if all(said.id != entry for said in self._waiting):
            return None
        while (said := self._waiting.popleft()).id != entry:
            pass
        return said.message.text

    def _read(self) -> None:
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            try:
                entry = read_line(line).entry
            except ValueError:
                continue
            if isinstance(entry, Said):
                self._waiting.append(entry)


class Viewing:
    """Prints every event of the run that is about one agent."""

    def __init__(self, wanted: str, screen: Screen) -> None:
        self._wanted = wanted
        self._screen = screen
        self._telling = Telling(screen, onlooker=True)
        self.words: Words | None = None
        self.stage: Stage = "awaited"
        self.agent = LEAD if wanted in ("lead", "team-lead") else AgentId(wanted)
        self.name = wanted

    def concerns(self, event: Event) -> bool:
        match event:
            case AgentStarted(agent=agent, name=name, team=team):
                return self._wanted in (agent, name, f"{name}@{team}")
            case _:
                return event.agent == self.agent

    def hear(self, event: Event, at: int) -> None:
        """Print an event about the agent, recorded at this time."""
        match event:
            case AgentStarted():
                self._started(event)
            case SessionStarted(model=model, cwd=cwd):
                self.stage = "there"
                self._head("lead", f"{model} · {cwd}", None)
            case AgentEnded(completion=completion):
                self.stage = "ended"
                self._telling.note(*_ended(self.name, completion))
            case RequestSent():
                for text in self.words.heard(at) if self.words is not None else ():
                    self._said_to(text)
            case AssistantSaid(entry=entry, preview=preview):
                whole = None if self.words is None else self.words.answer(entry)
                self._tell(Heard(agent=LEAD, kind="text", text=preview if whole is None else whole))
                self._tell(event)
            case _:
                self._tell_state(event)

    def _tell_state(self, event: Event) -> None:
        match event:
            case MemberRested(reason=reason, detail=detail):
                words = one_line(f"{_RESTS[reason]} {detail}")
                self._telling.note(f"○ {words}", RED if reason == "failed" else DIM)
            case MemberWoken():
                self._telling.note("● at work", DIM)
            case Asked(question=question):
                self._tell(event)
                self._telling.note(f"answer it with: shoal ask answer {question.id}", DIM)
            case Queued():
                pass  # printed when the agent reads it
            case _:
                self._tell(event)

    def note(self, text: str, style: str = DIM) -> None:
        self._telling.note(text, style)

    def _tell(self, event: Event) -> None:
        # The printer knows a single speaker, which it calls the lead.
        self._telling.hear(replace(event, agent=LEAD))

    def _started(self, event: AgentStarted) -> None:
        again, self.agent, self.stage = self.stage != "awaited", event.agent, "there"
        self.name = one_line(event.name or event.kind)
        if again:
            self._telling.note("● it goes on", DIM)
            return
        team = f" · team {event.team}" if event.team else ""
        self._head(self.name, f"{event.kind} · {event.model}{team} · {event.cwd}", event.color)

    def _head(self, name: str, about: str, color: str | None) -> None:
        self._screen.fresh_line()
        self._screen.write(f"● {name}", f"{BOLD};{style_of(color)}")
        self._screen.write(f"  {one_line(about)}\n", DIM)

    def _said_to(self, text: str) -> None:
        with self._telling.aside():
            for letter in LETTER.finditer(text):
                self._screen.write(f"\n{letter['sender']} › ", BOLD_CYAN)
                self._screen.write(f"{letter['words'].strip()}\n", DIM)
            if own := LETTER.sub("", text).strip():
                self._screen.write("\n› ", BOLD_CYAN)
                self._screen.write(f"{own}\n", BOLD)


def _ended(name: str, completion: Completion) -> tuple[str, str]:
    detail = f": {one_line(completion.detail)}" if completion.detail else ""
    match completion.status:
        case "completed":
            return f"✓ {name} has ended{detail}", DIM
        case "killed":
            return f"■ {name} was stopped{detail}", YELLOW
        case _:
            return f"✗ {name} failed{detail}", RED
