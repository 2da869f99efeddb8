"""The board as a panel: columns or a list, what waits for what, and a person's changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from parser_scene import parser_scene

import shoal
from cast import Gate, all_turns, use
from shoal.app.teams.record import AgentsRecord
from shoal.core.clock import SystemClock
from shoal.core.ids import Ids
from shoal.core.names import TaskId
from shoal.core.tasks import Task, claimable
from shoal.surfaces.tui.panels.board import BoardPanel
from troupe import home, inbox, last_words, member, opened, troupe
from tui_scene import DeadHelm, PanelsApp, Scene, shown_live, until
from tui_shots import assert_looks, text_of

CREATE = use("TeamCreate", team_name="crew")
HOSTILE = "[bold]x[/ \x1b[31mred\x07[/red]"


@pytest.mark.spec("USR-18")
@pytest.mark.parametrize("size", [(80, 24), (120, 40), (44, 20)], ids=["80x24", "120x40", "44x20"])
async def test_the_board_is_columns_or_a_list_as_there_is_room(
    size: tuple[int, int], helm: DeadHelm, snapshots: Path
) -> None:
    scene = await parser_scene()
    panel = BoardPanel(scene.picture, helm, clock=scene.clock)
    async with PanelsApp(panel).run_test(size=size) as pilot:
        await pilot.press("down")
        await pilot.pause()
        assert_looks(pilot.app, snapshots / f"board-{size[0]}x{size[1]}.svg")


async def test_the_cursor_goes_through_columns_and_stays_when_the_terminal_gets_narrow(
    helm: DeadHelm,
) -> None:
    scene = await parser_scene()
    panel = BoardPanel(scene.picture, helm, clock=scene.clock)
    async with PanelsApp(panel).run_test(size=(120, 40)) as pilot:
        await pilot.press("right", "down")
        assert panel.current is not None
        assert panel.current.id == "3"
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: panel.query_one("#board-list").has_focus)
        assert panel.current.id == "3"
        assert panel.rows.has_focus
        await pilot.press("down")
        assert panel.current.id == "1"


async def test_what_waits_is_told_anew_when_its_blocker_is_done_and_deleted_tasks_go(helm: DeadHelm) -> None:
    scene = await parser_scene()
    panel = BoardPanel(scene.picture, helm, clock=scene.clock)
    async with PanelsApp(panel).run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        assert "waits for #2, #3" in text_of(pilot.app)
        drawn = sum(each.drawn for each in panel._lists())
        scene.task("3", "Test comments in all the odd places", "completed", owner="bob")
        scene.task("6", "Measure", "deleted")
        panel.look()
        await until(pilot, lambda: "eve · waits for #2  " in text_of(pilot.app))
        assert "Measure" not in text_of(pilot.app)
        # The task that is done now, and the one that waited for it.
        assert sum(each.drawn for each in panel._lists()) - drawn == 2


async def test_keys_act_where_tasks_are_when_a_column_empties(helm: DeadHelm) -> None:
    scene = Scene()
    scene.task("1", "Paint it")
    panel = BoardPanel(scene.picture, helm, clock=scene.clock)
    async with PanelsApp(panel).run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: panel.current is not None)
        scene.task("1", "Paint it", "in_progress", owner="ada")
        panel.look()
        await until(pilot, lambda: panel.query_one("#rows-in_progress").has_focus)
        assert panel.current is not None
        assert panel.current.owner == "ada"


@pytest.mark.spec("USR-11")
async def test_what_tasks_say_is_only_shown(helm: DeadHelm) -> None:
    scene = Scene()
    scene.task("1", HOSTILE, owner=HOSTILE, board="crew")
    panel = BoardPanel(scene.picture, helm, clock=scene.clock)
    async with PanelsApp(panel).run_test(size=(120, 40)) as pilot:
        await pilot.press("enter")
        await until(pilot, lambda: "What became of it" in text_of(pilot.app))
        shown = text_of(pilot.app)
        await pilot.press("escape", "a")
        await pilot.pause()
        shown += text_of(pilot.app)
    assert shown.count("[bold]x[/ red[/red]") >= 5
    assert not set(shown) & set("\x1b\x07")


@asynccontextmanager
async def crew_with_tasks(tmp_path: Path, *subjects: str) -> AsyncIterator[shoal.Session]:
    """A team whose member is held up, so that it claims nothing."""
    gate, numbered = Gate(), list(enumerate(subjects))
    made = [use("TaskCreate", f"t{n}", subject=each, description=f"All of {each}.") for n, each in numbered]
    model = troupe(
        lead=[CREATE, member("ann"), use("Until"), made, "wait", last_words], ann=[use("Gate"), "I wait."]
    )
    async with (
        opened(tmp_path, model, tools=[gate.tool, gate.until]) as session,
        asyncio.TaskGroup() as group,
    ):
        turn = group.create_task(all_turns(session))
        yield session
        turn.cancel()


async def tasks_on(name: str, where: Path) -> dict[TaskId, Task]:
    record = AgentsRecord(where, clock=SystemClock(), ids=Ids())
    try:
        return {task.id: task for task in await record.board(name).list()}
    finally:
        await record.aclose()


@pytest.mark.spec("USR-18")
async def test_a_new_task_is_put_on_the_board_with_what_it_waits_for_and_shown(tmp_path: Path) -> None:
    async with (
        crew_with_tasks(tmp_path, "paint") as session,
        shown_live(session, BoardPanel) as (_panel, pilot),
    ):
        await until(pilot, lambda: "#1 paint" in text_of(pilot.app))
        await pilot.press("n", "ctrl+s")
        await until(pilot, lambda: "Say in a few words" in text_of(pilot.app))
        await pilot.press(*"dry", "tab", *"slowly", "tab", "x", "enter")
        await until(pilot, lambda: "named by their numbers" in text_of(pilot.app))
        await pilot.press("backspace", "#", "1", "enter")
        await until(pilot, lambda: "#2 dry" in text_of(pilot.app))
        assert "waits for #1" in text_of(pilot.app)
        assert "Task #2 is on the board." in pilot.app.words
        await pilot.press("n", *"more", "tab", "tab", "9", "enter")
        await until(pilot, lambda: any("There is no task 9" in each for each in pilot.app.words))
        await pilot.press("down", "enter")
        await until(pilot, lambda: "What became of it" in text_of(pilot.app))
        assert "slowly" in text_of(pilot.app)
        assert len(await tasks_on("crew", home())) == 2


@pytest.mark.spec("TSK-08")
async def test_a_task_is_assigned_and_its_new_owner_is_told(tmp_path: Path) -> None:
    async with (
        crew_with_tasks(tmp_path, "paint") as session,
        shown_live(session, BoardPanel) as (_panel, pilot),
    ):
        await until(pilot, lambda: "#1 paint" in text_of(pilot.app))
        await pilot.press("a")
        await until(pilot, lambda: "Who does #1 paint?" in text_of(pilot.app))
        await pilot.press(*"ann", "enter")
        await until(pilot, lambda: "Task #1 is ann's now." in pilot.app.words)
        await until(pilot, lambda: "   ann" in text_of(pilot.app))
        assert any("task_assignment" in each["text"] for each in inbox("crew", "ann"))


@pytest.mark.spec("TSK-04")
async def test_a_person_puts_a_task_before_others_and_it_is_claimed_first(tmp_path: Path) -> None:
    subjects = ("one", "two", "three")
    panel: BoardPanel
    async with (
        crew_with_tasks(tmp_path, *subjects) as session,
        shown_live(session, BoardPanel) as (panel, pilot),
    ):
        await until(pilot, lambda: len(panel._tasks) == 3)
        await pilot.press("end", "shift+up", "plus")

        def order() -> list[str]:
            return [entry.key[1] for entry in panel.query_one("#rows-pending").entries]

        assert order() == ["3", "1", "2"]
        assert panel.current.id == "3"
        await until(pilot, lambda: not panel._ranks)
        assert order() == ["3", "1", "2"]
        await pilot.press("minus")
        await until(pilot, lambda: not panel._ranks)
        assert order() == ["1", "3", "2"]
        tasks = await tasks_on("crew", home())
        assert [task.id for task in claimable(tasks)] == ["1", "3", "2"]


async def test_a_board_of_a_run_that_ended_is_changed_and_that_it_shows_later_is_told(helm: DeadHelm) -> None:
    scene = Scene()
    panel = BoardPanel(scene.picture, helm, clock=scene.clock)
    app = PanelsApp(panel)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("n", *"later", "enter")
        await until(pilot, lambda: app.words)
        assert app.words[-1].startswith("Task #1 is on the board. The run has ended")
        await pilot.press("plus", "a", "enter", "escape")
    made = (await tasks_on("s-1", helm.run.home))[TaskId("1")]
    assert (made.subject, made.owner) == ("later", None)


async def test_only_what_is_pending_has_a_place(helm: DeadHelm) -> None:
    scene = await parser_scene()
    app = PanelsApp(BoardPanel(scene.picture, helm, clock=scene.clock))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("right", "plus")
        await pilot.pause()
        assert "Only what is pending" in app.words[-1]
        await pilot.press("left", "home", "plus")
        await pilot.pause()
        assert len(app.words) == 1, "the first cannot come earlier"
        await pilot.press("down", "plus")
        await until(pilot, lambda: len(app.words) == 2)
        assert "no task 5" in app.words[-1].lower()
