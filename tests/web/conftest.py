"""One browser for the tests of a module, and a page that shows the real web view."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from needs_marks import explain_missing

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from browser_helpers import MonitoredPage
    from web_thread import WebThread


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start a browser for one module: while it is open, no test of this process can run an event loop."""
    for name in ("chromium", "playwright"):
        if reason := explain_missing(name):
            pytest.skip(reason)
    from browser_helpers import launch_chromium

    with launch_chromium() as opened:
        yield opened


@pytest.fixture
def web_server() -> Iterator[WebThread]:
    from web_thread import start_web_thread

    with start_web_thread() as entered:
        yield entered


@pytest.fixture
def monitored_page(browser: Browser, web_server: WebThread) -> Iterator[MonitoredPage]:
    """Log in to the web view. Whatever a test does, the page logs no errors and requests no other server."""
    from browser_helpers import open_page

    address = web_server.start_server()
    with open_page(browser, web_server.base) as page:
        page.page.goto(address)
        yield page
        assert page.console_errors == []
        assert page.foreign_requests == []
