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

from shoal.core.permissions.questions import Answer, DenyAnswer
from shoal.surfaces.terminal.question_text import DEFAULT_DENIAL_REASON
from shoal.surfaces.tui.panels.cells import BAD, MUTED, build_clean_line
from shoal.surfaces.tui.paste_fields import CleanInput


class AnswerOption(NamedTuple):
    key: str
    label: Content
    action: Callable[[], None]


class AnswerOptionList(OptionList):
    """Option list; its page keys scroll the text of the question."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "select", "Choose", show=False),
        Binding("pageup", "read(-1)", "Scroll down", show=False),
        Binding("pagedown", "read(1)", "Scroll up", show=False),
    ]

    def action_read(self, by: int) -> None:
        for body in self.screen.query(".form--body").results(VerticalScroll):
            body.scroll_page_down(animate=False) if by > 0 else body.scroll_page_up(animate=False)


class QuestionForm(Vertical):
    DEFAULT_CSS = """
    QuestionForm {
        height: auto;
        max-height: 100%;
        & > .form--body { height: auto; min-height: 1; padding: 0 1; background: $surface;
            scrollbar-size-vertical: 1; }
        & > .form--body > Static { height: auto; }
        & > AnswerOptionList {
            height: auto; border: none; padding: 0 1; margin-top: 1; background: $surface;
        }
        & > AnswerOptionList:focus { border: none; background-tint: $foreground 0%; }
        & > .form--label { height: auto; padding: 0 1; margin-top: 1; color: $text-muted; }
        & > Input { border: tall $border; }
        & > TextArea { height: 8; border: tall $border; }
        & > .form--error { height: auto; padding: 0 1; }
    }
    """

    class AnswerGiven(Message):
        def __init__(self, answer: Answer) -> None:
            super().__init__()
            self.answer = answer

    def __init__(self) -> None:
        super().__init__()
        self._shown_options: list[AnswerOption] = []
        self._text_callback: Callable[[str], None] | None = None
        self._reserved_lines = 0
        """Number of lines reserved for the widgets below the text."""

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="form--body", can_focus=False):
            yield from self.compose_body()
        yield AnswerOptionList(markup=False)
        yield Static(classes="form--label", markup=False)
        yield CleanInput()
        yield from self.compose_hidden_widgets()
        yield Static(classes="form--error", markup=False)

    def compose_body(self) -> Iterator[Widget]:
        """Yield the widgets to read."""
        raise NotImplementedError

    def compose_hidden_widgets(self) -> Iterator[Widget]:
        """Yield further widgets, hidden at first."""
        yield from ()

    def list_options(self) -> list[AnswerOption]:
        raise NotImplementedError

    def on_mount(self) -> None:
        self.show_options()

    def focus_options(self) -> None:
        """Focus the options, so that they receive keys."""
        self.query_one(AnswerOptionList).focus()

    def submit_answer(self, answer: Answer) -> None:
        self.post_message(self.AnswerGiven(answer))

    # Options

    def show_options(self, *, at: int = 0) -> None:
        self._text_callback = None
        self._shown_options = self.list_options()
        option_list = self.query_one(AnswerOptionList)
        option_list.clear_options()
        for answer_option in self._shown_options:
            option_list.add_option(
                Option(build_clean_line((f"{answer_option.key}  ", f"bold {MUTED}"), answer_option.label))
            )
        option_list.highlighted = at
        self._show_only_widgets(option_list)
        self._limit_question_body_height(len(self._shown_options) + 1)
        self.show_key_hint("⏎ or the letter · PgUp PgDn scroll · esc later")

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self._shown_options[event.option_index].action()

    def on_key(self, event: events.Key) -> None:
        if not self.query_one(AnswerOptionList).has_focus:
            return
        for answer_option in self._shown_options:
            if event.character == answer_option.key:
                event.stop()
                answer_option.action()
                return

    # Text input

    def ask_text(self, label: str, callback: Callable[[str], None]) -> None:
        """Ask the user for a line of text."""
        self.query_one(".form--label", Static).update(build_clean_line((label, MUTED)))
        self._text_callback = callback
        entry = self.query_one(Input)
        entry.value = ""
        self._show_only_widgets(entry, self.query_one(".form--label"))
        self._limit_question_body_height(6)
        self.show_key_hint("⏎ send · esc back")
        entry.focus()

    def ask_reason_and_deny(
        self, label: str = "Why not? ⏎ sends your reason to the agent, even if it is empty."
    ) -> None:
        self.ask_text(
            label, lambda words: self.submit_answer(DenyAnswer(reason=words or DEFAULT_DENIAL_REASON))
        )

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if self._text_callback is not None:
            self._text_callback(event.value.strip())

    def show_error(self, why: str) -> None:
        """Show why the input is rejected."""
        error_widget = self.query_one(".form--error", Static)
        error_widget.update(build_clean_line((why, BAD)))
        error_widget.display = bool(why)

    def return_to_options(self) -> bool:
        """Return from an editor to the options; False if they are shown already."""
        if self.query_one(AnswerOptionList).display:
            return False
        self.show_options()
        self.focus_options()
        return True

    def show_key_hint(self, keys: str) -> None:
        if isinstance(self.parent, Widget):
            self.parent.border_subtitle = Content(keys)

    def on_resize(self) -> None:
        self._limit_question_body_height(self._reserved_lines)

    def _limit_question_body_height(self, lines: int) -> None:
        """Limit the height of the text, so that it never hides the options."""
        self._reserved_lines = lines
        body = self.query_one(".form--body")
        body.styles.max_height = max(3, self.screen.size.height * 96 // 100 - 2 - lines)

    def _show_only_widgets(self, *shown_widgets: Widget) -> None:
        for widget in (*self.query("AnswerOptionList, Input, TextArea, .form--label, .form--error"),):
            widget.display = widget in shown_widgets
