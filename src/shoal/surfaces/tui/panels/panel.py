"""Base of all panels: draws the run view at a bounded rate, and sends commands through the run controller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from rich.cells import cell_len
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from shoal.app.run_view.view_rows import ViewDelta
from shoal.core.clock import Clock, SystemClock
from shoal.core.errors import ShoalError
from shoal.core.text.text_format import strip_terminal_codes

if TYPE_CHECKING:
    from shoal.app.run_view.run_view import RunView
    from shoal.app.session.run_controller import RunController
    from shoal.app.teams.team_store import TeamStore
    from shoal.wire.control_codec import RunControlCommand

PACE = 0.1
"""Seconds between two refreshes, however often the run view changes."""
_BETWEEN = " · "


class KeyHints(Static):
    """Key hints, in as many lines as they need."""

    def __init__(self, keys: str) -> None:
        super().__init__(classes="panel--hints", markup=False)
        self._keys = keys.split(_BETWEEN)

    def _wrap_key_hints(self, width: int) -> list[str]:
        lines = [""]
        for key in self._keys:
            extended_line = f"{lines[-1]}{_BETWEEN}{key}" if lines[-1] else key
            if lines[-1] and cell_len(extended_line) > width:
                lines.append(key)
            else:
                lines[-1] = extended_line
        return lines

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._wrap_key_hints(width))

    def render(self) -> Content:
        return Content("\n".join(self._wrap_key_hints(self.content_size.width)))


class TuiPanel(Vertical):
    """The host calls `request_refresh` whenever the run view changed."""

    DEFAULT_CSS = """
    TuiPanel {
        background: $surface;
        & > .panel--head { height: 1; padding: 0 1; background: $panel; color: $foreground; }
        & > .panel--titles { height: 1; padding: 0 1; color: $text-muted; background: $surface; }
        & > .panel--hints { height: auto; padding: 0 1; color: $text-muted; background: $panel; }
        & > .panel--detail { padding: 0 1; border-top: solid $panel-lighten-2; height: auto; }
        & > .panel--head { text-wrap: nowrap; text-overflow: ellipsis; }
        & RowList { padding: 0 1; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("q", "leave", "Close", show=False)]
    HINTS: ClassVar[str] = ""
    ALWAYS: ClassVar[bool] = False
    """True if it is refreshed while hidden."""

    class CloseRequested(Message):
        """Posted when the user closes the panel."""

    def __init__(
        self,
        run_view: RunView,
        controller: RunController,
        *,
        clock: Clock | None = None,
        id: str | None = None,  # noqa: A002
    ) -> None:
        super().__init__(id=id)
        self.run_view = run_view
        self.controller = controller
        self.clock: Clock = clock or SystemClock()
        self.refresh_count = 0
        """Number of refreshes."""
        self._seen_offset = 0
        self._is_new = True
        self._is_paused = False
        self._is_stale = False
        self._shown = False
        self._team_store: TeamStore | None = None

    # Refreshing

    def request_refresh(self) -> None:
        """Refresh now or soon, because the run view changed."""
        if self._is_paused or not (self._shown or self.ALWAYS) or not self.is_mounted:
            self._is_stale = True
            return
        self._is_stale, self._is_paused = False, True
        self.set_timer(PACE, self._end_refresh_pause)
        self._apply_view_changes()

    @property
    def is_up_to_date(self) -> bool:
        """True if every change is drawn."""
        return not self._is_paused and not self._is_stale

    def _apply_view_changes(self) -> None:
        self.refresh_count += 1
        delta = self.run_view.get_delta_since(self._seen_offset)
        self._seen_offset = delta.offset
        self.apply_delta(delta, is_first=self._is_new)
        self._is_new = False

    def _end_refresh_pause(self) -> None:
        self._is_paused = False
        if self._is_stale:
            self.request_refresh()

    def on_mount(self) -> None:
        self.request_refresh()

    def on_show(self) -> None:
        self._shown = True
        self.request_refresh()

    def on_hide(self) -> None:
        self._shown = False

    def apply_delta(self, delta: ViewDelta, *, is_first: bool) -> None:
        """Draw the changed rows; `is_first` at the first refresh, which may have none."""
        raise NotImplementedError

    # Commands

    def send_run_command(self, command: RunControlCommand, describe: Callable[[Any], str]) -> None:
        """Send the command and notify the user of its result."""

        async def send_command_and_describe() -> str:
            return describe(await self.controller.send_command(command))

        self.run_action_in_background(send_command_and_describe)

    def run_action_in_background(self, action: Callable[[], Awaitable[str]]) -> None:
        """Run it in the background; notify the user of the returned text or of the error."""

        async def run_and_notify() -> None:
            try:
                message = await action()
            except ShoalError as error:
                notify_user(self, str(error), "error")
            except Exception as error:  # noqa: BLE001 - one failed action must not end the app
                notify_user(self, f"The action failed: {type(error).__name__}: {error}", "error")
            else:
                if message:
                    notify_user(self, message)

        # A worker of the app: it continues when the panel is closed.
        self.app.run_worker(run_and_notify(), group="steering", exit_on_error=False)

    @property
    def board_and_mail_store(self) -> TeamStore:
        """Boards and mailboxes of the run's store."""
        if self._team_store is None:
            from shoal.app.teams.team_store import TeamStore
            from shoal.core.ids import IdGenerator

            self._team_store = TeamStore(
                self.controller.run.get_store(),
                clock=self.clock,
                ids=IdGenerator(),
                report=lambda words: notify_user(self, words, "warning"),
            )
        return self._team_store

    async def on_unmount(self) -> None:
        if self._team_store is not None:
            await self._team_store.aclose()

    def set_panel_head(self, content: Content) -> None:
        # Its size stays the same, so nothing else is laid out or drawn again.
        self.query_one(".panel--head", Static).update(content, layout=False)

    def action_leave(self) -> None:
        self.post_message(self.CloseRequested())


def notify_user(
    widget: Widget, text: str, severity: Literal["information", "warning", "error"] = "information"
) -> None:
    """Show a toast; control codes in text from models and programs are removed."""
    widget.app.notify(strip_terminal_codes(text), severity=severity, markup=False)
