"""One browser and one server of fake runs for the tests of the web view."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from browser_helpers import MonitoredPage
    from fake_web_server import FakeWebServer


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start a browser for one module: while it is open, no test of this process can run an event loop."""
    if shutil.which("chromium") is None:
        pytest.skip("the program chromium is not installed")
    from browser_helpers import launch_chromium

    with launch_chromium() as opened:
        yield opened


@pytest.fixture
def web_server() -> Iterator[FakeWebServer]:
    from fake_runs import build_harbour_run
    from fake_web_server import FakeWebServer

    with FakeWebServer([build_harbour_run(), build_harbour_run(ended=True)]) as entered:
        yield entered


@pytest.fixture
def monitored_page(browser: Browser, web_server: FakeWebServer) -> Iterator[MonitoredPage]:
    """Open a page. Whatever a test does, it logs no errors and requests no other server."""
    from browser_helpers import open_page

    with open_page(browser, web_server.address) as page:
        yield page
        assert page.console_errors == []
        assert page.foreign_requests == []
