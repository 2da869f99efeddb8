"""Form for a permission question: allow once, for the session, always, with another input, or deny."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static, TextArea

from shoal.core.permissions import lasting
from shoal.core.questions import Allowed, MayRun
from shoal.core.wording import clean, harmless, one_line
from shoal.surfaces.terminal.question_words import can_hold, change_words, text_of
from shoal.surfaces.tui.answering_forms import Form, Offer, Offers
from shoal.surfaces.tui.panels.cells import BAD, GOOD, MUTED, line

MOST_LINES = 2_000
"""Lines of an input that are shown, followed by the number of omitted lines."""
WIDEST = 4_000
"""Characters of one line that are shown."""
_CHANGES = {"old_string": ("- ", BAD), "new_string": ("+ ", GOOD)}


class CallForm(Form):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "allow_changed", "Allow so", show=False, priority=True)
    ]

    def __init__(self, question: MayRun) -> None:
        super().__init__()
        self.question = question

    def body(self) -> Iterator[Widget]:
        yield Static(line((one_line(self.question.reason), MUTED)), markup=False)
        yield Static(Content("\n").join([Content(""), *shown_input(self.question)]), markup=False)

    def more(self) -> Iterator[Widget]:
        yield TextArea(tab_behavior="focus")

    def offers(self) -> list[Offer]:
        found = [Offer("y", Content("Allow it once"), lambda: self.give(Allowed()))]
        if "session" in can_hold(self.question):
            words = line(("Allow for this session: ", ""), (one_line(self.question.rule), MUTED))
            found.append(Offer("s", words, lambda: self.give(Allowed(remember="session"))))
        kept = lasting(self.question.suggestions, "localSettings")
        if kept is not None:
            words = line(("Allow always, kept in your settings: ", ""), (change_words(kept), MUTED))
            found.append(Offer("p", words, lambda: self.give(Allowed(remember="settings"))))
        found.append(Offer("e", Content("Change it first"), self._edit))
        found.append(Offer("n", Content("Do not allow it, and say why"), self.ask_reason))
        return found

    # Changed input

    @property
    def _is_command(self) -> bool:
        return self.question.tool == "Bash" and isinstance(self.question.input.get("command"), str)

    def _edit(self) -> None:
        editor = self.query_one(TextArea)
        given = self.question.input
        editor.text = harmless(given["command"] if self._is_command else _pretty(given))
        editor.move_cursor(editor.document.end)
        what = "The command" if self._is_command else "The input, as JSON"
        label = self.query_one(".form--label", Static)
        label.update(line((f"{what}, to be allowed once as it stands here:", MUTED)))
        self._only(editor, label)
        self._leave_room(12)
        self.hint("ctrl+s allow it so · esc back")
        editor.focus()

    def action_allow_changed(self) -> None:
        editor = self.query_one(TextArea)
        if not editor.display or self.query_one(Offers).display:
            return
        try:
            changed = self._changed(editor.text)
        except ValueError as error:
            self.refuse(str(error))
            return
        self.give(Allowed(input=None if changed == self.question.input else changed))

    def _changed(self, text: str) -> dict[str, Any]:
        """Parse the edited input. Raises ValueError with a message for the person."""
        if not self._is_command:
            return checked_input(text, self.question.input)
        if not text.strip():
            raise ValueError("There is no command. Write one, or go back with esc and do not allow it.")
        return {**self.question.input, "command": text}


def checked_input(text: str, before: Mapping[str, Any]) -> dict[str, Any]:
    """Parse the edited input of a call. Raises ValueError with a message for the person."""
    try:
        changed = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"It is not JSON: {error.msg} in line {error.lineno}.") from error
    if not isinstance(changed, dict):
        raise ValueError('It must be a JSON object, like {"file_path": "a.py"}.')  # noqa: TRY004
    for key, value in before.items():
        if key in changed and _kind(changed[key]) != _kind(value):
            raise ValueError(f"{one_line(key)} was {_kind(value)}, and is {_kind(changed[key])} now.")
    unknown = [key for key in changed if key not in before]
    if unknown and not set(before) & set(changed):
        raise ValueError(f"None of what the tool was given is left: {one_line(', '.join(before))}.")
    return changed


def _kind(value: Any) -> str:
    match value:
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "a list"
        case dict():
            return "an object"
        case _:
            return "null"


def _pretty(given: Mapping[str, Any]) -> str:
    return json.dumps(given, indent=2, ensure_ascii=False, default=str)


def shown_input(question: MayRun) -> list[Content]:
    """Return all lines of the input that would run."""
    lines: list[Content] = []
    for key, value in question.input.items():
        text = text_of(value)
        mark, style = _CHANGES.get(key, ("", "")) if question.tool == "Edit" else ("", "")
        if question.tool == "Bash" and key == "command":
            lines += [line(("$ " if not at else "  ", MUTED), (each, "bold")) for at, each in _lines(text)]
        elif mark:
            lines += [Content.styled(f"{mark}{each}", style) for _, each in _lines(text)]
        elif "\n" in text:
            lines.append(line((f"{key}:", MUTED)))
            lines += [Content(f"  {each}") for _, each in _lines(text)]
        else:
            lines.append(line((f"{key}: ", MUTED), (_cut(text), "")))
    return lines


def _lines(text: str) -> Iterator[tuple[int, str]]:
    lines = clean(text).removesuffix("\n").split("\n")
    yield from enumerate(map(_cut, lines[:MOST_LINES]))
    if len(lines) > MOST_LINES:
        yield MOST_LINES, f"… {len(lines) - MOST_LINES} more lines ({len(text)} characters in all)"


def _cut(text: str) -> str:
    return text if len(text) <= WIDEST else f"{text[:WIDEST]}… ({len(text)} characters in all)"
