"""A hundred members and ten thousand of everything: the document holds only what is in sight."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from browser_helpers import open_page
from fake_runs import build_crowd_run, make_text_block
from fake_web_server import FakeWebServer

pytestmark = [pytest.mark.needs("chromium", "playwright"), pytest.mark.one_worker]
RUN = "c0ffee00-crowd"
MOST = 1_500
"""Elements of a page, whatever the run."""


@pytest.fixture(scope="module")
def large_run_server():
    with FakeWebServer([build_crowd_run()]) as entered:
        yield entered


@pytest.mark.exhaustive
def test_every_page_of_a_large_run_is_small_and_shows_its_last_row(browser, large_run_server):
    with open_page(browser, large_run_server.address) as monitored_page:
        page = monitored_page.open_location(f"#/run/{RUN}/team")
        expect(page.locator(".card").first).to_be_visible()
        assert monitored_page.count_elements() < MOST
        page.locator(".page-team .virtual-list").evaluate("list => { list.scrollTop = list.scrollHeight }")
        expect(page.locator('[data-agent="a-worker-100"]')).to_be_visible()
        assert monitored_page.count_elements() < MOST
        page.get_by_role("button", name="Table").click()
        expect(page.locator(".table-row").first).to_be_visible()
        page.locator(".page-team .virtual-list").evaluate("list => { list.scrollTop = list.scrollHeight }")
        expect(page.locator(".table-row").filter(has_text="worker-100")).to_be_visible()
        for place, drawn in (
            ("cost", ".bar-row"),
            ("board", ".task"),
            ("mail", ".message"),
            ("replay", ".table-row"),
        ):
            monitored_page.open_location(f"#/run/{RUN}/{place}")
            expect(page.locator(drawn).first).to_be_visible()
            assert monitored_page.count_elements() < MOST, place
        assert monitored_page.console_errors == []


@pytest.mark.exhaustive
def test_loading_older_messages_keeps_the_scroll_position(browser, large_run_server):
    in_sight = """list => {
      const top = list.getBoundingClientRect().top;
      const rows = [...list.querySelectorAll('.virtual-list-row')];
      const row = rows.find(each => each.getBoundingClientRect().bottom > top + 1);
      return [row.dataset.key, Math.abs(row.getBoundingClientRect().top - top) < 1.5];
    }"""
    seen = ["9800", True]
    with open_page(browser, large_run_server.address) as monitored_page:
        page = monitored_page.open_location(f"#/run/{RUN}/agent/a-worker-1")
        expect(page.get_by_text("Entry 9999.")).to_be_visible()
        talk = page.locator(".agent-conversation .virtual-list")
        with page.expect_response(lambda response: "after=9600" in response.url):
            talk.evaluate("list => { list.scrollTop = 0 }")
        expect(page.locator('[data-key="9797"]')).to_be_attached()
        assert talk.evaluate(in_sight) == seen
        with page.expect_response(lambda response: "after=10000" in response.url):
            large_run_server.add_entry(RUN, "a-worker-1", "assistant", "model", make_text_block("One more."))
        assert talk.evaluate(in_sight) == seen
        assert monitored_page.count_elements() < MOST
        assert monitored_page.console_errors == []
