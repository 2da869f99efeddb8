"""Queue of agents' questions at a prompt: one is shown at a time, and its first answer stands."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from shoal.surfaces.cli.plain.asking import Asking
from shoal.surfaces.cli.plain.prompt import Prompt


class QuestionLine:
    """Shows questions with `show_question`, but none while `can_show` returns False."""

    def __init__(self, prompt: Prompt, show: Callable[[Asking], None], may_put: Callable[[], bool]) -> None:
        self._prompt = prompt
        self._show = show
        self._may_put = may_put
        self._waiting: deque[Asking] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def first(self) -> Asking | None:
        return self._waiting[0] if self._waiting else None

    def add(self, asking: Asking) -> None:
        self._waiting.append(asking)
        if len(self._waiting) == 1:
            self.put()

    def put(self) -> None:
        """Show the first question, if there is one and it may be shown."""
        if self._waiting and self._may_put():
            self._show(self._waiting[0])
            self._prompt.ask(self._waiting[0].label)

    def answered(self, question: str) -> None:
        """Remove a question that was answered here or on another surface."""
        was_first = self.first is not None and self.first.question.id == question
        self._waiting = deque(each for each in self._waiting if each.question.id != question)
        if was_first and self._may_put():
            self._prompt.asked()
            self.put()

    def clear(self) -> None:
        self._waiting.clear()
