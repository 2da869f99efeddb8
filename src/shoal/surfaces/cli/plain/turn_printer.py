"""Printer of a turn: streamed text, and each tool call folded into one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from shoal.app.run_view.agent_status import AgentStatusRecord, RunViewAgentsState
from shoal.core.conversation.messages import extract_tool_result_text
from shoal.core.events import (
    AssistantReplied,
    BudgetThresholdReached,
    Event,
    ModelRequestFailed,
    NoteAdded,
    PartialReplyDiscarded,
    QuestionAnswered,
    QuestionAsked,
    RepetitionStopped,
    RunFinished,
    TextStreamed,
    ToolFinished,
    ToolOutputReturned,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from shoal.core.ids import LEAD_ID
from shoal.core.permissions.questions import (
    Question,
)
from shoal.core.text.text_format import format_duration, to_one_line
from shoal.surfaces.terminal.event_text import (
    describe_background_agent_event,
    describe_notice_event,
    mark_truncated_preview,
)
from shoal.surfaces.terminal.question_text import describe_answer, describe_question
from shoal.surfaces.terminal.screen import TerminalScreen
from shoal.surfaces.terminal.text_styles import (
    BOLD,
    BOLD_CYAN,
    CYAN,
    DIM,
    ITALIC_DIM,
    RED,
    YELLOW,
    get_agent_style,
    measure_text_width,
    truncate_text,
)
from shoal.surfaces.terminal.tool_outcomes import describe_tool_outcome, format_todo_lines
from shoal.surfaces.terminal.user_messages import describe_turn_end

if TYPE_CHECKING:
    from shoal.surfaces.terminal.terminal_controller import StyledTextWriter

_SLOW_CALL_MS = 2_000
"""Minimum duration in milliseconds for a call's duration to be shown."""
_OUTCOME_WIDTH = 34
_TOOLS_WITHOUT_PREVIEW = frozenset({"TodoWrite", "AskUserQuestion"})
"""Tools whose input is shown in a better form than JSON, such as a list of steps or a question."""


class _UnfinishedToolCall(Struct):
    tool: str
    preview: str
    text: str = ""
    data: Any = None


class RunEventPrinter:
    """Prints every event of a run, live or from its journal, which has only previews."""

    def __init__(
        self, screen: TerminalScreen, *, is_observer: bool = False, statuses: RunViewAgentsState | None = None
    ) -> None:
        self._screen = screen
        self._statuses = statuses or RunViewAgentsState()
        """Has already applied each event and can look up the agents' names."""
        self._is_observer = is_observer
        """True if prompts and questions are printed too; a participant sees them elsewhere."""
        self._calls: dict[str, _UnfinishedToolCall] = {}
        self._open_call: str | None = None
        """Call whose line is printed without its outcome."""
        self._open_width = 0
        """Columns used by that line so far."""
        self._text_kind: str | None = None
        self._has_streamed = False
        self._is_answer_complete = False
        """True if the last text was a complete answer: the next text begins another one."""

    def print_event(self, event: Event) -> None:
        if event.agent != LEAD_ID:
            self._print_sub_agent_event(event)
            return
        match event:
            case TextStreamed(kind="tool_input"):
                pass
            case TextStreamed(kind=kind, text=text):
                self._print_streamed_text(kind, text)
            case ToolStarted():
                self._print_tool_call_start(event)
            case ToolOutputReturned(call=call, result=result, data=data) if call in self._calls:
                self._calls[call].text, self._calls[call].data = extract_tool_result_text(result), data
            case ToolFinished():
                self._print_tool_call_end(event)
            case AssistantReplied(preview=preview):
                self._finish_reply_text(preview)
            case _:
                self._print_other_event(event)

    def _print_sub_agent_event(self, event: Event) -> None:
        """Print an agent's starts, ends and questions, one line each; its text is never printed here."""
        status = self._statuses.all.get(event.agent) or AgentStatusRecord(event.agent, 0.0)
        match event:
            case NoteAdded() if self._statuses.is_repeated_note(event):
                pass
            case QuestionAnswered(answer=answer):
                if (description := describe_answer(answer)) is not None:
                    self.write_note(f"{status.display_name}: {description}")
            case QuestionAsked(question=question) if self._is_observer:
                self.write_note(
                    f"? {status.display_name} is waiting for an answer: {describe_question(question)}", YELLOW
                )
            case NoteAdded() | BudgetThresholdReached() | RepetitionStopped() if (
                notice := describe_notice_event(event)
            ) is not None:
                self.write_note(*notice)
            case _:
                if (description := describe_background_agent_event(event, status)) is not None:
                    with self.open_notice_block():
                        self._screen.write("● ", get_agent_style(status.color))
                        self._screen.write(f"{description}\n")

    def write_note(self, text: str, style: str = DIM) -> None:
        """Print a line of the program, between the agent's text."""
        with self.open_notice_block():
            self._screen.write(f"  {text}\n", style)

    @contextmanager
    def open_notice_block(self) -> Iterator[StyledTextWriter]:
        """Print several lines above the line of a running call."""
        open_call = self._open_call
        if open_call is not None:
            self._screen.erase_or_end_line()
        self._end_line_and_reset_state()
        yield self._screen.write
        self._screen.end_line()
        if open_call is not None and self._screen.live:
            self._begin_tool_call_line(open_call)

    def _print_other_event(self, event: Event) -> None:
        match event:
            case TurnStarted(prompt=prompt) if self._is_observer and prompt.strip():
                self._end_line_and_reset_state()
                self._screen.write("\n› ", BOLD_CYAN)
                self._screen.write(f"{mark_truncated_preview(prompt).strip()}\n", BOLD)
            case TurnEnded(reason=reason, detail=detail) if self._is_observer:
                self._print_turn_end(reason, detail)
            case RunFinished():
                self._print_turn_end(event.reason, describe_turn_end(event) or event.detail)
            case QuestionAsked(question=question):
                self._print_question(question)
            case QuestionAnswered(answer=answer):
                if (answer_text := describe_answer(answer)) is not None:
                    self.write_note(answer_text)
                if self._calls:
                    self._begin_tool_call_line(next(iter(self._calls)))
            case PartialReplyDiscarded() | ModelRequestFailed(retry_in=None):
                self._mark_answer_broken_off()
        if (notice := describe_notice_event(event)) is not None:
            self.write_note(*notice)

    def _print_question(self, question: Question) -> None:
        """Print a question: it shows the call, so the call's line is removed until the call really runs."""
        if self._open_call is not None:
            self._screen.erase_or_end_line()
            self._open_call = None
        if self._is_observer:
            self.write_note(f"? waiting for an answer: {describe_question(question)}", YELLOW)

    def _print_streamed_text(self, kind: str, text: str) -> None:
        if self._text_kind != kind or self._is_answer_complete:
            text = text.lstrip("\n")
            if not text:
                return
            self._end_line_and_reset_state()
            self._screen.write("\n")
            self._text_kind = kind
            self._is_answer_complete = False
        self._has_streamed = True
        self._screen.write(text, ITALIC_DIM if kind == "thinking" else "")

    def _finish_reply_text(self, preview: str) -> None:
        """Finish a text; from a journal, which has no deltas, the preview is all there is to print."""
        if not self._has_streamed and preview:
            self._print_streamed_text("text", mark_truncated_preview(preview))
        self._has_streamed = False
        self._is_answer_complete = True

    def _mark_answer_broken_off(self) -> None:
        if self._text_kind is not None:
            self._screen.write(" [interrupted]", DIM)
        self._has_streamed = False

    def _print_tool_call_start(self, event: ToolStarted) -> None:
        preview = "" if event.tool in _TOOLS_WITHOUT_PREVIEW else to_one_line(event.preview)
        self._calls[event.call] = _UnfinishedToolCall(event.tool, preview)
        if self._open_call is None:
            self._begin_tool_call_line(event.call)

    def _begin_tool_call_line(self, call: str) -> None:
        tool_call = self._calls[call]
        was_streaming = self._text_kind is not None
        self._end_line_and_reset_state()
        if was_streaming:
            self._screen.write("\n")
        self._screen.write("● ", CYAN)
        self._screen.write(tool_call.tool, BOLD)
        # Leave room for the outcome, so that the call stays on one line.
        preview = truncate_text(
            tool_call.preview,
            max(self._screen.columns - measure_text_width(tool_call.tool) - _OUTCOME_WIDTH, 12),
        )
        self._screen.write(f" {preview}" if preview else "")
        self._open_width = 3 + measure_text_width(tool_call.tool) + measure_text_width(preview)
        self._open_call = call

    def _print_tool_call_end(self, event: ToolFinished) -> None:
        tool_call = self._calls.get(event.call)
        if tool_call is None:
            return
        if self._open_call != event.call:
            self._end_line_and_reset_state()
            self._begin_tool_call_line(event.call)
        outcome, style = describe_tool_outcome(
            tool_call.tool, tool_call.text or event.preview, tool_call.data, is_error=event.is_error
        )
        duration = (
            f"  {format_duration(event.duration_ms / 1000)}" if event.duration_ms >= _SLOW_CALL_MS else ""
        )
        available_width = self._screen.columns - self._open_width - 2 - len(duration)
        self._screen.write(f"  {truncate_text(outcome, max(available_width, 12))}", style)
        self._screen.write(f"{duration}\n", DIM)
        for line, line_style in format_todo_lines(tool_call.data):
            self._screen.write(f"    {line}\n", line_style)
        del self._calls[event.call]
        self._open_call = None
        if self._calls:
            self._begin_tool_call_line(next(iter(self._calls)))

    def _print_turn_end(self, reason: str, text: str) -> None:
        self._end_line_and_reset_state()
        self._calls.clear()
        if reason == "done":
            if text:
                self.write_note(text, YELLOW)
        elif reason == "interrupted":
            self.write_note("interrupted", YELLOW)
        else:
            self.write_note(f"✗ {text or reason}", RED)

    def _end_line_and_reset_state(self) -> None:
        self._screen.end_line()
        self._text_kind = None
        self._open_call = None
