"""One browser for the tests of a module, and a page that sees the real web view."""

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
    """For one module at most: while it is open, no test of this process can run a loop of its own."""
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
    """Lets itself in. Whatever a test does, the page has nothing to complain of and asks no other server."""
    from browser_rig import looking

    address = stage.serve()
    with looking(browser, stage.base) as page:
        page.page.goto(address)
        yield page
        assert page.complaints == []
        assert page.strangers == []
