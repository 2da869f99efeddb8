"""One agent's conversation as items to show, built from its transcript and from live events.

The transcript is authoritative; live events only show what it does not contain yet: text that is being
streamed, and running calls. An entry that arrives both ways is recognised by its id and shown once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from shoal.agent.calls import preview
from shoal.core.entries import Compacted, Entry, Rewound, Said
from shoal.core.events import (
    Answered,
    Asked,
    Discarded,
    Event,
    Finished,
    Heard,
    MemberRested,
    MessageAdded,
    RequestFailed,
    Speaker,
    ToolFinished,
    ToolProgress,
    ToolReturned,
    ToolStarted,
)
from shoal.core.messages import Image, Message, Text, Thinking, ToolResult, ToolUse, result_text
from shoal.core.questions import Question
from shoal.core.wording import clean, one_line
from shoal.surfaces.terminal.event_words import noted
from shoal.surfaces.terminal.paint import DIM, RED, YELLOW
from shoal.surfaces.terminal.question_words import answered, wanted
from shoal.surfaces.terminal.sentences import ending
from shoal.wire.notices import LETTER

_NOTICE = re.compile(
    r"<(system-reminder|task-notification|agent-message|teammate-message)\b.*?</\1>", re.DOTALL
)
_MOST_PROGRESS = 2_000
"""Characters of a running call's output that are kept."""
MOST = 1_000
"""Items of a conversation that are kept in memory; the transcript has earlier ones."""
_STEP = 200
"""Items that are dropped at once."""


class Prompted(Struct):
    """A message to the agent, from the person or from another agent."""

    number: int
    text: str
    who: str = ""
    """Empty for the person."""
    pictures: int = 0
    awaited: bool = False
    """True if it was typed here and is not yet in the conversation."""


class Words(Struct):
    """A text or thinking of the agent."""

    number: int
    text: str
    thinking: bool = False
    open: bool = False
    broken: bool = False


class Call(Struct):
    number: int
    id: str
    tool: str
    preview: str = ""
    input: Mapping[str, Any] | None = None
    running: bool = False
    done: bool = False
    is_error: bool = False
    ms: int = 0
    text: str = ""
    data: Any = None
    root: str = ""
    """Root of the project with a trailing slash, removed from shown paths."""


class Remark(Struct):
    """A remark of the program: pieces with their styles."""

    number: int
    pieces: list[tuple[str, str]]


Shown: TypeAlias = Prompted | Words | Call | Remark


class Script:
    """Built from one agent's events and entries. `drain_changes` returns what changed since the last call."""

    def __init__(self, root: str = "") -> None:
        """Paths below `root` are shown relative to it."""
        self._root = f"{root}/" if root else ""
        self.blocks: list[Shown] = []
        self._numbers = 0
        self._before = 0
        self._changed: dict[int, Shown] = {}
        self._calls: dict[str, Call] = {}
        self._unclaimed: dict[str, ToolResult] = {}
        """Results whose calls come before the first item."""
        self._asked: dict[str, Remark] = {}
        """Open questions by id."""
        self._saying: list[Words] = []
        """Items of the answer that is being streamed."""
        self._known: dict[str, None] = {}
        """Ids of the entries that are shown, in order."""
        self._begins: dict[int, str] = {}
        """Entry that starts at an item, by the number of the item."""
        self.begins_with = ""
        """First entry still held after earlier ones were dropped; empty if none were."""

    def taken(self) -> list[Shown]:
        """Return the new and changed items, in the order of the conversation."""
        changed, self._changed = self._changed, {}
        return [changed[number] for number in sorted(changed)]

    def knows(self, entry: str) -> bool:
        return entry in self._known

    @property
    def is_long(self) -> bool:
        return len(self.blocks) >= MOST + _STEP

    def let_go(self) -> int:
        """Drop the oldest items and return their number; `prepend_entries` can add them again."""
        spare = max(0, len(self.blocks) - MOST)
        # Cut between two entries, so that no entry is shown in part.
        cut = next((at for at in range(spare, 0, -1) if self.blocks[at].number in self._begins), 0)
        if not cut:
            return self._let_go_of_remarks(spare)
        gone, self.blocks = self.blocks[:cut], self.blocks[cut:]
        for block in gone:
            self._changed.pop(block.number, None)
            self._begins.pop(block.number, None)
            if isinstance(block, Call) and block.done:
                self._calls.pop(block.id, None)
        self.begins_with = self._begins[self.blocks[0].number]
        known = list(self._known)
        self._known = dict.fromkeys(known[known.index(self.begins_with) :])
        return cut

    def _let_go_of_remarks(self, spare: int) -> int:
        """Drop the remarks among the first items: a long turn of many agents has thousands in one entry."""
        gone = [block for block in self.blocks[:spare] if isinstance(block, Remark)]
        for block in gone:
            self._changed.pop(block.number, None)
        self.blocks[:spare] = [block for block in self.blocks[:spare] if not isinstance(block, Remark)]
        return len(gone)

    def at_work(self) -> None:
        """Mark calls without a result as running."""
        for call in self._calls.values():
            if not call.done:
                call.running = True
                self._change(call)

    # Live events

    def hear(self, event: Event) -> None:
        match event:
            case Heard(kind="tool_input"):
                pass
            case Heard(kind=kind, text=text):
                self._say(text, thinking=kind == "thinking")
            case MessageAdded(entry=entry, message=message, by=by):
                self.said(entry, message, by=by)
            case ToolStarted() | ToolProgress() | ToolReturned() | ToolFinished():
                self._called(event)
            case _:
                self._remark_on(event)

    def _called(self, event: ToolStarted | ToolProgress | ToolReturned | ToolFinished) -> None:
        tool = "" if isinstance(event, ToolProgress) else event.tool
        call = self._call(event.call, tool)
        match event:
            case ToolStarted(preview=words):
                call.preview, call.running = self._shortened(words), not call.done
            case ToolProgress(text=text):
                call.text = (call.text + text)[-_MOST_PROGRESS:]
            case ToolReturned(result=result, data=data):
                call.text, call.data, call.is_error = result_text(result), data, result.is_error
                call.running, call.done = False, True
            case ToolFinished(is_error=is_error, duration_ms=ms, preview=preview):
                call.is_error, call.ms, call.running, call.done = is_error, ms, False, True
                call.text = call.text or preview
        self._change(call)

    def _remark_on(self, event: Event) -> None:
        match event:
            case Discarded() | RequestFailed(retry_in=None):
                self._break_off()
            case Asked(question=question):
                self.asked(question)
            case Answered(question=ident, answer=answer):
                self.answered(ident, answered(answer) or "no")
            case Finished():
                self._finished(event)
            case MemberRested(reason=reason, detail=detail) if reason != "available":
                self.remark(f"idle: {reason} {one_line(detail)}".rstrip(), YELLOW)
            case _:
                pass
        if (told := noted(event)) is not None:
            self.remark(*told)

    def asked(self, question: Question, who: str = "") -> None:
        asks = f"? {who} asks: {wanted(question)}" if who else f"? {wanted(question)}"
        self.remarks([(asks, YELLOW)])
        last = self.blocks[-1]
        assert isinstance(last, Remark)
        self._asked[question.id] = last

    def answered(self, question: str, words: str) -> None:
        """Append the answer to its question."""
        if (remark := self._asked.pop(question, None)) is not None:
            asks = remark.pieces[0][0]
            remark.pieces = [(f"{asks}  ", DIM), (words, DIM)]
            self._change(remark)

    def _finished(self, event: Finished) -> None:
        words = ending(event) or ""
        self._end_words()
        for call in self._calls.values():
            if call.running:
                call.running, call.done, call.is_error = False, True, True
                call.text = call.text or "it did not come to an end"
                self._change(call)
        if event.reason == "interrupted":
            self.remark("interrupted", YELLOW)
        elif event.reason != "done":
            self.remark(f"✗ {words or event.detail or event.reason}", RED)
        elif event.requests == 0 and event.text:
            # No model was called: the report of a command's own agent is the answer.
            self._add(Words(self._next(), clean(event.text)))
        elif words:
            self.remark(words, YELLOW)

    # Input and remarks

    def typed(self, text: str, *, awaited: bool) -> None:
        self._add(Prompted(self._next(), clean(text).strip(), awaited=awaited))

    def remark(self, text: str, style: str = DIM) -> None:
        self.remarks([(f"{text}", style)])

    def remarks(self, pieces: list[tuple[str, str]]) -> None:
        self._add(Remark(self._next(), [(clean(text), style) for text, style in pieces]))

    # Transcript entries

    def entry(self, entry: Entry) -> None:
        match entry:
            case Said(id=ident, message=message, meta=meta):
                self.said(ident, message, by="runtime" if meta else "person")
            case Compacted(id=ident, tokens_before=tokens) if ident not in self._known:
                self._take(ident, begins=self._numbers + 1)
                self.remark(f"the conversation goes on from a summary of itself ({tokens} tokens before)")
            case Rewound(id=ident, turn=turn) if ident not in self._known:
                self._take(ident, begins=self._numbers + 1)
                self.remark(f"the conversation went back to before turn {turn}")
            case _:
                pass

    def said(self, entry: str, message: Message, *, by: Speaker = "person") -> None:
        """Add a whole message, once."""
        if entry in self._known:
            return
        first = self._numbers + 1
        if message.role == "assistant":
            first = self._saying[0].number if self._saying else first
            self._settle(message.content)
        else:
            self._end_words()
            for block in message.content:
                if isinstance(block, ToolResult):
                    self._returned(block)
            if text := message.text:
                self._heard_from(text, message, by)
        self._take(entry, begins=first if first <= self._numbers else None)

    def _take(self, entry: str, *, begins: int | None) -> None:
        """Mark the entry as shown; `first_item` is its first item, if it has any."""
        self._known[entry] = None
        if begins is not None:
            self._begins[begins] = entry

    def earlier(self, entries: list[Entry]) -> None:
        """Insert the items of earlier entries at the front."""
        past = Script(self._root.removesuffix("/"))
        for each in entries:
            if each.id not in self._known:
                past.entry(each)
        for ident in [each for each in past._calls if each in self._unclaimed]:
            past._returned(self._unclaimed.pop(ident))
        self._unclaimed |= past._unclaimed
        self._before -= past._numbers
        for block in past.blocks:
            block.number += self._before
            if isinstance(block, Call):
                block.running = False
        self.blocks[:0] = past.blocks
        self._known = {**past._known, **self._known}
        self._begins |= {number + self._before: entry for number, entry in past._begins.items()}
        self.begins_with = ""

    def _heard_from(self, text: str, message: Message, by: Speaker) -> None:
        for letter in LETTER.finditer(text):
            self._add(Prompted(self._next(), clean(letter["words"]).strip(), who=clean(letter["sender"])))
        if by in ("runtime", "tool"):
            return
        own = clean(_NOTICE.sub("", text)).strip()
        pictures = sum(isinstance(block, Image) for block in message.content)
        if not own:
            if (notice := _NOTICE.search(text)) and notice[1] in ("task-notification", "agent-message"):
                self.remark(f"✉ {_gist(notice[0])}")
            return
        for block in reversed(self.blocks[-20:]):
            if isinstance(block, Prompted) and block.awaited and block.text == own:
                block.awaited, block.pictures = False, pictures
                self._change(block)
                return
        self._add(Prompted(self._next(), own, pictures=pictures))

    def _settle(self, content: tuple[Any, ...]) -> None:
        """Replace the streamed text with the complete answer."""
        heard, self._saying = self._saying, []
        for block in content:
            match block:
                case Thinking(thinking=text):
                    self._settle_words(heard, text, thinking=True)
                case Text(text=text):
                    self._settle_words(heard, text, thinking=False)
                case ToolUse(id=ident, name=name, input=given):
                    call = self._call(ident, name)
                    call.input = given
                    call.preview = call.preview or self._shortened(preview(block))
                    self._change(call)
                case _:
                    pass
        for rest in heard:
            rest.open = False
            self._change(rest)

    def _settle_words(self, heard: list[Words], text: str, *, thinking: bool) -> None:
        text = clean(text).strip("\n")
        match = next((each for each in heard if each.thinking == thinking), None)
        if match is not None:
            heard.remove(match)
            match.text, match.open = text, False
            self._change(match)
        elif text.strip():
            self._add(Words(self._next(), text, thinking=thinking))

    def _returned(self, result: ToolResult) -> None:
        call = self._calls.get(result.tool_use_id)
        if call is None or call.number < self.blocks[0].number:
            self._unclaimed[result.tool_use_id] = result
        if call is not None and not call.done:
            call.text, call.is_error = result_text(result), result.is_error
            call.running, call.done = False, True
            self._change(call)

    def _say(self, text: str, *, thinking: bool) -> None:
        text = clean(text)
        opened = self._saying[-1] if self._saying else None
        if opened is not None and opened.thinking == thinking:
            opened.text += text
            self._change(opened)
        elif text.strip() or opened is not None:
            words = Words(self._next(), text.lstrip("\n"), thinking=thinking, open=True)
            self._saying.append(words)
            self._add(words)

    def _break_off(self) -> None:
        for block in self._saying:
            block.broken = True
        self._end_words()

    def _end_words(self) -> None:
        """Close the streamed items: what follows belongs to another answer."""
        saying, self._saying = self._saying, []
        for block in saying:
            block.open = False
            self._change(block)

    def _call(self, ident: str, tool: str) -> Call:
        call = self._calls.get(ident)
        if call is None:
            call = self._calls[ident] = Call(self._next(), ident, clean(tool), root=self._root)
            self._add(call)
        return call

    def _shortened(self, words: str) -> str:
        return words.removeprefix(self._root) if self._root else words

    def _next(self) -> int:
        self._numbers += 1
        return self._numbers

    def _add(self, block: Shown) -> None:
        self.blocks.append(block)
        self._change(block)

    def _change(self, block: Shown) -> None:
        self._changed[block.number] = block


def _gist(notice: str) -> str:
    found = re.search(r"<summary>(.*?)</summary>", notice, re.DOTALL)
    return one_line(found[1] if found else re.sub(r"<[^>]*>", " ", notice))[:200]
