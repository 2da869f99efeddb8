"""Tells a person what happens in a turn: words as they arrive, each tool call folded into one line."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from shoal.core.events import (
    Answered,
    Asked,
    AssistantSaid,
    ConversationCompacted,
    Discarded,
    Event,
    Finished,
    Heard,
    Noted,
    PermissionDenied,
    RequestFailed,
    ToolFinished,
    ToolReturned,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    Undone,
)
from shoal.core.messages import result_text
from shoal.core.questions import Allowed, Denied
from shoal.surfaces.cli.outcomes import outcome
from shoal.surfaces.cli.paint import (
    BOLD,
    BOLD_CYAN,
    CYAN,
    DIM,
    ITALIC_DIM,
    RED,
    YELLOW,
    cut,
    one_line,
    seconds,
    width,
)
from shoal.surfaces.cli.screen import Screen

_SLOW = 2_000
"""Milliseconds from which on a call's duration is told."""
_ROOM_FOR_OUTCOME = 34


class _Call(Struct):
    tool: str
    preview: str
    text: str = ""
    data: Any = None


class Telling:
    """Fed with every event of a run, live or from its journal, which has previews alone."""

    def __init__(self, screen: Screen, *, prompts: bool = False) -> None:
        self._screen = screen
        self._prompts = prompts
        """Whether the person's prompts are told: not to the one who has just typed them."""
        self._calls: dict[str, _Call] = {}
        self._open: str | None = None
        """The call whose line stands there without its outcome."""
        self._begun = 0
        """Columns that line takes so far."""
        self._voice: str | None = None
        self._heard = False
        self._end_told = False

    def hear(self, event: Event) -> None:
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

    def note(self, text: str, style: str = DIM) -> None:
        """A line of the program's own, between what the agent says."""
        self._quiet()
        self._screen.write(f"  {text}\n", style)

    def _tell_rest(self, event: Event) -> None:
        match event:
            case TurnStarted(prompt=prompt):
                self._turn(prompt)
            case TurnEnded(reason=reason, detail=detail) | Finished(reason=reason, detail=detail):
                self._ended(reason, detail)
            case Asked() if self._open is not None:
                # The question shows the call, and its line is written when it really runs.
                self._screen.take_back()
                self._open = None
            case Answered(answer=answer):
                self.note(_answered(answer))
                if self._calls:
                    self._begin(next(iter(self._calls)))
            case Discarded() | RequestFailed(retry_in=None):
                self._broken_off()
        if (noted := _noted(event)) is not None:
            self.note(*noted)

    def _turn(self, prompt: str) -> None:
        self._end_told = False
        if self._prompts:
            self._quiet()
            self._screen.write("\n› ", BOLD_CYAN)
            self._screen.write(f"{prompt.strip()}\n", BOLD)

    def _say(self, voice: str, text: str) -> None:
        if self._voice != voice:
            text = text.lstrip("\n")
            if not text:
                return
            self._quiet()
            self._screen.write("\n")
            self._voice = voice
        self._heard = True
        self._screen.write(text, ITALIC_DIM if voice == "thinking" else "")

    def _said(self, preview: str) -> None:
        """From a journal, which has no deltas, this is all there is to tell."""
        if not self._heard and preview:
            self._say("text", preview if len(preview) < 200 else f"{preview} …")
        self._heard = False

    def _broken_off(self) -> None:
        if self._voice is not None:
            self._screen.write(" [broken off]", DIM)
        self._heard = False

    def _started(self, event: ToolStarted) -> None:
        self._calls[event.call] = _Call(event.tool, one_line(event.preview))
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
        # Room is left for the outcome, so that the call stays one line.
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
        del self._calls[event.call]
        self._open = None
        if self._calls:
            self._begin(next(iter(self._calls)))

    def _ended(self, reason: str, detail: str) -> None:
        """Told by two events, a journal has only the one, a full disk lets only the other through."""
        self._quiet()
        if self._end_told:
            return
        self._end_told = True
        self._calls.clear()
        if reason == "done":
            if detail:
                self.note(detail, YELLOW)
        elif reason == "interrupted":
            self.note("interrupted", YELLOW)
        else:
            self.note(f"stopped: {one_line(detail) or reason}", RED)

    def _quiet(self) -> None:
        self._screen.fresh_line()
        self._voice = None
        self._open = None


def _noted(event: Event) -> tuple[str, str] | None:
    match event:
        case Discarded(reason=reason, retry_in=delay, attempt=attempt):
            return f"⟳ asked again in {seconds(delay)} (attempt {attempt}): {one_line(reason)}", YELLOW
        case PermissionDenied(tool=tool, reason=reason):
            return f"✗ {tool} was not run: {one_line(reason)}", RED
        case ConversationCompacted(tokens_before=tokens):
            return f"the conversation goes on from a summary of itself ({tokens} tokens before)", DIM
        case Undone(turn=turn):
            return f"files are back to before turn {turn}", DIM
        case Noted(text=text):
            return one_line(text), YELLOW
        case _:
            return None


def _answered(answer: object) -> str:
    match answer:
        case Allowed(remember="once"):
            return "allowed once"
        case Allowed():
            return "allowed for this session"
        case Denied(reason=reason, by=by):
            return f"denied by {by}: {one_line(reason)}"
        case _:
            return "answered"
