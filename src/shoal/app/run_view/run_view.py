"""View of a run after the events so far: agents, board, mail, questions and costs.

Every surface draws from this and from nothing else. It is the same for live events and for the journal of a
run that ended long ago, so a replay ends in the same state as the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from msgspec.structs import replace

from shoal.app.run_view.agent_status import AgentStatusRecord, RunViewAgentsState
from shoal.app.run_view.bounded_table import BoundedChangeTrackingRowMap
from shoal.app.run_view.change_table import ChangeTrackingRowMap
from shoal.app.run_view.cost_table import CostAttribution, RunViewCostsState
from shoal.app.run_view.mail_table import RunViewMailState
from shoal.app.run_view.task_table import RunViewTasksState
from shoal.app.run_view.view_rows import (
    RunViewAgentRow,
    RunViewNoteRow,
    RunViewQuestionRow,
    RunViewSummaryRow,
    RunViewTaskRow,
    ViewDelta,
)
from shoal.app.run_view.workflow_table import RunViewWorkflowsState
from shoal.core.events import (
    PREVIEW_LENGTH,
    AgentEnded,
    AgentMovedToBackground,
    AgentStarted,
    BudgetThresholdReached,
    Event,
    JournalRecord,
    MailPosted,
    MailTaken,
    ModelRequestFailed,
    ModelRequestSettled,
    NoteAdded,
    PermissionModeChanged,
    QuestionAnswered,
    QuestionAsked,
    RepetitionStopped,
    SessionEnded,
    SessionStarted,
    TaskChanged,
    TurnStarted,
    UnknownJournalEvent,
    WorkflowEnded,
    WorkflowPhaseStarted,
    WorkflowStarted,
    WorkflowStepFinished,
    WorkflowStepStarted,
)
from shoal.core.ids import LEAD_ID, LEAD_KIND, AgentId
from shoal.core.names import LEAD_NAME
from shoal.core.text.text_format import to_one_line

MAX_NOTES = MAX_QUESTIONS = 1_000
"""Maximum number held; the journal has all. Answered questions are evicted first."""


class RunView:
    snapshot_name: ClassVar[str] = "view"
    snapshot_modules: ClassVar[tuple[str, ...]] = (
        __name__,
        "shoal.app.run_view.bounded_table",
        "shoal.app.run_view.change_table",
        "shoal.app.run_view.cost_table",
        "shoal.app.run_view.mail_table",
        "shoal.app.run_view.task_table",
        "shoal.app.run_view.view_rows",
        "shoal.app.run_view.workflow_table",
        "shoal.core.teams.compact_id_set",
        *RunViewAgentsState.snapshot_modules,
    )

    def __init__(self) -> None:
        self.run = RunViewSummaryRow()
        self.statuses = RunViewAgentsState()
        self.tasks = RunViewTasksState()
        self.mail = RunViewMailState()
        self.questions: BoundedChangeTrackingRowMap[RunViewQuestionRow] = BoundedChangeTrackingRowMap(
            MAX_QUESTIONS
        )
        self.costs = RunViewCostsState()
        self.workflows = RunViewWorkflowsState()
        self.notes: ChangeTrackingRowMap[int, RunViewNoteRow] = ChangeTrackingRowMap()
        self.offset = 0
        """Offset of the next event."""
        self._agents: ChangeTrackingRowMap[AgentId, AgentStatusRecord] = ChangeTrackingRowMap()
        self._names: dict[str, AgentId] = {"lead": LEAD_ID, LEAD_NAME: LEAD_ID}
        self._job_agents: dict[AgentId, list[AgentStatusRecord]] = {}
        """Agents started for one job, by parent."""
        self._run_changed = 0
        self._note_count = 0
        self._unknown: set[str] = set()
        """Types of unreadable events; each is noted once."""
        self._at = 0

    def apply_record(self, recorded: JournalRecord) -> None:
        """Apply an event of the journal."""
        if isinstance(recorded.event, Event):
            # A run that was marked lost but continues has changed since.
            self._dispatch_event(recorded.event, recorded.at, max(recorded.offset, self.offset))
        else:
            self._note_unknown_event(recorded.event, recorded.at, max(recorded.offset, self.offset))
        self.offset = recorded.next

    def apply_event(self, event: Event, at: int) -> None:
        """Apply a live event, without a journal; offsets are then only numbers."""
        self._dispatch_event(event, at, self.offset)
        self.offset += 1

    def mark_run_lost(self) -> None:
        """Mark the run as lost: no process works on it."""
        self._mark_live_agents_changed(self.offset)
        self.statuses.mark_agents_lost()
        self._close_open_questions(self.offset)
        self.workflows.mark_lost(self.offset)
        self.offset += 1

    # Queries of the surfaces

    def iter_agent_rows(self) -> Iterator[RunViewAgentRow]:
        """Yield the agents, each after its parent."""
        return (self._make_agent_row(each) for each in self.statuses.iter_agents_in_tree_order())

    def find_agent_row(self, agent: AgentId) -> RunViewAgentRow | None:
        status = self.statuses.all.get(agent)
        return None if status is None else self._make_agent_row(status)

    def list_open_questions(self) -> list[RunViewQuestionRow]:
        """Return the open questions, the oldest first."""
        return [row for row in self.questions.values() if not row.answered]

    def get_delta_since(self, offset: int) -> ViewDelta:
        """Return the changes by events at or after the offset."""
        return ViewDelta(
            since=offset,
            offset=self.offset,
            at=self._at,
            run=self.run if self._run_changed >= offset else None,
            agents=tuple(
                self._make_agent_row(self._agents.get_row(key))
                for key in self._agents.list_keys_changed_since(offset)
            ),
            tasks=self.tasks.list_rows_changed_since(offset),
            letters=self.mail.list_rows_changed_since(offset),
            questions=_list_changed_rows(self.questions, offset),
            costs=_list_changed_rows(self.costs.rows, offset),
            spend=_list_changed_rows(self.costs.points, offset),
            notes=_list_changed_rows(self.notes, offset),
            workflows=_list_changed_rows(self.workflows.rows, offset),
            letters_in_all=self.mail.total,
            letters_unread=self.mail.unread,
            questions_in_all=self.questions.total,
        )

    # Events

    def _dispatch_event(self, event: Event, at: int, offset: int) -> None:
        self._at = max(self._at, at)
        match event:
            case TaskChanged():
                self._apply_task_change(event, at, offset)
            case MailPosted() | MailTaken():
                self.mail.apply_event(event, at, offset)
            case _:
                self._apply_agent_event(event, at, offset)
        self._update_run_row(event, at, offset)

    def _mark_live_agents_changed(self, offset: int) -> None:
        """Mark agents as changed if they count as gone when no process works on the run."""
        for status in self.statuses.all.values():
            if status.is_live:
                self._agents.mark_row_changed(status.agent, offset)

    def _close_open_questions(self, offset: int) -> None:
        """Close the questions of a lost run. The next process of the run may still journal an answer."""
        for row in self.list_open_questions():
            self.questions.put_row(row.id, replace(row, answered=self._at), offset, is_settled=True)

    def _apply_agent_event(self, event: Event, at: int, offset: int) -> None:
        if isinstance(event, SessionStarted | SessionEnded):
            self._mark_live_agents_changed(offset)
            self._close_open_questions(offset)
            self.workflows.mark_lost(offset)
        status = self.statuses.apply_event(event, at / 1000)
        if event.agent in self._agents:
            self._agents.mark_row_changed(event.agent, offset)
        else:
            self._agents.put(event.agent, status, offset)
        match event:
            case AgentStarted() | AgentMovedToBackground() | AgentEnded():
                self._register_agent_mark_parent_changed(event, status, offset)
            case QuestionAsked(question=question):
                name = self.get_agent_name(event.agent)
                row = RunViewQuestionRow(
                    id=question.id, agent=event.agent, name=name, asked=at, question=question
                )
                self.questions.put_row(question.id, row, offset, is_settled=False)
            case QuestionAnswered(question=question_id, answer=answer):
                asked_row = self.questions.get(question_id)
                if asked_row is not None and asked_row.answer is None:
                    row = replace(asked_row, answered=at, answer=answer)
                    self.questions.put_row(question_id, row, offset, is_settled=True)
            case ModelRequestSettled():
                self._add_request_cost(event, at, offset)
            case (
                WorkflowStarted()
                | WorkflowPhaseStarted()
                | WorkflowStepStarted()
                | WorkflowStepFinished()
                | WorkflowEnded()
            ):
                self.workflows.apply_event(event, at, offset)
            case _:
                self._add_note_for_event(event, at, offset)

    def _register_agent_mark_parent_changed(
        self,
        event: AgentStarted | AgentMovedToBackground | AgentEnded,
        status: AgentStatusRecord,
        offset: int,
    ) -> None:
        """Register a started agent. Mark its parent as changed: it may wait for other agents now."""
        parent = status.parent
        if isinstance(event, AgentStarted):
            self._names[status.display_name] = event.agent
            jobs = self._job_agents.setdefault(event.parent, [])
            if not event.team and status not in jobs:
                jobs.append(status)
        if parent is not None and parent in self._agents:
            self._agents.mark_row_changed(parent, offset)

    def _add_request_cost(self, event: ModelRequestSettled, at: int, offset: int) -> None:
        status, name = self.statuses.all[event.agent], self.get_agent_name(event.agent)
        task = self._find_current_task(status)
        attribution = CostAttribution(
            name=name, kind=self._get_agent_kind(status), phase=self._describe_phase(event.agent)
        )
        if task is not None:
            attribution = replace(attribution, board=task.board, task=task.id)
        self.costs.add_request_cost(event, attribution, at, offset)
        if task is not None:
            self.tasks.add_task_cost(task, event.cost_usd or 0.0, event.usage.total_tokens, offset)

    def _describe_phase(self, agent: AgentId) -> str:
        """Return the name of the workflow and the phase of an agent; empty if no workflow started it."""
        workflow, phase = self.workflows.get_agent_phase(agent)
        if not workflow:
            return ""
        name = self.workflows.rows.get_row(workflow).name
        return f"{name}: {phase}" if phase else name

    def _add_note_for_event(self, event: Event, at: int, offset: int) -> None:
        match event:
            case NoteAdded(text=text) if not self.statuses.is_repeated_note(event):
                self._add_note(event.agent, "note", text, at, offset)
            case BudgetThresholdReached(
                percent=percent, spent=spent, of=limit_value, limit=limit, whose=owner
            ):
                text = f"{percent}% of the limit is used: {spent:g} of {limit_value:g} {limit}"
                text += f" for {owner}." if owner else "."
                self._add_note(event.agent, "warning", text, at, offset)
            case RepetitionStopped(reason=reason):
                self._add_note(event.agent, "warning", f"Stopped: {reason}.", at, offset)
            case ModelRequestFailed(billed=True, reason=reason):
                text = f"The cost of a request is unknown: {reason}"
                self._add_note(event.agent, "unsettled", text, at, offset)
            case _:
                pass

    def _note_unknown_event(self, event: UnknownJournalEvent, at: int, offset: int) -> None:
        """Note the first event of each type that this version cannot read."""
        self._at = max(self._at, at)
        if event.type not in self._unknown:
            self._unknown.add(event.type)
            self._add_note(LEAD_ID, "unknown", describe_unknown_event(event), at, offset)

    def _add_note(self, agent: AgentId, kind: str, text: str, at: int, offset: int) -> None:
        self._note_count += 1
        row = RunViewNoteRow(number=self._note_count, at=at, agent=agent, text=text, kind=kind)
        self.notes.put(self._note_count, row, offset)
        if len(self.notes) > MAX_NOTES:
            self.notes.drop_row(self._note_count - MAX_NOTES)

    def _apply_task_change(self, event: TaskChanged, at: int, offset: int) -> None:
        affected = self.tasks.apply_task_change(event, at, offset)
        for name in affected:
            if (agent := self.find_agent_by_name(name)) is not None:
                self._agents.mark_row_changed(agent, offset)

    def _update_run_row(self, event: Event, at: int, offset: int) -> None:
        run = self.run
        match event:
            case SessionStarted():
                new = _start_run_row(run, event, at)
            case SessionEnded():
                new = replace(run, ended=True)
            case PermissionModeChanged(agent=agent, mode=mode) if agent == LEAD_ID:
                new = replace(run, mode=mode)
            case TurnStarted(agent=agent, turn=turn, prompt=prompt) if agent == LEAD_ID:
                new = replace(run, turns=turn, prompt=run.prompt or prompt)
            case AgentStarted(team=team) if team and team not in run.teams:
                new = replace(run, teams=(*run.teams, team))
            case _:
                self.run = replace(run, last=at)
                return
        self.run, self._run_changed = replace(new, last=at), offset

    # Names

    def get_agent_name(self, agent: AgentId) -> str:
        """Return the name by which the team or the user calls the agent."""
        return "lead" if agent == LEAD_ID else self.statuses.get_agent_name(agent)

    def find_agent_by_name(self, name: str) -> AgentId | None:
        """Return the last started agent with that name."""
        return self._names.get(name)

    def _get_agent_kind(self, status: AgentStatusRecord) -> str:
        return LEAD_KIND if status.start_event is None else status.start_event.kind

    def _make_agent_row(self, status: AgentStatusRecord) -> RunViewAgentRow:
        facts, name = status.start_event, self.get_agent_name(status.agent)
        workflow, phase = self.workflows.get_agent_phase(status.agent)
        current_task = self._find_current_task(status)
        return RunViewAgentRow(
            id=status.agent,
            name=name,
            kind=self._get_agent_kind(status),
            state=status.state,
            doing=status.activity,
            task=status.task if current_task is None else f"#{current_task.id} {current_task.subject}",
            model=status.model,
            mode=self.run.mode if facts is None else facts.mode,
            color=status.color or "",
            parent=status.parent or "",
            team=facts.team if facts is not None else "",
            depth=status.depth,
            background=status.background,
            since=int(status.since * 1000),
            heard=int(status.last_event_at * 1000),
            tokens=status.tokens,
            usd=status.usd,
            priced=status.priced,
            requests=status.requests,
            tool_calls=status.tool_calls,
            question="" if status.question is None else status.question.id,
            waits_for=self._list_awaited_agents(status, name),
            detail="" if status.completion is None else status.completion.detail,
            workflow=workflow,
            phase=phase,
        )

    def _list_awaited_agents(self, status: AgentStatusRecord, name: str) -> tuple[str, ...]:
        """Return the owners of tasks that block the agent's tasks, and the child agents it waits for."""
        jobs = self._job_agents.get(status.agent, ())
        waited = [each.display_name for each in jobs if each.is_live and not each.background]
        return tuple(
            dict.fromkeys((*self.tasks.list_blocking_owners(name, _find_team_board_name(status)), *waited))
        )

    def _find_current_task(self, status: AgentStatusRecord) -> RunViewTaskRow | None:
        return self.tasks.find_current_task(self.get_agent_name(status.agent), _find_team_board_name(status))


def _find_team_board_name(status: AgentStatusRecord) -> str:
    """Return the team's board for a member, whose name is unique only there; else "", any board."""
    return "" if status.start_event is None else status.start_event.team


def _start_run_row(run: RunViewSummaryRow, event: SessionStarted, at: int) -> RunViewSummaryRow:
    return replace(
        run,
        session=event.session,
        cwd=event.cwd,
        model=event.model,
        mode=event.mode,
        version=event.version,
        began=run.began or at,
        ended=False,
        budget_usd=event.budget_usd,
        budget_tokens=event.budget_tokens,
    )


def _list_changed_rows(table: ChangeTrackingRowMap[Any, Any], offset: int) -> tuple[Any, ...]:
    return tuple(table.get_row(key) for key in table.list_keys_changed_since(offset))


def describe_unknown_event(event: UnknownJournalEvent) -> str:
    """Return a sentence about an event whose type or shape this version does not know."""
    kind = to_one_line(event.type)[:PREVIEW_LENGTH]
    return (
        f"Cannot read events of type {kind!r}, which another version of Shoal wrote. Their changes are not "
        f"shown."
    )


def build_run_view(recorded: Iterable[JournalRecord], until: int | None = None) -> RunView:
    """Build the view of a journal, or of its part before an offset."""
    view = RunView()
    for record in recorded:
        if until is not None and record.offset >= until:
            break
        view.apply_record(record)
    return view
