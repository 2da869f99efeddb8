"""The web view as a person uses it: a real browser, a real server, a real run with a scripted mind."""

from __future__ import annotations

import http.server
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import shoal
from agent_scripts import ToolGate, call_tool
from browser_helpers import NARROW, MonitoredPage, open_page
from shoal.core.clock import SystemClock
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.events import MailPosted, SessionEnded, SessionStarted, TaskChanged
from shoal.core.ids import LEAD_ID, SessionId
from shoal.stores.files.home.home_paths import get_journal_path
from shoal.stores.files.sessions.file_journal import FileJournal
from team_scripts import (
    get_home,
    get_last_text,
    open_session,
    read_inbox,
    script_team,
    send_message,
    spawn_member,
)
from web_client import TIMEOUT
from web_thread import WebThread, create_project

expect: Any = pytest.importorskip("playwright.sync_api").expect
pytestmark = [pytest.mark.needs("chromium", "playwright"), pytest.mark.one_worker]

CREATE = call_tool("TeamCreate", team_name="crew")
STEPS = ("Paint the walls", "Hang the door", "Sweep the floor")
TASKS = [
    call_tool("TaskCreate", f"t{n}", subject=step, description=f"{step}.") for n, step in enumerate(STEPS)
]
WAITS = call_tool("TaskUpdate", "w", taskId="3", addBlockedBy=["1", "2"])


def script_crew(*ann: Any, lead: Any = ()) -> Any:
    """A team of two with a board, of which Ann has a part to say."""
    return script_team(
        lead=[CREATE, TASKS, WAITS, spawn_member("ann"), *lead, "I wait."], ann=[*ann, "I am ready."]
    )


def find_card(page: Any, name: str) -> Any:
    return page.locator(".card").filter(has=page.get_by_role("link", name=name, exact=True))


def find_column(page: Any, name: str) -> Any:
    return page.get_by_role("region", name=name)


def list_task_order(page: Any, name: str = "To do") -> list[str]:
    return [each.get_attribute("data-task") for each in find_column(page, name).locator("[data-task]").all()]


@pytest.mark.spec("USR-18", "USR-05", "USR-26")
def test_an_agent_continues_after_its_question_is_answered_in_the_browser(
    monitored_page: MonitoredPage, web_server: WebThread, tmp_path: Path
) -> None:
    place = create_project(tmp_path)
    model = script_crew(
        call_tool("Bash", command="touch painted"), send_message("team-lead", "The walls are painted.")
    )
    page = monitored_page.open_location("#/runs")
    session = web_server.open_session(
        open_session(place, model, skip_permissions=False, attended=True, mode="default")
    )
    page.get_by_role("link", name="All questions").click()
    asked = page.get_by_role("article", name="ann asks")
    expect(asked).to_contain_text("touch painted")
    expect(page).to_have_title("(1) Shoal")
    assert not (place / "painted").exists()
    asked.get_by_role("button", name="Allow once").click()
    expect(page.get_by_text("No open questions")).to_be_visible()
    monitored_page.open_location(f"#/run/{session.id}/team")
    expect(find_card(page, "ann")).to_contain_text("idle")
    assert (place / "painted").exists()
    monitored_page.open_location(f"#/run/{session.id}/mail")
    expect(page.get_by_role("button", name=re.compile("ann to lead, .*: a word"))).to_be_visible()


@shoal.workflow
async def release(flow: shoal.Workflow) -> str:
    flow.phase("choose")
    await flow.agent("general-purpose", "Prepare the paint.")
    color = await flow.ask("Which color?", ["red", "blue"])
    flow.phase("paint")
    other = await flow.ask("Which brush?", ["small", "large"])
    return f"{color}, {other}"


@pytest.mark.spec("WFL-12", "WFL-10")
def test_a_workflow_continues_after_its_question_is_answered_in_the_browser(
    monitored_page: MonitoredPage, web_server: WebThread, tmp_path: Path
) -> None:
    page = monitored_page.open_location("#/runs")
    model = shoal.ScriptedModel(lambda request: "Prepared.")
    session = web_server.open_session(open_session(create_project(tmp_path), model, attended=True))
    result = web_server.start_coroutine(release.run(session))
    page.get_by_role("link", name="All questions").click()
    asked = page.get_by_role("article", name="lead asks")
    expect(asked).to_contain_text("Which color?")
    expect(page).to_have_title("(1) Shoal")
    assert not result.done()
    asked.get_by_label("blue").check()
    asked.get_by_role("button", name="Answer").click()
    expect(asked).to_contain_text("Which brush?")
    asked.get_by_label("Something else").last.fill("a very old one")
    asked.get_by_role("button", name="Answer").click()
    assert result.result(TIMEOUT) == "blue, a very old one"
    expect(page.get_by_text("No open questions")).to_be_visible()
    monitored_page.open_location(f"#/run/{session.id}/team")
    expect(page.get_by_text("release").first).to_be_visible()


@pytest.mark.spec("USR-18", "SRF-01", "USR-08")
def test_a_member_is_steered_and_then_stopped_from_a_page(
    monitored_page: MonitoredPage, web_server: WebThread, tmp_path: Path
) -> None:
    gate = ToolGate()

    def answer(request: ModelRequest) -> str:
        return f"Heard: {'blue' if 'Paint them blue.' in get_last_text(request) else 'nothing'}."

    settings = '{"shoal": {"shutdown_grace": 0.2}}'
    session = web_server.open_session(
        open_session(
            create_project(tmp_path),
            script_crew(call_tool("Gate"), answer),
            tools=[gate.tool],
            settings=settings,
        )
    )
    web_server.run_coroutine(gate.wait_until_reached())
    page = monitored_page.open_location(f"#/run/{session.id}/team")
    expect(find_card(page, "ann")).to_contain_text("working")
    find_card(page, "ann").get_by_role("link", name="ann").click()
    page.get_by_label("Message to ann").fill("Paint them blue.")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_label("Message to ann")).to_have_value("")
    web_server.call_soon(gate.is_open.set)
    expect(page.get_by_text("Heard: blue.")).to_be_visible()
    assert read_inbox("crew", "ann")[-1]["from"] == "user"
    page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_role("button", name=re.compile("sure|Stop it|Stop ann", re.IGNORECASE)).click()
    monitored_page.open_location(f"#/run/{session.id}/team")
    expect(find_card(page, "ann")).to_contain_text(re.compile("stopped|done"))


@pytest.mark.spec("USR-18")
def test_the_board_page_shows_changes_by_agents_and_by_the_person(
    monitored_page: MonitoredPage, web_server: WebThread, tmp_path: Path
) -> None:
    gate = ToolGate()
    work = [call_tool("TaskUpdate", s, taskId="1", status=s) for s in ("in_progress", "completed")]
    model = script_crew(work[0], call_tool("Gate"), work[1])
    session = web_server.open_session(open_session(create_project(tmp_path), model, tools=[gate.tool]))
    web_server.run_coroutine(gate.wait_until_reached())
    page = monitored_page.open_location(f"#/run/{session.id}/board")
    expect(find_column(page, "In progress")).to_contain_text("Paint the walls")
    expect(find_column(page, "To do")).to_contain_text("waits for #1, #2")

    page.get_by_role("button", name="New task").click()
    page.get_by_label("Subject").fill("Mend the roof")
    page.get_by_label("Description").fill("Before the rain.")
    page.get_by_label("Owner").select_option("lead")
    page.get_by_label("Waits for").fill("2")
    page.get_by_role("button", name="Add", exact=True).click()
    mend = find_column(page, "To do").locator("[data-task='4']")
    expect(mend).to_contain_text("Mend the roof")
    expect(mend).to_contain_text("team-lead")
    assert list_task_order(page) == ["2", "3", "4"]

    mend.focus()
    page.keyboard.press("Alt+ArrowUp")
    expect(page.get_by_text("Task 4 is now number 2 of 3 pending tasks.")).to_be_attached()
    wait_until(page, lambda: list_task_order(page) == ["2", "4", "3"])
    expect(mend).to_be_focused()
    find_column(page, "To do").locator("[data-task='3']").drag_to(
        find_column(page, "To do").locator("[data-task='2']"), target_position={"x": 60, "y": 8}
    )
    wait_until(page, lambda: list_task_order(page) == ["3", "2", "4"])
    ranks = {n: read_task_file(n).get("metadata", {}).get("shoal:rank") for n in (2, 3, 4)}
    assert ranks[3] < 2 < ranks[4] < 3
    assert read_task_file(4)["owner"] == "team-lead"

    mend.click()
    drawer = page.get_by_role("complementary", name="Task 4")
    expect(drawer).to_contain_text("Before the rain.")
    drawer.get_by_role("button", name="#2").click()
    expect(page.get_by_role("complementary", name="Task 2")).to_contain_text("Hang the door.")
    page.keyboard.press("Escape")

    web_server.call_soon(gate.is_open.set)
    expect(find_column(page, "Done")).to_contain_text("Paint the walls")
    page.get_by_role("button", name="Graph").click()
    expect(page.locator(".node")).to_have_count(4)
    edges = page.locator(".link").evaluate_all("all => all.map(l => `${l.dataset.from}-${l.dataset.to}`)")
    assert sorted(edges) == ["1-3", "2-3", "2-4"]
    places = "all => all.map(node => [node.dataset.task, node.getBoundingClientRect().x])"
    left = dict(page.locator(".node").evaluate_all(places))
    assert left["1"] == left["2"] < left["3"] == left["4"]


def read_task_file(task: int) -> Any:
    return json.loads((get_home() / "tasks" / "crew" / f"{task}.json").read_text())


def wait_until(page: Any, condition: Callable[[], bool]) -> None:
    """Poll after every frame of the browser, for a bounded time."""
    for _ in range(600):
        if condition():
            return
        page.evaluate("new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
    assert condition()


@pytest.mark.spec("USR-18")
def test_the_mail_page_shows_messages_between_members_in_full(
    monitored_page: MonitoredPage, web_server: WebThread, tmp_path: Path
) -> None:
    long = "The paint is dry. " * 40 + "And that is all."
    model = script_team(
        # One after the other: a message to a member that is not in the team yet is refused.
        lead=[CREATE, spawn_member("bob"), spawn_member("ann"), "I wait."],
        ann=[send_message("bob", long, "the paint"), "ready"],
        bob=[send_message("team-lead", "The door hangs.", "the door"), "ready"],
    )
    session = web_server.open_session(open_session(create_project(tmp_path), model))
    page = monitored_page.open_location(f"#/run/{session.id}/mail")
    paint = page.get_by_role("button", name=re.compile("ann to bob"))
    expect(paint).to_contain_text("the paint")
    expect(page.get_by_role("button", name=re.compile("bob to lead.*the door"))).to_be_visible()
    heads = page.locator(".sequence-head").all_inner_texts()
    assert heads[0] == "lead"
    assert set(heads[1:]) == {"ann", "bob"}
    page.get_by_label("Search the mail").fill("paint")
    expect(page.locator("[data-message]")).to_have_count(1)
    paint.click()
    expect(page.get_by_role("complementary", name="Message")).to_contain_text("And that is all.")
    page.get_by_label("Search the mail").fill("")
    page.get_by_label("From or to").select_option("bob")
    page.get_by_role("button", name="Messages").click()
    wait_until(page, lambda: "ann to bob" in read_message_labels(page)[-2] + read_message_labels(page)[-1])
    assert all("bob" in each for each in read_message_labels(page))


def read_message_labels(page: Any) -> list[str]:
    found: list[str] = page.locator("[data-message]").evaluate_all("rows => rows.map(r => r.ariaLabel)")
    return found


@pytest.mark.spec("USR-18", "USR-19")
def test_a_replay_shows_the_final_state_of_the_run(
    monitored_page: MonitoredPage, web_server: WebThread, tmp_path: Path
) -> None:
    work = [call_tool("TaskUpdate", s, taskId="1", status=s) for s in ("in_progress", "completed")]
    session = web_server.open_session(
        open_session(create_project(tmp_path), script_crew(*work, send_message("team-lead", "Done.")))
    )
    page = monitored_page.open_location(f"#/run/{session.id}/team")
    expect(find_card(page, "ann")).to_contain_text("idle")
    web_server.close_sessions()
    expect(page.locator(".top .pill")).to_have_text("ended")
    # The time since each was last heard moves on, and in a replay stands still.
    steady = re.compile(r"\n(now|\d+ (s|min))\b")

    def read_pages(place: str) -> dict[str, str]:
        found = {}
        for each in ("team", "board", "cost"):
            monitored_page.open_location(f"#/run/{session.id}{place}/{each}")
            expect(page.locator(f".page-{each}")).to_be_visible()
            found[each] = steady.sub("", page.locator(f".page-{each}").inner_text())
        return found

    ended = read_pages("")
    assert "Paint the walls" in ended["board"]
    replayed = read_pages("/replay")
    assert replayed["board"] == ended["board"]
    assert replayed["team"] == ended["team"]
    assert replayed["cost"] == ended["cost"]
    monitored_page.open_location(f"#/run/{session.id}/replay/board")
    page.get_by_label("Position in the run").fill("1")
    expect(page.get_by_text("The board is empty")).to_be_visible()


LEAVE_AFTER_FIRST_RENDER = """
new MutationObserver((_, observer) => {
  if (!document.querySelector("main")) return;
  observer.disconnect();
  addEventListener("hashchange", () => { window.hasLeft = true; });
  location.hash = "#/questions";
}).observe(document, { childList: true, subtree: true });
"""


@pytest.mark.spec("USR-18")
def test_a_click_just_after_the_first_rendering_is_not_lost(monitored_page: MonitoredPage) -> None:
    """Effects, such as that which listens for a new location, run only after the browser has painted."""
    page = monitored_page.page
    expect(page.get_by_role("heading", name="Runs")).to_be_visible()
    page.add_init_script(LEAVE_AFTER_FIRST_RENDER)
    page.reload()
    page.wait_for_function("window.hasLeft")
    expect(page.get_by_text("No open questions")).to_be_visible()


def test_a_page_resumes_when_the_server_restarts(
    monitored_page: MonitoredPage, web_server: WebThread, tmp_path: Path
) -> None:
    gate = ToolGate()
    session = web_server.open_session(
        open_session(create_project(tmp_path), script_crew(call_tool("Gate")), tools=[gate.tool])
    )
    web_server.run_coroutine(gate.wait_until_reached())
    page = monitored_page.open_location(f"#/run/{session.id}/team")
    expect(find_card(page, "ann")).to_contain_text("working")
    page.evaluate("window.sameDocument = true")
    port = int(web_server.base.rpartition(":")[2])
    web_server.stop_server()
    expect(page.get_by_role("status").filter(has_text="connection was lost")).to_be_visible()
    web_server.call_soon(gate.is_open.set)
    web_server.start_server(port)
    expect(find_card(page, "ann")).to_contain_text("idle")
    assert page.evaluate("window.sameDocument")
    # What the browser itself says of a server that is away.
    monitored_page.console_errors[:] = [each for each in monitored_page.console_errors if "ERR_" not in each]


@pytest.mark.spec("USR-18")
def test_ten_thousand_messages_and_a_thousand_tasks_can_be_browsed(monitored_page: MonitoredPage) -> None:
    session = "11111111-1111-4111-8111-111111111111"
    write_crowd_journal(session)
    page = monitored_page.open_location(f"#/run/{session}/mail")
    expect(page.get_by_role("button", name=re.compile("message number 9999$"))).to_be_visible()
    assert page.locator(".sequence-head").all_inner_texts()[-1] == "others"
    assert monitored_page.count_elements() < 1_000
    page.locator(".sequence-rows").evaluate("list => { list.scrollTop = 0 }")
    expect(page.get_by_role("button", name=re.compile("message number 0$"))).to_be_visible()
    page.get_by_label("Search the mail").fill("number 777")
    expect(page.get_by_role("heading", name="Mail 19 of 10000")).to_be_visible()
    page.locator("[data-message]").first.click()
    expect(page.get_by_role("complementary", name="Message")).to_contain_text(
        "Only the beginning of this message is available."
    )
    page.keyboard.press("ArrowDown")
    expect(page.locator(".message-chosen")).to_contain_text("number 1777")

    monitored_page.open_location(f"#/run/{session}/board")
    expect(find_column(page, "To do").locator("[data-task='2']")).to_be_visible()
    assert monitored_page.count_elements() < 1_500
    page.get_by_role("button", name="Graph").click()
    expect(page.locator(".node").first).to_be_visible()
    apart = "all => all.map(n => n.getBoundingClientRect()).map(b => `${b.x},${b.y}`)"
    corners = page.locator(".node").evaluate_all(apart)
    assert len(corners) == len(set(corners)) == 400
    # The browser logs a 404 for messages that are no longer stored.
    monitored_page.console_errors[:] = [each for each in monitored_page.console_errors if "404" not in each]


def write_crowd_journal(session: str) -> None:
    """Write the journal of a large run that has ended."""
    journal = FileJournal(get_journal_path(get_home(), SessionId(session)), SystemClock())
    journal.append(
        SessionStarted(
            agent=LEAD_ID, session=SessionId(session), cwd="/", model="m", mode="default", tools=()
        )
    )
    for number in range(10_000):
        sender, to = f"member-{number % 40}", f"member-{number * 7 % 40}"
        words = f"message number {number}"
        journal.append(
            MailPosted(
                agent=LEAD_ID,
                team="crew",
                mail=str(number),
                sender=sender,
                to=to,
                kind="message",
                preview=words,
            )
        )
    for number in range(1, 1_001):
        before = (str(number - 1),) if number % 7 else ()
        status = ("pending", "in_progress", "completed")[number % 3 - 2 if number % 3 else 1]
        journal.append(
            TaskChanged(
                agent=LEAD_ID,
                board="crew",
                task=str(number),
                subject="a step",
                status=status,
                blocked_by=before,
            )
        )
    journal.append(SessionEnded(agent=LEAD_ID))
    journal.close()


@contextmanager
def serve_foreign_page() -> Iterator[str]:
    """The address of another server on this machine."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>foreign</title>")

        def log_message(self, *_: object) -> None: ...

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def test_a_request_without_a_token_and_a_foreign_page_get_403(browser: Any, web_server: WebThread) -> None:
    address = web_server.start_server()
    with open_page(browser, web_server.base) as stranger:
        reply = stranger.page.goto(web_server.base)
        assert (reply.status, "token is missing" in reply.text()) == (403, True)
    with open_page(browser, web_server.base) as person, serve_foreign_page() as foreign:
        page = person.page
        page.goto(address)
        assert page.evaluate("fetch('/api/runs').then(r => r.status)") == 200
        cookie = page.evaluate("document.cookie")
        assert cookie == ""
        page.goto(foreign)
        asked: dict[str, str] = {}
        replied: dict[str, int] = {}
        wire = page.context.new_cdp_session(page)
        wire.on(
            "Network.requestWillBeSent",
            lambda told: asked.update({told["requestId"]: told["request"]["url"]}),
        )
        wire.on(
            "Network.responseReceivedExtraInfo",
            lambda told: replied.update({told["requestId"]: told["statusCode"]}),
        )
        wire.send("Network.enable")
        # The same browser, with the cookie of the user: another port is the same site.
        ask = "([url, how]) => fetch(url, {credentials: 'include', ...how}).then(() => 'read', () => 'shut')"
        for how in ({"mode": "cors"}, {"mode": "no-cors"}, {"mode": "no-cors", "method": "POST"}):
            assert page.evaluate(ask, [f"{web_server.base}/api/runs", how]) == "shut"
        ours = [each for each, url in asked.items() if url.startswith(web_server.base)]
        wait_until(page, lambda: [replied.get(each) for each in ours] == [403] * 3)


@pytest.mark.exhaustive
def test_every_page_fits_a_phone(browser: Any, web_server: WebThread, tmp_path: Path) -> None:
    gate, address = ToolGate(), web_server.start_server()
    model = script_crew(send_message("team-lead", "The walls are painted."), call_tool("Gate"))
    session = web_server.open_session(open_session(create_project(tmp_path), model, tools=[gate.tool]))
    with open_page(browser, web_server.base, viewport=NARROW, has_touch=True, is_mobile=True) as phone:
        phone.page.goto(address)
        for each in ("team", "board", "mail", "questions", "cost"):
            phone.open_location(f"#/run/{session.id}/{each}")
            expect(phone.page.locator(f".page-{each}")).to_be_visible()
            assert phone.measure_overflow() <= 0
        phone.open_location(f"#/run/{session.id}/board")
        phone.page.locator("[data-task='1']").tap()
        drawer = phone.page.get_by_role("complementary", name="Task 1")
        drawer.get_by_role("button", name="Later").tap()
        phone.page.get_by_role("button", name="Close").tap()
        wait_until(phone.page, lambda: list_task_order(phone.page) == ["2", "1", "3"])
        assert phone.console_errors == []
