"""Modal screen that asks the user a question. The first answer counts, from any surface."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.timer import Timer

from shoal.app.run_view.view_rows import RunViewQuestionRow
from shoal.core.errors import ShoalError
from shoal.core.ids import AgentId
from shoal.core.permissions.questions import (
    ChoiceQuestion,
    DenyAnswer,
    PermissionQuestion,
    PlanApprovalQuestion,
)
from shoal.core.text.text_format import to_one_line
from shoal.surfaces.tui.choices_form import ChoicesForm
from shoal.surfaces.tui.panels.cells import ASKS, build_clean_line, get_agent_colour
from shoal.surfaces.tui.panels.panel import TuiPanel, notify_user
from shoal.surfaces.tui.permission_form import PermissionForm
from shoal.surfaces.tui.plan_form import PlanForm, find_earlier_plan
from shoal.surfaces.tui.question_form import QuestionForm
from shoal.surfaces.tui.question_summary import summarize_answer

if TYPE_CHECKING:
    from shoal.app.run_view.run_view import RunView
    from shoal.app.session.run_controller import RunController

QUIET = 0.6
"""Seconds without a key press before an unprompted screen accepts keys."""


class AnswerScreen(ModalScreen[bool | None]):
    """Dismisses with True if the answer counts, False if another came first, None if it stays open.

    A host that opens it without a key press passes `unprompted`: keys typed for something else must answer
    nothing.
    """

    DEFAULT_CSS = """
    AnswerScreen {
        align: center middle;
        background: $background 60%;
        & > .answer { width: 96%; max-width: 120; height: auto; max-height: 96%; background: $surface;
            border: round $warning; border-title-color: $foreground; border-subtitle-color: $text-muted; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "back", "Later", show=False)]

    def __init__(
        self,
        row: RunViewQuestionRow,
        controller: RunController,
        *,
        run_view: RunView | None = None,
        unprompted: bool = False,
    ) -> None:
        super().__init__()
        self.row = row
        self.controller = controller
        self.run_view = run_view
        self.ready = asyncio.Event()
        """Set while keys are accepted."""
        self._is_unprompted = unprompted
        self._quiet_timer: Timer | None = None
        self._is_closed = False

    def compose(self) -> ComposeResult:
        with Vertical(classes="answer") as box:
            yield self._create_question_form()
        agent = self.run_view.find_agent_row(AgentId(self.row.agent)) if self.run_view is not None else None
        name = (
            to_one_line(self.row.name),
            f"bold {get_agent_colour(agent.color if agent is not None else '')}",
        )
        box.border_title = build_clean_line(("? ", ASKS), name, (f" {_describe_agent_request(self.row)}", ""))

    def _create_question_form(self) -> QuestionForm:
        match self.row.question:
            case PermissionQuestion() as permission_question:
                return PermissionForm(permission_question)
            case ChoiceQuestion() as choice_question:
                return ChoicesForm(choice_question)
            case PlanApprovalQuestion() as plan:
                return PlanForm(plan, earlier=find_earlier_plan(self.run_view, self.row))

    @property
    def form(self) -> QuestionForm:
        return self.query_one(QuestionForm)

    # Keys are accepted only once the user has stopped typing

    def on_mount(self) -> None:
        if self._is_unprompted:
            self.form.disabled = True
            self._quiet_timer = self.set_timer(QUIET, self._enable_form)
        else:
            self._enable_form()

    def _enable_form(self) -> None:
        self.form.disabled = False
        self.form.focus_options()
        self.ready.set()

    def on_key(self, event: events.Key) -> None:
        if not self.ready.is_set() and self._quiet_timer is not None:
            event.stop()
            self._quiet_timer.reset()

    def action_back(self) -> None:
        """Leave the editor, else leave the question open and close the screen."""
        if self.ready.is_set() and not self.form.return_to_options():
            self.dismiss(None)

    # The answer

    def on_question_form_answer_given(self, message: QuestionForm.AnswerGiven) -> None:
        message.stop()
        if self._is_closed:
            return
        try:
            was_accepted = self.controller.answer_question(self.row.id, message.answer)
        except (ShoalError, OSError, ValueError) as error:
            notify_user(self, str(error), "error")
            self._dismiss_screen(was_accepted=None)
            return
        if not was_accepted:
            notify_user(
                self,
                f"The question from {self.row.name} was already answered; your answer is ignored.",
                "warning",
            )
        self._dismiss_screen(was_accepted=was_accepted)

    def close_settled_elsewhere(self, row: RunViewQuestionRow) -> None:
        """Close the screen because another surface answered or the run ended."""
        if not self._is_closed:
            if row.answer is None:
                notify_user(
                    self, f"The question from {row.name} was withdrawn because its run has ended.", "warning"
                )
            elif isinstance(row.answer, DenyAnswer) and row.answer.by == "policy":
                notify_user(self, f"{row.name} is no longer waiting. {row.answer.reason}")
            else:
                summary = summarize_answer(row.answer).removesuffix(".")
                notify_user(self, f"The question from {row.name} was answered elsewhere: {summary}.")
            self._dismiss_screen(was_accepted=False)

    def _dismiss_screen(self, *, was_accepted: bool | None) -> None:
        self._is_closed = True
        # Only the top screen can be dismissed; screens above this one belong to it.
        while self.app.screen is not self and self in self.app.screen_stack:
            self.app.pop_screen()
        self.dismiss(was_accepted)


def open_answer_screen(panel: TuiPanel, row: RunViewQuestionRow) -> None:
    """Open the screen once, even if the key came twice; do nothing if the question is answered."""
    now = panel.run_view.questions.get(row.id) or row
    if not now.answered and not any(isinstance(each, AnswerScreen) for each in panel.app.screen_stack):
        panel.app.push_screen(AnswerScreen(now, panel.controller, run_view=panel.run_view))


def _describe_agent_request(row: RunViewQuestionRow) -> str:
    match row.question:
        case PermissionQuestion(tool=tool):
            return f"wants to run {to_one_line(tool)}"
        case ChoiceQuestion():
            return "asks you"
        case PlanApprovalQuestion():
            return "has a plan"
