"""Workflows as people see them: rows of the run view, the panel of agents, `watch`, `cost` and the replay."""

from __future__ import annotations

from pathlib import Path

import pytest

import shoal
from run_view_scenario import EndedRunController, PanelsApp, RunViewScenario, wait_until
from shoal.app.run_view.run_view import RunView, build_run_view
from shoal.core.events import (
    SessionEnded,
    WorkflowEnded,
    WorkflowPhaseStarted,
    WorkflowStarted,
    WorkflowStepFinished,
    WorkflowStepStarted,
)
from shoal.core.ids import LEAD_ID, AgentId
from shoal.surfaces.tui.conversation_timeline import ConversationTimelineState, TimelineRemarkItem
from shoal.surfaces.tui.panels.agents_panel import AgentsPanel
from tui_snapshots import render_text

editor = shoal.Agent("editor", prompt="You edit.", tools=[])


@shoal.workflow
async def migrate(flow: shoal.Workflow, files: list[str]) -> int:
    flow.phase("edit")
    edits = await flow.map(editor, files)
    flow.phase("verify")
    await flow.agent(editor, "verify")
    return len(edits)


@pytest.mark.spec("WFL-10")
async def test_a_run_view_has_the_phases_of_a_workflow_and_the_agents_of_each(tmp_path: Path) -> None:
    live = RunView()
    async with shoal.open(cwd=tmp_path, model=shoal.ScriptedModel(lambda request: "done")) as session:
        session.subscribe(lambda event: live.apply_event(event, session.clock.now()))
        await migrate.run(session, ["a", "b"])
        replayed = build_run_view(session.journal.read_records())
    for view in (live, replayed):
        (row,) = view.workflows.rows.values()
        assert (row.name, row.status, row.steps, row.finished) == ("migrate", "completed", 3, 3)
        assert [(each.name, each.agents, each.finished) for each in row.phases] == [
            ("edit", 2, 2),
            ("verify", 1, 1),
        ]
        agents = [each for each in view.iter_agent_rows() if each.id != LEAD_ID]
        assert sorted(each.phase for each in agents) == ["edit", "edit", "verify"]
        assert {each.workflow for each in agents} == {row.id}
        assert {each.phase for each in view.costs.rows.values()} == {"migrate: edit", "migrate: verify"}
        delta = view.get_delta_since(0)
        assert [each.id for each in delta.workflows] == [row.id]


def start_workflow(scenario: RunViewScenario) -> None:
    scenario.apply_event(WorkflowStarted(agent=LEAD_ID, workflow="migrate-1", name="migrate", arguments={}))
    scenario.apply_event(WorkflowPhaseStarted(agent=LEAD_ID, workflow="migrate-1", phase="edit"))


def start_step(scenario: RunViewScenario, number: int, agent: str, phase: str) -> None:
    scenario.apply_event(
        WorkflowStepStarted(
            agent=LEAD_ID,
            workflow="migrate-1",
            step=number,
            path=f"{phase}/agent editor",
            phase=phase,
            digest="",
            child=AgentId(agent),
        )
    )
    scenario.start_agent(agent, f"work of {agent}")


@pytest.mark.spec("WFL-10")
async def test_the_agents_panel_groups_agents_by_phase(tmp_path: Path) -> None:
    scenario = RunViewScenario()
    scenario.start_agent("helper", "another job")
    start_workflow(scenario)
    for number in range(3):
        start_step(scenario, number, f"editor-{number}", "edit")
    scenario.end_agent("editor-0")
    scenario.apply_event(WorkflowStepFinished(agent=LEAD_ID, workflow="migrate-1", step=0, value=1))
    panel = AgentsPanel(scenario.run_view, EndedRunController(tmp_path), clock=scenario.clock)
    async with PanelsApp(panel).run_test(size=(100, 24)) as pilot:
        await pilot.pause()
        lines = render_text(pilot.app).splitlines()
        start_step(scenario, 4, "checker", "verify")
        panel.request_refresh()
        await wait_until(pilot, lambda: panel.is_up_to_date)
        later = render_text(pilot.app)
    header = next(index for index, line in enumerate(lines) if "workflow migrate · edit" in line)
    assert "1/3 agents done" in lines[header]
    assert any("helper" in line for line in lines[:header])
    assert "editor-1" in lines[header + 1]
    assert "editor-2" in lines[header + 2]
    assert "workflow migrate · verify" in later


@pytest.mark.spec("WFL-10")
def test_the_end_of_a_process_interrupts_its_workflows() -> None:
    scenario = RunViewScenario()
    start_workflow(scenario)
    scenario.apply_event(SessionEnded(agent=LEAD_ID))
    assert scenario.run_view.workflows.rows.get_row("migrate-1").status == "interrupted"
    scenario.apply_event(
        WorkflowStarted(agent=LEAD_ID, workflow="migrate-1", name="migrate", arguments={}, resumed=True)
    )
    assert scenario.run_view.workflows.rows.get_row("migrate-1").status == "running"
    scenario.apply_event(WorkflowEnded(agent=LEAD_ID, workflow="migrate-1", status="failed", detail="why"))
    row = scenario.run_view.workflows.rows.get_row("migrate-1")
    assert (row.status, row.detail) == ("failed", "why")


@shoal.workflow
async def publish(flow: shoal.Workflow) -> str:
    await flow.sleep(0.001)
    return (await flow.shell("echo published; echo twice")).text


@pytest.mark.spec("WFL-10")
async def test_the_conversation_shows_the_commands_and_waits_of_a_workflow(tmp_path: Path) -> None:
    timeline = ConversationTimelineState()
    model = shoal.ScriptedModel(lambda request: "done")
    async with shoal.open(cwd=tmp_path, model=model, mode="bypassPermissions") as session:
        session.subscribe(timeline.apply_event)
        await publish.run(session)
    remarks = [item for item in timeline.items if isinstance(item, TimelineRemarkItem)]
    assert remarks == timeline.items
    lines = ["".join(text for text, _ in remark.pieces) for remark in remarks]
    name = lines[0].removesuffix(" started")
    assert lines[1:] == [
        f"{name}: waits 0.001 s",
        f"{name}: runs echo published; echo twice",
        f"{name} completed",
    ]
