"""Form that approves a plan: the plan itself, and its difference from the agent's last version."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from textual.content import Content
from textual.widget import Widget
from textual.widgets import Markdown, Static

from shoal.app.run_view.view_rows import RunViewQuestionRow
from shoal.core.permissions.permission_changes import PermissionMode
from shoal.core.permissions.questions import PlanApprovalQuestion, PlanApprovedAnswer
from shoal.core.text.text_diffs import count_changed_lines
from shoal.core.text.text_format import hides_text_as_markdown, split_into_visible_lines, to_one_line
from shoal.surfaces.tui.panels.cells import BAD, GOOD, MUTED, Part, build_clean_line, fit_cell
from shoal.surfaces.tui.panels.dialogs import NamePickerScreen
from shoal.surfaces.tui.question_form import AnswerOption, QuestionForm

if TYPE_CHECKING:
    from shoal.app.run_view.run_view import RunView

SIDE_BY_SIDE = 90
"""Minimum width at which the two versions are shown side by side."""
MOST_COMPARED = 1_500
_MODES: tuple[tuple[PermissionMode, str], ...] = (
    ("default", "asks before it changes or runs anything"),
    ("acceptEdits", "edits files, but asks before it runs anything"),
    ("dontAsk", "does only what the rules allow"),
    ("bypassPermissions", "never asks"),
)


def find_earlier_plan(run_view: RunView | None, row: RunViewQuestionRow) -> str | None:
    """Return the plan the same agent presented before, for the same file."""
    if run_view is None or not isinstance(row.question, PlanApprovalQuestion):
        return None
    earlier_plan: str | None = None
    for other in run_view.questions.values():
        if other.id == row.id:
            break
        question = other.question
        if not isinstance(question, PlanApprovalQuestion):
            continue
        if (other.agent, question.path) == (row.agent, row.question.path):
            earlier_plan = question.plan
    return earlier_plan


class PlanForm(QuestionForm):
    DEFAULT_CSS = """
    PlanForm Markdown { padding: 0; margin: 1 0 0 0; background: $surface; }
    PlanForm MarkdownH1 { content-align: left middle; margin: 0 0 1 0; padding: 0; }
    PlanForm MarkdownH2 { margin: 1 0 1 0; padding: 0; }
    PlanForm PlanDiff { margin-top: 1; }
    PlanForm .form--source { margin-top: 1; }
    """

    def __init__(self, question: PlanApprovalQuestion, *, earlier: str | None = None) -> None:
        super().__init__()
        self.question = question
        self.earlier = earlier
        self.shows_diff = False
        self._whole_plan: Widget

    def compose_body(self) -> Iterator[Widget]:
        yield Static(Content("\n").join(self._build_plan_summary_lines()), markup=False)
        plan = self.question.plan
        # A person approves the whole text, and Markdown hides parts such as comments and targets of links.
        self._whole_plan = (
            Static(Content("\n".join(split_into_visible_lines(plan))), markup=False, classes="form--source")
            if hides_text_as_markdown(plan)
            else Markdown(plan, open_links=False)
        )
        yield self._whole_plan
        yield PlanDiff(self.earlier or "", plan)

    def on_mount(self) -> None:
        self.query_one(PlanDiff).display = False

    def _build_plan_summary_lines(self) -> Iterator[Content]:
        yield build_clean_line((to_one_line(self.question.path), MUTED))
        if self.earlier is not None:
            added, removed = count_changed_lines(self.earlier, self.question.plan)
            summary_parts: list[Part] = [
                (f"+{added}", GOOD),
                (" ", ""),
                (f"-{removed}", BAD),
                (" lines", MUTED),
            ]
            yield build_clean_line(("Since the last version: ", MUTED), *summary_parts)
        for requested_permission in self.question.wishes:
            yield build_clean_line(("will ask for ", MUTED), (to_one_line(requested_permission), ""))

    def list_options(self) -> list[AnswerOption]:
        answer_options = [
            AnswerOption("y", Content("Approve it"), self._approve_plan),
            AnswerOption(
                "e", Content("Approve it, and accept edits"), lambda: self._approve_plan("acceptEdits")
            ),
            AnswerOption("m", Content("Approve it in another mode"), self._pick_mode_and_approve),
            AnswerOption("n", Content("Reject it, and say what to change"), self._reject_plan),
        ]
        if self.earlier is not None:
            toggle_label = (
                "Show the whole plan" if self.shows_diff else "Show what changed since the last version"
            )
            answer_options.append(
                AnswerOption("d", build_clean_line((toggle_label, MUTED)), self._toggle_diff)
            )
        return answer_options

    def _approve_plan(self, mode: PermissionMode | None = None) -> None:
        self.submit_answer(PlanApprovedAnswer(digest=self.question.digest, mode=mode))

    def _pick_mode_and_approve(self) -> None:
        names = [(mode, build_clean_line((f"{mode:<18} ", "bold"), (words, MUTED))) for mode, words in _MODES]

        def approve_in_mode(name: str | None) -> None:
            for mode, _ in _MODES:
                if mode == name:
                    self._approve_plan(mode)

        self.app.push_screen(
            NamePickerScreen("In which mode should it carry out the plan?", names), approve_in_mode
        )

    def _reject_plan(self) -> None:
        self.ask_reason_and_deny("What should change? ⏎ sends your text to the agent, even if it is empty.")

    def _toggle_diff(self) -> None:
        self.shows_diff = not self.shows_diff
        self._whole_plan.display = not self.shows_diff
        self.query_one(PlanDiff).display = self.shows_diff
        self.show_options(at=len(self._shown_options) - 1)
        self.focus_options()


class PlanDiff(Static):
    """Difference of two plans: side by side if there is room, else unified."""

    def __init__(self, old: str, new: str) -> None:
        self._old, self._new = split_into_visible_lines(old), split_into_visible_lines(new)
        self._is_comparable = max(len(self._old), len(self._new)) <= MOST_COMPARED
        # Complete from the start: a text that is set in answer to the first layout may get no second one.
        super().__init__(self._build_unified_content(), markup=False)
        self._is_side_by_side = False

    def _build_unified_content(self) -> Content:
        if self._is_comparable:
            return Content("\n").join(build_unified_plan_diff(self._old, self._new))
        return Content(f"({len(self._old)} lines became {len(self._new)}: too many to compare)")

    def on_resize(self) -> None:
        width = self.size.width
        if self._is_comparable and width >= SIDE_BY_SIDE:
            self.update(Content("\n").join(build_side_by_side_plan_diff(self._old, self._new, width)))
        elif self._is_side_by_side:
            self.update(self._build_unified_content())
        self._is_side_by_side = width >= SIDE_BY_SIDE


def build_unified_plan_diff(old: list[str], new: list[str]) -> list[Content]:
    """Return a unified diff that includes all unchanged lines."""
    lines: list[Content] = []
    for kind, i1, i2, j1, j2 in _compute_diff_opcodes(old, new):
        if kind == "equal":
            lines += [Content.styled(f"  {each}", MUTED) for each in old[i1:i2]]
            continue
        lines += [Content.styled(f"- {each}", BAD) for each in old[i1:i2]]
        lines += [Content.styled(f"+ {each}", GOOD) for each in new[j1:j2]]
    return lines


def build_side_by_side_plan_diff(old: list[str], new: list[str], width: int) -> list[Content]:
    """Return the diff with the old version on the left; lines too long for their half are wrapped."""
    half_width = (width - 3) // 2
    lines = [Content.styled(f"{'before':<{half_width}} │ now", MUTED)]
    for kind, i1, i2, j1, j2 in _compute_diff_opcodes(old, new):
        is_equal = kind == "equal"
        left = _wrap_diff_half(old[i1:i2], "  " if is_equal else "- ", MUTED if is_equal else BAD, half_width)
        right = _wrap_diff_half(
            new[j1:j2], "  " if is_equal else "+ ", MUTED if is_equal else GOOD, half_width
        )
        for index in range(max(len(left), len(right))):
            left_line = left[index] if index < len(left) else Content("")
            right_line = right[index] if index < len(right) else Content("")
            lines.append(fit_cell(left_line, half_width) + Content.styled(" │ ", MUTED) + right_line)
    return lines


def _wrap_diff_half(texts: Sequence[str], mark: str, style: str, width: int) -> list[Content]:
    lines: list[Content] = []
    for text in texts:
        wrapped_lines = Content.styled(text or " ", style).wrap(max(1, width - len(mark)))
        lines += [Content.styled("  " if at else mark, style) + each for at, each in enumerate(wrapped_lines)]
    return lines


def _compute_diff_opcodes(old: list[str], new: list[str]) -> Sequence[tuple[str, int, int, int, int]]:
    return difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
