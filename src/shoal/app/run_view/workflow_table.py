"""Workflows of a run: their phases, and the agents that work in each."""

from __future__ import annotations

from msgspec.structs import replace

from shoal.app.run_view.change_table import ChangeTrackingRowMap
from shoal.app.run_view.view_rows import RunViewPhase, RunViewWorkflowRow
from shoal.core.events import (
    Event,
    WorkflowEnded,
    WorkflowPhaseStarted,
    WorkflowStarted,
    WorkflowStepFinished,
    WorkflowStepStarted,
)
from shoal.core.ids import AgentId


class RunViewWorkflowsState:
    """Rows of the workflows, and the phase of each of their agents."""

    def __init__(self) -> None:
        self.rows: ChangeTrackingRowMap[str, RunViewWorkflowRow] = ChangeTrackingRowMap()
        self._phase_of_agent: dict[AgentId, tuple[str, str]] = {}
        self._open_steps: dict[tuple[str, int], tuple[str, bool]] = {}
        """Phase of each open step, and True if an agent runs it."""

    def get_agent_phase(self, agent: AgentId) -> tuple[str, str]:
        """Return the workflow and the phase of an agent; empty texts if no workflow started it."""
        return self._phase_of_agent.get(agent, ("", ""))

    def apply_event(self, event: Event, at: int, offset: int) -> None:
        match event:
            case WorkflowStarted(workflow=workflow, name=name, resumed=resumed):
                known = self._find(workflow)
                row = (
                    replace(known, status="running", detail="")
                    if known is not None and resumed
                    else RunViewWorkflowRow(id=workflow, name=name, began=at)
                )
                self.rows.put(workflow, row, offset)
            case WorkflowPhaseStarted(workflow=workflow, phase=phase):
                if (known := self._find(workflow)) is not None:
                    phases = known.phases
                    if all(each.name != phase for each in phases):
                        phases = (*phases, RunViewPhase(name=phase))
                    self.rows.put(workflow, replace(known, phase=phase, phases=phases), offset)
            case WorkflowStepStarted(workflow=workflow, step=step, phase=phase, child=child):
                self._start_step(workflow, step, phase, child, offset)
            case WorkflowStepFinished(workflow=workflow, step=step, error=""):
                self._finish_step(workflow, step, offset)
            case WorkflowEnded(workflow=workflow, status=status, detail=detail):
                if (known := self._find(workflow)) is not None:
                    self.rows.put(workflow, replace(known, status=status, detail=detail, ended=at), offset)
            case _:
                pass

    def mark_lost(self, offset: int) -> None:
        """Mark the running workflows as interrupted: no process works on the run."""
        for row in tuple(self.rows.values()):
            if row.status == "running":
                self.rows.put(row.id, replace(row, status="interrupted"), offset)

    def _find(self, workflow: str) -> RunViewWorkflowRow | None:
        return self.rows.get_row(workflow) if workflow in self.rows else None

    def _start_step(self, workflow: str, step: int, phase: str, child: AgentId | None, offset: int) -> None:
        row = self._find(workflow)
        if row is None:
            return
        is_new = (workflow, step) not in self._open_steps
        self._open_steps[workflow, step] = (phase, child is not None)
        if child is not None:
            self._phase_of_agent[child] = (workflow, phase)
        if is_new:
            row = _count(replace(row, steps=row.steps + 1), phase, agents=int(child is not None))
            self.rows.put(workflow, row, offset)

    def _finish_step(self, workflow: str, step: int, offset: int) -> None:
        row = self._find(workflow)
        phase, has_agent = self._open_steps.pop((workflow, step), ("", False))
        if row is not None:
            row = _count(replace(row, finished=row.finished + 1), phase, finished=int(has_agent))
            self.rows.put(workflow, row, offset)


def _count(row: RunViewWorkflowRow, phase: str, *, agents: int = 0, finished: int = 0) -> RunViewWorkflowRow:
    """Add to the agents of a phase; steps before the first phase have an empty one."""
    if not agents and not finished:
        return row
    phases = (
        row.phases
        if any(each.name == phase for each in row.phases)
        else (
            *row.phases,
            RunViewPhase(name=phase),
        )
    )
    return replace(
        row,
        phases=tuple(
            RunViewPhase(name=each.name, agents=each.agents + agents, finished=each.finished + finished)
            if each.name == phase
            else each
            for each in phases
        ),
    )
