"""Form that approves a plan: the plan itself, and its difference from the agent's last version."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from textual.content import Content
from textual.widget import Widget
from textual.widgets import Markdown, Static

from shoal.app.picture.rows import QuestionRow
from shoal.core.differences import changed_lines
from shoal.core.permissions import Mode
from shoal.core.questions import Approved, ApprovePlan
from shoal.core.wording import clean, one_line
from shoal.surfaces.tui.answering_forms import Form, Offer
from shoal.surfaces.tui.panels.cells import BAD, GOOD, MUTED, Part, cell, line
from shoal.surfaces.tui.panels.dialogs import PickScreen

if TYPE_CHECKING:
    from shoal.app.picture.picture import Picture

SIDE_BY_SIDE = 90
"""Columns from which on the two versions are shown side by side."""
MOST_COMPARED = 1_500
_MODES: tuple[tuple[Mode, str], ...] = (
    ("default", "asks before it changes or runs anything"),
    ("acceptEdits", "changes files, asks before it runs anything"),
    ("dontAsk", "does what rules allow, and nothing else"),
    ("bypassPermissions", "asks nothing"),
)


def earlier_plan(picture: Picture | None, row: QuestionRow) -> str | None:
    """Return the plan the same agent presented before, for the same file."""
    if picture is None or not isinstance(row.question, ApprovePlan):
        return None
    found: str | None = None
    for other in picture.questions.values():
        if other.id == row.id:
            break
        question = other.question
        if not isinstance(question, ApprovePlan):
            continue
        if (other.agent, question.path) == (row.agent, row.question.path):
            found = question.plan
    return found


class PlanForm(Form):
    DEFAULT_CSS = """
    PlanForm Markdown { padding: 0; margin: 1 0 0 0; background: $surface; }
    PlanForm MarkdownH1 { content-align: left middle; margin: 0 0 1 0; padding: 0; }
    PlanForm MarkdownH2 { margin: 1 0 1 0; padding: 0; }
    PlanForm Changes { margin-top: 1; }
    """

    def __init__(self, question: ApprovePlan, *, earlier: str | None = None) -> None:
        super().__init__()
        self.question = question
        self.earlier = earlier
        self.compares = False

    def body(self) -> Iterator[Widget]:
        yield Static(Content("\n").join(self._about()), markup=False)
        # The model wrote the links, so none is opened from here.
        yield Markdown(clean(self.question.plan), open_links=False)
        yield Changes(self.earlier or "", self.question.plan)

    def on_mount(self) -> None:
        self.query_one(Changes).display = False

    def _about(self) -> Iterator[Content]:
        yield line((one_line(self.question.path), MUTED))
        if self.earlier is not None:
            added, removed = changed_lines(self.earlier, self.question.plan)
            told: list[Part] = [(f"+{added}", GOOD), (" ", ""), (f"-{removed}", BAD), (" lines", MUTED)]
            yield line(("Since the last version: ", MUTED), *told)
        for wish in self.question.wishes:
            yield line(("will ask for ", MUTED), (one_line(wish), ""))

    def offers(self) -> list[Offer]:
        found = [
            Offer("y", Content("Approve it"), self._approve),
            Offer("e", Content("Approve it, and accept its edits"), lambda: self._approve("acceptEdits")),
            Offer("m", Content("Approve it in another mode"), self._pick_mode),
            Offer("n", Content("Reject it, and say what to change"), self._reject),
        ]
        if self.earlier is not None:
            words = "Show the whole plan" if self.compares else "Show what changed since the last version"
            found.append(Offer("d", line((words, MUTED)), self._turn))
        return found

    def _approve(self, mode: Mode | None = None) -> None:
        self.give(Approved(digest=self.question.digest, mode=mode))

    def _pick_mode(self) -> None:
        names = [(mode, line((f"{mode:<18} ", "bold"), (words, MUTED))) for mode, words in _MODES]

        def picked(name: str | None) -> None:
            for mode, _ in _MODES:
                if mode == name:
                    self._approve(mode)

        self.app.push_screen(PickScreen("In which mode does it carry the plan out?", names), picked)

    def _reject(self) -> None:
        self.ask_reason("What is to be different? The agent reads it. ⏎ sends it, also empty.")

    def _turn(self) -> None:
        self.compares = not self.compares
        self.query_one(Markdown).display = not self.compares
        self.query_one(Changes).display = self.compares
        self.show_offers(at=len(self._offered) - 1)
        self.begin()


class Changes(Static):
    """Difference of two plans: side by side if there is room, else unified."""

    def __init__(self, old: str, new: str) -> None:
        super().__init__(markup=False)
        self._old, self._new = clean(old).splitlines(), clean(new).splitlines()

    def on_resize(self) -> None:
        width = self.size.width
        if max(len(self._old), len(self._new)) > MOST_COMPARED:
            self.update(f"({len(self._old)} lines became {len(self._new)}: too many to compare)")
            return
        beside = width >= SIDE_BY_SIDE
        lines = side_by_side(self._old, self._new, width) if beside else below(self._old, self._new)
        self.update(Content("\n").join(lines))


def below(old: list[str], new: list[str]) -> list[Content]:
    """Return a unified diff that includes all unchanged lines."""
    lines: list[Content] = []
    for kind, i1, i2, j1, j2 in _blocks(old, new):
        if kind == "equal":
            lines += [Content.styled(f"  {each}", MUTED) for each in old[i1:i2]]
            continue
        lines += [Content.styled(f"- {each}", BAD) for each in old[i1:i2]]
        lines += [Content.styled(f"+ {each}", GOOD) for each in new[j1:j2]]
    return lines


def side_by_side(old: list[str], new: list[str], width: int) -> list[Content]:
    """Return the diff with the old version on the left; lines too long for their half are wrapped."""
    half = (width - 3) // 2
    lines = [Content.styled(f"{'before':<{half}} │ now", MUTED)]
    for kind, i1, i2, j1, j2 in _blocks(old, new):
        same = kind == "equal"
        left = _half(old[i1:i2], "  " if same else "- ", MUTED if same else BAD, half)
        right = _half(new[j1:j2], "  " if same else "+ ", MUTED if same else GOOD, half)
        for at in range(max(len(left), len(right))):
            before = left[at] if at < len(left) else Content("")
            now = right[at] if at < len(right) else Content("")
            lines.append(cell(before, half) + Content.styled(" │ ", MUTED) + now)
    return lines


def _half(texts: Sequence[str], mark: str, style: str, width: int) -> list[Content]:
    lines: list[Content] = []
    for text in texts:
        wrapped = Content.styled(text or " ", style).wrap(max(1, width - len(mark)))
        lines += [Content.styled("  " if at else mark, style) + each for at, each in enumerate(wrapped)]
    return lines


def _blocks(old: list[str], new: list[str]) -> Sequence[tuple[str, int, int, int, int]]:
    return difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
