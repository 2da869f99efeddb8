"""Scrolling view of one agent's conversation: the newest blocks are mounted, older ones on demand."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.events import Click
from textual.widgets import Static

from shoal.surfaces.tui.blocks import CallBlock, Fold, block_widget
from shoal.surfaces.tui.script import Shown
from shoal.surfaces.tui.stage import Conversation

MOUNTED = 150
"""Blocks on the screen and just above it."""
STEP = 60
"""Blocks that are mounted or removed at once."""


class Earlier(Static):
    """Marker at the start of a truncated conversation; a click loads earlier blocks."""

    def on_click(self, event: Click) -> None:
        event.stop()
        view = self.parent
        assert isinstance(view, ConversationView)
        view.run_worker(view.show_earlier())


class ConversationView(VerticalScroll):
    """Shows one conversation at a time, of this or another process."""

    BINDINGS: ClassVar[list[BindingType]] = [("home", "earlier", "earlier"), ("end", "latest", "latest")]
    can_focus = True

    def __init__(self) -> None:
        super().__init__(id="conversation")
        self._of: Conversation | None = None
        self._widgets: dict[int, object] = {}
        self._first = 0
        """Index of the first mounted block among all items."""
        self._lock = asyncio.Lock()

    def on_mount(self) -> None:
        self.anchor()

    @property
    def showing(self) -> Conversation | None:
        return self._of

    @property
    def follows(self) -> bool:
        """True if the view follows the end of the conversation."""
        return self.is_anchored and not self._anchor_released

    async def show(self, conversation: Conversation) -> None:
        """Show this conversation from now on."""
        async with self._lock:
            if self._of is not None:
                self._of.is_shown = False
            self._of, conversation.is_shown = conversation, True
            conversation.script.taken()
            self._widgets.clear()
            blocks = conversation.script.blocks
            self._first = max(0, len(blocks) - MOUNTED)
            with self.app.batch_update():
                await self.remove_children()
                await self._mark_earlier()
                await self.mount_all(self._made(blocks[self._first :]))
            self.anchor()

    async def draw(self) -> None:
        """Draw what changed since the last draw."""
        if self._of is None:
            return
        async with self._lock:
            fresh: list[Shown] = []
            for block in self._of.script.taken():
                widget = self._widgets.get(block.number)
                if widget is not None:
                    await widget.show(block)  # type: ignore[attr-defined]
                elif self._is_behind(block):
                    fresh.append(block)
            if fresh:
                with self.app.batch_update():
                    await self.mount_all(self._made(fresh))
                    if self.follows:
                        await self._let_go()

    async def show_earlier(self) -> None:
        """Mount earlier blocks; the scroll position stays."""
        async with self._lock:
            conversation = self._of
            if conversation is None:
                return
            if self._first == 0 and conversation.has_older:
                before = len(conversation.script.blocks)
                conversation.older()
                self._first = len(conversation.script.blocks) - before
            begin = max(0, self._first - STEP)
            older = conversation.script.blocks[begin : self._first]
            if not older:
                return
            self.release_anchor()
            height = self.virtual_size.height - self.scroll_offset.y
            self._first = begin
            with self.app.batch_update():
                await self._mark_earlier()
                await self.mount_all(self._made(older), before=1 if self.query(Earlier) else 0)
            self.call_after_refresh(
                lambda: self.scroll_to(y=self.virtual_size.height - height, animate=False)
            )

    def _made(self, blocks: list[Shown]) -> list[Static]:
        widgets = []
        for block in blocks:
            widget = self._widgets[block.number] = block_widget(block)
            widgets.append(widget)
        return widgets  # type: ignore[return-value]

    def _is_behind(self, block: Shown) -> bool:
        """Return True if it comes after the mounted blocks; a removed block is not mounted again."""
        return not self._widgets or block.number > max(self._widgets)

    async def _let_go(self) -> None:
        """Remove the oldest blocks of a long conversation while the view follows the end."""
        if len(self._widgets) <= MOUNTED + STEP:
            return
        oldest = sorted(self._widgets)[:-MOUNTED]
        widgets = [self._widgets.pop(number) for number in oldest]
        self._first += len(oldest)
        await self.remove_children(widgets)  # type: ignore[arg-type]
        if self._of is not None:
            self._first -= self._of.let_go()
        await self._mark_earlier()

    async def _mark_earlier(self) -> None:
        there = self._of is not None and (self._first > 0 or self._of.has_older)
        marks = self.query(Earlier)
        if there and not marks:
            await self.mount(
                Earlier("▴ earlier: Home or a click", classes="earlier"), before=0 if self.children else None
            )
        elif not there and marks:
            await marks.remove()

    async def action_earlier(self) -> None:
        if self.scroll_offset.y > 0:
            self.release_anchor()
            self.scroll_home(animate=False)
        else:
            await self.show_earlier()

    def action_latest(self) -> None:
        self.anchor()

    def fold_all(self) -> None:
        """Unfold every call, or fold all if one is unfolded."""
        calls = list(self.query(CallBlock))
        on = not any(call.unfolded for call in calls)
        with self.app.batch_update():
            for call in calls:
                call.unfold(on=on)

    def step(self, by: int) -> None:
        """Move the focus to the next collapsible block."""
        folds = list(self.query(Fold))
        if not folds:
            return
        at = next((i for i, fold in enumerate(folds) if fold.has_focus), None)
        wanted = len(folds) - 1 if at is None else min(max(at + by, 0), len(folds) - 1)
        folds[wanted].focus()
