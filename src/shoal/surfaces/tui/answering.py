"""Modal screen that asks the person a question. The first answer counts, whichever surface gives it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.timer import Timer

from shoal.app.picture.rows import QuestionRow
from shoal.core.errors import ShoalError
from shoal.core.ids import AgentId
from shoal.core.questions import ApprovePlan, Choose, Denied, MayRun
from shoal.core.wording import one_line
from shoal.surfaces.tui.answering_calls import CallForm
from shoal.surfaces.tui.answering_choices import ChoicesForm
from shoal.surfaces.tui.answering_forms import Form
from shoal.surfaces.tui.answering_plans import PlanForm, earlier_plan
from shoal.surfaces.tui.answering_words import answered
from shoal.surfaces.tui.panels.cells import ASKS, colour_of, line
from shoal.surfaces.tui.panels.panel import Panel, tell

if TYPE_CHECKING:
    from shoal.app.picture.picture import Picture
    from shoal.app.session.helm import Helm

QUIET = 0.6
"""Seconds without a key press before an unprompted screen accepts keys."""


class AnswerScreen(ModalScreen[bool | None]):
    """Dismisses with True if the answer counts, False if another came first, None if it stays open.

    A host that opens it by itself passes `unprompted`: keys typed for something else must answer nothing.
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
        self, row: QuestionRow, helm: Helm, *, picture: Picture | None = None, unasked: bool = False
    ) -> None:
        super().__init__()
        self.row = row
        self.helm = helm
        self.picture = picture
        self.ready = asyncio.Event()
        """Set while keys are accepted."""
        self._unasked = unasked
        self._quiet: Timer | None = None
        self._over = False

    def compose(self) -> ComposeResult:
        with Vertical(classes="answer") as box:
            yield self._form()
        agent = self.picture.agent(AgentId(self.row.agent)) if self.picture is not None else None
        name = (one_line(self.row.name), f"bold {colour_of(agent.color if agent is not None else '')}")
        box.border_title = line(("? ", ASKS), name, (f" {_wants(self.row)}", ""))

    def _form(self) -> Form:
        match self.row.question:
            case MayRun() as may_run:
                return CallForm(may_run)
            case Choose() as choose:
                return ChoicesForm(choose)
            case ApprovePlan() as plan:
                return PlanForm(plan, earlier=earlier_plan(self.picture, self.row))

    @property
    def form(self) -> Form:
        return self.query_one(Form)

    # Keys are accepted only once the person has stopped typing

    def on_mount(self) -> None:
        if self._unasked:
            self.form.disabled = True
            self._quiet = self.set_timer(QUIET, self._take_keys)
        else:
            self._take_keys()

    def _take_keys(self) -> None:
        self.form.disabled = False
        self.form.begin()
        self.ready.set()

    def on_key(self, event: events.Key) -> None:
        if not self.ready.is_set() and self._quiet is not None:
            event.stop()
            self._quiet.reset()

    def action_back(self) -> None:
        """Leave the editor, else leave the question open and close the screen."""
        if self.ready.is_set() and not self.form.step_back():
            self.dismiss(None)

    # The answer

    def on_form_given(self, message: Form.Given) -> None:
        message.stop()
        if self._over:
            return
        try:
            stands = self.helm.answer(self.row.id, message.answer)
        except (ShoalError, OSError, ValueError) as error:
            tell(self, str(error), "error")
            self._close(stands=None)
            return
        if not stands:
            tell(self, f"Somebody answered {self.row.name} first; this answer is dropped.", "warning")
        self._close(stands=stands)

    def look(self) -> None:
        """Close the screen if another surface answered. Called when the run view changed."""
        row = self.picture.questions.get(self.row.id) if self.picture is not None else None
        if row is not None and row.answered:
            self.overtaken(row)

    def overtaken(self, row: QuestionRow) -> None:
        """Close the screen because another surface answered or the run ended."""
        if not self._over:
            if row.answer is None:
                tell(self, f"The question of {row.name} was withdrawn: its run has ended.", "warning")
            elif isinstance(row.answer, Denied) and row.answer.by == "policy":
                tell(self, f"{row.name} waits no longer. {row.answer.reason}")
            else:
                words = answered(row.answer).removesuffix(".")
                tell(self, f"{row.name} has its answer from elsewhere: {words}.")
            self._close(stands=False)

    def _close(self, *, stands: bool | None) -> None:
        self._over = True
        # Only the top screen can be dismissed; screens above this one belong to it.
        while self.app.screen is not self and self in self.app.screen_stack:
            self.app.pop_screen()
        self.dismiss(stands)


def answer_here(panel: Panel, row: QuestionRow) -> None:
    """Open the screen once, even if the key came twice; do nothing if the question is answered."""
    now = panel.picture.questions.get(row.id) or row
    if not now.answered and not any(isinstance(each, AnswerScreen) for each in panel.app.screen_stack):
        panel.app.push_screen(AnswerScreen(now, panel.helm, picture=panel.picture))


def _wants(row: QuestionRow) -> str:
    match row.question:
        case MayRun(tool=tool):
            return f"wants to run {one_line(tool)}"
        case Choose():
            return "asks you"
        case ApprovePlan():
            return "has a plan"
