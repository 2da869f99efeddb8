"""What all panels share: they draw from a picture at a bounded pace, and steer through a helm."""

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
"""Seconds between two looks at the picture, however often news are told."""
_BETWEEN = " · "


class Hints(Static):
    """Which keys there are, in as many lines as it takes to name all of them."""

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
    """The host calls `look` whenever the picture changed."""

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
    """Whether it is kept up while nobody sees it."""

    class Left(Message):
        """The person is done with the panel."""

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
        """How often it looked at the picture."""
        self._seen = 0
        self._is_new = True
        self._rests = False
        self._has_news = False
        self._shown = False
        self._record: AgentsRecord | None = None

    # Kept up with the picture

    def look(self) -> None:
        """The picture changed."""
        if self._rests or not (self._shown or self.ALWAYS) or not self.is_mounted:
            self._has_news = True
            return
        self._has_news, self._rests = False, True
        self.set_timer(PACE, self._rested)
        self._look()

    @property
    def at_rest(self) -> bool:
        """Whether all that was told is drawn."""
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
        """Draw the rows that changed; `anew` at the first look, at which there may be none."""
        raise NotImplementedError

    # Steering

    def steer(self, command: Command, told: Callable[[Any], str]) -> None:
        """Do it, and tell what came of it."""

        async def work() -> str:
            return told(await self.helm.demand(command))

        self.attempt(work)

    def attempt(self, work: Callable[[], Awaitable[str]]) -> None:
        """Do it beside all else; what it gives back is told, as is what went wrong."""

        async def run() -> None:
            try:
                said = await work()
            except ShoalError as error:
                tell(self, str(error), "error")
            except Exception as error:  # noqa: BLE001 - a screen must not end for what one key did
                tell(self, f"That did not work: {type(error).__name__}: {error}", "error")
            else:
                if said:
                    tell(self, said)

        # The app's own: what was begun goes on when the panel is closed.
        self.app.run_worker(run(), group="steering", exit_on_error=False)

    @property
    def record(self) -> AgentsRecord:
        """The boards and mailboxes of the run's home."""
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
        # Its place stays the same, so nothing else is laid out or drawn again.
        self.query_one(".panel--head", Static).update(content, layout=False)

    def action_leave(self) -> None:
        self.post_message(self.Left())


def tell(
    widget: Widget, text: str, severity: Literal["information", "warning", "error"] = "information"
) -> None:
    """A word at the edge of the screen; what models and programs said in it commands nothing."""
    widget.app.notify(clean(text), severity=severity, markup=False)
