"""One browser and one server of fake runs for the tests of the web view."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from browser_rig import Onlooker
    from web_stage import Stage


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start a browser for one module: while it is open, no test of this process can run an event loop."""
    if shutil.which("chromium") is None:
        pytest.skip("the program chromium is not installed")
    from browser_rig import chromium

    with chromium() as opened:
        yield opened


@pytest.fixture
def stage() -> Iterator[Stage]:
    from web_scenes import harbour
    from web_stage import Stage

    with Stage([harbour(), harbour(ended=True)]) as entered:
        yield entered


@pytest.fixture
def onlooker(browser: Browser, stage: Stage) -> Iterator[Onlooker]:
    """Open a page. Whatever a test does, it logs no errors and requests no other server."""
    from browser_rig import looking

    with looking(browser, stage.address) as page:
        yield page
        assert page.complaints == []
        assert page.strangers == []
