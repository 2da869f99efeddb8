"""Steps of a workflow as the journal recorded them, for a run that continues after a crash."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import replace

from shoal.app.model_notices import format_session_notice
from shoal.app.workflows.step_input import RecordedInput
from shoal.core.agents.subagents import AgentResult
from shoal.core.errors import WorkflowError
from shoal.core.events import (
    EVENT_MODULES,
    AgentEnded,
    JournalRecord,
    WorkflowEnded,
    WorkflowPhaseStarted,
    WorkflowStarted,
    WorkflowStepFinished,
    WorkflowStepStarted,
    WorktreeWorkRetained,
)
from shoal.core.ids import AgentId


class StepRecord(Struct, kw_only=True):
    number: int
    path: str
    digest: str
    preview: str
    phase: str = ""
    child: AgentId | None = None
    until: int | None = None
    input: RecordedInput = {}
    is_finished: bool = False
    value: Any = None
    error: str = ""
    """Error that the program got instead of a result, and after which it continued."""


class DroppedSteps(Struct, frozen=True, kw_only=True):
    """State of a workflow before it was asked to run steps again."""

    started: WorkflowStarted
    ended: WorkflowEnded | None
    steps: dict[int, StepRecord]
    children: list[WorkflowRecord]


class WorkflowRecord(Struct, kw_only=True):
    """One workflow of a session."""

    started: WorkflowStarted
    steps: dict[int, StepRecord] = {}
    phases: list[str] = []
    ended: WorkflowEnded | None = None
    is_void: bool = False
    """True if the step that started it runs again on purpose."""
    latest_errors: dict[int, str] = {}
    """Errors of steps after which the program has started no other step yet."""
    dropped: DroppedSteps | None = None
    """State to restore if the program is refused before the first step runs again."""

    def select_steps(self, rerun_from: int | None) -> list[StepRecord]:
        """Return the steps before the first one that runs again. Raises `TypeError` and `WorkflowError`."""
        given: object = rerun_from
        if given is None:
            return list(self.steps.values())
        if isinstance(given, bool) or not isinstance(given, int):
            raise TypeError(f"rerun_from: expected the number of a step, got {given!r:.80}.")
        if given not in self.steps:
            known = f"1 to {max(self.steps)}" if self.steps else "none"
            raise WorkflowError(
                format_session_notice("unknown_step", workflow=self.started.workflow, step=given, known=known)
            )
        return [step for number, step in self.steps.items() if number < given]

    def note_step_started(self, number: int) -> None:
        """Accept the latest errors: the program caught them, so it expects them again if it is resumed."""
        for failed, error in self.latest_errors.items():
            self.steps[failed].is_finished, self.steps[failed].error = True, error
        self.latest_errors = {}
        if self.started.rerun_from is not None and number >= self.started.rerun_from:
            self.dropped = None

    def apply_end(self, event: WorkflowEnded) -> None:
        """Apply the end. A refused program changed nothing, so the steps that it was to repeat stay valid."""
        self.ended, dropped, self.dropped = event, self.dropped, None
        for number in event.raised:
            if number in self.steps:
                self.steps[number].is_finished, self.steps[number].error = False, ""
        if dropped is None or not event.refused:
            return
        self.started = dropped.started
        self.steps |= dropped.steps
        if dropped.ended is not None and dropped.ended.status == "completed":
            self.ended = dropped.ended
        for child in dropped.children:
            child.is_void = False


class WorkflowRecords:
    """All workflows of a session, and the ends of the agents that did their steps."""

    snapshot_name: ClassVar[str] = "workflows"
    snapshot_modules: ClassVar[tuple[str, ...]] = (__name__, "shoal.core.agents.worktrees", *EVENT_MODULES)

    def __init__(self) -> None:
        self.workflows: dict[str, WorkflowRecord] = {}
        self.completions: dict[AgentId, AgentResult] = {}

    def find(self, name: str, workflow: str | None = None) -> WorkflowRecord:
        """Return the workflow with this id, or the latest one with this name. Raises `WorkflowError`."""
        found = [each for each in self.workflows.values() if each.started.name == name]
        if workflow is not None:
            found = [each for each in found if each.started.workflow == workflow]
        if not found:
            known = ", ".join(f"{key} ({each.started.name})" for key, each in self.workflows.items())
            raise WorkflowError(
                format_session_notice("no_workflow", workflow=repr(workflow or name), names=known or "none")
            )
        return found[-1]

    def find_child(self, parent: str) -> WorkflowRecord | None:
        """Return the workflow that a step started, as `WORKFLOW:STEP`."""
        children = (each for each in self.workflows.values() if each.started.parent == parent)
        return next((each for each in children if not each.is_void), None)

    def apply_record(self, record: JournalRecord) -> None:
        event = record.event
        match event:
            case WorkflowStarted():
                self._apply_start(event)
            case WorkflowPhaseStarted(workflow=workflow, phase=phase) if workflow in self.workflows:
                if phase not in self.workflows[workflow].phases:
                    self.workflows[workflow].phases.append(phase)
            case WorkflowStepStarted(workflow=workflow, step=number) if workflow in self.workflows:
                self.workflows[workflow].note_step_started(number)
                self.workflows[workflow].steps[number] = StepRecord(
                    number=number,
                    path=event.path,
                    digest=event.digest,
                    preview=event.preview,
                    phase=event.phase,
                    child=event.child,
                    until=event.until,
                    input=event.input,
                )
            case WorkflowStepFinished(workflow=workflow, step=number):
                record_found = self.workflows.get(workflow)
                step = None if record_found is None else record_found.steps.get(number)
                if step is not None:
                    self._apply_outcome(self.workflows[workflow], step, event)
            case WorkflowEnded(workflow=workflow) if workflow in self.workflows:
                self.workflows[workflow].apply_end(event)
            case WorktreeWorkRetained(agent=agent, work=work) if agent in self.completions:
                # A process that died before it had settled the worktree recorded only the end.
                self.completions[agent] = replace(self.completions[agent], worktree=work)
            case AgentEnded(agent=agent, completion=completion) if self.workflows:
                self.completions[agent] = completion
            case _:
                pass

    def _apply_outcome(self, record: WorkflowRecord, step: StepRecord, event: WorkflowStepFinished) -> None:
        if event.error:
            record.latest_errors[step.number] = event.error
        else:
            step.is_finished, step.value = True, event.value

    def _apply_start(self, event: WorkflowStarted) -> None:
        record = self.workflows.get(event.workflow)
        if record is None or not event.resumed:
            self.workflows[event.workflow] = WorkflowRecord(started=event)
            return
        before, record.dropped = (record.started, record.ended), None
        record.latest_errors = {}  # these steps run again
        record.started, record.ended = event, None
        if event.rerun_from is not None:
            dropped = DroppedSteps(started=before[0], ended=before[1], steps={}, children=[])
            for number in [each for each in record.steps if each >= event.rerun_from]:
                dropped.steps[number] = record.steps.pop(number)
                if (child := self.find_child(f"{event.workflow}:{number}")) is not None:
                    child.is_void = True
                    dropped.children.append(child)
            record.dropped = dropped


class StepLog:
    """Recorded steps that the program has not asked for yet.

    A step is identified by its path and the digest of its input. Steps with the same identity are
    interchangeable, so they are taken in the order in which they started.
    """

    def __init__(
        self, steps: Iterable[StepRecord] = (), completions: Mapping[AgentId, AgentResult] | None = None
    ) -> None:
        """`completions` are the ends of agents: a step whose agent completed its work has a result."""
        self.completions = completions or {}
        self._steps = {step.number: step for step in sorted(steps, key=lambda each: each.number)}
        self._remaining: dict[tuple[str, str], deque[StepRecord]] = {}
        self._results = [step for step in self._steps.values() if self._has_result(step)]
        self._unclaimed = deque(self._results)
        self._claimed: set[int] = set()
        self._last_required: int | None = None
        """Last step whose result the program must ask for; None means all of them."""
        self.next_number = 1 + max(self._steps, default=0)
        self.taken = 0
        """Number of recorded steps that the program asked for."""
        for step in self._steps.values():
            self._remaining.setdefault((step.path, step.digest), deque()).append(step)

    def take(self, path: str, digest: str) -> StepRecord | None:
        """Return the next record of this step; None if the program never asked for it before."""
        waiting = self._remaining.get((path, digest))
        if not waiting:
            return None
        step = waiting.popleft()
        self._claimed.add(step.number)
        self.taken += 1
        return step

    def allocate_number(self) -> int:
        self.next_number += 1
        return self.next_number - 1

    def find_first_result(self) -> StepRecord | None:
        """Return the first step with a result that the program has not asked for."""
        while self._unclaimed and self._unclaimed[0].number in self._claimed:
            self._unclaimed.popleft()
        first = self._unclaimed[0] if self._unclaimed else None
        last = self._last_required
        return None if first is None or (last is not None and first.number > last) else first

    def has_failed(self, step: StepRecord) -> bool:
        """Return True if the agent of the step failed, so that the program got an error."""
        completion = None if step.child is None else self.completions.get(step.child)
        return completion is not None and completion.status == "failed"

    def release_results_after(self, number: int) -> bool:
        """Let the program ask for other steps after this one; return True if this matters.

        A step that failed before has a result now, so the program may take another way. Results of later
        steps are still used if the program asks for them.
        """
        if self._last_required is not None and self._last_required <= number:
            return False
        is_needed = self.has_result_before(None)
        self._last_required = number
        return is_needed

    def has_result_before(self, number: int | None) -> bool:
        """Return True if the program has not asked yet for all results before this step, or all results."""
        first = self.find_first_result()
        return first is not None and (number is None or first.number < number)

    def count_results_from(self, number: int) -> int:
        return sum(step.number >= number for step in self._results)

    def resolve_input(self, step: StepRecord) -> dict[str, str]:
        """Return the parts of a recorded input; texts that another step stored are looked up there."""
        parts: dict[str, str] = {}
        for name, text in step.input.items():
            owner = self._steps.get(text) if isinstance(text, int) else step
            found = None if owner is None else owner.input.get(name)
            parts[name] = found if isinstance(found, str) else "(not stored)"
        return parts

    def _has_result(self, step: StepRecord) -> bool:
        if step.is_finished:
            return True
        completion = None if step.child is None else self.completions.get(step.child)
        return completion is not None and completion.status == "completed"
