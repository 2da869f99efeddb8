"""Form for multiple-choice questions: one choice after another, single or multiple, or free text."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from shoal.core.permissions.questions import ChoiceAnswer, ChoiceQuestion, MultipleChoice
from shoal.core.text.text_format import strip_terminal_codes, to_one_line
from shoal.surfaces.tui.panels.cells import MUTED, build_clean_line
from shoal.surfaces.tui.question_form import AnswerOption, QuestionForm


class ChoicesForm(QuestionForm):
    def __init__(self, question: ChoiceQuestion) -> None:
        super().__init__()
        self.question = question
        self._choice_index = 0
        self._answers: dict[str, str] = {}
        self._marked: list[str] = []
        """Labels marked so far in a multiple choice."""

    @property
    def _current_choice(self) -> MultipleChoice:
        return self.question.choices[self._choice_index]

    def compose_body(self) -> Iterator[Widget]:
        yield Static(classes="choice", markup=False)

    def show_options(self, *, at: int = 0) -> None:
        number, total = self._choice_index + 1, len(self.question.choices)
        progress = f"{number} of {total} · " if total > 1 else ""
        head = build_clean_line((f"{progress}{to_one_line(self._current_choice.header)}", MUTED))
        question_text = Content.styled(strip_terminal_codes(self._current_choice.question), "bold")
        self.query_one(".choice", Static).update(Content("\n").join([head, question_text]))
        super().show_options(at=at)

    def list_options(self) -> list[AnswerOption]:
        choice = self._current_choice
        labels = [each.label for each in choice.options]
        custom_answers = [each for each in self._marked if each not in labels]
        answer_options: list[AnswerOption] = []
        for number, label in enumerate([*labels, *custom_answers], 1):
            description = next((each.description for each in choice.options if each.label == label), "")
            mark = ("☑ " if label in self._marked else "☐ ") if choice.multi_select else ""
            description_part = f"  {to_one_line(description)}" if description else ""
            option_line = build_clean_line((mark, ""), (to_one_line(label), ""), (description_part, MUTED))
            answer_options.append(
                AnswerOption(
                    str(number) if number < 10 else "·",
                    option_line,
                    partial(self._choose_or_toggle_label, label),
                )
            )
        answer_options.append(AnswerOption("o", Content("Write your own answer"), self._ask_own_answer))
        if choice.multi_select:
            answer_options.append(AnswerOption("d", Content("Done"), self._finish_choice))
        if self._choice_index:
            answer_options.append(
                AnswerOption(
                    "b",
                    build_clean_line(("Back to the previous question", MUTED)),
                    self._go_to_previous_choice,
                )
            )
        answer_options.append(
            AnswerOption(
                "n", build_clean_line(("Decline to answer, with a reason", MUTED)), self.ask_reason_and_deny
            )
        )
        return answer_options

    def _choose_or_toggle_label(self, label: str) -> None:
        if not self._current_choice.multi_select:
            self._record_answer(label)
            return
        self._marked.remove(label) if label in self._marked else self._marked.append(label)
        labels = [each.label for each in self._current_choice.options]
        self.show_options(at=labels.index(label) if label in labels else 0)
        self.focus_options()

    def _finish_choice(self) -> None:
        if not self._marked:
            self.show_error("Mark one with Space, or press n to choose none of them.")
        else:
            labels = [each.label for each in self._current_choice.options]
            chosen_labels = [each for each in labels if each in self._marked]
            self._record_answer(
                ", ".join([*chosen_labels, *(each for each in self._marked if each not in labels)])
            )

    def _ask_own_answer(self) -> None:
        self.ask_text("Your own answer. ⏎ accepts it; esc goes back.", self._take_own_answer)

    def _take_own_answer(self, text: str) -> None:
        if not text:
            return
        if self._current_choice.multi_select:
            self._marked.append(text)
            self.show_options()
            self.focus_options()
        else:
            self._record_answer(text)

    def _record_answer(self, answer: str) -> None:
        self._answers[self._current_choice.question] = answer
        if self._choice_index + 1 == len(self.question.choices):
            self.submit_answer(ChoiceAnswer(answers=self._answers))
            return
        self._go_to_choice(self._choice_index + 1)

    def _go_to_previous_choice(self) -> None:
        self._go_to_choice(self._choice_index - 1)

    def _go_to_choice(self, choice_index: int) -> None:
        self._choice_index, self._marked = choice_index, []
        self.show_options()
        self.focus_options()
