"""Form for multiple-choice questions: one choice after another, single or multiple, or free text."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from shoal.core.questions import Choice, Choose, Chosen
from shoal.core.wording import clean, one_line
from shoal.surfaces.tui.answering_forms import Form, Offer
from shoal.surfaces.tui.panels.cells import MUTED, line


class ChoicesForm(Form):
    def __init__(self, question: Choose) -> None:
        super().__init__()
        self.question = question
        self._at = 0
        self._answers: dict[str, str] = {}
        self._marked: list[str] = []
        """Labels marked so far in a multiple choice."""

    @property
    def _choice(self) -> Choice:
        return self.question.choices[self._at]

    def body(self) -> Iterator[Widget]:
        yield Static(classes="choice", markup=False)

    def show_offers(self, *, at: int = 0) -> None:
        number, many = self._at + 1, len(self.question.choices)
        place = f"{number} of {many} · " if many > 1 else ""
        head = line((f"{place}{one_line(self._choice.header)}", MUTED))
        asked = Content.styled(clean(self._choice.question), "bold")
        self.query_one(".choice", Static).update(Content("\n").join([head, asked]))
        super().show_offers(at=at)

    def offers(self) -> list[Offer]:
        choice = self._choice
        labels = [each.label for each in choice.options]
        own = [each for each in self._marked if each not in labels]
        found: list[Offer] = []
        for number, label in enumerate([*labels, *own], 1):
            described = next((each.description for each in choice.options if each.label == label), "")
            mark = ("☑ " if label in self._marked else "☐ ") if choice.multi_select else ""
            more = f"  {one_line(described)}" if described else ""
            words = line((mark, ""), (one_line(label), ""), (more, MUTED))
            found.append(Offer(str(number) if number < 10 else "·", words, partial(self._choose, label)))
        found.append(Offer("o", Content("In your own words"), self._own_words))
        if choice.multi_select:
            found.append(Offer("d", Content("Done"), self._done))
        if self._at:
            found.append(Offer("b", line(("Back to the one before", MUTED)), self._back))
        found.append(Offer("n", line(("Do not answer, and say why", MUTED)), self.ask_reason))
        return found

    def _choose(self, label: str) -> None:
        if not self._choice.multi_select:
            self._take(label)
            return
        self._marked.remove(label) if label in self._marked else self._marked.append(label)
        labels = [each.label for each in self._choice.options]
        self.show_offers(at=labels.index(label) if label in labels else 0)
        self.begin()

    def _done(self) -> None:
        if not self._marked:
            self.refuse("Mark one with Space, or take n to answer none of them.")
        else:
            labels = [each.label for each in self._choice.options]
            chosen = [each for each in labels if each in self._marked]
            self._take(", ".join([*chosen, *(each for each in self._marked if each not in labels)]))

    def _own_words(self) -> None:
        self.ask_words("In your own words. ⏎ takes them; esc goes back.", self._said)

    def _said(self, words: str) -> None:
        if not words:
            return
        if self._choice.multi_select:
            self._marked.append(words)
            self.show_offers()
            self.begin()
        else:
            self._take(words)

    def _take(self, words: str) -> None:
        self._answers[self._choice.question] = words
        if self._at + 1 == len(self.question.choices):
            self.give(Chosen(answers=self._answers))
            return
        self._go(self._at + 1)

    def _back(self) -> None:
        self._go(self._at - 1)

    def _go(self, at: int) -> None:
        self._at, self._marked = at, []
        self.show_offers()
        self.begin()
