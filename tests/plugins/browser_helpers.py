"""A real browser that opens the web view and records its console errors."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

WIDE = {"width": 1280, "height": 800}
NARROW = {"width": 390, "height": 844}
CHROMIUM_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--no-first-run",
)


expect.set_options(timeout=15_000)


@contextmanager
def launch_chromium() -> Iterator[Browser]:
    # Chromium ends if the path of a socket in its temporary directory is too long.
    with ExitStack() as exit_stack:
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setenv("TMPDIR", "/tmp")
            playwright = exit_stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=list(CHROMIUM_FLAGS)
        )
        try:
            yield browser
        finally:
            browser.close()


class MonitoredPage:
    """One browser page, with its console errors and its requests to other servers."""

    def __init__(self, page: Page, address: str) -> None:
        self.page = page
        self.address = address
        self.console_errors: list[str] = []
        self.foreign_requests: list[str] = []
        """Addresses of other servers that the page requested."""
        page.on("console", self._record_console)
        page.on("pageerror", lambda error: self.console_errors.append(str(error)))
        page.on("request", lambda request: self._record_request(request.url))

    def _record_console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.console_errors.append(message.text)

    def _record_request(self, url: str) -> None:
        if urlsplit(url).scheme != "data" and not url.startswith(self.address):
            self.foreign_requests.append(url)

    def open_location(self, location: str) -> Page:
        """Open a location. Only the part after `#` changes, so the page is loaded once."""
        self.page.goto(f"{self.address}/{location}")
        return self.page

    def read_text(self, selector: str = "main") -> str:
        return self.page.locator(selector).inner_text()

    def count_elements(self) -> int:
        return int(self.page.evaluate("document.querySelectorAll('*').length"))

    def measure_overflow(self) -> int:
        """Return the number of pixels by which the page is too wide."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - innerWidth"))


@contextmanager
def open_page(browser: Browser, address: str, **options: Any) -> Iterator[MonitoredPage]:
    context = browser.new_context(**{"viewport": WIDE, **options})
    context.set_default_timeout(15_000)
    try:
        yield MonitoredPage(context.new_page(), address)
    finally:
        context.close()
