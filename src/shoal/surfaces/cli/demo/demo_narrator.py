"""Narration of a demo: the lead's streamed text, and lines that wait until text or a question is complete."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from shoal.app.run_view.agent_status import RunViewAgentsState
from shoal.core.events import (
    AssistantReplied,
    Event,
    ModelRequestFailed,
    NoteAdded,
    RunFinished,
    TextStreamed,
    ToolFinished,
    ToolOutputReturned,
    ToolStarted,
)
from shoal.core.text.text_format import to_one_line
from shoal.surfaces.cli.plain.turn_printer import RunEventPrinter
from shoal.surfaces.terminal.screen import TerminalScreen
from shoal.surfaces.terminal.text_styles import RED


class DemoNarrator:
    """Writes the lead's events and other lines; calls of `silent_tools` are shown only by their effects."""

    def __init__(
        self, screen: TerminalScreen, statuses: RunViewAgentsState, *, silent_tools: frozenset[str]
    ) -> None:
        self._screen = screen
        self._printer = RunEventPrinter(screen, statuses=statuses)
        self._silent_tools = silent_tools
        self._seen_notes: set[str] = set()
        self._is_streaming = self._needs_blank_line = self._is_question_open = False
        """True while the lead's text streams, if its text was the last output, and while a question is
        open."""
        self._held_lines: list[tuple[tuple[str, str], ...]] = []

    def narrate_lead_event(self, event: Event) -> None:
        match event:
            case ToolFinished(tool=tool, is_error=True, preview=preview) if tool in self._silent_tools:
                self.add_line(("✗ ", RED), (f"{tool}: {to_one_line(preview)}", RED))
                return
            case ToolStarted(tool=tool) | ToolOutputReturned(tool=tool) | ToolFinished(tool=tool):
                if tool in self._silent_tools:
                    return
                self._needs_blank_line = self._needs_blank_line and not isinstance(event, ToolStarted)
            case NoteAdded(text=text) if not self._is_first_note_on_subject(text):
                return
            case TextStreamed(kind="text"):
                self._is_streaming = self._needs_blank_line = True
            case AssistantReplied() | ModelRequestFailed() | RunFinished():
                self._is_streaming = False
            case _:
                pass
        self._printer.print_event(event)
        self._write_held_lines()

    def add_line(self, *parts: tuple[str, str]) -> None:
        """Add a line, given as parts with their styles."""
        self._held_lines.append(parts)
        self._write_held_lines()

    def request_blank_line(self) -> None:
        """Leave a blank line before the next line."""
        self._needs_blank_line = True

    @contextmanager
    def pause_for_question(self) -> Iterator[None]:
        """Hold back all other lines while a question is shown and answered."""
        self._is_question_open = True
        self._screen.end_line()
        self._screen.write("\n")
        try:
            yield
        finally:
            self._is_question_open, self._needs_blank_line = False, True
            self._write_held_lines()

    def _is_first_note_on_subject(self, text: str) -> bool:
        # Each agent's sandbox reports the same about this machine, with a reason for its own directory.
        subject = text.partition(":")[0]
        is_known = subject in self._seen_notes
        self._seen_notes.add(subject)
        return not is_known

    def _write_held_lines(self) -> None:
        while self._held_lines and not self._is_streaming and not self._is_question_open:
            parts = self._held_lines.pop(0)
            with self._printer.open_notice_block():
                self._screen.write("\n" if self._needs_blank_line else "")
                self._needs_blank_line = False
                for text, style in (*parts, ("\n", "")):
                    self._screen.write(text, style)
