"""Widgets of a conversation: prompts, answers, collapsible calls, and remarks of the program."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from markdown_it import MarkdownIt
from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.events import Click
from textual.widget import Widget
from textual.widgets import Markdown, Static

from shoal.core.text.text_diffs import format_unified_diff
from shoal.core.text.text_format import (
    format_count_with_noun,
    format_duration,
    format_token_count,
    strip_terminal_codes,
    to_one_line,
)
from shoal.surfaces.terminal.tool_outcomes import describe_tool_outcome, format_todo_lines
from shoal.surfaces.tui.conversation_timeline import (
    ConversationItem,
    TimelineAgentTextItem,
    TimelinePromptItem,
    TimelineRemarkItem,
    TimelineToolCallItem,
)

_SLOW = 2_000
"""Minimum duration in milliseconds for a call's duration to be shown."""
_CUT = 8
"""Number of diff lines that a folded call shows."""
_MOST = 2_000
"""Maximum number of lines shown; the transcript has the rest."""
_WIDEST = 2_000
_CHANGES_FILES = ("Edit", "Write", "NotebookEdit", "MultiEdit")


def create_block_widget(
    block: ConversationItem,
) -> PromptWidget | AnswerWidget | ThinkingWidget | ToolCallWidget | RemarkWidget:
    match block:
        case TimelinePromptItem():
            return PromptWidget(block)
        case TimelineAgentTextItem(thinking=True):
            return ThinkingWidget(block)
        case TimelineAgentTextItem():
            return AnswerWidget(block)
        case TimelineToolCallItem():
            return ToolCallWidget(block)
        case TimelineRemarkItem():
            return RemarkWidget(block)


def convert_ansi_styled_to_rich_text(text: str, style: str) -> Text:
    """Convert a style of the plain terminal, which is an ANSI code, to Rich text."""
    return Text.from_ansi(f"\x1b[{style}m{text}\x1b[0m", end="") if style else Text(text, end="")


class PromptWidget(Static):
    """A message to the agent."""

    def __init__(self, block: TimelinePromptItem) -> None:
        super().__init__(_build_prompt_table(block), classes="prompt")
        self.set_class(bool(block.sender), "-letter")

    async def show_item(self, block: ConversationItem) -> None:
        assert isinstance(block, TimelinePromptItem)
        self.update(_build_prompt_table(block))


def _build_prompt_table(block: TimelinePromptItem) -> Table:
    """Put the sender before the text, with the text indented on every line."""
    text = Text(block.text)
    if block.images:
        text.append(f"\n[{format_count_with_noun(block.images, 'image')}]", "dim")
    rows = Table.grid(padding=(0, 1, 0, 0))
    rows.add_column(no_wrap=True)
    rows.add_column(ratio=1)
    rows.add_row(Text(f"{to_one_line(block.sender)} ›" if block.sender else "›", "bold"), text)
    return rows


class AnswerWidget(Markdown):
    """The agent's answer; grows while it is streamed."""

    def __init__(self, block: TimelineAgentTextItem) -> None:
        self._shown = _format_answer_markdown(block)
        super().__init__(
            self._shown, classes="answer", open_links=False, parser_factory=_create_markdown_parser
        )

    async def show_item(self, block: ConversationItem) -> None:
        assert isinstance(block, TimelineAgentTextItem)
        old_text, self._shown = self._shown, _format_answer_markdown(block)
        if self._shown == old_text:
            return
        if old_text and self._shown.startswith(old_text):
            await self.append(self._shown[len(old_text) :])
        else:
            await self.update(self._shown)


def _format_answer_markdown(block: TimelineAgentTextItem) -> str:
    return f"{block.text}\n\n*(interrupted)*" if block.is_broken_off else block.text


def _create_markdown_parser() -> MarkdownIt:
    # File names are not links.
    return MarkdownIt("gfm-like", {"linkify": False})


class CollapsibleWidget(Widget):
    """A line that unfolds. Its body is drawn only when unfolded."""

    can_focus = True
    BINDINGS: ClassVar[list[BindingType]] = [("enter,space", "unfold", "unfold")]

    def __init__(self, classes: str) -> None:
        super().__init__(classes=f"fold {classes}")
        self._title = Static(classes="title")
        self._body_widget = Static(classes="below")
        self._body_widget.display = False
        self.is_unfolded = False

    def compose(self) -> ComposeResult:
        yield self._title
        yield self._body_widget

    def on_mount(self) -> None:
        self.redraw()

    def render_heading(self) -> Text:
        raise NotImplementedError

    def render_body(self) -> Text:
        raise NotImplementedError

    def render_folded_body(self) -> Text | None:
        """Return what is shown below the heading while folded."""
        return None

    def redraw(self) -> None:
        self._title.update(self.render_heading())
        body = self.render_body() if self.is_unfolded else self.render_folded_body()
        self._body_widget.display = body is not None
        self._body_widget.update(body or "")

    def set_unfolded(self, *, on: bool) -> None:
        self.is_unfolded = on
        self.set_class(on, "-unfolded")
        self.redraw()

    def on_click(self, event: Click) -> None:
        event.stop()
        self.set_unfolded(on=not self.is_unfolded)

    def action_unfold(self) -> None:
        self.set_unfolded(on=not self.is_unfolded)


class ThinkingWidget(CollapsibleWidget):
    """The model's thinking, folded to its first line."""

    def __init__(self, block: TimelineAgentTextItem) -> None:
        super().__init__("thought")
        self._block = block

    async def show_item(self, block: ConversationItem) -> None:
        assert isinstance(block, TimelineAgentTextItem)
        self._block = block
        self.redraw()

    def render_heading(self) -> Text:
        summary = to_one_line(self._block.text[:400])
        text = Text(no_wrap=True, overflow="ellipsis", style="italic dim")
        text.append("▾ " if self.is_unfolded else "▸ ")
        text.append("thinks: " if self._block.is_open else "thought: ")
        text.append("" if self.is_unfolded else summary)
        return text

    def render_body(self) -> Text:
        return Text(self._block.text.strip(), "italic dim")


class ToolCallWidget(CollapsibleWidget):
    """One tool call: the call and its result in one line; input, output and diff below."""

    def __init__(self, block: TimelineToolCallItem) -> None:
        super().__init__("call")
        self._block = block

    async def show_item(self, block: ConversationItem) -> None:
        assert isinstance(block, TimelineToolCallItem)
        self._block = block
        self.redraw()

    def render_heading(self) -> Text:
        call = self._block
        mark, style = _get_call_status_mark(call)
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append("▾ " if self.is_unfolded else "▸ ", "dim")
        text.append(f"{mark} ", style)
        text.append(call.tool, "bold")
        preview = to_one_line(call.preview)
        outcome, outcome_style = ("", "")
        if call.done:
            call_text = call.text.replace(call.root, "") if call.root else call.text
            outcome, outcome_style = describe_tool_outcome(
                call.tool, call_text, call.data, is_error=call.is_error
            )
            outcome = outcome.removeprefix("✗ ").removeprefix("→ ")
        elif call.running and call.text:
            outcome, outcome_style = to_one_line(call.text.strip().rsplit("\n", 1)[-1]), "2"
        duration = f" · {format_duration(call.duration_ms / 1000)}" if call.duration_ms >= _SLOW else ""
        available_width = max(self.size.width - len(call.tool) - 6, 20)
        max_text_width = max(available_width // 2, 24)
        outcome = outcome if len(outcome) <= max_text_width else outcome[: max_text_width - 1] + "…"
        text_width = max(available_width - len(outcome) - len(duration) - 3, available_width // 3)
        if preview:
            text.append(f" {preview if len(preview) <= text_width else preview[: text_width - 1] + '…'}")
        if outcome:
            text.append("  ")
            text.append_text(convert_ansi_styled_to_rich_text(outcome, outcome_style))
        text.append(duration, "dim")
        return text

    def on_resize(self) -> None:
        self._title.update(self.render_heading())

    def render_body(self) -> Text:
        return Text("\n").join(_build_call_detail_lines(self._block))

    def render_folded_body(self) -> Text | None:
        """Return the first lines of the diff."""
        lines = None if self._block.is_error else _build_call_diff_lines(self._block)
        if lines is None:
            return None
        lines = [line for line in lines[1:] if not line.plain.startswith("@@")]
        shown_lines = lines[:_CUT]
        if len(lines) > _CUT:
            shown_lines.append(Text(f"… {len(lines) - _CUT} more lines", "dim"))
        return Text("\n").join(shown_lines)


def _get_call_status_mark(call: TimelineToolCallItem) -> tuple[str, str]:
    if call.running:
        return "●", "yellow"
    if not call.done:
        return "○", "dim"
    return ("✗", "red") if call.is_error else ("✓", "green")


def _build_call_detail_lines(call: TimelineToolCallItem) -> Iterator[Text]:
    tool_input = call.input or {}
    diff = _build_call_diff_lines(call)
    if diff is not None:
        yield from diff
    else:
        for key, value in tool_input.items():
            text = strip_terminal_codes(value if isinstance(value, str) else str(value))
            yield Text.assemble((f"{to_one_line(key)}: ", "dim"), _truncate_output_text(text))
    for line, style in format_todo_lines(call.data):
        yield convert_ansi_styled_to_rich_text(line, style)
    if call.text and (diff is None or call.is_error):
        if tool_input:
            yield Text()
        yield Text(_truncate_output_text(strip_terminal_codes(call.text)))


def _truncate_output_text(text: str) -> str:
    lines = text.rstrip("\n").split("\n")
    shown_lines = [line if len(line) <= _WIDEST else f"{line[:_WIDEST]}…" for line in lines[:_MOST]]
    if len(lines) > _MOST:
        shown_lines.append(
            f"… {len(lines) - _MOST} more lines ({format_token_count(len(text))} characters in total)"
        )
    return "\n".join(shown_lines)


def _build_call_diff_lines(call: TimelineToolCallItem) -> list[Text] | None:
    """Return the diff of a call that changes a file; None for any other call."""
    tool_input = call.input or {}
    if call.tool not in _CHANGES_FILES:
        return None
    old, new = tool_input.get("old_string", ""), tool_input.get("new_string", tool_input.get("content"))
    if not isinstance(old, str) or not isinstance(new, str):
        return None
    lines = [Text(to_one_line(call.preview), "dim")]
    for line in strip_terminal_codes(format_unified_diff(old, new)).split("\n"):
        style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
        lines.append(Text(line, style))
    return lines


class RemarkWidget(Static):
    """Shoal's own remark."""

    def __init__(self, block: TimelineRemarkItem) -> None:
        super().__init__(_build_remark_text(block), classes="remark")

    async def show_item(self, block: ConversationItem) -> None:
        assert isinstance(block, TimelineRemarkItem)
        self.update(_build_remark_text(block))


def _build_remark_text(block: TimelineRemarkItem) -> Text:
    text = Text()
    for piece_text, style in block.pieces:
        text.append_text(convert_ansi_styled_to_rich_text(piece_text, style))
    text.rstrip()
    return text
