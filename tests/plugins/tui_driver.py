"""The full-screen terminal on a session with a scripted model, driven by keys."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

import shoal
from shoal.surfaces.tui.app import ShoalApp
from shoal.surfaces.tui.launch import attach_session_to_app
from shoal.surfaces.tui.local_run_client import TuiLocalRunClient
from tui_snapshots import render_text

TIMEOUT = 60.0


class TuiDriver:
    """Drives the app as a person does."""

    def __init__(self, pilot: Pilot[None], app: ShoalApp) -> None:
        self.pilot = pilot
        self.app = app

    @property
    def screen_text(self) -> str:
        return render_text(self.app)

    async def press_keys(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def type_text(self, text: str) -> None:
        names = {" ": "space", "\n": "alt+enter"}
        await self.pilot.press(*(names.get(letter, letter) for letter in text))

    async def submit_text(self, text: str) -> None:
        await self.type_text(text)
        await self.press_keys("enter")

    async def wait_until(
        self, condition: Callable[[], Any], description: str = "what was waited for"
    ) -> None:
        try:
            async with asyncio.timeout(TIMEOUT):
                while not condition():
                    await self.pilot.pause(0.02)
        except TimeoutError:
            raise AssertionError(f"{description} did not come. The screen:\n{self.screen_text}") from None

    async def wait_for_text(self, *texts: str) -> None:
        for each in texts:
            await self.wait_until(lambda each=each: each in self.screen_text, repr(each))

    async def wait_for_redraw(self) -> None:
        """Wait until the screen shows everything that has happened."""
        self.app.schedule_draw()
        await self.wait_until(lambda: not self.app.has_pending_draw, "a drawing")
        await self.pilot.pause()


class LocalTuiDriver(TuiDriver):
    """Drives the app on an open session of this process."""

    def __init__(
        self, pilot: Pilot[None], app: ShoalApp, session: shoal.Session, client: TuiLocalRunClient
    ) -> None:
        super().__init__(pilot, app)
        self.session = session
        self.client = client

    async def wait_until_idle(self) -> None:
        """Wait until no turn is running and everything is drawn."""
        await self.wait_until(lambda: not self.client.is_busy, "the end of the turn")
        await self.wait_for_redraw()


@asynccontextmanager
async def drive_tui(
    root: Path, model: Any, *, size: tuple[int, int] = (80, 24), **options: Any
) -> AsyncIterator[LocalTuiDriver]:
    """Open the app on a session; the project is `root/project`, the prompt history `root/history`."""
    project = root / "project"
    project.mkdir(exist_ok=True)
    given = {"attended": True, **options}
    if "mode" not in given and "skip_permissions" not in given:
        given["mode"] = "acceptEdits"
    async with shoal.open(cwd=project, model=model, **given) as session:
        app = ShoalApp(root / "history")
        app.composer.cursor_blink = False
        async with app.run_test(size=size, notifications=True) as pilot:
            seat = await attach_session_to_app(app, session)
            going = asyncio.create_task(seat.run_until_user_leaves())
            try:
                yield LocalTuiDriver(pilot, app, session, seat)
            finally:
                seat.leave_run()
                await going
