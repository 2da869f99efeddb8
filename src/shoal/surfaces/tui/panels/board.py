"""Panel of the task board with dependencies: three columns if there is room, else one list."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, ClassVar

from msgspec.structs import replace
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Static

from shoal.app.picture.rows import Frame, TaskRow
from shoal.core.names import name_from, task_id
from shoal.surfaces.tui.panels import board_acts
from shoal.surfaces.tui.panels.board_acts import place
from shoal.surfaces.tui.panels.board_lines import (
    CARD,
    MARKS,
    STATUSES,
    card,
    owner_part,
    task_line,
    waits,
    whole,
)
from shoal.surfaces.tui.panels.cells import ASKS, MUTED, Part, line
from shoal.surfaces.tui.panels.dialogs import PickScreen, ReadScreen, TaskDraftScreen
from shoal.surfaces.tui.panels.panel import Hints, Panel, tell
from shoal.surfaces.tui.panels.rows import Entry, Rows

Key = tuple[str, str]
"""A task by its board and its number."""
WIDE = 96
"""Terminal columns from which on each status has a column."""
NARROW = 64
"""Columns below which a task of the list takes two lines."""


class BoardPanel(Panel):
    DEFAULT_CSS = """
    BoardPanel {
        & Horizontal { height: 1fr; }
        & .board--column { width: 1fr; }
        & .board--column Rows:blur > .rows--cursor { background: $surface; }
        & #column-in_progress, & #column-completed { border-left: vkey $panel-lighten-2; }
        & .board--column > Static { height: 1; padding: 0 1; margin: 1 0; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "add", "New task", show=False),
        Binding("a", "assign", "Assign", show=False),
        Binding("plus,shift+up", "rank(-1)", "Earlier", show=False),
        Binding("minus,shift+down", "rank(1)", "Later", show=False),
        Binding("left", "column(-1)", "Column to the left", show=False),
        Binding("right", "column(1)", "Column to the right", show=False),
        Binding("escape", "leave", "Close", show=False),
    ]
    HINTS = "⏎ details · n new · a assign · + earlier · - later · ←→ column · esc close"

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._tasks: dict[Key, TaskRow] = {}
        self._ranks: dict[Key, float] = {}
        """Ranks the person just set, until the run reports the same."""
        self._wide = False

    def compose(self) -> ComposeResult:
        yield Static(classes="panel--head", markup=False)
        with Horizontal():
            for status in STATUSES:
                with Vertical(classes="board--column", id=f"column-{status}"):
                    yield Static(classes="board--title", markup=False)
                    yield Rows(self._draw_card, id=f"rows-{status}")
        yield Rows(self._draw_line, id="board-list")
        yield Hints(self.HINTS)

    def on_mount(self) -> None:
        self._lay_out(wide=False)

    def on_resize(self) -> None:
        self._lay_out(wide=self.size.width >= WIDE)

    def _lay_out(self, *, wide: bool) -> None:
        was = self.rows.cursor if self._tasks else None
        had_focus = self.has_focus_within
        self._wide = wide
        self.query_one(Horizontal).display = wide
        self.query_one("#board-list").display = not wide
        self._arrange()
        if was is not None:
            self._stand_on(was)
        if had_focus:
            self.focus()

    # Cursor

    @property
    def rows(self) -> Rows:
        """List that keys act on."""
        if not self._wide:
            return self.query_one("#board-list", Rows)
        lists = self._lists()
        filled = [each for each in lists if each.entries]
        return next((each for each in filled if each.has_focus), (filled or lists)[0])

    def _lists(self) -> list[Rows]:
        return [self.query_one(f"#rows-{status}", Rows) for status in STATUSES]

    def focus(self, scroll_visible: bool = True) -> BoardPanel:  # noqa: FBT001, FBT002 - Textual's own
        self.rows.focus(scroll_visible)
        return self

    @property
    def current(self) -> TaskRow | None:
        key = self.rows.cursor
        return self._tasks.get(key) if isinstance(key, tuple) else None

    def _stand_on(self, key: Hashable) -> None:
        for rows in self._lists() if self._wide else [self.rows]:
            if any(entry.key == key for entry in rows.entries):
                rows.stand_on(key)
                if self.has_focus_within:
                    rows.focus()

    def action_column(self, by: int) -> None:
        if not self._wide:
            return
        lists = self._lists()
        at = lists.index(self.rows) + by
        while 0 <= at < len(lists):
            if lists[at].entries:
                lists[at].focus()
                return
            at += by

    # Drawing

    def take(self, frame: Frame, *, anew: bool) -> None:
        if not frame.tasks and not anew:
            return
        for row in frame.tasks:
            key = (row.board, row.id)
            if self._ranks.get(key) == row.rank:
                self._ranks.pop(key, None)
            if row.status == "deleted":
                self._tasks.pop(key, None)
            else:
                self._tasks[key] = row
            if not anew:
                self._touch(row)
        if anew:
            for rows in (*self._lists(), self.query_one("#board-list", Rows)):
                rows.touch_all()
        self._arrange()

    def _touch(self, row: TaskRow) -> None:
        """Invalidate the task, and the tasks whose "waits for" may change with it."""
        touched = [
            key for key, each in self._tasks.items() if key[0] == row.board and row.id in each.blocked_by
        ]
        for rows in (*self._lists(), self.query_one("#board-list", Rows)):
            for key in ((row.board, row.id), *touched):
                rows.touch(key)

    def _arrange(self) -> None:
        ordered: dict[str, list[TaskRow]] = {status: [] for status in STATUSES}
        every = [self._ranked(row) for row in self._tasks.values()]
        for row in sorted(every, key=lambda row: (row.board, place(row))):
            ordered.get(row.status, ordered["pending"]).append(row)
        ordered["completed"].sort(key=lambda row: -row.changed)
        if self._wide:
            self._arrange_columns(ordered)
        else:
            self._arrange_list(ordered)
        self._tell_sums(ordered)

    def _arrange_columns(self, ordered: dict[str, list[TaskRow]]) -> None:
        for status, rows in ordered.items():
            title = line(MARKS[status], (f" {STATUSES[status]} ", "bold"), (f" {len(rows)}", MUTED))
            self.query_one(f"#column-{status} > .board--title", Static).update(title, layout=False)
            cards = [Entry((row.board, row.id), CARD) for row in rows]
            self.query_one(f"#rows-{status}", Rows).put_in_order(cards)
        if self.has_focus_within and not self.rows.has_focus:
            self.focus()  # the column that had the focus is empty now

    def _arrange_list(self, ordered: dict[str, list[TaskRow]]) -> None:
        listed = self.query_one("#board-list", Rows)
        height = 2 if self.size.width < NARROW else 1
        entries: list[Entry] = []
        for status, rows in ordered.items():
            if rows:
                listed.touch(status)
                entries.append(Entry(status, 1 if not entries else 2, chosen=False))
                entries += [Entry((row.board, row.id), height) for row in rows]
        listed.put_in_order(entries)

    def _ranked(self, row: TaskRow) -> TaskRow:
        rank = self._ranks.get((row.board, row.id))
        return row if rank is None else replace(row, rank=rank)

    def _tell_sums(self, ordered: dict[str, list[TaskRow]]) -> None:
        parts: list[Part] = [("Tasks", "bold")]
        if not self._tasks:
            parts.append(("  none yet: n puts one on the board", MUTED))
        else:
            done = len(ordered["completed"])
            parts.append((f"  {done} of {len(self._tasks)} completed", MUTED))
            stuck = sum(bool(waits(self.picture, row)) for row in ordered["pending"])
            if stuck:
                parts.append((f"  {stuck} waiting for others", ASKS))
        boards = sorted({board for board, _ in self._tasks})
        if len(boards) > 1:
            parts.append((f"  boards {', '.join(boards)}", MUTED))
        self.head(line(*parts))

    def _draw_card(self, key: Hashable, width: int) -> list[Content]:
        row = self._tasks.get(key) if isinstance(key, tuple) else None
        return [] if row is None else card(self.picture, row, width)

    def _draw_line(self, key: Hashable, width: int) -> list[Content]:
        if not isinstance(key, tuple):
            many = sum(row.status == key for row in self._tasks.values())
            title = line((STATUSES[str(key)], "bold"), (f"  {many}", MUTED))
            first = self.query_one("#board-list", Rows).entries[0].key == key
            return [title] if first else [Content(""), title]
        row = self._tasks.get(key)
        if row is None:
            return []
        return (card if self.size.width < NARROW else task_line)(self.picture, row, width)

    # Keys

    def on_rows_moved(self, message: Rows.Moved) -> None:
        message.stop()

    def on_rows_chosen(self, message: Rows.Chosen) -> None:
        message.stop()
        row = self.current
        if row is None:
            return

        async def work() -> str:
            task = await self.record.board(row.board).get(task_id(row.id))
            body = whole(self.picture, row, task, self.clock.now())
            await self.app.push_screen(ReadScreen(f"#{row.id} {row.subject}", body))
            return ""

        self.attempt(work)

    def board(self) -> str:
        """Return the board for a new task: of the task at the cursor, of the team, or of the session."""
        if (row := self.current) is not None:
            return row.board
        run = self.picture.run
        return name_from(run.teams[-1] if run.teams else run.session or str(self.helm.run.session))

    def action_add(self) -> None:
        board = self.board()

        def made(draft: tuple[str, str, str] | None) -> None:
            if draft is None:
                return
            subject, description, waits_for = draft

            async def work() -> str:
                task = await board_acts.add(self.record, board, subject, description, waits_for.split())
                return self._written(f"Task #{task.id} is on the board.")

            self.attempt(work)

        self.app.push_screen(TaskDraftScreen(board), made)

    def action_assign(self) -> None:
        if (row := self.current) is None:
            return
        members = [each for each in self.picture.agents() if each.team == row.board or each.name == "lead"]
        names = [("", line(("nobody", MUTED)))]
        names += [
            (each.name, line(owner_part(self.picture, each.name), (f"  {each.state}", MUTED)))
            for each in members
        ]

        def picked(owner: str | None) -> None:
            if owner is None:
                return

            async def work() -> str:
                await board_acts.assign(self.record, row, owner)
                return self._written(
                    f"Task #{row.id} is {owner}'s now." if owner else f"Task #{row.id} is nobody's now."
                )

            self.attempt(work)

        self.app.push_screen(PickScreen(f"Who does #{row.id} {row.subject}?", names), picked)

    def action_rank(self, by: int) -> None:
        row = self.current
        if row is None:
            return
        if row.status != "pending":
            tell(self, "Only what is pending has a place in a row: the first is claimed first.", "warning")
            return
        rows = (
            self._ranked(each)
            for each in self._tasks.values()
            if each.status == "pending" and each.board == row.board
        )
        rank = board_acts.rank_between(sorted(rows, key=place), row, by)
        if rank is None:
            return
        key = (row.board, row.id)
        before, self._ranks[key] = self._ranks.get(key), rank
        self._arrange()

        async def work() -> str:
            try:
                await board_acts.put(self.record, row, rank)
            except BaseException:
                if self._ranks.get(key) == rank:
                    self._ranks.pop(key) if before is None else self._ranks.update({key: before})
                    self._arrange()
                raise
            return self._written("")

        self.attempt(work)

    def _written(self, said: str) -> str:
        """Append a note if the run is not live: it journals nothing, so the view does not show the change."""
        if self.helm.run.is_live:
            return said
        return f"{said} The run has ended: it is shown here when it is resumed.".strip()
