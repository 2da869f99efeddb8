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


class Entry(NamedTuple):
    key: Hashable
    height: int = 1
    chosen: bool = True
    """True if the cursor can move to it; else it is a heading."""


class Rows(ScrollView, can_focus=True):
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
    Rows {
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

    class Chosen(Message):
        def __init__(self, rows: Rows, key: Hashable) -> None:
            super().__init__()
            self.rows, self.key = rows, key

        @property
        def control(self) -> Rows:
            return self.rows

    class Moved(Chosen):
        """Posted when the cursor moved to another row."""

    def __init__(self, draw: Callable[[Hashable, int], Sequence[Content]], *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._draw = draw
        self._entries: tuple[Entry, ...] = ()
        self._tops: list[int] = []
        self._at: dict[Hashable, int] = {}
        self._lines: dict[Hashable, tuple[int, Sequence[Content]]] = {}
        self.cursor: Hashable = None
        """Key of the row that keys act on; None if the list is empty."""
        self.drawn = 0
        """Number of rows drawn so far."""

    @property
    def entries(self) -> tuple[Entry, ...]:
        return self._entries

    def put_in_order(self, entries: Sequence[Entry]) -> None:
        """Set the rows and their order; rows drawn before stay valid."""
        arranged = tuple(entries)
        if arranged == self._entries:
            return
        was = self._at.get(self.cursor, 0)
        self._entries = arranged
        self._at = {entry.key: index for index, entry in enumerate(arranged)}
        self._tops, top = [], 0
        for entry in arranged:
            self._tops.append(top)
            top += entry.height
        self._lines = {key: drawn for key, drawn in self._lines.items() if key in self._at}
        self.virtual_size = Size(self.scrollable_content_region.width, top)
        if self.cursor not in self._at:
            self._stand(self._near(was))
        elif self._at[self.cursor] != was:
            self._show_cursor()
        self.refresh()

    def touch(self, key: Hashable) -> None:
        """Mark the row as changed."""
        self._lines.pop(key, None)
        if (index := self._at.get(key)) is not None and self._in_sight(index):
            self.refresh_lines(self._tops[index], self._entries[index].height)

    def touch_all(self) -> None:
        self._lines.clear()
        self.refresh()

    def stand_on(self, key: Hashable) -> None:
        if key in self._at:
            self._stand(self._at[key])

    @property
    def at_end(self) -> bool:
        return not self._entries or self.cursor == self._entries[-1].key

    def in_sight(self) -> list[Hashable]:
        """Return the keys of the visible rows."""
        first, last = self._sight()
        start = max(0, bisect_right(self._tops, first) - 1)
        return [
            entry.key
            for entry, top in zip(self._entries[start:], self._tops[start:], strict=True)
            if top < last
        ]

    def _sight(self) -> tuple[int, int]:
        top = self.scroll_offset.y
        return top, top + self.scrollable_content_region.height

    def _in_sight(self, index: int) -> bool:
        first, last = self._sight()
        return self._tops[index] < last and self._tops[index] + self._entries[index].height > first

    # Cursor

    def _near(self, index: int) -> int | None:
        """Return the index of the nearest selectable row, after the index or before it."""
        count = len(self._entries)
        order = [*range(min(index, count), count), *range(min(index, count) - 1, -1, -1)]
        return next((each for each in order if self._entries[each].chosen), None)

    def _stand(self, index: int | None) -> None:
        key = None if index is None else self._entries[index].key
        if key == self.cursor:
            return
        old, self.cursor = self.cursor, key
        for each in (old, key):
            if (at := self._at.get(each)) is not None:
                self.refresh_lines(self._tops[at], self._entries[at].height)
        self._show_cursor()
        self.post_message(self.Moved(self, key))

    def _show_cursor(self) -> None:
        if (index := self._at.get(self.cursor)) is None:
            return
        top = 0 if index == self._near(0) else self._tops[index]  # include the heading above the first row
        region = Region(0, top, 1, self._tops[index] + self._entries[index].height - top)
        self.scroll_to_region(region, animate=False, force=True, immediate=True)

    def action_move(self, by: int) -> None:
        index = self._at.get(self.cursor, -1)
        while 0 <= (index := index + by) < len(self._entries):
            if self._entries[index].chosen:
                self._stand(index)
                return

    def action_page(self, by: int) -> None:
        index = self._at.get(self.cursor)
        if index is None:
            return
        line = self._tops[index] + by * max(1, self.scrollable_content_region.height - 1)
        self._stand(self._near(max(0, bisect_right(self._tops, line) - 1)))

    def action_edge(self, which: int) -> None:
        chosen = [index for index, entry in enumerate(self._entries) if entry.chosen]
        if chosen:
            self._stand(chosen[which])

    def action_choose(self) -> None:
        if self.cursor is not None:
            self.post_message(self.Chosen(self, self.cursor))

    def on_click(self, event: events.Click) -> None:
        line = event.y + self.scroll_offset.y
        index = bisect_right(self._tops, line) - 1
        if not self._entries or index < 0 or line >= self.virtual_size.height:
            return
        if not self._entries[index].chosen:
            return
        if self._entries[index].key == self.cursor:
            self.action_choose()
        else:
            self._stand(index)

    # Drawing

    def on_resize(self) -> None:
        self.virtual_size = Size(self.scrollable_content_region.width, self.virtual_size.height)
        self._lines.clear()
        self._show_cursor()
        self.refresh()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self.refresh()

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        line = y + self.scroll_offset.y
        index = bisect_right(self._tops, line) - 1
        plain = self.get_visual_style("rows--row")
        if index < 0 or line - self._tops[index] >= self._entries[index].height:
            return Strip.blank(width, plain.rich_style)
        entry = self._entries[index]
        lines = self._lines_of(entry, width)
        at = line - self._tops[index]
        style = self.get_visual_style("rows--row", "rows--cursor") if entry.key == self.cursor else plain
        if at >= len(lines):
            return Strip.blank(width, plain.rich_style)  # the space below the row is not highlighted
        [strip] = Visual.to_strips(self, lines[at] or Content(" "), width, 1, style)
        return strip.extend_cell_length(width, style.rich_style)

    def _lines_of(self, entry: Entry, width: int) -> Sequence[Content]:
        known = self._lines.get(entry.key)
        if known is None or known[0] != width:
            self.drawn += 1
            known = self._lines[entry.key] = (width, self._draw(entry.key, width))
        return known[1]
