"""Printer of a turn: streamed text, and each tool call folded into one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from shoal.app.picture.standing import Standing, Standings
from shoal.core.events import (
    Answered,
    Asked,
    AssistantSaid,
    BudgetWarned,
    Discarded,
    Event,
    Finished,
    Heard,
    Noted,
    RequestFailed,
    ToolFinished,
    ToolReturned,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from shoal.core.ids import LEAD
from shoal.core.messages import result_text
from shoal.core.questions import (
    Question,
)
from shoal.core.wording import one_line, seconds
from shoal.surfaces.terminal.event_words import agent_words, noted, previewed
from shoal.surfaces.terminal.outcomes import outcome, todo_lines
from shoal.surfaces.terminal.paint import (
    BOLD,
    BOLD_CYAN,
    CYAN,
    DIM,
    ITALIC_DIM,
    RED,
    YELLOW,
    cut,
    style_of,
    width,
)
from shoal.surfaces.terminal.question_words import answered, wanted
from shoal.surfaces.terminal.screen import Screen
from shoal.surfaces.terminal.sentences import ending

if TYPE_CHECKING:
    from shoal.surfaces.terminal.dialogue import Write

_SLOW = 2_000
"""Milliseconds from which a call's duration is shown."""
_ROOM_FOR_OUTCOME = 34
_TOLD_OTHERWISE = frozenset({"TodoWrite", "AskUserQuestion"})
"""Tools whose input is shown in a better form than JSON: as a list of steps, as a question."""


class _Call(Struct):
    tool: str
    preview: str
    text: str = ""
    data: Any = None


class Telling:
    """Prints every event of a run, live or from its journal, which has only previews."""

    def __init__(self, screen: Screen, *, onlooker: bool = False, standings: Standings | None = None) -> None:
        self._screen = screen
        self._standings = standings or Standings()
        """Has already applied each event; it knows the agents' names."""
        self._onlooker = onlooker
        """True if prompts and questions are printed too; a participant sees them elsewhere."""
        self._calls: dict[str, _Call] = {}
        self._open: str | None = None
        """Call whose line is printed without its outcome."""
        self._begun = 0
        """Columns used by that line so far."""
        self._voice: str | None = None
        self._heard = False
        self._whole = False
        """True if the last text was a complete answer: the next text begins another one."""

    def hear(self, event: Event) -> None:
        if event.agent != LEAD:
            self._tell_of_agent(event)
            return
        match event:
            case Heard(kind="tool_input"):
                pass
            case Heard(kind=kind, text=text):
                self._say(kind, text)
            case ToolStarted():
                self._started(event)
            case ToolReturned(call=call, result=result, data=data) if call in self._calls:
                self._calls[call].text, self._calls[call].data = result_text(result), data
            case ToolFinished():
                self._finished(event)
            case AssistantSaid(preview=preview):
                self._said(preview)
            case _:
                self._tell_rest(event)

    def _tell_of_agent(self, event: Event) -> None:
        """Print an agent's starts, ends and questions, one line each; its text is never printed here."""
        it = self._standings.all.get(event.agent) or Standing(event.agent, 0.0)
        match event:
            case Noted() if self._standings.is_told(event):
                pass
            case Answered(answer=answer):
                if (words := answered(answer)) is not None:
                    self.note(f"{it.who}: {words}")
            case Asked(question=question) if self._onlooker:
                self.note(f"? {it.who} waits for an answer: {wanted(question)}", YELLOW)
            case Noted() | BudgetWarned() if (told := noted(event)) is not None:
                self.note(*told)
            case _:
                if (words := agent_words(event, it)) is not None:
                    with self.aside():
                        self._screen.write("● ", style_of(it.color))
                        self._screen.write(f"{words}\n")

    def note(self, text: str, style: str = DIM) -> None:
        """Print a line of the program, between the agent's text."""
        with self.aside():
            self._screen.write(f"  {text}\n", style)

    @contextmanager
    def aside(self) -> Iterator[Write]:
        """Print several lines above the line of a running call."""
        running = self._open
        if running is not None:
            self._screen.take_back()
        self._quiet()
        yield self._screen.write
        self._screen.fresh_line()
        if running is not None and self._screen.live:
            self._begin(running)

    def _tell_rest(self, event: Event) -> None:
        match event:
            case TurnStarted(prompt=prompt) if self._onlooker and prompt.strip():
                self._quiet()
                self._screen.write("\n› ", BOLD_CYAN)
                self._screen.write(f"{previewed(prompt).strip()}\n", BOLD)
            case TurnEnded(reason=reason, detail=detail) if self._onlooker:
                self._ended(reason, detail)
            case Finished():
                self._ended(event.reason, ending(event) or event.detail)
            case Asked(question=question):
                self._asked(question)
            case Answered(answer=answer):
                if (words := answered(answer)) is not None:
                    self.note(words)
                if self._calls:
                    self._begin(next(iter(self._calls)))
            case Discarded() | RequestFailed(retry_in=None):
                self._broken_off()
        if (told := noted(event)) is not None:
            self.note(*told)

    def _asked(self, question: Question) -> None:
        """Print a question: it shows the call, so the call's line is removed until the call really runs."""
        if self._open is not None:
            self._screen.take_back()
            self._open = None
        if self._onlooker:
            self.note(f"? waits for an answer: {wanted(question)}", YELLOW)

    def _say(self, voice: str, text: str) -> None:
        if self._voice != voice or self._whole:
            text = text.lstrip("\n")
            if not text:
                return
            self._quiet()
            self._screen.write("\n")
            self._voice = voice
            self._whole = False
        self._heard = True
        self._screen.write(text, ITALIC_DIM if voice == "thinking" else "")

    def _said(self, preview: str) -> None:
        """Finish a text; from a journal, which has no deltas, the preview is all there is to print."""
        if not self._heard and preview:
            self._say("text", previewed(preview))
        self._heard = False
        self._whole = True

    def _broken_off(self) -> None:
        if self._voice is not None:
            self._screen.write(" [broken off]", DIM)
        self._heard = False

    def _started(self, event: ToolStarted) -> None:
        preview = "" if event.tool in _TOLD_OTHERWISE else one_line(event.preview)
        self._calls[event.call] = _Call(event.tool, preview)
        if self._open is None:
            self._begin(event.call)

    def _begin(self, call: str) -> None:
        it = self._calls[call]
        was_telling = self._voice is not None
        self._quiet()
        if was_telling:
            self._screen.write("\n")
        self._screen.write("● ", CYAN)
        self._screen.write(it.tool, BOLD)
        # Leave room for the outcome, so that the call stays on one line.
        preview = cut(it.preview, max(self._screen.columns - width(it.tool) - _ROOM_FOR_OUTCOME, 12))
        self._screen.write(f" {preview}" if preview else "")
        self._begun = 3 + width(it.tool) + width(preview)
        self._open = call

    def _finished(self, event: ToolFinished) -> None:
        it = self._calls.get(event.call)
        if it is None:
            return
        if self._open != event.call:
            self._quiet()
            self._begin(event.call)
        words, style = outcome(it.tool, it.text or event.preview, it.data, is_error=event.is_error)
        took = f"  {seconds(event.duration_ms / 1000)}" if event.duration_ms >= _SLOW else ""
        room = self._screen.columns - self._begun - 2 - len(took)
        self._screen.write(f"  {cut(words, max(room, 12))}", style)
        self._screen.write(f"{took}\n", DIM)
        for line, line_style in todo_lines(it.data):
            self._screen.write(f"    {line}\n", line_style)
        del self._calls[event.call]
        self._open = None
        if self._calls:
            self._begin(next(iter(self._calls)))

    def _ended(self, reason: str, words: str) -> None:
        self._quiet()
        self._calls.clear()
        if reason == "done":
            if words:
                self.note(words, YELLOW)
        elif reason == "interrupted":
            self.note("interrupted", YELLOW)
        else:
            self.note(f"✗ {words or reason}", RED)

    def _quiet(self) -> None:
        self._screen.fresh_line()
        self._voice = None
        self._open = None
