"""Form for a permission question: allow once, for the session, always, with another input, or deny."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static, TextArea

from shoal.core.permissions.permission_changes import find_permission_suggestion
from shoal.core.permissions.questions import AllowAnswer, PermissionQuestion
from shoal.core.text.text_format import (
    make_visible_in_one_line,
    split_into_visible_lines,
    strip_control_characters,
    to_one_line,
)
from shoal.surfaces.terminal.question_text import (
    describe_permission_suggestion,
    format_tool_input_value,
    list_remember_options,
)
from shoal.surfaces.tui.panels.cells import BAD, GOOD, MUTED, build_clean_line
from shoal.surfaces.tui.paste_fields import CleanTextArea
from shoal.surfaces.tui.question_form import AnswerOption, AnswerOptionList, QuestionForm

_CHANGES = {"old_string": ("- ", BAD), "new_string": ("+ ", GOOD)}


class PermissionForm(QuestionForm):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "allow_changed", "Allow with changes", show=False, priority=True)
    ]

    def __init__(self, question: PermissionQuestion) -> None:
        super().__init__()
        self.question = question

    def compose_body(self) -> Iterator[Widget]:
        yield Static(build_clean_line((to_one_line(self.question.reason), MUTED)), markup=False)
        yield Static(Content("\n").join([Content(""), *render_tool_input(self.question)]), markup=False)

    def compose_hidden_widgets(self) -> Iterator[Widget]:
        yield CleanTextArea(tab_behavior="focus")

    def list_options(self) -> list[AnswerOption]:
        answer_options = [
            AnswerOption("y", Content("Allow it once"), lambda: self.submit_answer(AllowAnswer()))
        ]
        if "session" in list_remember_options(self.question):
            option_line = build_clean_line(
                ("Allow for this session: ", ""), (to_one_line(self.question.rule), MUTED)
            )
            answer_options.append(
                AnswerOption("s", option_line, lambda: self.submit_answer(AllowAnswer(remember="session")))
            )
        suggestion = find_permission_suggestion(self.question.suggestions, "localSettings")
        if suggestion is not None:
            option_line = build_clean_line(
                ("Always allow, saved in your settings: ", ""),
                (describe_permission_suggestion(suggestion), MUTED),
            )
            answer_options.append(
                AnswerOption("p", option_line, lambda: self.submit_answer(AllowAnswer(remember="settings")))
            )
        answer_options.append(AnswerOption("e", Content("Change it first"), self._open_tool_input_editor))
        answer_options.append(
            AnswerOption("n", Content("Deny it, and give a reason"), self.ask_reason_and_deny)
        )
        return answer_options

    # Changed input

    @property
    def _is_shell_command(self) -> bool:
        return self.question.tool == "Bash" and isinstance(self.question.input.get("command"), str)

    def _open_tool_input_editor(self) -> None:
        editor = self.query_one(TextArea)
        tool_input = self.question.input
        editor.text = strip_control_characters(
            tool_input["command"] if self._is_shell_command else _format_tool_input_json(tool_input)
        )
        editor.move_cursor(editor.document.end)
        input_label = "Edit the command" if self._is_shell_command else "Edit the input (JSON)"
        label = self.query_one(".form--label", Static)
        label.update(build_clean_line((f"{input_label}, then allow it once:", MUTED)))
        self._show_only_widgets(editor, label)
        self._limit_question_body_height(12)
        self.show_key_hint("ctrl+s allow · esc back")
        editor.focus()

    def action_allow_changed(self) -> None:
        editor = self.query_one(TextArea)
        if not editor.display or self.query_one(AnswerOptionList).display:
            return
        try:
            changed_input = self._parse_changed_input(editor.text)
        except ValueError as error:
            self.show_error(str(error))
            return
        self.submit_answer(AllowAnswer(input=None if changed_input == self.question.input else changed_input))

    def _parse_changed_input(self, text: str) -> dict[str, Any]:
        """Parse the edited input. Raises ValueError with a message for the user."""
        if not self._is_shell_command:
            return parse_edited_tool_input(text, self.question.input)
        if not text.strip():
            raise ValueError("The command is empty. Write one, or press esc and deny the call.")
        return {**self.question.input, "command": text}


def parse_edited_tool_input(text: str, before: Mapping[str, Any]) -> dict[str, Any]:
    """Parse the edited input of a call. Raises ValueError with a message for the user."""
    try:
        edited = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"This is not valid JSON: {error.msg} on line {error.lineno}.") from error
    if not isinstance(edited, dict):
        raise ValueError('It must be a JSON object, such as {"file_path": "a.py"}.')  # noqa: TRY004
    for key, value in before.items():
        if key in edited and _describe_json_type(edited[key]) != _describe_json_type(value):
            raise ValueError(
                f"{to_one_line(key)} was {_describe_json_type(value)} and is now "
                f"{_describe_json_type(edited[key])}."
            )
    unknown_keys = [key for key in edited if key not in before]
    if unknown_keys and not set(before) & set(edited):
        raise ValueError(f"All fields of the original input are missing: {to_one_line(', '.join(before))}.")
    return edited


def _describe_json_type(value: Any) -> str:
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


def _format_tool_input_json(tool_input: Mapping[str, Any]) -> str:
    return json.dumps(tool_input, indent=2, ensure_ascii=False, default=str)


def render_tool_input(question: PermissionQuestion) -> list[Content]:
    """Return all lines of the input that would run."""
    lines: list[Content] = []
    for key, value in question.input.items():
        text = format_tool_input_value(value)
        mark, style = _CHANGES.get(key, ("", "")) if question.tool == "Edit" else ("", "")
        if question.tool == "Bash" and key == "command":
            lines += [
                build_clean_line(("$ " if not at else "  ", MUTED), (each, "bold"))
                for at, each in enumerate(split_into_visible_lines(text))
            ]
        elif mark:
            lines += [Content.styled(f"{mark}{each}", style) for each in split_into_visible_lines(text)]
        elif "\n" in text:
            lines.append(build_clean_line((f"{make_visible_in_one_line(key)}:", MUTED)))
            lines += [Content(f"  {each}") for each in split_into_visible_lines(text)]
        else:
            name = f"{make_visible_in_one_line(key)}: "
            lines.append(build_clean_line((name, MUTED), (make_visible_in_one_line(text), "")))
    return lines
