"""Queue of agents' questions at a prompt: one is shown at a time, and its first answer counts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from shoal.surfaces.cli.plain.input_prompt import InputPrompt
from shoal.surfaces.cli.plain.question_dialog import TerminalQuestionDialog


class TerminalQuestionDialogQueue:
    """Shows questions with `show_question`, but none while `can_show` returns False."""

    def __init__(
        self,
        prompt: InputPrompt,
        show_question: Callable[[TerminalQuestionDialog], None],
        can_show: Callable[[], bool],
    ) -> None:
        self._prompt = prompt
        self._show_question = show_question
        self._can_show = can_show
        self._waiting: deque[TerminalQuestionDialog] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def first(self) -> TerminalQuestionDialog | None:
        return self._waiting[0] if self._waiting else None

    def add(self, dialog: TerminalQuestionDialog) -> None:
        self._waiting.append(dialog)
        if len(self._waiting) == 1:
            self.show_first()

    def show_first(self) -> None:
        """Show the first question, if there is one and it may be shown."""
        if self._waiting and self._can_show():
            self._show_question(self._waiting[0])
            self._prompt.begin_question(self._waiting[0].prompt_label)

    def remove_question(self, question: str) -> None:
        """Remove a question that was answered here or on another surface."""
        was_first = self.first is not None and self.first.question.id == question
        self._waiting = deque(each for each in self._waiting if each.question.id != question)
        if was_first and self._can_show():
            self._prompt.end_question()
            self.show_first()

    def clear(self) -> None:
        self._waiting.clear()
