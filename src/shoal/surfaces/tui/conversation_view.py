"""Scrolling view of one agent's conversation: the newest blocks are mounted, older ones on demand."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.events import Click
from textual.widgets import Static

from shoal.surfaces.tui.block_widgets import CollapsibleWidget, ToolCallWidget, create_block_widget
from shoal.surfaces.tui.conversation_timeline import ConversationItem
from shoal.surfaces.tui.run_presenter import TuiAgentConversation

MOUNTED = 150
"""Number of blocks on the screen and just above it."""
STEP = 60
"""Number of blocks mounted or removed at once."""


class EarlierBlocksMarker(Static):
    """Marker at the start of a truncated conversation; a click loads earlier blocks."""

    def on_click(self, event: Click) -> None:
        event.stop()
        view = self.parent
        assert isinstance(view, ConversationView)
        view.run_worker(view.show_earlier_blocks())


class ConversationView(VerticalScroll):
    """Shows one conversation at a time, of this or another process."""

    BINDINGS: ClassVar[list[BindingType]] = [("home", "earlier", "earlier"), ("end", "latest", "latest")]
    can_focus = True

    def __init__(self) -> None:
        super().__init__(id="conversation")
        self._conversation: TuiAgentConversation | None = None
        self._widgets: dict[int, object] = {}
        self._first = 0
        """Index of the first mounted block among all items."""
        self._lock = asyncio.Lock()

    def on_mount(self) -> None:
        self.anchor()

    @property
    def conversation(self) -> TuiAgentConversation | None:
        return self._conversation

    @property
    def is_following(self) -> bool:
        """True if the view follows the end of the conversation."""
        return self.is_anchored and not self._anchor_released

    async def show_conversation(self, conversation: TuiAgentConversation) -> None:
        """Show this conversation from now on."""
        async with self._lock:
            if self._conversation is not None:
                self._conversation.is_shown = False
            self._conversation, conversation.is_shown = conversation, True
            conversation.timeline.drain_changes()
            self._widgets.clear()
            blocks = conversation.timeline.items
            self._first = max(0, len(blocks) - MOUNTED)
            with self.app.batch_update():
                await self.remove_children()
                await self._update_earlier_marker()
                await self.mount_all(self._create_block_widgets(blocks[self._first :]))
            self.anchor()

    async def draw_changes(self) -> None:
        """Draw what changed since the last draw."""
        if self._conversation is None:
            return
        async with self._lock:
            new_items: list[ConversationItem] = []
            for block in self._conversation.timeline.drain_changes():
                widget = self._widgets.get(block.number)
                if widget is not None:
                    await widget.show_item(block)  # type: ignore[attr-defined]
                elif self._is_newer_than_mounted(block):
                    new_items.append(block)
            if new_items:
                with self.app.batch_update():
                    await self.mount_all(self._create_block_widgets(new_items))
                    if self.is_following:
                        await self._unmount_oldest_blocks()

    async def show_earlier_blocks(self) -> None:
        """Mount earlier blocks; the scroll position stays."""
        async with self._lock:
            conversation = self._conversation
            if conversation is None:
                return
            if self._first == 0 and conversation.has_older_entries:
                count_before = len(conversation.timeline.items)
                conversation.load_older_entries()
                self._first = len(conversation.timeline.items) - count_before
            start = max(0, self._first - STEP)
            older_items = conversation.timeline.items[start : self._first]
            if not older_items:
                return
            self.release_anchor()
            height = self.virtual_size.height - self.scroll_offset.y
            self._first = start
            with self.app.batch_update():
                await self._update_earlier_marker()
                await self.mount_all(
                    self._create_block_widgets(older_items),
                    before=1 if self.query(EarlierBlocksMarker) else 0,
                )
            self.call_after_refresh(
                lambda: self.scroll_to(y=self.virtual_size.height - height, animate=False)
            )

    def _create_block_widgets(self, blocks: list[ConversationItem]) -> list[Static]:
        widgets = []
        for block in blocks:
            widget = self._widgets[block.number] = create_block_widget(block)
            widgets.append(widget)
        return widgets  # type: ignore[return-value]

    def _is_newer_than_mounted(self, block: ConversationItem) -> bool:
        """Return True if it comes after the mounted blocks; a removed block is not mounted again."""
        return not self._widgets or block.number > max(self._widgets)

    async def _unmount_oldest_blocks(self) -> None:
        """Remove the oldest blocks of a long conversation while the view follows the end."""
        if len(self._widgets) <= MOUNTED + STEP:
            return
        oldest = sorted(self._widgets)[:-MOUNTED]
        widgets = [self._widgets.pop(number) for number in oldest]
        self._first += len(oldest)
        await self.remove_children(widgets)  # type: ignore[arg-type]
        if self._conversation is not None:
            self._first -= self._conversation.drop_oldest_items()
        await self._update_earlier_marker()

    async def _update_earlier_marker(self) -> None:
        has_earlier = self._conversation is not None and (
            self._first > 0 or self._conversation.has_older_entries
        )
        markers = self.query(EarlierBlocksMarker)
        if has_earlier and not markers:
            await self.mount(
                EarlierBlocksMarker("▴ earlier: press Home or click", classes="earlier"),
                before=0 if self.children else None,
            )
        elif not has_earlier and markers:
            await markers.remove()

    async def action_earlier(self) -> None:
        if self.scroll_offset.y > 0:
            self.release_anchor()
            self.scroll_home(animate=False)
        else:
            await self.show_earlier_blocks()

    def action_latest(self) -> None:
        self.anchor()

    def toggle_all_calls(self) -> None:
        """Unfold every call, or fold all if one is unfolded."""
        calls = list(self.query(ToolCallWidget))
        unfold = not any(call.is_unfolded for call in calls)
        with self.app.batch_update():
            for call in calls:
                call.set_unfolded(on=unfold)

    def focus_next_block(self, by: int) -> None:
        """Move the focus to the next collapsible block."""
        blocks = list(self.query(CollapsibleWidget))
        if not blocks:
            return
        focused_index = next((i for i, fold in enumerate(blocks) if fold.has_focus), None)
        new_index = (
            len(blocks) - 1 if focused_index is None else min(max(focused_index + by, 0), len(blocks) - 1)
        )
        blocks[new_index].focus()
