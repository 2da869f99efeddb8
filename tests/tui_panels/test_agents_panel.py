"""The panel of agents: what it tells of each, and what it costs to keep it up."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from parser_scene import parser_scene

from shoal.app.picture.picture import Picture
from shoal.core.ids import LEAD
from shoal.surfaces.tui.panels.agents import AgentsPanel
from shoal.surfaces.tui.panels.board import BoardPanel
from shoal.surfaces.tui.panels.mail import MailPanel
from shoal.surfaces.tui.panels.panel import Panel
from shoal.surfaces.tui.panels.questions import QuestionsPanel
from tui_scene import DeadHelm, PanelsApp, Scene, until
from tui_shots import assert_looks, text_of

HOSTILE = "[bold]x[/ [red]\x1b[31mred\x1b]0;title\x07\u202e gone[/red] \r\n\x9b2J"


@pytest.mark.spec("USR-18")
@pytest.mark.parametrize("size", [(80, 24), (120, 40), (44, 20)], ids=["80x24", "120x40", "44x20"])
async def test_the_panel_tells_how_every_agent_stands(
    size: tuple[int, int], helm: DeadHelm, snapshots: Path
) -> None:
    scene = await parser_scene()
    panel = AgentsPanel(scene.picture, helm, clock=scene.clock)
    async with PanelsApp(panel).run_test(size=size) as pilot:
        await pilot.press("down", "e")
        await pilot.pause()
        assert_looks(pilot.app, snapshots / f"agents-{size[0]}x{size[1]}.svg")


@pytest.mark.parametrize("kind", [AgentsPanel, BoardPanel, MailPanel, QuestionsPanel])
@pytest.mark.parametrize("columns", [120, 57, 40])
async def test_every_key_of_a_panel_is_named_however_narrow_it_is(
    kind: type[Panel], columns: int, helm: DeadHelm
) -> None:
    async with PanelsApp(kind(Picture(), helm)).run_test(size=(columns, 24)) as pilot:
        await pilot.resize_terminal(columns + 1, 24)
        await pilot.resize_terminal(columns, 24)
        await pilot.pause()
        told = [key.strip() for line in text_of(pilot.app).splitlines() for key in line.split("·")]
    assert set(kind.HINTS.split(" · ")) <= set(told)


@pytest.mark.spec("USR-18", "SRF-01")
async def test_enter_chooses_the_agent_to_view_and_type_to(helm: DeadHelm) -> None:
    scene = await parser_scene()
    panel = AgentsPanel(scene.picture, helm, clock=scene.clock)
    app = PanelsApp(panel)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("down", "down", "enter")
        await pilot.click("AgentsPanel Rows", offset=(5, 3))
        await pilot.click("AgentsPanel Rows", offset=(5, 3))
        await pilot.press("q")
        await pilot.pause()
    chosen = [each.agent.id for each in app.heard if isinstance(each, AgentsPanel.Chosen)]
    assert chosen == ["finder", "bob"]
    assert isinstance(app.heard[-1], AgentsPanel.Left)


async def test_those_that_ended_are_folded_and_an_agent_that_ends_goes_there(helm: DeadHelm) -> None:
    scene = await parser_scene()
    panel = AgentsPanel(scene.picture, helm, clock=scene.clock)
    async with PanelsApp(panel).run_test(size=(120, 40)) as pilot:
        await pilot.press("end")
        assert "older" not in text_of(pilot.app)
        assert "2 ended, 1 of them not well" in text_of(pilot.app)
        scene.ends("finder", "killed", "the person ends it")
        panel.look()
        await until(pilot, lambda: "3 ended" in text_of(pilot.app))
        assert "└ finder" not in text_of(pilot.app)
        await pilot.press("enter")
        assert "stopped   Find uses of strip_" in text_of(pilot.app)


def fleet(agents: int) -> Scene:
    scene = Scene()
    scene.turn()
    for number in range(agents):
        scene.starts(f"agent-{number:03}", f"Do part {number}", color="blue")
    return scene


@pytest.mark.spec("USR-18")
async def test_a_hundred_agents_are_within_reach_on_a_small_terminal(helm: DeadHelm) -> None:
    scene = fleet(100)
    panel = AgentsPanel(scene.picture, helm, clock=scene.clock)
    async with PanelsApp(panel).run_test(size=(80, 24)) as pilot:
        await pilot.press("end")
        await pilot.pause()
        assert panel.current is not None
        assert panel.current.name == "agent-099"
        assert "└ agent-099" in text_of(pilot.app)
        await pilot.press("pageup", "pageup")
        await pilot.pause()
        assert panel.current.name < "agent-099"
        assert f"└ {panel.current.name}" in text_of(pilot.app)
        await pilot.press("home")
        await pilot.pause()
        assert panel.current.id == LEAD
        assert "● lead" in text_of(pilot.app)


async def test_only_rows_that_changed_and_are_in_sight_are_drawn_ten_times_a_second_at_most(
    helm: DeadHelm,
) -> None:
    scene = fleet(100)
    panel = AgentsPanel(scene.picture, helm, clock=scene.clock)
    async with PanelsApp(panel).run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        seen, drawn, looks = len(panel.rows.in_sight()), panel.rows.drawn, panel.looks
        assert seen <= drawn < 24
        began = time.monotonic()
        for step in range(50):
            for number in range(100):
                scene.runs(f"agent-{number:03}", "Bash", f"step {step}")
                panel.look()
            await pilot.pause()
        await until(pilot, lambda: panel.at_rest)
        looked = panel.looks - looks
        assert looked <= (time.monotonic() - began) / 0.1 + 2
        assert "step 49" in text_of(pilot.app)
        assert "step 48" not in text_of(pilot.app)
        assert panel.rows.drawn - drawn <= seen * looked

        drawn = panel.rows.drawn
        for agent in ("agent-003", "agent-099"):
            scene.runs(agent, "Bash", "alone")
        panel.look()
        await until(pilot, lambda: panel.at_rest)
        assert "alone" in text_of(pilot.app)
        assert panel.rows.drawn - drawn == 1, "the other one is out of sight"


async def test_ages_go_on_without_events_and_only_where_they_read_differently(helm: DeadHelm) -> None:
    scene = fleet(30)
    await scene.passes(300)
    scene.runs("agent-002", "Bash", "make")
    panel = AgentsPanel(scene.picture, helm, clock=scene.clock)
    async with PanelsApp(panel).run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        drawn = panel.rows.drawn
        panel.tick()
        await pilot.pause()
        assert panel.rows.drawn == drawn
        await scene.passes(1)
        panel.tick()
        await pilot.pause()
        assert panel.rows.drawn == drawn + 1
        line = next(each for each in text_of(pilot.app).splitlines() if "agent-002" in each)
        assert " 1s " in line


async def test_a_hidden_panel_draws_nothing_and_is_right_when_it_is_shown(helm: DeadHelm) -> None:
    scene = fleet(3)
    panel = AgentsPanel(scene.picture, helm, clock=scene.clock)
    async with PanelsApp(panel).run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        panel.display = False
        await pilot.pause()
        looks = panel.looks
        scene.runs("agent-001", "Bash", "unseen")
        panel.look()
        await pilot.pause()
        assert panel.looks == looks
        panel.display = True
        await until(pilot, lambda: "unseen" in text_of(pilot.app))


@pytest.mark.parametrize("kind", [AgentsPanel, BoardPanel, MailPanel, QuestionsPanel])
async def test_a_panel_of_a_run_without_anything_is_empty_and_takes_keys(
    kind: type[Panel], helm: DeadHelm
) -> None:
    panel = kind(Picture(), helm)
    async with PanelsApp(panel).run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: panel.at_rest)
        await pilot.press("down", "enter")
        assert len(pilot.app.screen_stack) == 1


@pytest.mark.spec("USR-11")
async def test_what_agents_say_is_only_shown(helm: DeadHelm) -> None:
    scene = Scene()
    scene.turn(prompt=HOSTILE)
    scene.starts("a", HOSTILE, color=HOSTILE)
    scene.starts(HOSTILE, HOSTILE, color="#zzzzzz", model=HOSTILE, kind=HOSTILE)
    scene.runs("a", HOSTILE, HOSTILE)
    scene.ends(HOSTILE, "failed", HOSTILE)
    panel = AgentsPanel(scene.picture, helm, clock=scene.clock)
    app = PanelsApp(panel)
    async with app.run_test(size=(160, 24)) as pilot:
        await pilot.press("down", "x")
        await pilot.pause()
        assert "[bold]x[/ [red]red gone[/red] 2J" in text_of(app)
        await pilot.press("escape", "down", "enter", "down", "down", "k")
        await pilot.pause()
        shown = text_of(app)
    assert "[bold]x[/ [red]red gone[/red]" in shown
    assert not set(shown) & set("\x1b\x07\x9b\u202e\r")


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        (["down", "escape"], "No live run answers: interrupt."),
        (["down", "b"], "No live run answers: background."),
        (["down", "k", "y"], "No live run answers: stop_task."),
        (["down", "x", "y"], "No live run answers: shut_down."),
        (["down", "x", "n"], ""),
        (["down", "k", "n"], ""),
        (["x"], "The lead ends with its run. Esc interrupts its turn."),
        (["b"], "Nobody waits for the lead: choose one of its agents."),
        (["down", "a"], "ada asks nothing."),
        (["e", "end", "k"], "older has ended. Enter shows what it did; what you type there resumes it."),
    ],
)
async def test_what_cannot_be_done_is_told_in_a_line(keys: list[str], told: str, helm: DeadHelm) -> None:
    scene = await parser_scene()
    app = PanelsApp(AgentsPanel(scene.picture, helm, clock=scene.clock))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press(*keys)
        await pilot.pause()
        await app.workers.wait_for_complete()
        words: list[Any] = app.words
    assert words[-1:] == ([told] if told else [])
