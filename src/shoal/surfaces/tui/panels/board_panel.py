"""Panel of the task board with dependencies: three columns if there is room, else one list."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, ClassVar

from msgspec.structs import replace
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Static

from shoal.app.run_view.view_rows import RunViewTaskRow, ViewDelta
from shoal.app.teams.board_changes import add_board_task, change_task_and_notify_owners
from shoal.app.teams.team_lookup import resolve_task_owner
from shoal.app.teams.team_store import TeamStore
from shoal.core.names import LEAD_NAME, USER_NAME, parse_safe_name, parse_task_id
from shoal.core.teams.tasks import RANK_KEY, Task, TaskDraft, TaskUpdate
from shoal.surfaces.tui.panels.board_lines import (
    CARD,
    MARKS,
    STATUSES,
    build_owner_part,
    build_task_card,
    build_task_details,
    build_task_list_line,
    describe_open_blockers,
)
from shoal.surfaces.tui.panels.cells import ASKS, MUTED, Part, build_clean_line
from shoal.surfaces.tui.panels.dialogs import NamePickerScreen, ScrollableTextScreen, TaskDraftScreen
from shoal.surfaces.tui.panels.panel import KeyHints, TuiPanel, notify_user
from shoal.surfaces.tui.panels.row_list import RowEntry, RowList

TaskKey = tuple[str, str]
"""A task by its board and its number."""
WIDE = 96
"""Minimum terminal width at which each status has a column."""
NARROW = 64
"""Below this width, a task in the list takes two lines."""


def get_task_sort_key(row: RunViewTaskRow) -> tuple[float, int]:
    """Return the sort key; of two claimable tasks the lower one is claimed first."""
    number = int(row.id) if row.id.isdigit() else 0
    return (number if row.rank is None else row.rank, number)


def compute_moved_rank(order: Sequence[RunViewTaskRow], row: RunViewTaskRow, by: int) -> float | None:
    """Return the rank that moves the task one place up or down; None if it is at the end."""
    old_index = next(index for index, each in enumerate(order) if each.id == row.id)
    new_index = old_index + by
    if not 0 <= new_index < len(order):
        return None
    next_index = new_index + by
    neighbor_rank = get_task_sort_key(order[new_index])[0]
    if not 0 <= next_index < len(order):
        return neighbor_rank + by
    return (neighbor_rank + get_task_sort_key(order[next_index])[0]) / 2


async def add_task_to_board(
    team_store: TeamStore, board: str, subject: str, description: str, waits: Sequence[str]
) -> Task:
    """Raises `TeamStoreError` and adds nothing if it fails."""
    draft = TaskDraft(subject=subject, description=description)
    return await add_board_task(
        team_store, board, draft, blocked_by=tuple(map(parse_task_id, waits)), by=USER_NAME
    )


async def assign_task_owner(team_store: TeamStore, row: RunViewTaskRow, owner: str) -> Task:
    """Assign the task to an agent, who is notified; an empty name unassigns it. Raises `TeamStoreError`."""
    name = await resolve_task_owner(team_store, row.board, LEAD_NAME if owner == "lead" else owner)
    return await change_task_and_notify_owners(
        team_store, row.board, parse_task_id(row.id), TaskUpdate(owner=name), by=USER_NAME
    )


async def set_task_rank(team_store: TeamStore, row: RunViewTaskRow, rank: float) -> None:
    await team_store.open_board(row.board).update(
        parse_task_id(row.id), TaskUpdate(metadata={RANK_KEY: rank}), by=USER_NAME
    )


class BoardPanel(TuiPanel):
    DEFAULT_CSS = """
    BoardPanel {
        & Horizontal { height: 1fr; }
        & .board--column { width: 1fr; }
        & .board--column RowList:blur > .rows--cursor { background: $surface; }
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
        self._tasks: dict[TaskKey, RunViewTaskRow] = {}
        self._ranks: dict[TaskKey, float] = {}
        """Ranks the user just set, until the run reports the same."""
        self._wide = False

    def compose(self) -> ComposeResult:
        yield Static(classes="panel--head", markup=False)
        with Horizontal():
            for status in STATUSES:
                with Vertical(classes="board--column", id=f"column-{status}"):
                    yield Static(classes="board--title", markup=False)
                    yield RowList(self._draw_task_card, id=f"rows-{status}")
        yield RowList(self._draw_task_list_line, id="board-list")
        yield KeyHints(self.HINTS)

    def on_mount(self) -> None:
        self._lay_out_board(is_wide=False)

    def on_resize(self) -> None:
        self._lay_out_board(is_wide=self.size.width >= WIDE)

    def _lay_out_board(self, *, is_wide: bool) -> None:
        old_cursor = self.rows.cursor if self._tasks else None
        had_focus = self.has_focus_within
        self._wide = is_wide
        self.query_one(Horizontal).display = is_wide
        self.query_one("#board-list").display = not is_wide
        self._arrange_tasks()
        if old_cursor is not None:
            self._move_cursor_to(old_cursor)
        if had_focus:
            self.focus()

    # Cursor

    @property
    def rows(self) -> RowList:
        """List that keys act on."""
        if not self._wide:
            return self.query_one("#board-list", RowList)
        lists = self._get_column_lists()
        nonempty_lists = [each for each in lists if each.entries]
        return next((each for each in nonempty_lists if each.has_focus), (nonempty_lists or lists)[0])

    def _get_column_lists(self) -> list[RowList]:
        return [self.query_one(f"#rows-{status}", RowList) for status in STATUSES]

    def focus(self, scroll_visible: bool = True) -> BoardPanel:  # noqa: FBT001, FBT002 - Textual's own
        self.rows.focus(scroll_visible)
        return self

    @property
    def current_task(self) -> RunViewTaskRow | None:
        key = self.rows.cursor
        return self._tasks.get(key) if isinstance(key, tuple) else None

    def _move_cursor_to(self, key: Hashable) -> None:
        for rows in self._get_column_lists() if self._wide else [self.rows]:
            if any(entry.key == key for entry in rows.entries):
                rows.move_cursor_to(key)
                if self.has_focus_within:
                    rows.focus()

    def action_column(self, by: int) -> None:
        if not self._wide:
            return
        lists = self._get_column_lists()
        column_index = lists.index(self.rows) + by
        while 0 <= column_index < len(lists):
            if lists[column_index].entries:
                lists[column_index].focus()
                return
            column_index += by

    # Drawing

    def apply_delta(self, delta: ViewDelta, *, is_first: bool) -> None:
        if not delta.tasks and not is_first:
            return
        for row in delta.tasks:
            key = (row.board, row.id)
            if self._ranks.get(key) == row.rank:
                self._ranks.pop(key, None)
            if row.status == "deleted":
                self._tasks.pop(key, None)
            else:
                self._tasks[key] = row
            if not is_first:
                self._invalidate_task(row)
        if is_first:
            for rows in (*self._get_column_lists(), self.query_one("#board-list", RowList)):
                rows.invalidate_all_rows()
        self._arrange_tasks()

    def _invalidate_task(self, row: RunViewTaskRow) -> None:
        """Invalidate the task, and the tasks whose "waits for" may change with it."""
        dependent_keys = [
            key for key, each in self._tasks.items() if key[0] == row.board and row.id in each.blocked_by
        ]
        for rows in (*self._get_column_lists(), self.query_one("#board-list", RowList)):
            for key in ((row.board, row.id), *dependent_keys):
                rows.invalidate_row(key)

    def _arrange_tasks(self) -> None:
        rows_by_status: dict[str, list[RunViewTaskRow]] = {status: [] for status in STATUSES}
        ranked_rows = [self._apply_pending_rank(row) for row in self._tasks.values()]
        for row in sorted(ranked_rows, key=lambda row: (row.board, get_task_sort_key(row))):
            rows_by_status.get(row.status, rows_by_status["pending"]).append(row)
        rows_by_status["completed"].sort(key=lambda row: -row.changed)
        if self._wide:
            self._arrange_columns(rows_by_status)
        else:
            self._arrange_list(rows_by_status)
        self._update_head(rows_by_status)

    def _arrange_columns(self, rows_by_status: dict[str, list[RunViewTaskRow]]) -> None:
        for status, rows in rows_by_status.items():
            title = build_clean_line(
                MARKS[status], (f" {STATUSES[status]} ", "bold"), (f" {len(rows)}", MUTED)
            )
            self.query_one(f"#column-{status} > .board--title", Static).update(title, layout=False)
            cards = [RowEntry((row.board, row.id), CARD) for row in rows]
            self.query_one(f"#rows-{status}", RowList).set_entries(cards)
        if self.has_focus_within and not self.rows.has_focus:
            self.focus()  # the column that had the focus is empty now

    def _arrange_list(self, rows_by_status: dict[str, list[RunViewTaskRow]]) -> None:
        row_list = self.query_one("#board-list", RowList)
        height = 2 if self.size.width < NARROW else 1
        entries: list[RowEntry] = []
        for status, rows in rows_by_status.items():
            if rows:
                row_list.invalidate_row(status)
                entries.append(RowEntry(status, 1 if not entries else 2, selectable=False))
                entries += [RowEntry((row.board, row.id), height) for row in rows]
        row_list.set_entries(entries)

    def _apply_pending_rank(self, row: RunViewTaskRow) -> RunViewTaskRow:
        rank = self._ranks.get((row.board, row.id))
        return row if rank is None else replace(row, rank=rank)

    def _update_head(self, rows_by_status: dict[str, list[RunViewTaskRow]]) -> None:
        parts: list[Part] = [("Tasks", "bold")]
        if not self._tasks:
            parts.append(("  none yet: press n to add one", MUTED))
        else:
            completed_count = len(rows_by_status["completed"])
            parts.append((f"  {completed_count} of {len(self._tasks)} completed", MUTED))
            blocked_count = sum(
                bool(describe_open_blockers(self.run_view, row)) for row in rows_by_status["pending"]
            )
            if blocked_count:
                parts.append((f"  {blocked_count} waiting for others", ASKS))
        boards = sorted({board for board, _ in self._tasks})
        if len(boards) > 1:
            parts.append((f"  boards {', '.join(boards)}", MUTED))
        self.set_panel_head(build_clean_line(*parts))

    def _draw_task_card(self, key: Hashable, width: int) -> list[Content]:
        row = self._tasks.get(key) if isinstance(key, tuple) else None
        return [] if row is None else build_task_card(self.run_view, row, width)

    def _draw_task_list_line(self, key: Hashable, width: int) -> list[Content]:
        if not isinstance(key, tuple):
            count = sum(row.status == key for row in self._tasks.values())
            title = build_clean_line((STATUSES[str(key)], "bold"), (f"  {count}", MUTED))
            first = self.query_one("#board-list", RowList).entries[0].key == key
            return [title] if first else [Content(""), title]
        row = self._tasks.get(key)
        if row is None:
            return []
        return (build_task_card if self.size.width < NARROW else build_task_list_line)(
            self.run_view, row, width
        )

    # Keys

    def on_row_list_cursor_moved(self, message: RowList.CursorMoved) -> None:
        message.stop()

    def on_row_list_row_chosen(self, message: RowList.RowChosen) -> None:
        message.stop()
        row = self.current_task
        if row is None:
            return

        async def show_task_details() -> str:
            task = await self.board_and_mail_store.open_board(row.board).get(parse_task_id(row.id))
            body = build_task_details(self.run_view, row, task, self.clock.now())
            await self.app.push_screen(ScrollableTextScreen(f"#{row.id} {row.subject}", body))
            return ""

        self.run_action_in_background(show_task_details)

    def choose_board_for_new_task(self) -> str:
        """Return the board for a new task: of the task at the cursor, of the team, or of the session."""
        if (row := self.current_task) is not None:
            return row.board
        run = self.run_view.run
        return parse_safe_name(
            run.teams[-1] if run.teams else run.session or str(self.controller.run.session)
        )

    def action_add(self) -> None:
        board = self.choose_board_for_new_task()

        def add_drafted_task(draft: tuple[str, str, str] | None) -> None:
            if draft is None:
                return
            subject, description, blocked_by = draft

            async def add_task() -> str:
                task = await add_task_to_board(
                    self.board_and_mail_store, board, subject, description, blocked_by.split()
                )
                return self._append_note_if_run_ended(f"Added task #{task.id} to the board.")

            self.run_action_in_background(add_task)

        self.app.push_screen(TaskDraftScreen(board), add_drafted_task)

    def action_assign(self) -> None:
        if (row := self.current_task) is None:
            return
        members = [
            each for each in self.run_view.iter_agent_rows() if each.team == row.board or each.name == "lead"
        ]
        names = [("", build_clean_line(("nobody", MUTED)))]
        names += [
            (
                each.name,
                build_clean_line(build_owner_part(self.run_view, each.name), (f"  {each.state}", MUTED)),
            )
            for each in members
        ]

        def assign_to_picked_owner(owner: str | None) -> None:
            if owner is None:
                return

            async def assign_task() -> str:
                await assign_task_owner(self.board_and_mail_store, row, owner)
                return self._append_note_if_run_ended(
                    f"Assigned task #{row.id} to {owner}."
                    if owner
                    else f"Task #{row.id} no longer has an owner."
                )

            self.run_action_in_background(assign_task)

        self.app.push_screen(
            NamePickerScreen(f"Who should work on #{row.id} {row.subject}?", names), assign_to_picked_owner
        )

    def action_rank(self, by: int) -> None:
        row = self.current_task
        if row is None:
            return
        if row.status != "pending":
            notify_user(
                self, "You can reorder only pending tasks, which agents claim from the top.", "warning"
            )
            return
        rows = (
            self._apply_pending_rank(each)
            for each in self._tasks.values()
            if each.status == "pending" and each.board == row.board
        )
        rank = compute_moved_rank(sorted(rows, key=get_task_sort_key), row, by)
        if rank is None:
            return
        key = (row.board, row.id)
        old_rank, self._ranks[key] = self._ranks.get(key), rank
        self._arrange_tasks()

        async def save_rank() -> str:
            try:
                await set_task_rank(self.board_and_mail_store, row, rank)
            except BaseException:
                if self._ranks.get(key) == rank:
                    self._ranks.pop(key) if old_rank is None else self._ranks.update({key: old_rank})
                    self._arrange_tasks()
                raise
            return self._append_note_if_run_ended("")

        self.run_action_in_background(save_rank)

    def _append_note_if_run_ended(self, text: str) -> str:
        """Append a note if the run is not live: it journals nothing, so the view does not show the change."""
        if self.controller.run.is_live:
            return text
        return f"{text} The run has ended, so the change will appear here when you resume it.".strip()
