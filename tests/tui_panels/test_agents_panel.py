"""The panel of agents: what it tells of each, and what it costs to keep it up."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from parser_scenario import build_parser_scenario

from run_view_scenario import EndedRunController, PanelsApp, RunViewScenario, wait_until
from shoal.app.run_view.run_view import RunView
from shoal.core.ids import LEAD_ID
from shoal.surfaces.tui.panels.agents_panel import AgentsPanel
from shoal.surfaces.tui.panels.board_panel import BoardPanel
from shoal.surfaces.tui.panels.mail_panel import MailPanel
from shoal.surfaces.tui.panels.panel import TuiPanel
from shoal.surfaces.tui.panels.questions_panel import QuestionsPanel
from tui_snapshots import assert_matches_snapshot, render_text

HOSTILE = "[bold]x[/ [red]\x1b[31mred\x1b]0;title\x07\u202e gone[/red] \r\n\x9b2J"


@pytest.mark.spec("USR-18")
@pytest.mark.parametrize("size", [(80, 24), (120, 40), (44, 20)], ids=["80x24", "120x40", "44x20"])
async def test_the_agents_panel_matches_the_snapshot(
    size: tuple[int, int], controller: EndedRunController, snapshots: Path
) -> None:
    scenario = await build_parser_scenario()
    panel = AgentsPanel(scenario.run_view, controller, clock=scenario.clock)
    async with PanelsApp(panel).run_test(size=size) as pilot:
        await pilot.press("down", "e")
        await pilot.pause()
        assert_matches_snapshot(pilot.app, snapshots / f"agents-{size[0]}x{size[1]}.svg")


@pytest.mark.parametrize("kind", [AgentsPanel, BoardPanel, MailPanel, QuestionsPanel])
@pytest.mark.parametrize("columns", [120, 57, 40])
async def test_every_key_of_a_panel_is_listed_at_any_width(
    kind: type[TuiPanel], columns: int, controller: EndedRunController
) -> None:
    async with PanelsApp(kind(RunView(), controller)).run_test(size=(columns, 24)) as pilot:
        await pilot.resize_terminal(columns + 1, 24)
        await pilot.resize_terminal(columns, 24)
        await pilot.pause()
        shown_keys = [key.strip() for line in render_text(pilot.app).splitlines() for key in line.split("·")]
    assert set(kind.HINTS.split(" · ")) <= set(shown_keys)


@pytest.mark.spec("USR-18", "SRF-01")
async def test_enter_chooses_the_agent_to_view_and_type_to(controller: EndedRunController) -> None:
    scenario = await build_parser_scenario()
    panel = AgentsPanel(scenario.run_view, controller, clock=scenario.clock)
    app = PanelsApp(panel)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("down", "down", "enter")
        await pilot.click("AgentsPanel RowList", offset=(5, 3))
        await pilot.click("AgentsPanel RowList", offset=(5, 3))
        await pilot.press("q")
        await pilot.pause()
    chosen = [each.agent.id for each in app.posted_messages if isinstance(each, AgentsPanel.AgentChosen)]
    assert chosen == ["finder", "bob"]
    assert isinstance(app.posted_messages[-1], AgentsPanel.CloseRequested)


async def test_ended_agents_are_folded_into_one_row(
    controller: EndedRunController,
) -> None:
    scenario = await build_parser_scenario()
    panel = AgentsPanel(scenario.run_view, controller, clock=scenario.clock)
    async with PanelsApp(panel).run_test(size=(120, 40)) as pilot:
        await pilot.press("end")
        assert "older" not in render_text(pilot.app)
        assert "2 ended, 1 of them failed" in render_text(pilot.app)
        scenario.end_agent("finder", "killed", "the user ends it")
        panel.request_refresh()
        await wait_until(pilot, lambda: "3 ended" in render_text(pilot.app))
        assert "└ finder" not in render_text(pilot.app)
        await pilot.press("enter")
        assert "stopped   Find uses of strip_" in render_text(pilot.app)


def build_many_agents(agents: int) -> RunViewScenario:
    scenario = RunViewScenario()
    scenario.start_turn()
    for number in range(agents):
        scenario.start_agent(f"agent-{number:03}", f"Do part {number}", color="blue")
    return scenario


@pytest.mark.spec("USR-18")
async def test_a_hundred_agents_can_be_reached_on_a_small_terminal(controller: EndedRunController) -> None:
    scenario = build_many_agents(100)
    panel = AgentsPanel(scenario.run_view, controller, clock=scenario.clock)
    async with PanelsApp(panel).run_test(size=(80, 24)) as pilot:
        await pilot.press("end")
        await pilot.pause()
        assert panel.current_agent is not None
        assert panel.current_agent.name == "agent-099"
        assert "└ agent-099" in render_text(pilot.app)
        await pilot.press("pageup", "pageup")
        await pilot.pause()
        assert panel.current_agent.name < "agent-099"
        assert f"└ {panel.current_agent.name}" in render_text(pilot.app)
        await pilot.press("home")
        await pilot.pause()
        assert panel.current_agent.id == LEAD_ID
        assert "● lead" in render_text(pilot.app)


@pytest.mark.slow
async def test_only_changed_visible_rows_are_drawn_at_most_ten_times_a_second(
    controller: EndedRunController,
) -> None:
    scenario = build_many_agents(100)
    panel = AgentsPanel(scenario.run_view, controller, clock=scenario.clock)
    async with PanelsApp(panel).run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        visible_count, drawn, looks = (
            len(panel.rows.list_visible_keys()),
            panel.rows.draw_count,
            panel.refresh_count,
        )
        assert visible_count <= drawn < 24
        began = time.monotonic()
        for step in range(50):
            for number in range(100):
                scenario.start_tool(f"agent-{number:03}", "Bash", f"step {step}")
                panel.request_refresh()
            await pilot.pause()
        await wait_until(pilot, lambda: panel.is_up_to_date)
        looked = panel.refresh_count - looks
        assert looked <= (time.monotonic() - began) / 0.1 + 2
        assert "step 49" in render_text(pilot.app)
        assert "step 48" not in render_text(pilot.app)
        assert panel.rows.draw_count - drawn <= visible_count * looked

        drawn = panel.rows.draw_count
        for agent in ("agent-003", "agent-099"):
            scenario.start_tool(agent, "Bash", "alone")
        panel.request_refresh()
        await wait_until(pilot, lambda: panel.is_up_to_date)
        assert "alone" in render_text(pilot.app)
        assert panel.rows.draw_count - drawn == 1, "the other one is out of sight"


async def test_ages_are_redrawn_without_events_only_when_their_text_changes(
    controller: EndedRunController,
) -> None:
    scenario = build_many_agents(30)
    await scenario.advance_clock(300)
    scenario.start_tool("agent-002", "Bash", "make")
    panel = AgentsPanel(scenario.run_view, controller, clock=scenario.clock)
    async with PanelsApp(panel).run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        drawn = panel.rows.draw_count
        panel.refresh_ages()
        await pilot.pause()
        assert panel.rows.draw_count == drawn
        await scenario.advance_clock(1)
        panel.refresh_ages()
        await pilot.pause()
        assert panel.rows.draw_count == drawn + 1
        line = next(each for each in render_text(pilot.app).splitlines() if "agent-002" in each)
        assert " 1s " in line


async def test_a_hidden_panel_draws_nothing_and_is_current_when_shown(controller: EndedRunController) -> None:
    scenario = build_many_agents(3)
    panel = AgentsPanel(scenario.run_view, controller, clock=scenario.clock)
    async with PanelsApp(panel).run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        panel.display = False
        await pilot.pause()
        looks = panel.refresh_count
        scenario.start_tool("agent-001", "Bash", "unseen")
        panel.request_refresh()
        await pilot.pause()
        assert panel.refresh_count == looks
        panel.display = True
        await wait_until(pilot, lambda: "unseen" in render_text(pilot.app))


@pytest.mark.parametrize("kind", [AgentsPanel, BoardPanel, MailPanel, QuestionsPanel])
async def test_a_panel_of_an_empty_run_is_empty_and_accepts_keys(
    kind: type[TuiPanel], controller: EndedRunController
) -> None:
    panel = kind(RunView(), controller)
    async with PanelsApp(panel).run_test(size=(80, 24)) as pilot:
        await wait_until(pilot, lambda: panel.is_up_to_date)
        await pilot.press("down", "enter")
        assert len(pilot.app.screen_stack) == 1


@pytest.mark.spec("USR-11")
async def test_markup_and_codes_in_agent_text_are_shown_literally(controller: EndedRunController) -> None:
    scenario = RunViewScenario()
    scenario.start_turn(prompt=HOSTILE)
    scenario.start_agent("a", HOSTILE, color=HOSTILE)
    scenario.start_agent(HOSTILE, HOSTILE, color="#zzzzzz", model=HOSTILE, kind=HOSTILE)
    scenario.start_tool("a", HOSTILE, HOSTILE)
    scenario.end_agent(HOSTILE, "failed", HOSTILE)
    panel = AgentsPanel(scenario.run_view, controller, clock=scenario.clock)
    app = PanelsApp(panel)
    async with app.run_test(size=(160, 24)) as pilot:
        await pilot.press("down", "x")
        await pilot.pause()
        assert "[bold]x[/ [red]red gone[/red] 2J" in render_text(app)
        await pilot.press("escape", "down", "enter", "down", "down", "k")
        await pilot.pause()
        shown = render_text(app)
    assert "[bold]x[/ [red]red gone[/red]" in shown
    assert not set(shown) & set("\x1b\x07\x9b\u202e\r")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["down", "escape"], "No live run can respond: interrupt."),
        (["down", "b"], "No live run can respond: background."),
        (["down", "k", "y"], "No live run can respond: stop_task."),
        (["down", "x", "y"], "No live run can respond: shut_down."),
        (["down", "x", "n"], ""),
        (["down", "k", "n"], ""),
        (["x"], "The lead stops only with its run. Esc interrupts its turn."),
        (["b"], "The lead is always in the foreground. Choose one of its agents."),
        (["down", "a"], "ada has no open question."),
        (["e", "end", "k"], "older has ended. Press Enter to see its work; a message there resumes it."),
    ],
)
async def test_an_impossible_action_is_reported_in_one_line(
    keys: list[str], message: str, controller: EndedRunController
) -> None:
    scenario = await build_parser_scenario()
    app = PanelsApp(AgentsPanel(scenario.run_view, controller, clock=scenario.clock))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press(*keys)
        await pilot.pause()
        await app.workers.wait_for_complete()
        words: list[Any] = app.notices
    assert words[-1:] == ([message] if message else [])
