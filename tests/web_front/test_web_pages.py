"""The pages of the web view in a real browser: they show a run, keep up with it, and fit every screen."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from browser_helpers import NARROW, MonitoredPage, open_page
from fake_runs import build_past_runs
from fake_web_server import FakeWebServer
from shoal.core.agents.subagents import AgentResult
from shoal.core.budgets.usage import Usage
from shoal.core.events import (
    AgentEnded,
    MemberWentDown,
    MemberWentIdle,
    ModelRequestSettled,
    ToolStarted,
    WorkflowEnded,
    WorkflowPhaseStarted,
    WorkflowStarted,
    WorkflowStepFinished,
    WorkflowStepStarted,
)
from shoal.core.ids import LEAD_ID, AgentId, RequestId

pytestmark = [pytest.mark.needs("chromium", "playwright"), pytest.mark.one_worker]
LIVE = "3f6c0a52-harbour"
ENDED = "9d21e7b0-finished"
DRAWN = {
    "team": ".card",
    "board": ".task",
    "mail": ".message",
    "cost": ".bar-row",
    "questions": ".question",
    "agent/lead": ".entry-row >> nth=1",
}
"""The pages that show how a run ended, and what each is made of."""
PAGES = ("team", "board", "mail", "cost", "questions", "replay", "agent/a-parser", "replay/agent/a-parser")


def test_every_page_fits_a_phone_and_obeys_the_content_security_policy(browser, web_server):
    with open_page(browser, web_server.address, viewport=NARROW, has_touch=True) as phone:
        for place in ("#/runs", "#/questions", *(f"#/run/{LIVE}/{page}" for page in PAGES)):
            page = phone.open_location(place)
            expect(page.locator("main h1, main h2").first).to_be_visible()
            assert phone.measure_overflow() <= 0, place
        assert phone.console_errors == []
        assert phone.foreign_requests == []


def test_the_page_uses_the_preferred_color_scheme(browser, web_server):
    brightness = {}
    for colors in ("light", "dark"):
        with open_page(browser, web_server.address, color_scheme=colors) as page:
            page.open_location("#/runs")
            brightness[colors] = page.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert brightness == {"light": "rgb(246, 247, 247)", "dark": "rgb(17, 23, 26)"}


def test_the_run_list_links_to_the_page_of_each_run(monitored_page: MonitoredPage):
    page = monitored_page.open_location("#/runs")
    expect(page.locator(".run-line")).to_have_count(2)
    expect(page.locator(".run-line").first).to_contain_text("3 questions")
    page.get_by_label("Find a run").fill("nothing like it")
    expect(page.get_by_text("No run matches")).to_be_visible()
    page.get_by_label("Find a run").fill("tide")
    page.locator(".run-line").first.click()
    expect(page.locator(".top h1")).to_contain_text("Make the tide tables load once")
    assert page.url.endswith(f"#/run/{LIVE}/team")


def test_a_new_run_appears_in_the_open_run_list(monitored_page: MonitoredPage, web_server: FakeWebServer):
    page = monitored_page.open_location("#/runs")
    expect(page.locator(".run-line")).to_have_count(2)
    expect(page).to_have_title("(3) Shoal")
    web_server.add_run(next(build_past_runs(1)))
    expect(page.locator(".run-line")).to_have_count(3)


def test_an_agent_card_changes_without_moving_other_cards(
    monitored_page: MonitoredPage, web_server: FakeWebServer
):
    page = monitored_page.open_location(f"#/run/{LIVE}/team")
    card = page.locator('[data-agent="a-docs"]')
    expect(card).to_contain_text("idle")
    tops = "cards => cards.map(card => card.getBoundingClientRect().top)"
    before = page.locator(".card").evaluate_all(tops)
    web_server.add_events(
        LIVE,
        ToolStarted(agent=AgentId("a-docs"), call="c1", tool="Write", preview="guide/" + "long/" * 40),
        MemberWentIdle(agent=AgentId("a-parser"), reason="available"),
    )
    expect(card).to_contain_text("Write guide/long")
    expect(page.locator('[data-agent="a-parser"]')).to_contain_text("idle")
    assert page.locator(".card").evaluate_all(tops) == before


def test_the_team_page_shows_which_agent_waits_for_which(monitored_page: MonitoredPage):
    page = monitored_page.open_location(f"#/run/{LIVE}/team")
    waits = page.get_by_label("Waiting agents")
    expect(waits.get_by_role("listitem").filter(has_text="docs").first).to_contain_text("cache")
    expect(waits.get_by_role("listitem").filter(has_text="tests").last).to_contain_text("your answer")
    page.get_by_role("button", name="waiting 3").click()
    expect(page.locator(".card")).to_have_count(3)


@pytest.mark.spec("WFL-10")
def test_a_workflow_its_phases_and_their_cost_are_shown(
    monitored_page: MonitoredPage, web_server: FakeWebServer
):
    page = monitored_page.open_location(f"#/run/{LIVE}/team")
    expect(page.get_by_label("Workflows")).to_have_count(0)
    step = {"agent": LEAD_ID, "workflow": "migrate-1", "step": 1}
    web_server.add_events(
        LIVE,
        WorkflowStarted(agent=LEAD_ID, workflow="migrate-1", name="migrate", arguments={}),
        WorkflowPhaseStarted(agent=LEAD_ID, workflow="migrate-1", phase="verify"),
        WorkflowStepStarted(**step, path="verify/agent", phase="verify", digest="", child=AgentId("a-docs")),
        ModelRequestSettled(
            agent=AgentId("a-docs"),
            request=RequestId("r-flow"),
            model="m",
            usage=Usage(input_tokens=10),
            cost_usd=0.5,
            duration_ms=1,
        ),
    )
    row = page.locator('[data-workflow="migrate-1"]')
    expect(row).to_contain_text("running")
    expect(row).to_contain_text("verify 0/1")
    web_server.add_events(
        LIVE,
        WorkflowStepFinished(**step, value=None),
        WorkflowEnded(agent=LEAD_ID, workflow="migrate-1", status="completed"),
    )
    expect(row).to_contain_text("completed")
    expect(row).to_contain_text("verify 1/1")
    page = monitored_page.open_location(f"#/run/{LIVE}/cost")
    page.get_by_role("button", name="Phase").click()
    expect(page.locator(".bar-row").filter(has_text="migrate: verify")).to_have_count(1)
    expect(page.locator(".bar-row").filter(has_text="no workflow")).to_have_count(1)


@pytest.mark.spec("USR-18")
def test_a_dropped_connection_resumes_at_its_offset(monitored_page: MonitoredPage, web_server: FakeWebServer):
    page = monitored_page.open_location(f"#/run/{LIVE}/team")
    expect(page.locator(".card")).to_have_count(7)
    offset = web_server.fake_runs[LIVE].run_view.offset
    assert web_server.opened_streams == [(LIVE, "0")]
    web_server.drop_streams()
    web_server.add_events(LIVE, MemberWentIdle(agent=AgentId("a-parser"), reason="available"))
    expect(page.locator('[data-agent="a-parser"]')).to_contain_text("idle")
    assert web_server.opened_streams == [(LIVE, "0"), (LIVE, str(offset))]
    expect(page.locator(".toast")).to_have_count(0)


SEEN = """how => {
  Object.defineProperty(document, 'visibilityState', { value: how, configurable: true });
  document.dispatchEvent(new Event('visibilitychange'));
}"""


def test_a_hidden_tab_disconnects_and_resumes_when_shown(browser, web_server: FakeWebServer):
    """A browser has six connections for all its tabs of one server."""
    with open_page(browser, web_server.address) as monitored_page:
        page = monitored_page.page
        page.clock.install()
        monitored_page.open_location(f"#/run/{LIVE}/team")
        expect(page.locator(".card")).to_have_count(7)
        offset = web_server.fake_runs[LIVE].run_view.offset
        page.evaluate(SEEN, "hidden")
        page.clock.fast_forward(11_000)
        web_server.add_events(LIVE, MemberWentIdle(agent=AgentId("a-parser"), reason="available"))
        assert web_server.opened_streams == [(LIVE, "0")]
        page.evaluate(SEEN, "visible")
        page.clock.fast_forward(1_000)
        expect(page.locator('[data-agent="a-parser"]')).to_contain_text("idle")
        assert web_server.opened_streams == [(LIVE, "0"), (LIVE, str(offset))]
        assert monitored_page.console_errors == []


def test_costs_are_shown_by_agent_role_task_and_model_and_against_the_budget(
    monitored_page: MonitoredPage, web_server: FakeWebServer
):
    page = monitored_page.open_location(f"#/run/{LIVE}/cost")
    expect(page.locator(".bar-row")).to_have_count(7)
    expect(page.locator(".sums")).to_contain_text("of $4.00")
    expect(page.locator(".limit")).to_contain_text("budget $4.00")
    for by, rows in (("Role", 5), ("Task", 3), ("Model", 2)):
        page.get_by_role("button", name=by, exact=True).click()
        expect(page.locator(".bar-row")).to_have_count(rows)
    page.get_by_role("button", name="Tokens", exact=True).click()
    expect(page.locator(".legend")).to_contain_text("read from the cache")
    usage = Usage(input_tokens=1_000_000, output_tokens=1)
    spent = ModelRequestSettled(
        agent=LEAD_ID, request=RequestId("r"), model="harbour-large", usage=usage, cost_usd=1.0, duration_ms=1
    )
    web_server.add_events(LIVE, spent)
    expect(page.locator(".sums")).to_contain_text("$4.19")
    expect(page.locator(".top .meter")).to_have_class("meter meter-high")


def test_a_replay_ends_where_the_run_ended(monitored_page: MonitoredPage):
    """Every kind of row in the last delta is drawn on one of these pages."""
    page = monitored_page.open_location(f"#/run/{ENDED}/team")
    stood = {}
    for inner, drawn in DRAWN.items():
        monitored_page.open_location(f"#/run/{ENDED}/{inner}")
        expect(page.locator(drawn).last).to_be_visible()
        stood[inner] = monitored_page.read_text(".page")
    for inner, drawn in DRAWN.items():
        monitored_page.open_location(f"#/run/{ENDED}/replay/{inner}")
        expect(page.locator(drawn).last).to_be_visible()
        expect(page.get_by_label("Position in the run")).to_be_visible()
        expect(page.locator(".page")).to_have_text(stood[inner], use_inner_text=True)


def test_the_slider_returns_to_the_same_states(monitored_page: MonitoredPage, web_server: FakeWebServer):
    page = monitored_page.open_location(f"#/run/{ENDED}/replay")
    slider = page.get_by_label("Position in the run")
    last = int(slider.get_attribute("max"))
    assert last > 100
    seen: dict[int, str] = {}
    for place in (1, last // 3, 2 * last // 3, last, 2 * last // 3, last // 3, 1, last):
        slider.fill(str(place))
        expect(page.locator(".moment")).to_have_attribute("title", f"Step {place} of {last} steps")
        told = monitored_page.read_text(".content")
        assert seen.setdefault(place, told) == told
    assert len(set(seen.values())) == 4
    assert page.locator(".card").count() == 7
    slider.fill("1")
    expect(page.locator(".card")).to_have_count(1)
    page.get_by_role("button", name="One step forward").click()
    expect(slider).to_have_value("2")


def test_a_replay_of_a_conversation_shows_only_earlier_messages(monitored_page: MonitoredPage):
    page = monitored_page.open_location(f"#/run/{ENDED}/replay/agent/a-parser")
    expect(page.get_by_text("Here is how the")).to_have_count(1)
    slider = page.get_by_label("Position in the run")
    slider.fill(str(int(slider.get_attribute("max")) - 30))
    expect(page.get_by_text("Here is how the")).to_have_count(0)


UNREACHED = """() => [...document.querySelectorAll('a[href], button, input, select, textarea')]
  .filter(each => !each.disabled && !each.dataset.reached && each.type !== 'radio' && each.checkVisibility())
  .filter(each => getComputedStyle(each).pointerEvents !== 'none')
  .map(each => each.outerHTML.slice(0, 200))"""
REACHED = """() => {
  const at = document.activeElement;
  at.dataset.reached = '1';
  return at === document.body ? 'end' : `${at.tagName} ${getComputedStyle(at).outlineStyle}`;
}"""


@pytest.mark.parametrize(
    ("place", "drawn"), [(f"#/run/{LIVE}/questions", ".question"), (f"#/run/{ENDED}/replay", ".card")]
)
def test_every_clickable_element_is_reachable_with_the_keyboard(
    monitored_page: MonitoredPage, place: str, drawn: str
):
    page = monitored_page.open_location(place)
    expect(page.locator(drawn).last).to_be_visible()
    reached: set[str] = set()
    for _ in range(120):
        page.keyboard.press("Tab")
        reached.add(found := page.evaluate(REACHED))
        if found == "end":
            break
    assert page.evaluate(UNREACHED) == []
    assert "A solid" in reached
    assert {each for each in reached if each.endswith("none")} == set()


def test_the_skip_link_leads_to_the_page_content(monitored_page: MonitoredPage):
    page = monitored_page.open_location(f"#/run/{LIVE}/team")
    expect(page.locator(".card").first).to_be_visible()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.tagName") == "MAIN"


def test_an_ended_agent_shows_the_reason(monitored_page: MonitoredPage, web_server: FakeWebServer):
    page = monitored_page.open_location(f"#/run/{LIVE}/agent/a-docs")
    expect(page.get_by_role("button", name="Kill")).to_be_visible()
    done = AgentResult(
        id="d1",
        agent=AgentId("a-docs"),
        status="failed",
        kind="writer",
        description="",
        report_to=LEAD_ID,
        call="",
        detail="The guide is locked.",
    )
    web_server.add_events(LIVE, AgentEnded(agent=AgentId("a-docs"), completion=done))
    expect(page.locator(".page-head")).to_contain_text("The guide is locked.")
    expect(page.get_by_role("button", name="Kill")).to_have_count(0)


def test_a_down_agent_has_a_restart_button(monitored_page: MonitoredPage, web_server: FakeWebServer):
    page = monitored_page.open_location(f"#/run/{LIVE}/agent/a-docs")
    expect(page.get_by_role("button", name="Kill")).to_be_visible()
    expect(page.get_by_role("button", name="Restart")).to_have_count(0)
    web_server.add_events(LIVE, MemberWentDown(agent=AgentId("a-docs"), cause="its process was killed"))
    page.get_by_role("button", name="Restart").click()
    expect(page.get_by_role("button", name="Restart")).to_be_enabled()
    assert web_server.posted == [(LIVE, "restart", {"agent": "a-docs"})]


def test_a_missing_run_is_reported(monitored_page: MonitoredPage):
    page = monitored_page.open_location("#/run/nothing/team")
    expect(page.locator("main")).to_contain_text("There is no such thing.")
    assert all("404" in each for each in monitored_page.console_errors)
    monitored_page.console_errors.clear()


def test_warnings_for_the_person_are_shown_next_to_the_team(monitored_page: MonitoredPage):
    page = monitored_page.open_location(f"#/run/{LIVE}/team")
    expect(page.get_by_label("Notes")).to_contain_text("75% of the limit is used: 3 of 4 usd.")
