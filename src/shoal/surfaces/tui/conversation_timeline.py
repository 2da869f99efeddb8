"""One agent's conversation as items to show, built from its transcript and from live events.

The transcript is authoritative; live events only show what it does not contain yet: text that is being
streamed, and running calls. An entry that arrives both ways is recognized by its id and shown once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from shoal.agent.tool_calls import preview_tool_call
from shoal.core.conversation.messages import (
    ImageBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    extract_tool_result_text,
)
from shoal.core.conversation.transcript_entries import (
    TranscriptCompactionMarker,
    TranscriptEntry,
    TranscriptMessageEntry,
    TranscriptRewindMarker,
)
from shoal.core.events import (
    Event,
    MemberWentIdle,
    MessageAdded,
    MessageAuthor,
    ModelRequestFailed,
    PartialReplyDiscarded,
    QuestionAnswered,
    QuestionAsked,
    RunFinished,
    TextStreamed,
    ToolFinished,
    ToolOutputReturned,
    ToolProgressed,
    ToolStarted,
)
from shoal.core.permissions.questions import Question
from shoal.core.text.control_tags import format_typed_command
from shoal.core.text.text_format import strip_terminal_codes, to_one_line
from shoal.surfaces.terminal.event_text import describe_notice_event
from shoal.surfaces.terminal.question_text import describe_answer, describe_question
from shoal.surfaces.terminal.text_styles import DIM, RED, YELLOW
from shoal.surfaces.terminal.user_messages import describe_turn_end
from shoal.wire.notification_text import MAIL_MESSAGE_PATTERN

_NOTICE = re.compile(
    r"<(system-reminder|task-notification|agent-message|teammate-message)\b.*?</\1>", re.DOTALL
)
_MOST_PROGRESS = 2_000
"""Maximum number of characters kept from a running call's output."""
MAX_ITEMS = 1_000
"""Maximum number of conversation items kept in memory; the transcript has earlier ones."""
_STEP = 200
"""Number of items dropped at once."""


class TimelinePromptItem(Struct):
    """A message to the agent, from the user or from another agent."""

    number: int
    text: str
    sender: str = ""
    """Empty for the user."""
    images: int = 0
    is_awaited: bool = False
    """True if it was typed here and is not yet in the conversation."""


class TimelineAgentTextItem(Struct):
    """A text or thinking of the agent."""

    number: int
    text: str
    thinking: bool = False
    is_open: bool = False
    is_broken_off: bool = False


class TimelineToolCallItem(Struct):
    number: int
    id: str
    tool: str
    preview: str = ""
    input: Mapping[str, Any] | None = None
    running: bool = False
    done: bool = False
    is_error: bool = False
    duration_ms: int = 0
    text: str = ""
    data: Any = None
    root: str = ""
    """Root of the project with a trailing slash, removed from shown paths."""


class TimelineRemarkItem(Struct):
    """A remark of the program: pieces with their styles."""

    number: int
    pieces: list[tuple[str, str]]


ConversationItem: TypeAlias = (
    TimelinePromptItem | TimelineAgentTextItem | TimelineToolCallItem | TimelineRemarkItem
)


class ConversationTimelineState:
    """Built from one agent's events and entries. `drain_changes` returns what changed since the last call."""

    def __init__(self, root: str = "") -> None:
        """Paths below `root` are shown relative to it."""
        self._root = f"{root}/" if root else ""
        self.items: list[ConversationItem] = []
        self._last_number = 0
        self._first_number = 0
        self._changed: dict[int, ConversationItem] = {}
        self._calls: dict[str, TimelineToolCallItem] = {}
        self._unclaimed: dict[str, ToolResultBlock] = {}
        """Results whose calls come before the first item."""
        self._open_questions: dict[str, TimelineRemarkItem] = {}
        """Open questions by id."""
        self._streaming: list[TimelineAgentTextItem] = []
        """Items of the answer that is being streamed."""
        self._shown_entries: dict[str, None] = {}
        """Ids of the entries that are shown, in order."""
        self._entry_starts: dict[int, str] = {}
        """Entry that starts at an item, by the number of the item."""
        self.first_entry = ""
        """First entry still held after earlier ones were dropped; empty if none were."""

    def drain_changes(self) -> list[ConversationItem]:
        """Return the new and changed items, in the order of the conversation."""
        changed, self._changed = self._changed, {}
        return [changed[number] for number in sorted(changed)]

    def has_shown_entry(self, entry: str) -> bool:
        return entry in self._shown_entries

    @property
    def has_too_many_items(self) -> bool:
        return len(self.items) >= MAX_ITEMS + _STEP

    def drop_oldest_items(self) -> int:
        """Drop the oldest items and return their number; `prepend_entries` can add them again."""
        excess = max(0, len(self.items) - MAX_ITEMS)
        # Cut between two entries, so that no entry is shown in part.
        cut_index = next(
            (at for at in range(excess, 0, -1) if self.items[at].number in self._entry_starts), 0
        )
        if not cut_index:
            return self._drop_oldest_remarks(excess)
        dropped, self.items = self.items[:cut_index], self.items[cut_index:]
        for block in dropped:
            self._changed.pop(block.number, None)
            self._entry_starts.pop(block.number, None)
            if isinstance(block, TimelineToolCallItem) and block.done:
                self._calls.pop(block.id, None)
        self.first_entry = self._entry_starts[self.items[0].number]
        shown_entries = list(self._shown_entries)
        self._shown_entries = dict.fromkeys(shown_entries[shown_entries.index(self.first_entry) :])
        return cut_index

    def _drop_oldest_remarks(self, excess: int) -> int:
        """Drop the remarks among the first items: a long turn of many agents has thousands in one entry."""
        dropped = [block for block in self.items[:excess] if isinstance(block, TimelineRemarkItem)]
        for block in dropped:
            self._changed.pop(block.number, None)
        self.items[:excess] = [
            block for block in self.items[:excess] if not isinstance(block, TimelineRemarkItem)
        ]
        return len(dropped)

    def mark_calls_running(self) -> None:
        """Mark calls without a result as running."""
        for call in self._calls.values():
            if not call.done:
                call.running = True
                self._mark_item_changed(call)

    # Live events

    def apply_event(self, event: Event) -> None:
        match event:
            case TextStreamed(kind="tool_input"):
                pass
            case TextStreamed(kind=kind, text=text):
                self._append_streamed_text(text, thinking=kind == "thinking")
            case MessageAdded(entry=entry, message=message, by=author):
                self.add_message(entry, message, by=author)
            case ToolStarted() | ToolProgressed() | ToolOutputReturned() | ToolFinished():
                self._apply_tool_event(event)
            case _:
                self._apply_other_event(event)

    def _apply_tool_event(
        self, event: ToolStarted | ToolProgressed | ToolOutputReturned | ToolFinished
    ) -> None:
        if isinstance(event, ToolProgressed) and event.call not in self._calls:
            return  # a command of a workflow, which is no call of the agent
        tool = "" if isinstance(event, ToolProgressed) else event.tool
        call = self._get_or_add_tool_call_item(event.call, tool)
        match event:
            case ToolStarted(preview=call_text):
                call.preview, call.running = self._strip_project_root(call_text), not call.done
            case ToolProgressed(text=text):
                call.text = (call.text + text)[-_MOST_PROGRESS:]
            case ToolOutputReturned(result=result, data=data):
                call.text, call.data, call.is_error = extract_tool_result_text(result), data, result.is_error
                call.running, call.done = False, True
            case ToolFinished(is_error=is_error, duration_ms=ms, preview=preview):
                call.is_error, call.duration_ms, call.running, call.done = is_error, ms, False, True
                call.text = call.text or preview
        self._mark_item_changed(call)

    def _apply_other_event(self, event: Event) -> None:
        match event:
            case PartialReplyDiscarded() | ModelRequestFailed(retry_in=None):
                self._break_off_answer()
            case QuestionAsked(question=question):
                self.add_question(question)
            case QuestionAnswered(question=question_id, answer=answer):
                self.append_answer_to_question(question_id, describe_answer(answer) or "no")
            case RunFinished():
                self._apply_run_finished(event)
            case MemberWentIdle(reason=reason, detail=detail) if reason != "available":
                self.add_remark(f"idle: {reason} {to_one_line(detail)}".rstrip(), YELLOW)
            case _:
                pass
        if (notice := describe_notice_event(event)) is not None:
            self.add_remark(*notice)

    def add_question(self, question: Question, asker: str = "") -> None:
        question_line = (
            f"? {asker} asks: {describe_question(question)}" if asker else f"? {describe_question(question)}"
        )
        self.add_remark_pieces([(question_line, YELLOW)])
        last = self.items[-1]
        assert isinstance(last, TimelineRemarkItem)
        self._open_questions[question.id] = last

    def append_answer_to_question(self, question: str, text: str) -> None:
        """Append the answer to its question."""
        if (remark := self._open_questions.pop(question, None)) is not None:
            question_line = remark.pieces[0][0]
            remark.pieces = [(f"{question_line}  ", DIM), (text, DIM)]
            self._mark_item_changed(remark)

    def _apply_run_finished(self, event: RunFinished) -> None:
        text = describe_turn_end(event) or ""
        self._close_streamed_items()
        for call in self._calls.values():
            if call.running:
                call.running, call.done, call.is_error = False, True, True
                call.text = call.text or "it did not finish"
                self._mark_item_changed(call)
        if event.reason == "interrupted":
            self.add_remark("interrupted", YELLOW)
        elif event.reason != "done":
            self.add_remark(f"✗ {text or event.detail or event.reason}", RED)
        elif event.requests == 0 and event.text:
            # No model was called: the report of a command's own agent is the answer.
            self._append_item(
                TimelineAgentTextItem(self._next_item_number(), strip_terminal_codes(event.text))
            )
        elif text:
            self.add_remark(text, YELLOW)

    # Input and remarks

    def add_prompt(self, text: str, *, is_awaited: bool) -> None:
        self._append_item(
            TimelinePromptItem(
                self._next_item_number(), strip_terminal_codes(text).strip(), is_awaited=is_awaited
            )
        )

    def add_remark(self, text: str, style: str = DIM) -> None:
        self.add_remark_pieces([(f"{text}", style)])

    def add_remark_pieces(self, pieces: list[tuple[str, str]]) -> None:
        self._append_item(
            TimelineRemarkItem(
                self._next_item_number(), [(strip_terminal_codes(text), style) for text, style in pieces]
            )
        )

    # Transcript entries

    def add_transcript_entry(self, entry: TranscriptEntry) -> None:
        match entry:
            case TranscriptMessageEntry(id=ident, message=message, meta=meta):
                self.add_message(ident, message, by="runtime" if meta else "person")
            case TranscriptCompactionMarker(id=ident, tokens_before=tokens) if (
                ident not in self._shown_entries
            ):
                self._mark_entry_shown(ident, first_item=self._last_number + 1)
                self.add_remark(f"the conversation continues from a summary (it had {tokens} tokens)")
            case TranscriptRewindMarker(id=ident, turn=turn) if ident not in self._shown_entries:
                self._mark_entry_shown(ident, first_item=self._last_number + 1)
                self.add_remark(f"the conversation was rewound to its state before turn {turn}")
            case _:
                pass

    def add_message(self, entry: str, message: Message, *, by: MessageAuthor = "person") -> None:
        """Add a whole message, once."""
        if entry in self._shown_entries:
            return
        first = self._last_number + 1
        if message.role == "assistant":
            first = self._streaming[0].number if self._streaming else first
            self._replace_streamed_answer(message.content)
        else:
            self._close_streamed_items()
            for block in message.content:
                if isinstance(block, ToolResultBlock):
                    self._apply_tool_result(block)
            if text := message.text:
                self._add_user_text(text, message, by)
        self._mark_entry_shown(entry, first_item=first if first <= self._last_number else None)

    def _mark_entry_shown(self, entry: str, *, first_item: int | None) -> None:
        """Mark the entry as shown; `first_item` is its first item, if it has any."""
        self._shown_entries[entry] = None
        if first_item is not None:
            self._entry_starts[first_item] = entry

    def prepend_entries(self, entries: list[TranscriptEntry]) -> None:
        """Insert the items of earlier entries at the front."""
        older_timeline = ConversationTimelineState(self._root.removesuffix("/"))
        for older_entry in entries:
            if older_entry.id not in self._shown_entries:
                older_timeline.add_transcript_entry(older_entry)
        for call_id in [each for each in older_timeline._calls if each in self._unclaimed]:
            older_timeline._apply_tool_result(self._unclaimed.pop(call_id))
        self._unclaimed |= older_timeline._unclaimed
        self._first_number -= older_timeline._last_number
        for block in older_timeline.items:
            block.number += self._first_number
            if isinstance(block, TimelineToolCallItem):
                block.running = False
        self.items[:0] = older_timeline.items
        self._shown_entries = {**older_timeline._shown_entries, **self._shown_entries}
        self._entry_starts |= {
            number + self._first_number: entry for number, entry in older_timeline._entry_starts.items()
        }
        self.first_entry = ""

    def _add_user_text(self, text: str, message: Message, author: MessageAuthor) -> None:
        for mail_match in MAIL_MESSAGE_PATTERN.finditer(text):
            self._append_item(
                TimelinePromptItem(
                    self._next_item_number(),
                    strip_terminal_codes(mail_match["words"]).strip(),
                    sender=strip_terminal_codes(mail_match["sender"]),
                )
            )
        if author in ("runtime", "tool"):
            return
        user_text = strip_terminal_codes(format_typed_command(_NOTICE.sub("", text).lstrip())).strip()
        image_count = sum(isinstance(block, ImageBlock) for block in message.content)
        if not user_text:
            if (notice := _NOTICE.search(text)) and notice[1] in ("task-notification", "agent-message"):
                self.add_remark(f"✉ {_summarize_notice(notice[0])}")
            return
        for block in reversed(self.items[-20:]):
            if isinstance(block, TimelinePromptItem) and block.is_awaited and block.text == user_text:
                block.is_awaited, block.images = False, image_count
                self._mark_item_changed(block)
                return
        self._append_item(TimelinePromptItem(self._next_item_number(), user_text, images=image_count))

    def _replace_streamed_answer(self, content: tuple[Any, ...]) -> None:
        """Replace the streamed text with the complete answer."""
        streamed, self._streaming = self._streaming, []
        for block in content:
            match block:
                case ThinkingBlock(thinking=text):
                    self._replace_streamed_text(streamed, text, is_thinking=True)
                case TextBlock(text=text):
                    self._replace_streamed_text(streamed, text, is_thinking=False)
                case ToolUseBlock(id=call_id, name=name, input=tool_input):
                    call = self._get_or_add_tool_call_item(call_id, name)
                    call.input = tool_input
                    call.preview = call.preview or self._strip_project_root(preview_tool_call(block))
                    self._mark_item_changed(call)
                case _:
                    pass
        for rest in streamed:
            rest.is_open = False
            self._mark_item_changed(rest)

    def _replace_streamed_text(
        self, streamed: list[TimelineAgentTextItem], text: str, *, is_thinking: bool
    ) -> None:
        text = strip_terminal_codes(text).strip("\n")
        match = next((each for each in streamed if each.thinking == is_thinking), None)
        if match is not None:
            streamed.remove(match)
            match.text, match.is_open = text, False
            self._mark_item_changed(match)
        elif text.strip():
            self._append_item(TimelineAgentTextItem(self._next_item_number(), text, thinking=is_thinking))

    def _apply_tool_result(self, result: ToolResultBlock) -> None:
        call = self._calls.get(result.tool_use_id)
        if call is None or call.number < self.items[0].number:
            self._unclaimed[result.tool_use_id] = result
        if call is not None and not call.done:
            call.text, call.is_error = extract_tool_result_text(result), result.is_error
            call.running, call.done = False, True
            self._mark_item_changed(call)

    def _append_streamed_text(self, text: str, *, thinking: bool) -> None:
        text = strip_terminal_codes(text)
        opened = self._streaming[-1] if self._streaming else None
        if opened is not None and opened.thinking == thinking:
            opened.text += text
            self._mark_item_changed(opened)
        elif text.strip() or opened is not None:
            item = TimelineAgentTextItem(
                self._next_item_number(), text.lstrip("\n"), thinking=thinking, is_open=True
            )
            self._streaming.append(item)
            self._append_item(item)

    def _break_off_answer(self) -> None:
        for block in self._streaming:
            block.is_broken_off = True
        self._close_streamed_items()

    def _close_streamed_items(self) -> None:
        """Close the streamed items: what follows belongs to another answer."""
        open_items, self._streaming = self._streaming, []
        for block in open_items:
            block.is_open = False
            self._mark_item_changed(block)

    def _get_or_add_tool_call_item(self, call_id: str, tool: str) -> TimelineToolCallItem:
        call = self._calls.get(call_id)
        if call is None:
            call = self._calls[call_id] = TimelineToolCallItem(
                self._next_item_number(), call_id, strip_terminal_codes(tool), root=self._root
            )
            self._append_item(call)
        return call

    def _strip_project_root(self, text: str) -> str:
        return text.removeprefix(self._root) if self._root else text

    def _next_item_number(self) -> int:
        self._last_number += 1
        return self._last_number

    def _append_item(self, block: ConversationItem) -> None:
        self.items.append(block)
        self._mark_item_changed(block)

    def _mark_item_changed(self, block: ConversationItem) -> None:
        self._changed[block.number] = block


def _summarize_notice(notice: str) -> str:
    match = re.search(r"<summary>(.*?)</summary>", notice, re.DOTALL)
    return to_one_line(match[1] if match else re.sub(r"<[^>]*>", " ", notice))[:200]
