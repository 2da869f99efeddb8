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

from shoal.core.differences import difference
from shoal.core.wording import clean, count, many, one_line, seconds
from shoal.surfaces.terminal.outcomes import outcome, todo_lines
from shoal.surfaces.tui.script import Call, Prompted, Remark, Shown, Words

_SLOW = 2_000
"""Milliseconds from which on a call's duration is shown."""
_CUT = 8
"""Lines of a diff that a folded call shows."""
_MOST = 2_000
"""Lines that are shown at all; the transcript has the rest."""
_WIDEST = 2_000
_CHANGES_FILES = ("Edit", "Write", "NotebookEdit", "MultiEdit")


def block_widget(block: Shown) -> PromptBlock | WordsBlock | ThoughtBlock | CallBlock | RemarkBlock:
    match block:
        case Prompted():
            return PromptBlock(block)
        case Words(thinking=True):
            return ThoughtBlock(block)
        case Words():
            return WordsBlock(block)
        case Call():
            return CallBlock(block)
        case Remark():
            return RemarkBlock(block)


def ansi(text: str, style: str) -> Text:
    """Convert a style of the plain terminal, which is an ANSI code, to Rich text."""
    return Text.from_ansi(f"\x1b[{style}m{text}\x1b[0m", end="") if style else Text(text, end="")


class PromptBlock(Static):
    """A message to the agent."""

    def __init__(self, block: Prompted) -> None:
        super().__init__(_prompt_text(block), classes="prompt")
        self.set_class(bool(block.who), "-letter")

    async def show(self, block: Shown) -> None:
        assert isinstance(block, Prompted)
        self.update(_prompt_text(block))


def _prompt_text(block: Prompted) -> Table:
    """Put the sender before the text, with the text indented on every line."""
    said = Text(block.text)
    if block.pictures:
        said.append(f"\n[{many(block.pictures, 'image')}]", "dim")
    rows = Table.grid(padding=(0, 1, 0, 0))
    rows.add_column(no_wrap=True)
    rows.add_column(ratio=1)
    rows.add_row(Text(f"{one_line(block.who)} ›" if block.who else "›", "bold"), said)
    return rows


class WordsBlock(Markdown):
    """The agent's answer; grows while it is streamed."""

    def __init__(self, block: Words) -> None:
        self._shown = _told(block)
        super().__init__(self._shown, classes="answer", open_links=False, parser_factory=_parser)

    async def show(self, block: Shown) -> None:
        assert isinstance(block, Words)
        before, self._shown = self._shown, _told(block)
        if self._shown == before:
            return
        if before and self._shown.startswith(before):
            await self.append(self._shown[len(before) :])
        else:
            await self.update(self._shown)


def _told(block: Words) -> str:
    return f"{block.text}\n\n*(broken off)*" if block.broken else block.text


def _parser() -> MarkdownIt:
    # File names are not links.
    return MarkdownIt("gfm-like", {"linkify": False})


class Fold(Widget):
    """A line that unfolds. Its body is drawn only when unfolded."""

    can_focus = True
    BINDINGS: ClassVar[list[BindingType]] = [("enter,space", "unfold", "unfold")]

    def __init__(self, classes: str) -> None:
        super().__init__(classes=f"fold {classes}")
        self._title = Static(classes="title")
        self._below = Static(classes="below")
        self._below.display = False
        self.unfolded = False

    def compose(self) -> ComposeResult:
        yield self._title
        yield self._below

    def on_mount(self) -> None:
        self.draw()

    def heading(self) -> Text:
        raise NotImplementedError

    def body(self) -> Text:
        raise NotImplementedError

    def gist(self) -> Text | None:
        """Return what is shown below the heading while folded."""
        return None

    def draw(self) -> None:
        self._title.update(self.heading())
        below = self.body() if self.unfolded else self.gist()
        self._below.display = below is not None
        self._below.update(below or "")

    def unfold(self, *, on: bool) -> None:
        self.unfolded = on
        self.set_class(on, "-unfolded")
        self.draw()

    def on_click(self, event: Click) -> None:
        event.stop()
        self.unfold(on=not self.unfolded)

    def action_unfold(self) -> None:
        self.unfold(on=not self.unfolded)


class ThoughtBlock(Fold):
    """The model's thinking, folded to its first line."""

    def __init__(self, block: Words) -> None:
        super().__init__("thought")
        self._block = block

    async def show(self, block: Shown) -> None:
        assert isinstance(block, Words)
        self._block = block
        self.draw()

    def heading(self) -> Text:
        words = one_line(self._block.text[:400])
        text = Text(no_wrap=True, overflow="ellipsis", style="italic dim")
        text.append("▾ " if self.unfolded else "▸ ")
        text.append("thinks: " if self._block.open else "thought: ")
        text.append("" if self.unfolded else words)
        return text

    def body(self) -> Text:
        return Text(self._block.text.strip(), "italic dim")


class CallBlock(Fold):
    """One tool call: the call and its result in one line; input, output and diff below."""

    def __init__(self, block: Call) -> None:
        super().__init__("call")
        self._block = block

    async def show(self, block: Shown) -> None:
        assert isinstance(block, Call)
        self._block = block
        self.draw()

    def heading(self) -> Text:
        it = self._block
        mark, style = _mark(it)
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append("▾ " if self.unfolded else "▸ ", "dim")
        text.append(f"{mark} ", style)
        text.append(it.tool, "bold")
        preview = one_line(it.preview)
        words, words_style = ("", "")
        if it.done:
            text_given = it.text.replace(it.root, "") if it.root else it.text
            words, words_style = outcome(it.tool, text_given, it.data, is_error=it.is_error)
            words = words.removeprefix("✗ ").removeprefix("→ ")
        elif it.running and it.text:
            words, words_style = one_line(it.text.strip().rsplit("\n", 1)[-1]), "2"
        took = f" · {seconds(it.ms / 1000)}" if it.ms >= _SLOW else ""
        room = max(self.size.width - len(it.tool) - 6, 20)
        most = max(room // 2, 24)
        words = words if len(words) <= most else words[: most - 1] + "…"
        kept = max(room - len(words) - len(took) - 3, room // 3)
        if preview:
            text.append(f" {preview if len(preview) <= kept else preview[: kept - 1] + '…'}")
        if words:
            text.append("  ")
            text.append_text(ansi(words, words_style))
        text.append(took, "dim")
        return text

    def on_resize(self) -> None:
        self._title.update(self.heading())

    def body(self) -> Text:
        return Text("\n").join(_details(self._block))

    def gist(self) -> Text | None:
        """Return the first lines of the diff."""
        lines = None if self._block.is_error else _difference(self._block)
        if lines is None:
            return None
        lines = [line for line in lines[1:] if not line.plain.startswith("@@")]
        shown = lines[:_CUT]
        if len(lines) > _CUT:
            shown.append(Text(f"… {len(lines) - _CUT} more lines", "dim"))
        return Text("\n").join(shown)


def _mark(call: Call) -> tuple[str, str]:
    if call.running:
        return "●", "yellow"
    if not call.done:
        return "○", "dim"
    return ("✗", "red") if call.is_error else ("✓", "green")


def _details(call: Call) -> Iterator[Text]:
    given = call.input or {}
    changed = _difference(call)
    if changed is not None:
        yield from changed
    else:
        for key, value in given.items():
            words = clean(value if isinstance(value, str) else str(value))
            yield Text.assemble((f"{one_line(key)}: ", "dim"), _bounded(words))
    for line, style in todo_lines(call.data):
        yield ansi(line, style)
    if call.text and (changed is None or call.is_error):
        if given:
            yield Text()
        yield Text(_bounded(clean(call.text)))


def _bounded(text: str) -> str:
    lines = text.rstrip("\n").split("\n")
    shown = [line if len(line) <= _WIDEST else f"{line[:_WIDEST]}…" for line in lines[:_MOST]]
    if len(lines) > _MOST:
        shown.append(f"… {len(lines) - _MOST} more lines ({count(len(text))} characters in all)")
    return "\n".join(shown)


def _difference(call: Call) -> list[Text] | None:
    """Return the diff of a call that changes a file; None for any other call."""
    given = call.input or {}
    if call.tool not in _CHANGES_FILES:
        return None
    old, new = given.get("old_string", ""), given.get("new_string", given.get("content"))
    if not isinstance(old, str) or not isinstance(new, str):
        return None
    lines = [Text(one_line(call.preview), "dim")]
    for line in clean(difference(old, new)).split("\n"):
        style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
        lines.append(Text(line, style))
    return lines


class RemarkBlock(Static):
    """Shoal's own remark."""

    def __init__(self, block: Remark) -> None:
        super().__init__(_remark_text(block), classes="remark")

    async def show(self, block: Shown) -> None:
        assert isinstance(block, Remark)
        self.update(_remark_text(block))


def _remark_text(block: Remark) -> Text:
    text = Text()
    for words, style in block.pieces:
        text.append_text(ansi(words, style))
    text.rstrip()
    return text
