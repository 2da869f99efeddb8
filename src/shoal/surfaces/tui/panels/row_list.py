"""List of rows by key: only visible rows that changed are drawn."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Sequence
from typing import ClassVar, NamedTuple

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.visual import Visual


class RowEntry(NamedTuple):
    key: Hashable
    height: int = 1
    selectable: bool = True
    """True if the cursor can move to it; else it is a heading."""


class RowList(ScrollView, can_focus=True):
    """`draw_row` returns the lines of a row for a width."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "Up", show=False),
        Binding("down", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home", "edge(0)", "First", show=False),
        Binding("end", "edge(-1)", "Last", show=False),
        Binding("enter", "choose", "Choose", show=False),
    ]
    COMPONENT_CLASSES: ClassVar[set[str]] = {"rows--row", "rows--cursor"}
    DEFAULT_CSS = """
    RowList {
        height: 1fr;
        overflow-x: hidden;
        scrollbar-size-vertical: 1;
        text-wrap: nowrap;
        & > .rows--row { background: $surface; }
        & > .rows--cursor { background: $surface-lighten-1; }
        &:focus > .rows--cursor { background: $primary 55%; text-style: none; }
        background: $surface;
    }
    """

    class RowChosen(Message):
        def __init__(self, rows: RowList, key: Hashable) -> None:
            super().__init__()
            self.rows, self.key = rows, key

        @property
        def control(self) -> RowList:
            return self.rows

    class CursorMoved(RowChosen):
        """Posted when the cursor moved to another row."""

    def __init__(
        self,
        draw_row: Callable[[Hashable, int], Sequence[Content]],
        *,
        id: str | None = None,  # noqa: A002 - Textual's name
    ) -> None:
        super().__init__(id=id)
        self._draw_row = draw_row
        self._entries: tuple[RowEntry, ...] = ()
        self._tops: list[int] = []
        self._index_by_key: dict[Hashable, int] = {}
        self._lines: dict[Hashable, tuple[int, Sequence[Content]]] = {}
        self.cursor: Hashable = None
        """Key of the row that keys act on; None if the list is empty."""
        self.draw_count = 0
        """Number of rows drawn so far."""

    @property
    def entries(self) -> tuple[RowEntry, ...]:
        return self._entries

    def set_entries(self, entries: Sequence[RowEntry]) -> None:
        """Set the rows and their order; rows drawn before stay valid."""
        new_entries = tuple(entries)
        if new_entries == self._entries:
            return
        old_index = self._index_by_key.get(self.cursor, 0)
        self._entries = new_entries
        self._index_by_key = {entry.key: index for index, entry in enumerate(new_entries)}
        self._tops, top = [], 0
        for entry in new_entries:
            self._tops.append(top)
            top += entry.height
        self._lines = {key: drawn for key, drawn in self._lines.items() if key in self._index_by_key}
        self.virtual_size = Size(self.scrollable_content_region.width, top)
        if self.cursor not in self._index_by_key:
            self._set_cursor(self._find_nearest_selectable_row(old_index))
        elif self._index_by_key[self.cursor] != old_index:
            self._scroll_to_cursor()
        self.refresh()

    def invalidate_row(self, key: Hashable) -> None:
        """Mark the row as changed."""
        self._lines.pop(key, None)
        if (index := self._index_by_key.get(key)) is not None and self._is_row_visible(index):
            self.refresh_lines(self._tops[index], self._entries[index].height)

    def invalidate_all_rows(self) -> None:
        self._lines.clear()
        self.refresh()

    def move_cursor_to(self, key: Hashable) -> None:
        if key in self._index_by_key:
            self._set_cursor(self._index_by_key[key])

    @property
    def is_cursor_at_end(self) -> bool:
        return not self._entries or self.cursor == self._entries[-1].key

    def list_visible_keys(self) -> list[Hashable]:
        """Return the keys of the visible rows."""
        first, last = self._get_visible_line_range()
        start = max(0, bisect_right(self._tops, first) - 1)
        return [
            entry.key
            for entry, top in zip(self._entries[start:], self._tops[start:], strict=True)
            if top < last
        ]

    def _get_visible_line_range(self) -> tuple[int, int]:
        top = self.scroll_offset.y
        return top, top + self.scrollable_content_region.height

    def _is_row_visible(self, index: int) -> bool:
        first, last = self._get_visible_line_range()
        return self._tops[index] < last and self._tops[index] + self._entries[index].height > first

    # Cursor

    def _find_nearest_selectable_row(self, index: int) -> int | None:
        """Return the index of the nearest selectable row, after the index or before it."""
        count = len(self._entries)
        order = [*range(min(index, count), count), *range(min(index, count) - 1, -1, -1)]
        return next((each for each in order if self._entries[each].selectable), None)

    def _set_cursor(self, index: int | None) -> None:
        key = None if index is None else self._entries[index].key
        if key == self.cursor:
            return
        old, self.cursor = self.cursor, key
        for changed_key in (old, key):
            if (row_index := self._index_by_key.get(changed_key)) is not None:
                self.refresh_lines(self._tops[row_index], self._entries[row_index].height)
        self._scroll_to_cursor()
        self.post_message(self.CursorMoved(self, key))

    def _scroll_to_cursor(self) -> None:
        if (index := self._index_by_key.get(self.cursor)) is None:
            return
        top = (
            0 if index == self._find_nearest_selectable_row(0) else self._tops[index]
        )  # include the heading above the first row
        region = Region(0, top, 1, self._tops[index] + self._entries[index].height - top)
        self.scroll_to_region(region, animate=False, force=True, immediate=True)

    def action_move(self, by: int) -> None:
        index = self._index_by_key.get(self.cursor, -1)
        while 0 <= (index := index + by) < len(self._entries):
            if self._entries[index].selectable:
                self._set_cursor(index)
                return

    def action_page(self, by: int) -> None:
        index = self._index_by_key.get(self.cursor)
        if index is None:
            return
        line = self._tops[index] + by * max(1, self.scrollable_content_region.height - 1)
        self._set_cursor(self._find_nearest_selectable_row(max(0, bisect_right(self._tops, line) - 1)))

    def action_edge(self, which: int) -> None:
        selectable_indexes = [index for index, entry in enumerate(self._entries) if entry.selectable]
        if selectable_indexes:
            self._set_cursor(selectable_indexes[which])

    def action_choose(self) -> None:
        if self.cursor is not None:
            self.post_message(self.RowChosen(self, self.cursor))

    def on_click(self, event: events.Click) -> None:
        line = event.y + self.scroll_offset.y
        index = bisect_right(self._tops, line) - 1
        if not self._entries or index < 0 or line >= self.virtual_size.height:
            return
        if not self._entries[index].selectable:
            return
        if self._entries[index].key == self.cursor:
            self.action_choose()
        else:
            self._set_cursor(index)

    # Drawing

    def on_resize(self) -> None:
        self.virtual_size = Size(self.scrollable_content_region.width, self.virtual_size.height)
        self._lines.clear()
        self._scroll_to_cursor()
        self.refresh()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self.refresh()

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        line = y + self.scroll_offset.y
        index = bisect_right(self._tops, line) - 1
        row_style = self.get_visual_style("rows--row")
        if index < 0 or line - self._tops[index] >= self._entries[index].height:
            return Strip.blank(width, row_style.rich_style)
        entry = self._entries[index]
        lines = self._get_row_lines(entry, width)
        line_in_entry = line - self._tops[index]
        style = self.get_visual_style("rows--row", "rows--cursor") if entry.key == self.cursor else row_style
        if line_in_entry >= len(lines):
            return Strip.blank(width, row_style.rich_style)  # the space below the row is not highlighted
        [strip] = Visual.to_strips(self, lines[line_in_entry] or Content(" "), width, 1, style)
        return strip.extend_cell_length(width, style.rich_style)

    def _get_row_lines(self, entry: RowEntry, width: int) -> Sequence[Content]:
        cached_lines = self._lines.get(entry.key)
        if cached_lines is None or cached_lines[0] != width:
            self.draw_count += 1
            cached_lines = self._lines[entry.key] = (width, self._draw_row(entry.key, width))
        return cached_lines[1]
