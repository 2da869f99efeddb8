"""The mail panel: sender, recipient and text of mail, and whether it was read."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from parser_scenario import build_parser_scenario

from agent_scripts import ToolGate, call_tool, run_all_turns
from run_view_scenario import EndedRunController, PanelsApp, RunViewScenario, show_live_panel, wait_until
from shoal.app.run_view.mail_table import RunViewMailState
from shoal.core.events import MailPosted
from shoal.core.ids import LEAD_ID
from shoal.surfaces.tui.panels import mail_panel
from shoal.surfaces.tui.panels.mail_panel import MailPanel
from team_scripts import get_last_text, open_session, script_team, send_message, spawn_member
from tui_snapshots import assert_matches_snapshot, render_text

HOSTILE = "[bold]x[/ \x1b[31mred\x07[/red]"


@pytest.mark.spec("USR-18")
@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=["80x24", "120x40"])
async def test_mail_is_listed_with_unread_messages_marked(
    size: tuple[int, int], controller: EndedRunController, snapshots: Path
) -> None:
    scenario = await build_parser_scenario()
    panel = MailPanel(scenario.run_view, controller, clock=scenario.clock)
    async with PanelsApp(panel).run_test(size=size) as pilot:
        await pilot.pause()
        assert_matches_snapshot(pilot.app, snapshots / f"mail-{size[0]}x{size[1]}.svg")


async def test_mail_is_filtered_by_member_and_by_unread(controller: EndedRunController) -> None:
    scenario = await build_parser_scenario()
    panel = MailPanel(scenario.run_view, controller, clock=scenario.clock)
    async with PanelsApp(panel).run_test(size=(120, 40)) as pilot:
        await pilot.press("f", *"eve", "down", "enter")
        await wait_until(pilot, lambda: "only of eve" in render_text(pilot.app))
        assert "Please begin" not in render_text(pilot.app)
        assert "[idle notification]" in render_text(pilot.app)
        await pilot.press("f", "enter", "u")
        await wait_until(pilot, lambda: "unread only" in render_text(pilot.app))
        assert "The lexer drops" not in render_text(pilot.app)
        assert "Then I test comments" in render_text(pilot.app)


async def test_mail_posted_between_two_refreshes_is_listed(controller: EndedRunController) -> None:
    scenario = await build_parser_scenario()
    panel = MailPanel(scenario.run_view, controller, clock=scenario.clock)
    async with PanelsApp(panel).run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        # The run view has this message, the panel does not yet.
        scenario.post_mail("ada", "bob", "just now", taken=False)
        await pilot.press("u")
        await wait_until(pilot, lambda: "just now" in render_text(pilot.app))


async def test_the_cursor_follows_new_mail_until_it_is_moved_up(controller: EndedRunController) -> None:
    scenario = await build_parser_scenario()
    panel = MailPanel(scenario.run_view, controller, clock=scenario.clock)
    async with PanelsApp(panel).run_test(size=(80, 24)) as pilot:
        for number in range(40):
            scenario.post_mail("ada", "bob", f"message {number}.")
        panel.request_refresh()
        await wait_until(pilot, lambda: "message 39." in render_text(pilot.app))
        await pilot.press("up")
        scenario.post_mail("ada", "bob", "one more")
        panel.request_refresh()
        await wait_until(pilot, lambda: "45 messages" in render_text(pilot.app))
        assert panel.rows.cursor == panel.rows.entries[-3].key


async def test_only_the_latest_of_many_messages_are_listed(
    controller: EndedRunController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mail_panel, "MOST", 10)
    scenario = RunViewScenario()
    for number in range(25):
        scenario.post_mail("ada", "bob", f"message {number}.")
    panel = MailPanel(scenario.run_view, controller, clock=scenario.clock)
    async with PanelsApp(panel).run_test(size=(80, 24)) as pilot:
        await pilot.press("home")
        await pilot.pause()
        assert "15 older messages" in render_text(pilot.app)
        assert "message 14." not in render_text(pilot.app)


async def test_messages_dropped_from_the_run_view_are_counted(
    controller: EndedRunController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mail_panel, "MOST", 10)
    scenario = RunViewScenario()
    scenario.run_view.mail = RunViewMailState(max_rows=15)
    for number in range(25):
        scenario.post_mail("ada", "bob", f"message {number}.")
    panel = MailPanel(scenario.run_view, controller, clock=scenario.clock)
    async with PanelsApp(panel).run_test(size=(80, 24)) as pilot:
        for number in range(25, 40):
            scenario.post_mail("ada", "bob", f"message {number}.", taken=number < 39)
        panel.request_refresh()
        await wait_until(pilot, lambda: "40 messages  1 unread" in render_text(pilot.app))
        await pilot.press("home")
        await wait_until(pilot, lambda: "30 older messages" in render_text(pilot.app))


async def test_the_same_mail_id_in_two_mailboxes_is_two_rows(controller: EndedRunController) -> None:
    scenario = RunViewScenario()
    for to in ("ada", "bob"):
        mail_to = {"team": "crew", "mail": "m", "sender": "eve", "to": to}
        scenario.apply_event(MailPosted(agent=LEAD_ID, kind="message", preview="hello", **mail_to))
    panel = MailPanel(scenario.run_view, controller, clock=scenario.clock)
    async with PanelsApp(panel).run_test(size=(80, 24)) as pilot:
        await wait_until(pilot, lambda: "2 messages" in render_text(pilot.app))
        assert render_text(pilot.app).count("hello") == 2


async def test_mail_is_shown_whole_from_the_mailbox_or_else_as_a_preview(
    tmp_path: Path, controller: EndedRunController
) -> None:
    long_text = "\n".join([HOSTILE, *(f"line {number}" for number in range(300))])
    gate = ToolGate()
    model = script_team(
        lead=[
            call_tool("TeamCreate", team_name="crew"),
            spawn_member("ann"),
            send_message("ann", long_text),
            "wait",
            get_last_text,
        ],
        ann=[call_tool("Gate"), "thanks"],
    )
    async with open_session(tmp_path, model, tools=[gate.tool]) as session, asyncio.TaskGroup() as group:
        turn = group.create_task(run_all_turns(session))
        async with show_live_panel(session, MailPanel, remote=True, size=(120, 40)) as (panel, pilot):
            await wait_until(pilot, lambda: "a word: [bold]x[/ red[/red]" in render_text(pilot.app))
            await pilot.press("end", "enter")
            await wait_until(pilot, lambda: "posted" in render_text(pilot.app))
            await pilot.press("end")
            await wait_until(pilot, lambda: "line 299" in render_text(pilot.app))
            assert not set(render_text(pilot.app)) & set("\x1b\x07")
            run_view = panel.run_view
        turn.cancel()
    panel = MailPanel(run_view, controller)
    async with PanelsApp(panel).run_test(size=(120, 40)) as pilot:
        await pilot.press("end", "enter")
        await wait_until(pilot, lambda: "so only the beginning of this" in render_text(pilot.app))
        assert "line 299" not in render_text(pilot.app)
