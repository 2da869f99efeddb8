"""Panel of the agents' questions: open ones first, answered from here."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Static

from shoal.app.picture.rows import Frame, QuestionRow
from shoal.core.ids import AgentId
from shoal.core.questions import ApprovePlan, Choose, MayRun
from shoal.surfaces.tui.answering import AnswerScreen, answer_here
from shoal.surfaces.tui.answering_words import answered, asked
from shoal.surfaces.tui.panels.board_lines import moment
from shoal.surfaces.tui.panels.cells import ASKS, MUTED, Part, age, cell, colour_of, joined, line
from shoal.surfaces.tui.panels.dialogs import ReadScreen
from shoal.surfaces.tui.panels.list_panel import ListPanel
from shoal.surfaces.tui.panels.rows import Entry, Rows

MOST_ANSWERED = 200
_ANSWERED = "answered"


class QuestionsPanel(ListPanel):
    DEFAULT_CSS = """
    QuestionsPanel > .panel--detail { height: 4; text-overflow: ellipsis; }
    """
    ALWAYS = HAS_DETAIL = True
    TICK = 1.0
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Close", show=False),
    ]
    HINTS = "⏎ answer · esc close"

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._questions: dict[str, QuestionRow] = {}
        self._ages: dict[str, str] = {}

    # Drawing

    def take(self, frame: Frame, *, anew: bool) -> None:
        if not frame.questions and not anew:
            return
        stood = self._questions.get(str(self.rows.cursor))
        for row in frame.questions:
            self._questions[row.id] = row
            self.rows.touch(row.id)
            if row.answered:
                self._overtake(row)
        self._arrange()
        still = self.picture.open_questions()
        if still and stood is not None and not stood.answered and self._questions[stood.id].answered:
            self.rows.stand_on(still[0].id)  # the one at the cursor was answered elsewhere

    def _overtake(self, row: QuestionRow) -> None:
        """Close the screen of a question that was answered; the first answer counts."""
        for screen in self.app.screen_stack:
            if isinstance(screen, AnswerScreen) and screen.row.id == row.id:
                screen.overtaken(row)

    def _arrange(self) -> None:
        still = self.picture.open_questions()
        done = sorted(
            (row for row in self._questions.values() if row.answered), key=lambda row: -row.answered
        )
        entries = [Entry(row.id) for row in still]
        if done:
            entries.append(Entry(_ANSWERED, 2 if still else 1, chosen=False))
            entries += [Entry(row.id) for row in done[:MOST_ANSWERED]]
        self.rows.put_in_order(entries)
        parts: list[Part] = [("Questions", "bold")]
        parts.append((f"  {len(still)} open", ASKS) if still else ("  nobody asks anything", MUTED))
        self.head(line(*parts))
        self.show_detail()

    def draw_row(self, key: Hashable, width: int) -> list[Content]:
        if key == _ANSWERED:
            title = line(("Answered", "bold"))
            return [title] if self.rows.entries[0].key == key else [Content(""), title]
        row = self._questions[str(key)]
        names = 18 if width >= 100 else 12
        about = asked(row.question)
        if row.answered:
            when = line((moment(row.answered), MUTED))
            mark, told = line(("✓", MUTED)), line((f"{answered(row.answer)}", ""), (f"  {about}", MUTED))
        else:
            self._ages[row.id] = age(self.clock.now() - row.asked)
            when = cell(line((self._ages[row.id], MUTED)), 8, right=True)
            mark, told = line(("?", ASKS)), line((about, "bold"))
        who = cell(line(self._who(row)), names)
        return [joined([mark, when, who, told]).truncate(width, ellipsis=True)]

    def _who(self, row: QuestionRow) -> Part:
        agent = self.picture.agent(AgentId(row.agent))
        return (row.name, colour_of(agent.color if agent is not None else ""))

    def show_detail(self) -> None:
        row = self._questions.get(str(self.rows.cursor))
        told = "" if row is None else Content("\n").join(_detail(row))
        self.query_one(".panel--detail", Static).update(told, layout=False)

    def tick(self) -> None:
        now = self.clock.now()
        for key in self.rows.in_sight() if self._shown else ():
            row = self._questions.get(str(key))
            if row is not None and not row.answered and self._ages.get(row.id) != age(now - row.asked):
                self.rows.touch(row.id)

    # Keys

    def on_rows_chosen(self, message: Rows.Chosen) -> None:
        message.stop()
        row = self._questions.get(str(message.key))
        if row is None:
            return
        if row.answered:
            told = Content("\n").join([*_detail(row), Content(""), line((answered(row.answer), "bold"))])
            self.app.push_screen(ReadScreen(f"{row.name} asked", told))
        else:
            answer_here(self, row)


def _detail(row: QuestionRow) -> list[Content]:
    question = row.question
    match question:
        case MayRun(tool=tool, reason=reason):
            return [line((tool, "bold"), ("  ", ""), (reason, MUTED)), line((asked(question), ""))]
        case ApprovePlan(path=path):
            return [line(("Plan", "bold"), (f"  {path}", MUTED)), line((asked(question), ""))]
        case Choose(choices=choices):
            return [
                line(
                    (choice.question, "bold"),
                    ("  " + " | ".join(each.label for each in choice.options), MUTED),
                )
                for choice in choices
            ]
