"""One browser for the tests of a module, and a page that shows the real web view."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from needs_marks import lack

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from backstage import Backstage
    from browser_rig import Onlooker


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start a browser for one module: while it is open, no test of this process can run an event loop."""
    for name in ("chromium", "playwright"):
        if reason := lack(name):
            pytest.skip(reason)
    from browser_rig import chromium

    with chromium() as opened:
        yield opened


@pytest.fixture
def stage() -> Iterator[Backstage]:
    from backstage import backstage

    with backstage() as entered:
        yield entered


@pytest.fixture
def onlooker(browser: Browser, stage: Backstage) -> Iterator[Onlooker]:
    """Log in to the web view. Whatever a test does, the page logs no errors and requests no other server."""
    from browser_rig import looking

    address = stage.serve()
    with looking(browser, stage.base) as page:
        page.page.goto(address)
        yield page
        assert page.complaints == []
        assert page.strangers == []
