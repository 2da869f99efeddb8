"""Panel with one list: a head, the rows, details of the row at the cursor, and key hints."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar, Self

from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Static

from shoal.surfaces.tui.panels.panel import KeyHints, TuiPanel
from shoal.surfaces.tui.panels.row_list import RowList


class ListPanel(TuiPanel):
    HAS_TITLES: ClassVar[bool] = False
    """True if the columns of its rows have titles."""
    HAS_DETAIL: ClassVar[bool] = False
    TICK: ClassVar[float] = 0.0
    """Seconds between two calls of `refresh_ages`; 0 for a list without ages."""

    def compose(self) -> ComposeResult:
        yield Static(classes="panel--head", markup=False)
        if self.HAS_TITLES:
            yield Static(classes="panel--titles", markup=False)
        yield RowList(self.draw_row)
        if self.HAS_DETAIL:
            yield Static(classes="panel--detail", markup=False)
        yield KeyHints(self.HINTS)

    def on_mount(self) -> None:
        if self.TICK:
            self.set_interval(self.TICK, self.refresh_ages)

    @property
    def rows(self) -> RowList:
        return self.query_one(RowList)

    def focus(self, scroll_visible: bool = True) -> Self:  # noqa: FBT001, FBT002 - Textual's own
        self.rows.focus(scroll_visible)
        return self

    def draw_row(self, key: Hashable, width: int) -> list[Content]:
        raise NotImplementedError

    def refresh_ages(self) -> None:
        """Redraw the rows whose age changed."""

    def show_detail(self) -> None:
        """Show the details of the row at the cursor."""

    def on_row_list_cursor_moved(self, message: RowList.CursorMoved) -> None:
        message.stop()
        self.show_detail()
