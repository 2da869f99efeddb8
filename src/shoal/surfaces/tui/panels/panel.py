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

from shoal.app.picture.rows import Frame
from shoal.core.clock import Clock, SystemClock
from shoal.core.errors import ShoalError
from shoal.core.wording import clean

if TYPE_CHECKING:
    from shoal.app.picture.picture import Picture
    from shoal.app.session.helm import Helm
    from shoal.app.teams.record import AgentsRecord
    from shoal.wire.control import Command

PACE = 0.1
"""Seconds between two refreshes, however often the run view changes."""
_BETWEEN = " · "


class Hints(Static):
    """Key hints, in as many lines as they need."""

    def __init__(self, keys: str) -> None:
        super().__init__(classes="panel--hints", markup=False)
        self._keys = keys.split(_BETWEEN)

    def _lines(self, width: int) -> list[str]:
        lines = [""]
        for key in self._keys:
            longer = f"{lines[-1]}{_BETWEEN}{key}" if lines[-1] else key
            if lines[-1] and cell_len(longer) > width:
                lines.append(key)
            else:
                lines[-1] = longer
        return lines

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._lines(width))

    def render(self) -> Content:
        return Content("\n".join(self._lines(self.content_size.width)))


class Panel(Vertical):
    """The host calls `request_refresh` whenever the run view changed."""

    DEFAULT_CSS = """
    Panel {
        background: $surface;
        & > .panel--head { height: 1; padding: 0 1; background: $panel; color: $foreground; }
        & > .panel--titles { height: 1; padding: 0 1; color: $text-muted; background: $surface; }
        & > .panel--hints { height: auto; padding: 0 1; color: $text-muted; background: $panel; }
        & > .panel--detail { padding: 0 1; border-top: solid $panel-lighten-2; height: auto; }
        & > .panel--head { text-wrap: nowrap; text-overflow: ellipsis; }
        & Rows { padding: 0 1; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("q", "leave", "Close", show=False)]
    HINTS: ClassVar[str] = ""
    ALWAYS: ClassVar[bool] = False
    """True if it is refreshed while hidden."""

    class Left(Message):
        """Posted when the person closes the panel."""

    def __init__(
        self,
        picture: Picture,
        helm: Helm,
        *,
        clock: Clock | None = None,
        id: str | None = None,  # noqa: A002
    ) -> None:
        super().__init__(id=id)
        self.picture = picture
        self.helm = helm
        self.clock: Clock = clock or SystemClock()
        self.looks = 0
        """Number of refreshes."""
        self._seen = 0
        self._is_new = True
        self._rests = False
        self._has_news = False
        self._shown = False
        self._record: AgentsRecord | None = None

    # Refreshing

    def look(self) -> None:
        """Refresh now or soon, because the run view changed."""
        if self._rests or not (self._shown or self.ALWAYS) or not self.is_mounted:
            self._has_news = True
            return
        self._has_news, self._rests = False, True
        self.set_timer(PACE, self._rested)
        self._look()

    @property
    def at_rest(self) -> bool:
        """True if every change is drawn."""
        return not self._rests and not self._has_news

    def _look(self) -> None:
        self.looks += 1
        frame = self.picture.since(self._seen)
        self._seen = frame.offset
        self.take(frame, anew=self._is_new)
        self._is_new = False

    def _rested(self) -> None:
        self._rests = False
        if self._has_news:
            self.look()

    def on_mount(self) -> None:
        self.look()

    def on_show(self) -> None:
        self._shown = True
        self.look()

    def on_hide(self) -> None:
        self._shown = False

    def take(self, frame: Frame, *, anew: bool) -> None:
        """Draw the changed rows; `is_first` at the first refresh, which may have none."""
        raise NotImplementedError

    # Commands

    def steer(self, command: Command, told: Callable[[Any], str]) -> None:
        """Send the command and notify the person of its result."""

        async def work() -> str:
            return told(await self.helm.demand(command))

        self.attempt(work)

    def attempt(self, work: Callable[[], Awaitable[str]]) -> None:
        """Run it in the background; notify the person of the returned text or of the error."""

        async def run() -> None:
            try:
                said = await work()
            except ShoalError as error:
                tell(self, str(error), "error")
            except Exception as error:  # noqa: BLE001 - one failed action must not end the app
                tell(self, f"That did not work: {type(error).__name__}: {error}", "error")
            else:
                if said:
                    tell(self, said)

        # A worker of the app: it continues when the panel is closed.
        self.app.run_worker(run(), group="steering", exit_on_error=False)

    @property
    def record(self) -> AgentsRecord:
        """Boards and mailboxes of the run's home."""
        if self._record is None:
            from shoal.app.teams.record import AgentsRecord
            from shoal.core.ids import Ids

            self._record = AgentsRecord(
                self.helm.run.home,
                clock=self.clock,
                ids=Ids(),
                report=lambda words: tell(self, words, "warning"),
            )
        return self._record

    async def on_unmount(self) -> None:
        if self._record is not None:
            await self._record.aclose()

    def head(self, content: Content) -> None:
        # Its size stays the same, so nothing else is laid out or drawn again.
        self.query_one(".panel--head", Static).update(content, layout=False)

    def action_leave(self) -> None:
        self.post_message(self.Left())


def tell(
    widget: Widget, text: str, severity: Literal["information", "warning", "error"] = "information"
) -> None:
    """Show a toast; control codes in text from models and programs are removed."""
    widget.app.notify(clean(text), severity=severity, markup=False)
