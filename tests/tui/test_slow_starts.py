"""The full screen while a session opens."""

from __future__ import annotations

import asyncio
from pathlib import Path

from shoal.surfaces.tui.app import ShoalApp
from tui_driver import TuiDriver


async def test_a_session_that_opens_slowly_shows_for_how_long(tmp_path: Path) -> None:
    opened = asyncio.Event()

    async def open_session(app: ShoalApp) -> int:
        await opened.wait()
        return 0

    app = ShoalApp(tmp_path / "history", open_session)
    async with app.run_test(size=(80, 24)) as pilot:
        driver = TuiDriver(pilot, app)
        assert "The session is starting" not in driver.screen_text
        await driver.wait_for_text("The session is starting… 1 s", "The session is starting… 2 s")
        opened.set()
