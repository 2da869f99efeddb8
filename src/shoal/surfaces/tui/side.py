"""The place beside the conversation, where one panel stands at a time."""

from __future__ import annotations

from textual.containers import Vertical

from shoal.surfaces.tui.stage import Stage


class Side(Vertical):
    """Beside the conversation where there is room, else over it."""

    def on_mount(self) -> None:
        self.display = False

    @property
    def shown(self) -> bool:
        return bool(self.display)

    async def sit(self, stage: Stage) -> None: ...

    def look(self) -> None: ...

    async def toggle(self, name: str) -> bool:
        return False
