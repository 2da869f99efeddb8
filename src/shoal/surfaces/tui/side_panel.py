"""Container beside the conversation that shows one panel at a time."""

from __future__ import annotations

from textual.containers import Vertical

from shoal.surfaces.tui.panels.agents_panel import AgentsPanel
from shoal.surfaces.tui.panels.board_panel import BoardPanel
from shoal.surfaces.tui.panels.mail_panel import MailPanel
from shoal.surfaces.tui.panels.panel import TuiPanel
from shoal.surfaces.tui.panels.questions_panel import QuestionsPanel
from shoal.surfaces.tui.run_presenter import TuiRunPresenter

PANELS: dict[str, type[TuiPanel]] = {
    "agents": AgentsPanel,
    "tasks": BoardPanel,
    "mail": MailPanel,
    "questions": QuestionsPanel,
}


class SidePanel(Vertical):
    """Beside the conversation if there is room, else over it."""

    def __init__(self) -> None:
        super().__init__(id="side")
        self._panels: dict[str, TuiPanel] = {}
        self._shown = ""
        self.display = False

    @property
    def shown_panel(self) -> str:
        """Name of the shown panel; empty if none is."""
        return self._shown

    async def attach_run(self, presenter: TuiRunPresenter) -> None:
        """Show this run from now on."""
        self._panels = {
            name: panel(presenter.run_view, presenter.controller, clock=presenter.clock)
            for name, panel in PANELS.items()
        }
        for name, panel in self._panels.items():
            panel.display = name == self._shown
        await self.remove_children()
        await self.mount_all(self._panels.values())

    def refresh_panels(self) -> None:
        """Refresh all panels, because the run view changed."""
        for panel in self._panels.values():
            panel.request_refresh()

    def show_panel(self, name: str) -> None:
        """Show this panel and focus it."""
        self._set_shown_panel(name)
        self.focus_panel()

    def close(self) -> None:
        self._set_shown_panel("")

    def _set_shown_panel(self, name: str) -> None:
        self._shown = name
        for panel_name, panel in self._panels.items():
            panel.display = panel_name == name
        self.display = bool(name)

    def focus_panel(self) -> None:
        if self._shown in self._panels:
            self._panels[self._shown].focus()
