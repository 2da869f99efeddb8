"""Base form of all questions: a text, options with a key each, and an input line for a reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar, NamedTuple

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from shoal.core.questions import Answer, Denied
from shoal.surfaces.terminal.question_words import SAID_NO
from shoal.surfaces.tui.panels.cells import BAD, MUTED, line


class Offer(NamedTuple):
    key: str
    words: Content
    act: Callable[[], None]


class Offers(OptionList):
    """Option list; its page keys scroll the text of the question."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "select", "Take it", show=False),
        Binding("pageup", "read(-1)", "Read on", show=False),
        Binding("pagedown", "read(1)", "Read back", show=False),
    ]

    def action_read(self, by: int) -> None:
        for body in self.screen.query(".form--body").results(VerticalScroll):
            body.scroll_page_down(animate=False) if by > 0 else body.scroll_page_up(animate=False)


class Form(Vertical):
    DEFAULT_CSS = """
    Form {
        height: auto;
        max-height: 100%;
        & > .form--body { height: auto; min-height: 1; padding: 0 1; background: $surface;
            scrollbar-size-vertical: 1; }
        & > .form--body > Static { height: auto; }
        & > Offers { height: auto; border: none; padding: 0 1; margin-top: 1; background: $surface; }
        & > Offers:focus { border: none; background-tint: $foreground 0%; }
        & > .form--label { height: auto; padding: 0 1; margin-top: 1; color: $text-muted; }
        & > Input { border: tall $border; }
        & > TextArea { height: 8; border: tall $border; }
        & > .form--error { height: auto; padding: 0 1; }
    }
    """

    class Given(Message):
        def __init__(self, answer: Answer) -> None:
            super().__init__()
            self.answer = answer

    def __init__(self) -> None:
        super().__init__()
        self._offered: list[Offer] = []
        self._on_words: Callable[[str], None] | None = None
        self._room = 0
        """Lines reserved for the widgets below the text."""

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="form--body", can_focus=False):
            yield from self.body()
        yield Offers(markup=False)
        yield Static(classes="form--label", markup=False)
        yield Input()
        yield from self.more()
        yield Static(classes="form--error", markup=False)

    def body(self) -> Iterator[Widget]:
        """Yield the widgets to read."""
        raise NotImplementedError

    def more(self) -> Iterator[Widget]:
        """Yield further widgets, hidden at first."""
        yield from ()

    def offers(self) -> list[Offer]:
        raise NotImplementedError

    def on_mount(self) -> None:
        self.show_offers()

    def begin(self) -> None:
        """Focus the options, so that they receive keys."""
        self.query_one(Offers).focus()

    def give(self, answer: Answer) -> None:
        self.post_message(self.Given(answer))

    # Options

    def show_offers(self, *, at: int = 0) -> None:
        self._on_words = None
        self._offered = self.offers()
        listed = self.query_one(Offers)
        listed.clear_options()
        for each in self._offered:
            listed.add_option(Option(line((f"{each.key}  ", f"bold {MUTED}"), each.words)))
        listed.highlighted = at
        self._only(listed)
        self._leave_room(len(self._offered) + 1)
        self.hint("⏎ or the letter · PgUp PgDn scroll · esc later")

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self._offered[event.option_index].act()

    def on_key(self, event: events.Key) -> None:
        if not self.query_one(Offers).has_focus:
            return
        for offer in self._offered:
            if event.character == offer.key:
                event.stop()
                offer.act()
                return

    # Text input

    def ask_words(self, label: str, then: Callable[[str], None]) -> None:
        """Ask the person for a line of text."""
        self.query_one(".form--label", Static).update(line((label, MUTED)))
        self._on_words = then
        entry = self.query_one(Input)
        entry.value = ""
        self._only(entry, self.query_one(".form--label"))
        self._leave_room(6)
        self.hint("⏎ send · esc back")
        entry.focus()

    def ask_reason(self, label: str = "Why not? The agent reads it. ⏎ sends it, also empty.") -> None:
        self.ask_words(label, lambda words: self.give(Denied(reason=words or SAID_NO)))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if self._on_words is not None:
            self._on_words(event.value.strip())

    def refuse(self, why: str) -> None:
        """Show why the input is rejected."""
        told = self.query_one(".form--error", Static)
        told.update(line((why, BAD)))
        told.display = bool(why)

    def step_back(self) -> bool:
        """Return from an editor to the options; False if they are shown already."""
        if self.query_one(Offers).display:
            return False
        self.show_offers()
        self.begin()
        return True

    def hint(self, keys: str) -> None:
        if isinstance(self.parent, Widget):
            self.parent.border_subtitle = Content(keys)

    def on_resize(self) -> None:
        self._leave_room(self._room)

    def _leave_room(self, lines: int) -> None:
        """Limit the height of the text, so that it never hides the options."""
        self._room = lines
        body = self.query_one(".form--body")
        body.styles.max_height = max(3, self.screen.size.height * 96 // 100 - 2 - lines)

    def _only(self, *shown: Widget) -> None:
        for each in (*self.query("Offers, Input, TextArea, .form--label, .form--error"),):
            each.display = each in shown
