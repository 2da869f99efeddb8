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
from shoal.surfaces.tui.launch import seated
from shoal.surfaces.tui.own import OwnSeat
from tui_shots import text_of

BOUND = 20.0


class Sitting:
    """Drives the app as a person does."""

    def __init__(self, pilot: Pilot[None], app: ShoalApp) -> None:
        self.pilot = pilot
        self.app = app

    @property
    def text(self) -> str:
        return text_of(self.app)

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def type(self, text: str) -> None:
        names = {" ": "space", "\n": "alt+enter"}
        await self.pilot.press(*(names.get(letter, letter) for letter in text))

    async def say(self, text: str) -> None:
        await self.type(text)
        await self.press("enter")

    async def until(self, wanted: Callable[[], Any], what: str = "what was waited for") -> None:
        try:
            async with asyncio.timeout(BOUND):
                while not wanted():
                    await self.pilot.pause(0.02)
        except TimeoutError:
            raise AssertionError(f"{what} did not come. The screen:\n{self.text}") from None

    async def shows(self, *words: str) -> None:
        for each in words:
            await self.until(lambda each=each: each in self.text, repr(each))

    async def drawn(self) -> None:
        """Wait until the screen shows everything that has happened."""
        self.app.stir()
        await self.until(lambda: not self.app.is_behind, "a drawing")
        await self.pilot.pause()


class OwnSitting(Sitting):
    """Drives the app on an open session of this process."""

    def __init__(self, pilot: Pilot[None], app: ShoalApp, session: shoal.Session, seat: OwnSeat) -> None:
        super().__init__(pilot, app)
        self.session = session
        self.seat = seat

    async def rests(self) -> None:
        """Wait until no turn is running and everything is drawn."""
        await self.until(lambda: not self.seat.busy, "the end of the turn")
        await self.drawn()


@asynccontextmanager
async def sitting(
    root: Path, model: Any, *, size: tuple[int, int] = (80, 24), **options: Any
) -> AsyncIterator[OwnSitting]:
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
            seat = await seated(app, session)
            going = asyncio.create_task(seat.go())
            try:
                yield OwnSitting(pilot, app, session, seat)
            finally:
                seat.leave()
                await going
