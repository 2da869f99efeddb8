"""Container beside the conversation that shows one panel at a time."""

from __future__ import annotations

from textual.containers import Vertical

from shoal.surfaces.tui.panels.agents import AgentsPanel
from shoal.surfaces.tui.panels.board import BoardPanel
from shoal.surfaces.tui.panels.mail import MailPanel
from shoal.surfaces.tui.panels.panel import Panel
from shoal.surfaces.tui.panels.questions import QuestionsPanel
from shoal.surfaces.tui.stage import Stage

PANELS: dict[str, type[Panel]] = {
    "agents": AgentsPanel,
    "tasks": BoardPanel,
    "mail": MailPanel,
    "questions": QuestionsPanel,
}


class Side(Vertical):
    """Beside the conversation if there is room, else over it."""

    def __init__(self) -> None:
        super().__init__(id="side")
        self._panels: dict[str, Panel] = {}
        self._shown = ""
        self.display = False

    @property
    def shown(self) -> str:
        """Name of the shown panel; empty if none is."""
        return self._shown

    async def sit(self, stage: Stage) -> None:
        """Show this run from now on."""
        self._panels = {
            name: panel(stage.picture, stage.helm, clock=stage.clock) for name, panel in PANELS.items()
        }
        for name, panel in self._panels.items():
            panel.display = name == self._shown
        await self.remove_children()
        await self.mount_all(self._panels.values())

    def look(self) -> None:
        """Refresh all panels, because the run view changed."""
        for panel in self._panels.values():
            panel.look()

    def show(self, name: str) -> None:
        """Show this panel and focus it."""
        self._put(name)
        self.go_there()

    def close(self) -> None:
        self._put("")

    def _put(self, name: str) -> None:
        self._shown = name
        for each, panel in self._panels.items():
            panel.display = each == name
        self.display = bool(name)

    def go_there(self) -> None:
        if self._shown in self._panels:
            self._panels[self._shown].focus()
