"""A run as one file: the same pages without any server."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from browser_helpers import open_page
from fake_runs import build_harbour_run
from fake_web_server import export_html

pytestmark = [pytest.mark.needs("chromium", "playwright"), pytest.mark.one_worker]
RUN = "9d21e7b0-finished"


def test_an_exported_run_opens_at_its_end_without_requests(browser, tmp_path):
    file = tmp_path / "run.html"
    file.write_text(export_html(build_harbour_run(ended=True)), encoding="utf-8")
    with open_page(browser, file.as_uri()) as monitored_page:
        page = monitored_page.page
        page.goto(file.as_uri())
        slider = page.get_by_label("Position in the run")
        expect(slider).to_have_value(slider.get_attribute("max") or "")
        expect(page.locator(".card").filter(has_text="docs")).to_contain_text("failed")
        slider.fill("1")
        expect(page.locator(".card")).to_have_count(1)
        page.get_by_role("navigation", name="This run").get_by_text("Cost").click()
        expect(page.locator(".bar-row")).to_have_count(7)
        page.get_by_role("link", name="parser").first.click()
        expect(page.get_by_text("Two lines of Cuxhaven")).to_be_visible()
        for words in ("Send", "Interrupt", "Stop", "Kill"):
            expect(page.get_by_role("button", name=words)).to_have_count(0)
        expect(page.get_by_role("link", name="Runs")).to_have_count(0)
        assert monitored_page.console_errors == []
        assert monitored_page.foreign_requests == []
