"""Panel of the agents' questions: open ones first, answered from here."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Static

from shoal.app.run_view.view_rows import RunViewQuestionRow, ViewDelta
from shoal.core.ids import AgentId
from shoal.core.permissions.questions import ChoiceQuestion, PermissionQuestion, PlanApprovalQuestion
from shoal.surfaces.tui.answer_screen import AnswerScreen, open_answer_screen
from shoal.surfaces.tui.panels.board_lines import format_time_of_day
from shoal.surfaces.tui.panels.cells import (
    ASKS,
    MUTED,
    Part,
    build_clean_line,
    fit_cell,
    format_short_age,
    get_agent_colour,
    join_cells,
)
from shoal.surfaces.tui.panels.dialogs import ScrollableTextScreen
from shoal.surfaces.tui.panels.list_panel import ListPanel
from shoal.surfaces.tui.panels.row_list import RowEntry, RowList
from shoal.surfaces.tui.question_summary import summarize_answer, summarize_question

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
        self._questions: dict[str, RunViewQuestionRow] = {}
        self._ages: dict[str, str] = {}

    # Drawing

    def apply_delta(self, delta: ViewDelta, *, is_first: bool) -> None:
        if not delta.questions and not is_first:
            return
        cursor_row = self._questions.get(str(self.rows.cursor))
        for row in delta.questions:
            self._questions[row.id] = row
            self.rows.invalidate_row(row.id)
            if row.answered:
                self._close_answer_screen(row)
        self._arrange_rows()
        open_rows = self.run_view.list_open_questions()
        if (
            open_rows
            and cursor_row is not None
            and not cursor_row.answered
            and self._questions[cursor_row.id].answered
        ):
            self.rows.move_cursor_to(open_rows[0].id)  # the one at the cursor was answered elsewhere

    def _close_answer_screen(self, row: RunViewQuestionRow) -> None:
        """Close the screen of a question that was answered; the first answer counts."""
        for screen in self.app.screen_stack:
            if isinstance(screen, AnswerScreen) and screen.row.id == row.id:
                screen.close_settled_elsewhere(row)

    def _arrange_rows(self) -> None:
        open_rows = self.run_view.list_open_questions()
        answered_rows = sorted(
            (row for row in self._questions.values() if row.answered), key=lambda row: -row.answered
        )
        entries = [RowEntry(row.id) for row in open_rows]
        if answered_rows:
            entries.append(RowEntry(_ANSWERED, 2 if open_rows else 1, selectable=False))
            entries += [RowEntry(row.id) for row in answered_rows[:MOST_ANSWERED]]
        self.rows.set_entries(entries)
        parts: list[Part] = [("Questions", "bold")]
        parts.append((f"  {len(open_rows)} open", ASKS) if open_rows else ("  no open questions", MUTED))
        self.set_panel_head(build_clean_line(*parts))
        self.show_detail()

    def draw_row(self, key: Hashable, width: int) -> list[Content]:
        if key == _ANSWERED:
            title = build_clean_line(("Answered", "bold"))
            return [title] if self.rows.entries[0].key == key else [Content(""), title]
        row = self._questions[str(key)]
        names = 18 if width >= 100 else 12
        summary = summarize_question(row.question)
        if row.answered:
            time_part = build_clean_line((format_time_of_day(row.answered), MUTED))
            mark, summary_part = (
                build_clean_line(("✓", MUTED)),
                build_clean_line((f"{summarize_answer(row.answer)}", ""), (f"  {summary}", MUTED)),
            )
        else:
            self._ages[row.id] = format_short_age(self.clock.now() - row.asked)
            time_part = fit_cell(build_clean_line((self._ages[row.id], MUTED)), 8, right=True)
            mark, summary_part = build_clean_line(("?", ASKS)), build_clean_line((summary, "bold"))
        agent_cell = fit_cell(build_clean_line(self._build_agent_part(row)), names)
        return [join_cells([mark, time_part, agent_cell, summary_part]).truncate(width, ellipsis=True)]

    def _build_agent_part(self, row: RunViewQuestionRow) -> Part:
        agent = self.run_view.find_agent_row(AgentId(row.agent))
        return (row.name, get_agent_colour(agent.color if agent is not None else ""))

    def show_detail(self) -> None:
        row = self._questions.get(str(self.rows.cursor))
        detail = "" if row is None else Content("\n").join(_build_question_detail_lines(row))
        self.query_one(".panel--detail", Static).update(detail, layout=False)

    def refresh_ages(self) -> None:
        now = self.clock.now()
        for key in self.rows.list_visible_keys() if self._shown else ():
            row = self._questions.get(str(key))
            if (
                row is not None
                and not row.answered
                and self._ages.get(row.id) != format_short_age(now - row.asked)
            ):
                self.rows.invalidate_row(row.id)

    # Keys

    def on_row_list_row_chosen(self, message: RowList.RowChosen) -> None:
        message.stop()
        row = self._questions.get(str(message.key))
        if row is None:
            return
        if row.answered:
            detail = Content("\n").join(
                [
                    *_build_question_detail_lines(row),
                    Content(""),
                    build_clean_line((summarize_answer(row.answer), "bold")),
                ]
            )
            self.app.push_screen(ScrollableTextScreen(f"{row.name} asked", detail))
        else:
            open_answer_screen(self, row)


def _build_question_detail_lines(row: RunViewQuestionRow) -> list[Content]:
    question = row.question
    match question:
        case PermissionQuestion(tool=tool, reason=reason):
            return [
                build_clean_line((tool, "bold"), ("  ", ""), (reason, MUTED)),
                build_clean_line((summarize_question(question), "")),
            ]
        case PlanApprovalQuestion(path=path):
            return [
                build_clean_line(("Plan", "bold"), (f"  {path}", MUTED)),
                build_clean_line((summarize_question(question), "")),
            ]
        case ChoiceQuestion(choices=choices):
            return [
                build_clean_line(
                    (choice.question, "bold"),
                    ("  " + " | ".join(each.label for each in choice.options), MUTED),
                )
                for choice in choices
            ]
