"""The board as a panel: columns or a list, what waits for what, and a person's changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from parser_scenario import build_parser_scenario

import shoal
from agent_scripts import ToolGate, call_tool, run_all_turns
from run_view_scenario import EndedRunController, PanelsApp, RunViewScenario, show_live_panel, wait_until
from shoal.app.teams.team_store import TeamStore
from shoal.core.clock import SystemClock
from shoal.core.ids import IdGenerator
from shoal.core.names import TaskId
from shoal.core.teams.tasks import Task, find_claimable_tasks
from shoal.surfaces.tui.panels.board_panel import BoardPanel
from team_scripts import get_home, get_last_text, open_session, read_inbox, script_team, spawn_member
from tui_snapshots import assert_matches_snapshot, render_text

CREATE = call_tool("TeamCreate", team_name="crew")
HOSTILE = "[bold]x[/ \x1b[31mred\x07[/red]"


@pytest.mark.spec("USR-18")
@pytest.mark.parametrize("size", [(80, 24), (120, 40), (44, 20)], ids=["80x24", "120x40", "44x20"])
async def test_the_board_is_columns_or_a_list_depending_on_width(
    size: tuple[int, int], controller: EndedRunController, snapshots: Path
) -> None:
    scenario = await build_parser_scenario()
    panel = BoardPanel(scenario.run_view, controller, clock=scenario.clock)
    async with PanelsApp(panel).run_test(size=size) as pilot:
        await pilot.press("down")
        await pilot.pause()
        assert_matches_snapshot(pilot.app, snapshots / f"board-{size[0]}x{size[1]}.svg")


async def test_the_cursor_moves_between_columns_and_survives_a_resize(
    controller: EndedRunController,
) -> None:
    scenario = await build_parser_scenario()
    panel = BoardPanel(scenario.run_view, controller, clock=scenario.clock)
    async with PanelsApp(panel).run_test(size=(120, 40)) as pilot:
        await pilot.press("right", "down")
        assert panel.current_task is not None
        assert panel.current_task.id == "3"
        await pilot.resize_terminal(80, 24)
        await wait_until(pilot, lambda: panel.query_one("#board-list").has_focus)
        assert panel.current_task.id == "3"
        assert panel.rows.has_focus
        await pilot.press("down")
        assert panel.current_task.id == "1"


async def test_blocked_tasks_are_updated_and_deleted_tasks_removed(
    controller: EndedRunController,
) -> None:
    scenario = await build_parser_scenario()
    panel = BoardPanel(scenario.run_view, controller, clock=scenario.clock)
    async with PanelsApp(panel).run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        assert "waiting for #2, #3" in render_text(pilot.app)
        drawn = sum(each.draw_count for each in panel._get_column_lists())
        scenario.change_task("3", "Test comments in all the odd places", "completed", owner="bob")
        scenario.change_task("6", "Measure", "deleted")
        panel.request_refresh()
        await wait_until(pilot, lambda: "eve · waiting for #2  " in render_text(pilot.app))
        assert "Measure" not in render_text(pilot.app)
        # The task that is done now, and the one that waited for it.
        assert sum(each.draw_count for each in panel._get_column_lists()) - drawn == 2


async def test_keys_work_after_a_column_becomes_empty(controller: EndedRunController) -> None:
    scenario = RunViewScenario()
    scenario.change_task("1", "Paint it")
    panel = BoardPanel(scenario.run_view, controller, clock=scenario.clock)
    async with PanelsApp(panel).run_test(size=(120, 40)) as pilot:
        await wait_until(pilot, lambda: panel.current_task is not None)
        scenario.change_task("1", "Paint it", "in_progress", owner="ada")
        panel.request_refresh()
        await wait_until(pilot, lambda: panel.query_one("#rows-in_progress").has_focus)
        assert panel.current_task is not None
        assert panel.current_task.owner == "ada"


@pytest.mark.spec("USR-11")
async def test_markup_and_codes_in_tasks_are_shown_literally(controller: EndedRunController) -> None:
    scenario = RunViewScenario()
    scenario.change_task("1", HOSTILE, owner=HOSTILE, board="crew")
    panel = BoardPanel(scenario.run_view, controller, clock=scenario.clock)
    async with PanelsApp(panel).run_test(size=(120, 40)) as pilot:
        await pilot.press("enter")
        await wait_until(pilot, lambda: "Outcome" in render_text(pilot.app))
        shown = render_text(pilot.app)
        await pilot.press("escape", "a")
        await pilot.pause()
        shown += render_text(pilot.app)
    assert shown.count("[bold]x[/ red[/red]") >= 5
    assert not set(shown) & set("\x1b\x07")


@asynccontextmanager
async def run_team_with_tasks(tmp_path: Path, *subjects: str) -> AsyncIterator[shoal.Session]:
    """A team whose member is held up, so that it claims nothing."""
    gate, numbered = ToolGate(), list(enumerate(subjects))
    made = [
        call_tool("TaskCreate", f"t{n}", subject=each, description=f"All of {each}.") for n, each in numbered
    ]
    model = script_team(
        lead=[CREATE, spawn_member("ann"), call_tool("Until"), made, "wait", get_last_text],
        ann=[call_tool("Gate"), "I wait."],
    )
    async with (
        open_session(tmp_path, model, tools=[gate.tool, gate.wait_tool]) as session,
        asyncio.TaskGroup() as group,
    ):
        turn = group.create_task(run_all_turns(session))
        yield session
        turn.cancel()


async def list_tasks(name: str, home: Path) -> dict[TaskId, Task]:
    store = TeamStore(home, clock=SystemClock(), ids=IdGenerator())
    try:
        return {task.id: task for task in await store.open_board(name).list_tasks()}
    finally:
        await store.aclose()


@pytest.mark.slow
@pytest.mark.spec("USR-18")
async def test_a_new_task_is_added_with_its_blockers_and_shown(tmp_path: Path) -> None:
    async with (
        run_team_with_tasks(tmp_path, "paint") as session,
        show_live_panel(session, BoardPanel) as (_panel, pilot),
    ):
        await wait_until(pilot, lambda: "#1 paint" in render_text(pilot.app))
        await pilot.press("n", "ctrl+s")
        await wait_until(pilot, lambda: "Describe the task in a few words" in render_text(pilot.app))
        assert "tab next · ⏎ or ctrl+s add to the board · esc cancel" in render_text(pilot.app)
        await pilot.press(*"dry", "tab", *"slowly", "tab", "x", "enter")
        await wait_until(pilot, lambda: "Enter task numbers" in render_text(pilot.app))
        await pilot.press("backspace", "#", "1", "enter")
        await wait_until(pilot, lambda: "#2 dry" in render_text(pilot.app))
        assert "waiting for #1" in render_text(pilot.app)
        assert "Added task #2 to the board." in pilot.app.notices
        await pilot.press("n", *"more", "tab", "tab", "9", "enter")
        await wait_until(pilot, lambda: any("there is no task 9" in each for each in pilot.app.notices))
        await pilot.press("down", "enter")
        await wait_until(pilot, lambda: "Outcome" in render_text(pilot.app))
        assert "slowly" in render_text(pilot.app)
        assert len(await list_tasks("crew", get_home())) == 2


@pytest.mark.spec("TSK-08")
async def test_assigning_a_task_notifies_its_new_owner(tmp_path: Path) -> None:
    async with (
        run_team_with_tasks(tmp_path, "paint") as session,
        show_live_panel(session, BoardPanel) as (_panel, pilot),
    ):
        await wait_until(pilot, lambda: "#1 paint" in render_text(pilot.app))
        await pilot.press("a")
        await wait_until(pilot, lambda: "Who should work on #1 paint?" in render_text(pilot.app))
        await pilot.press(*"ann", "enter")
        await wait_until(pilot, lambda: "Assigned task #1 to ann." in pilot.app.notices)
        await wait_until(pilot, lambda: "   ann" in render_text(pilot.app))
        assert any("task_assignment" in each["text"] for each in read_inbox("crew", "ann"))


@pytest.mark.spec("TSK-04")
async def test_a_task_moved_to_the_front_is_claimed_first(tmp_path: Path) -> None:
    subjects = ("one", "two", "three")
    panel: BoardPanel
    async with (
        run_team_with_tasks(tmp_path, *subjects) as session,
        show_live_panel(session, BoardPanel) as (panel, pilot),
    ):
        await wait_until(pilot, lambda: len(panel._tasks) == 3)
        await pilot.press("end", "shift+up", "plus")

        def order() -> list[str]:
            return [entry.key[1] for entry in panel.query_one("#rows-pending").entries]

        assert order() == ["3", "1", "2"]
        assert panel.current_task.id == "3"
        await wait_until(pilot, lambda: not panel._ranks)
        assert order() == ["3", "1", "2"]
        await pilot.press("minus")
        await wait_until(pilot, lambda: not panel._ranks)
        assert order() == ["1", "3", "2"]
        tasks = await list_tasks("crew", get_home())
        assert [task.id for task in find_claimable_tasks(tasks)] == ["1", "3", "2"]


async def test_a_board_of_an_ended_run_can_be_changed_with_a_notice(
    controller: EndedRunController,
) -> None:
    scenario = RunViewScenario()
    panel = BoardPanel(scenario.run_view, controller, clock=scenario.clock)
    app = PanelsApp(panel)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("n", *"later", "enter")
        await wait_until(pilot, lambda: app.notices)
        assert app.notices[-1].startswith("Added task #1 to the board. The run has ended")
        await pilot.press("plus", "a", "enter", "escape")
    made = (await list_tasks("s-1", controller.run.home))[TaskId("1")]
    assert (made.subject, made.owner) == ("later", None)


async def test_only_pending_tasks_can_be_reordered(controller: EndedRunController) -> None:
    scenario = await build_parser_scenario()
    app = PanelsApp(BoardPanel(scenario.run_view, controller, clock=scenario.clock))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("right", "plus")
        await pilot.pause()
        assert "You can reorder only pending tasks" in app.notices[-1]
        await pilot.press("left", "home", "plus")
        await pilot.pause()
        assert len(app.notices) == 1, "the first cannot come earlier"
        await pilot.press("down", "plus")
        await wait_until(pilot, lambda: len(app.notices) == 2)
        assert "no task 5" in app.notices[-1].lower()
