"""Small modal screens: confirm, pick one, write a task, read a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static, TextArea
from textual.widgets.option_list import Option

from shoal.core.text.text_format import strip_terminal_codes, to_one_line
from shoal.surfaces.tui.panels.cells import BAD, build_clean_line
from shoal.surfaces.tui.paste_fields import CleanInput, CleanTextArea

_CSS = """
    & { align: center middle; background: $background 60%; }
    & > .dialog {
        width: 90%; max-width: 90; height: auto; max-height: 90%;
        background: $surface; border: round $primary; padding: 0 1;
        border-title-color: $foreground; border-subtitle-color: $text-muted;
    }
    & .dialog--error { color: $text-error; height: auto; }
    & .dialog--label { color: $text-muted; height: 1; margin-top: 1; }
    & Input { border: tall $border-blurred; margin: 0; }
    & Input:focus { border: tall $border; }
    & TextArea { height: 6; border: tall $border-blurred; }
    & TextArea:focus { border: tall $border; }
    & OptionList { height: auto; max-height: 12; border: none; background: $surface; padding: 0; }
    & .dialog--body { height: auto; max-height: 80vh; scrollbar-size-vertical: 1; }
"""


def set_border_titles(widget: Vertical, title: str, keys: str) -> Vertical:
    """Set title and key hints as content, because Textual would parse strings as markup."""
    widget.border_title = Content(to_one_line(title))
    widget.border_subtitle = Content(keys)
    return widget


class ConfirmScreen(ModalScreen[bool]):
    """Dismisses with True if the user confirms."""

    DEFAULT_CSS = f"ConfirmScreen {{ {_CSS} }}"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,enter", "dismiss(True)", "Yes"),
        Binding("n,escape", "dismiss(False)", "No"),
    ]

    def __init__(self, title: str, text: str = "", *, yes: str = "Yes") -> None:
        super().__init__()
        self._heading, self._text, self._yes = title, text, yes

    def compose(self) -> ComposeResult:
        with set_border_titles(Vertical(classes="dialog"), self._heading, f"y {self._yes} · n no"):
            yield Static(strip_terminal_codes(self._text), markup=False)


class ScrollableTextScreen(ModalScreen[None]):
    """Scrollable text."""

    DEFAULT_CSS = f"ScrollableTextScreen {{ {_CSS} }}"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter", "dismiss", "Close")]

    def __init__(self, title: str, body: Content) -> None:
        super().__init__()
        self._heading, self._body = title, body

    def compose(self) -> ComposeResult:
        box = set_border_titles(Vertical(classes="dialog"), self._heading, "↑↓ scroll · esc close")
        with box, VerticalScroll(classes="dialog--body"):
            yield Static(self._body, markup=False)

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()


class NamePickerScreen(ModalScreen[str | None]):
    """Pick one of several names, filtered by typing a part of it."""

    DEFAULT_CSS = f"NamePickerScreen {{ {_CSS} }}"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Leave"),
        Binding("down", "move('down')", "Down", show=False),
        Binding("up", "move('up')", "Up", show=False),
    ]

    def __init__(self, title: str, names: Sequence[tuple[str, Content]]) -> None:
        super().__init__()
        self._heading, self._names = title, tuple(names)

    def compose(self) -> ComposeResult:
        with set_border_titles(
            Vertical(classes="dialog"), self._heading, "type to search · ⏎ choose · esc cancel"
        ):
            yield CleanInput(placeholder="find")
            yield OptionList(markup=False)

    def on_mount(self) -> None:
        self._filter_names("")
        self.query_one(Input).focus()

    def _filter_names(self, part: str) -> None:
        options = self.query_one(OptionList)
        options.clear_options()
        matches = [(name, shown) for name, shown in self._names if part.lower() in shown.plain.lower()]
        # Not used as Textual ids: names may contain anything.
        self._matching_names = [name for name, _ in matches]
        options.add_options(Option(shown) for _, shown in matches)
        options.highlighted = 0 if matches else None

    def on_input_changed(self, event: Input.Changed) -> None:
        self._filter_names(event.value.strip())

    def on_input_submitted(self) -> None:
        self.query_one(OptionList).action_select()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._matching_names[event.option_index])

    def action_move(self, where: str) -> None:
        options = self.query_one(OptionList)
        options.action_cursor_down() if where == "down" else options.action_cursor_up()


class TaskDraftScreen(ModalScreen[tuple[str, str, str] | None]):
    """Dismisses with the subject of a new task, its description, and the numbers of its blockers."""

    DEFAULT_CSS = f"TaskDraftScreen {{ {_CSS} }}"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Leave"),
        Binding("ctrl+s", "save", "Save", priority=True),
    ]

    def __init__(self, board: str) -> None:
        super().__init__()
        self._board = board

    def compose(self) -> ComposeResult:
        keys = "tab next · ⏎ or ctrl+s add to the board · esc cancel"
        with set_border_titles(Vertical(classes="dialog"), f"New task on {self._board}", keys):
            yield Static("What to do", classes="dialog--label")
            yield CleanInput(id="subject")
            yield Static("Details", classes="dialog--label")
            yield CleanTextArea(id="description", tab_behavior="focus")
            yield Static("Waits for (numbers)", classes="dialog--label")
            yield CleanInput(id="waits", placeholder="3, 4")
            yield Static(classes="dialog--error", markup=False)

    def on_mount(self) -> None:
        self.query_one("#subject", Input).focus()

    def on_input_submitted(self) -> None:
        self.action_save()

    def action_save(self) -> None:
        subject = self.query_one("#subject", Input).value.strip()
        blockers_text = self.query_one("#waits", Input).value
        numbers = blockers_text.replace("#", " ").replace(",", " ").split()
        if not subject:
            self._show_error("Describe the task in a few words.")
        elif not all(each.isascii() and each.isdigit() for each in numbers):
            self._show_error("Enter task numbers, for example: 3, 4")
        else:
            self.dismiss((subject, self.query_one("#description", TextArea).text.strip(), " ".join(numbers)))

    def _show_error(self, message: str) -> None:
        self.query_one(".dialog--error", Static).update(build_clean_line((message, BAD)))
