"""Recovers from the journal what an earlier process left: working agents, pending items, the last turn."""

from __future__ import annotations

from collections.abc import Container, Iterator
from pathlib import Path
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace

from shoal.core.agents.background_shells import BackgroundShell, BackgroundShellResult
from shoal.core.agents.subagents import (
    PROGRAM_CALL,
    AgentResult,
    AgentWorkEvidence,
    RetainedWorktreeWork,
)
from shoal.core.budgets.budget import Budget
from shoal.core.budgets.usage import Usage
from shoal.core.conversation.inbox_items import InboxItem
from shoal.core.conversation.messages import TextBlock
from shoal.core.core_texts import format_end_reason
from shoal.core.errors import SessionNotFound, StateFileError
from shoal.core.events import (
    EVENT_MODULES,
    AgentEnded,
    AgentStarted,
    BackgroundShellEnded,
    BackgroundShellStarted,
    FileChanged,
    JournaledEvent,
    JournalRecord,
    ModelRequestSettled,
    NotificationDelivered,
    QuestionAnswered,
    QuestionAsked,
    QueueItemAdded,
    QueueItemWithdrawn,
    ScheduleCreated,
    ScheduleEnded,
    TaskChanged,
    ToolFinished,
    TurnStarted,
    WorkflowEnded,
    WorkflowStarted,
    WorktreeWorkRetained,
)
from shoal.core.ids import LEAD_ID, AgentId, IdGenerator
from shoal.core.names import TaskId
from shoal.core.permissions.questions import PermissionQuestion, is_run_ended_denial
from shoal.core.ports import Journal, ResultStore
from shoal.core.store import SessionStore
from shoal.core.teams.packed_task_map import PackedTaskMap
from shoal.runs.clock_scheduler import RecoveredSchedule
from shoal.runs.late_answers import parse_question_id_from_item_id
from shoal.runs.run_outcome import build_agent_result_notification, find_last_assistant_text
from shoal.runs.shell_notifier import build_shell_end_notification
from shoal.runs.stored_report import excerpt_and_store_long_report
from shoal.tools.shell_supervisor import BackgroundShellSupervisor
from shoal.wire.json_codec import decode_json, parse_conversation_message
from shoal.workspaces.worktree_files import is_in_agent_worktree


class BackgroundShellRecovery:
    def __init__(self) -> None:
        self.last_number = 0
        """Highest number in a shell name."""
        self.end_events: dict[str, BackgroundShellEnded] = {}
        self._running: dict[str, BackgroundShell] = {}

    def apply_event(self, event: JournaledEvent) -> None:
        match event:
            case BackgroundShellStarted(facts=facts):
                self._running[facts.shell] = facts
                number = facts.shell.rpartition("_")[2]
                self.last_number = max(self.last_number, int(number) if number.isdecimal() else 0)
            case BackgroundShellEnded(id=item_id, end=end):
                self._running.pop(end.facts.shell, None)
                self.end_events[item_id] = event
            case _:
                pass

    def build_missing_shell_end_events(self, ids: IdGenerator) -> Iterator[BackgroundShellEnded]:
        """Yield end events for commands without an end in the journal."""
        for facts in self._running.values():
            end = BackgroundShellResult(
                facts=facts, status="killed", detail=format_end_reason("command_cut_off")
            )
            yield BackgroundShellEnded(agent=facts.agent, id=ids.new_short_id(), end=end)


class ScheduleRecovery:
    def __init__(self) -> None:
        self._schedules: dict[str, RecoveredSchedule] = {}

    def apply_event(self, event: JournaledEvent) -> None:
        match event:
            case ScheduleCreated(schedule=schedule):
                self._schedules[schedule.id] = RecoveredSchedule(schedule=schedule)
            case ScheduleEnded(schedule=schedule_id):
                self._schedules.pop(schedule_id, None)
            case QueueItemAdded(item=item):
                self._record_firing(item)
            case _:
                pass

    def _record_firing(self, item: str) -> None:
        recovered = self._schedules.get(item.partition("@")[0])
        if recovered is not None and recovered.schedule.recurring:
            self._schedules[recovered.schedule.id] = replace(recovered, last_item=item)
        elif recovered is not None:
            del self._schedules[recovered.schedule.id]

    @property
    def schedules(self) -> tuple[RecoveredSchedule, ...]:
        return tuple(self._schedules.values())


class ScriptWorkflowRecovery:
    def __init__(self) -> None:
        self.open: dict[str, None] = {}
        """Ids of the script workflows without an end."""

    def apply_event(self, event: JournaledEvent) -> None:
        match event:
            case WorkflowStarted(workflow=workflow, script=script) if script:
                self.open[workflow] = None
            case WorkflowStarted(workflow=workflow) | WorkflowEnded(workflow=workflow):
                self.open.pop(workflow, None)
            case _:
                pass


class PermissionQuestionRecovery:
    def __init__(self) -> None:
        self._asked: dict[str, PermissionQuestion] = {}

    def apply_event(self, event: JournaledEvent) -> None:
        match event:
            case QuestionAsked(question=PermissionQuestion() as question):
                self._asked[question.id] = question
            case QuestionAnswered(question=question_id, answer=answer) if not is_run_ended_denial(answer):
                self._asked.pop(question_id, None)
            case QueueItemAdded(item=item):
                self._asked.pop(parse_question_id_from_item_id(item), None)
            case _:
                pass

    def find_cut_off_questions(self, answered: Container[str]) -> tuple[PermissionQuestion, ...]:
        """Return the questions whose calls have no result and no delivered late answer."""
        return tuple(each for each in self._asked.values() if each.tool_use_id not in answered)


class LeadTranscriptDeliveries(Struct, frozen=True, kw_only=True):
    """Items and results that the lead's transcript contains."""

    delivered: frozenset[str]
    answered: Container[str]


class RecoveredMembers(Struct, frozen=True, kw_only=True):
    """Teammates of the lead, as the journal shows them."""

    active: tuple[AgentStarted, ...] = ()
    """Members without a recorded end; the roster shows whether they are still members."""
    idle: frozenset[AgentId] = frozenset()
    """Members that ended with an earlier process and continue in this one."""
    former: frozenset[AgentId] = frozenset()
    """Members that left their team and whose name has not been used since."""


class UnreadableJournalParts(Struct, frozen=True, kw_only=True):
    """Parts of a journal that this version of Shoal cannot read."""

    event_types: tuple[str, ...] = ()
    """Unknown types of events."""
    damaged_lines: int = 0


class RecoveredShells(Struct, frozen=True, kw_only=True):
    """Background commands of the session."""

    ended: tuple[BackgroundShellEnded, ...] = ()
    """End events of commands that ran when the process ended; not in the journal yet."""
    last_number: int = 0
    """Highest number in a shell name."""


class RecoveredSessionState(Struct, frozen=True, kw_only=True):
    turns: int
    pending: dict[AgentId, list[InboxItem]]
    """Pending items by recipient; those that other agents already have are known from their transcripts."""
    completions: tuple[AgentResult, ...]
    agents_started: int
    """Number of agents ever started."""
    cut_off_results: tuple[AgentResult, ...]
    """Results of agents that were working; not in the journal yet."""
    unsettled_worktrees: tuple[tuple[AgentResult, Path], ...] = ()
    """Results of ended agents whose worktrees are not settled yet."""
    resumable_worktrees: tuple[Path, ...] = ()
    """Worktrees of working or idle agents that may be resumed there."""
    delivered: frozenset[str] = frozenset()
    """Ids of the items that the lead received."""
    shells: RecoveredShells = RecoveredShells()
    interrupted_scripts: tuple[str, ...] = ()
    """Ids of the script workflows that ran when the process ended."""
    schedules: tuple[RecoveredSchedule, ...] = ()
    members: RecoveredMembers = RecoveredMembers()
    cut_off_questions: tuple[PermissionQuestion, ...] = ()
    """Questions about calls without a result whose answers nobody received."""
    unreadable: UnreadableJournalParts = UnreadableJournalParts()
    """Parts of the journal whose content is missing above."""
    journaled_tasks: dict[str, PackedTaskMap[TaskChanged]] = {}
    """Last event of each task, by board."""

    def attach_retained_work(self, work: RetainedWorktreeWork, completion: AgentResult) -> None:
        """Add the retained work to the pending notice of the agent's end, if there is one."""
        completion = replace(completion, worktree=work)
        items = self.pending.get(completion.report_to, [])
        for index, item in enumerate(items):
            if item.id == completion.id:
                items[index] = replace(
                    build_agent_result_notification(completion), instead_of=item.instead_of
                )

    def restore_agent_and_shell_counters(self, budget: Budget, shells: BackgroundShellSupervisor) -> None:
        """Continue the counters of agents and commands."""
        budget.restore_started_agent_count(self.agents_started)
        shells.start_numbering_at(self.shells.last_number + 1)


class RecoverySources(Struct, frozen=True, kw_only=True):
    store: SessionStore
    journal: Journal
    results: ResultStore
    outputs: Path
    report_tokens: int


def recover_state_from_journal(
    sources: RecoverySources, deliveries: LeadTranscriptDeliveries, ids: IdGenerator
) -> RecoveredSessionState:
    """Read the state from the journal without writing; the session writes what is missing."""
    unreadable: list[str] = []
    reader = sources.journal.replay(
        SessionRecoveryState,
        lambda state: state.forget_delivered_items(deliveries),
        report_problem=unreadable.append,
    )
    cut_off = tuple(
        reader.build_cut_off_agent_result(started, sources, ids) for started in reader.working_agents.values()
    )
    completions = tuple(reader.completions.values())
    pending: dict[AgentId, list[InboxItem]] = {}
    for item in reader.queued_items.values():
        if item.to != LEAD_ID or item.id not in deliveries.delivered:
            file = reader.content_files.get(item.id)
            pending.setdefault(item.to, []).append(item if file is None else _load_content(item, file))
    for completion in (*completions, *cut_off):
        if not reader.was_agent_result_delivered(completion, deliveries):
            item = replace(
                build_agent_result_notification(completion), instead_of=reader.find_reporting_call(completion)
            )
            pending.setdefault(completion.report_to, []).append(item)
    lost_shells = tuple(reader.shells.build_missing_shell_end_events(ids))
    for shell_ended in (*reader.shells.end_events.values(), *lost_shells):
        if not shell_ended.end.quiet and not reader.was_agent_told_of_shell_end(shell_ended, deliveries):
            pending.setdefault(shell_ended.agent, []).append(
                build_shell_end_notification(shell_ended.id, shell_ended.end)
            )
    return RecoveredSessionState(
        turns=reader.turns,
        pending=pending,
        completions=(*completions, *cut_off),
        agents_started=reader.started,
        cut_off_results=cut_off,
        unsettled_worktrees=tuple(reader.iter_unsettled_worktrees()),
        resumable_worktrees=tuple(reader.iter_resumable_worktrees()),
        delivered=deliveries.delivered,
        shells=RecoveredShells(ended=lost_shells, last_number=reader.shells.last_number),
        interrupted_scripts=tuple(reader.scripts.open),
        schedules=reader.schedules.schedules,
        members=RecoveredMembers(
            active=tuple(reader.active_members.values()),
            idle=frozenset(reader.idle_members),
            former=frozenset(reader.former_members),
        ),
        cut_off_questions=reader.questions.find_cut_off_questions(deliveries.answered),
        unreadable=UnreadableJournalParts(
            event_types=tuple(reader.unknown_types), damaged_lines=len(unreadable)
        ),
        journaled_tasks=reader.tasks,
    )


class SessionRecoveryState:
    """State of a session's agents, items, commands and tasks after the events of its journal."""

    snapshot_name: ClassVar[str] = "recovery"
    snapshot_modules: ClassVar[tuple[str, ...]] = (
        __name__,
        "shoal.core.conversation.inbox_items",
        "shoal.core.conversation.messages",
        "shoal.core.teams.packed_task_map",
        "shoal.runs.clock_scheduler",
        *EVENT_MODULES,
    )

    def __init__(self) -> None:
        self.unknown_types: dict[str, None] = {}
        self.tasks: dict[str, PackedTaskMap[TaskChanged]] = {}
        self.turns = self.started = 0
        self.working_agents: dict[AgentId, AgentStarted] = {}
        self.completions: dict[str, AgentResult] = {}
        self.queued_items: dict[str, InboxItem] = {}
        self.content_files: dict[str, str] = {}
        """Files with the content of queued items that is more than text."""
        self.active_members: dict[AgentId, AgentStarted] = {}
        self.idle_members: dict[AgentId, AgentStarted] = {}
        self.former_members: set[AgentId] = set()
        self._teammates: set[AgentId] = set()
        self.shells = BackgroundShellRecovery()
        self.schedules = ScheduleRecovery()
        self.questions = PermissionQuestionRecovery()
        self.scripts = ScriptWorkflowRecovery()
        self._last_result_ids: dict[AgentId, str] = {}
        self._worktrees: dict[AgentId, Path] = {}
        self._notified_calls: dict[str, str] = {}
        self._call_counts: dict[AgentId, int] = {}
        self._files: dict[AgentId, dict[str, None]] = {}
        self._usage: dict[AgentId, Usage] = {}

    def apply_record(self, record: JournalRecord) -> None:
        if isinstance(record.event, TaskChanged):
            self._apply_task_change(record.event)
        elif isinstance(record.event, JournaledEvent):
            self._apply_event(record.event)
        elif not record.event.is_damaged:
            self.unknown_types[record.event.type] = None

    def forget_delivered_items(self, deliveries: LeadTranscriptDeliveries) -> None:
        """Remove the items that the lead has; they are never pending again."""
        for item in [each for each in self.queued_items.values() if each.to == LEAD_ID]:
            if item.id in deliveries.delivered:
                self._forget_queued_item(item.id)
        for shell_ended in list(self.shells.end_events.values()):
            if shell_ended.end.quiet or self.was_agent_told_of_shell_end(shell_ended, deliveries):
                del self.shells.end_events[shell_ended.id]
                self._notified_calls.pop(shell_ended.id, None)

    def _apply_task_change(self, event: TaskChanged) -> None:
        tasks = self.tasks.get(event.board)
        if tasks is None:
            tasks = self.tasks[event.board] = PackedTaskMap(TaskChanged)
        if event.status == "deleted":
            tasks.pop(TaskId(event.task), None)
        elif event.task.isdecimal():
            tasks[TaskId(event.task)] = event

    def _apply_event(self, event: JournaledEvent) -> None:  # noqa: C901, PLR0912 - one case for each kind of event
        self.shells.apply_event(event)
        self.schedules.apply_event(event)
        self.questions.apply_event(event)
        self.scripts.apply_event(event)
        match event:
            case TurnStarted(turn=turn):
                self.turns = max(self.turns, turn)
            case AgentStarted(agent=agent, resumed=resumed, team=team) if team:
                # A teammate is resumed from its roster.
                self.started += not resumed
                self._on_member_started(event)
            case AgentStarted(agent=agent, resumed=resumed):
                self.started += not resumed
                self.working_agents[agent] = event
                if _has_worktree(event):
                    self._worktrees[agent] = Path(event.cwd)
                for counts in (self._call_counts, self._files, self._usage):
                    counts.pop(agent, None)
            case AgentEnded(agent=agent, completion=completion, notice=notice) if agent in self._teammates:
                self._on_member_ended(completion, notice)
            case AgentEnded(completion=completion):
                self.working_agents.pop(completion.agent, None)
                self.completions[completion.id] = completion
                self._last_result_ids[completion.agent] = completion.id
            case WorktreeWorkRetained(agent=agent, work=work) if agent in self._last_result_ids:
                self._worktrees.pop(agent, None)
                result_id = self._last_result_ids[agent]
                self.completions[result_id] = replace(self.completions[result_id], worktree=work)
            case NotificationDelivered(completion=completion_id, call=call):
                self._notified_calls[completion_id] = call
            case QueueItemAdded() as queued:
                self._add_queued_item(queued)
            case QueueItemWithdrawn(item=item):
                self._forget_queued_item(item)
            case ToolFinished(agent=agent):
                self._call_counts[agent] = self._call_counts.get(agent, 0) + 1
            case FileChanged(agent=agent, path=path):
                self._files.setdefault(agent, {})[path] = None
            case ModelRequestSettled(agent=agent, usage=usage) if agent in self.working_agents:
                self._usage[agent] = self._usage.get(agent, Usage()) + usage
            case _:
                pass

    def _on_member_started(self, event: AgentStarted) -> None:
        self._teammates.add(event.agent)
        self.former_members.discard(event.agent)
        self.active_members[event.agent] = event

    def _add_queued_item(self, queued: QueueItemAdded) -> None:
        self.queued_items[queued.item] = _inbox_item_from_event(queued)
        if queued.content_file:
            self.content_files[queued.item] = queued.content_file

    def _forget_queued_item(self, item: str) -> None:
        self.queued_items.pop(item, None)
        self.content_files.pop(item, None)

    def _on_member_ended(self, completion: AgentResult, notice: str) -> None:
        agent, item_id, recipient = completion.agent, completion.id, completion.report_to
        started = self.active_members.pop(agent, None)
        if notice:
            self.idle_members.pop(agent, None)
            self.former_members.add(agent)
            self.queued_items[item_id] = InboxItem(
                id=item_id, to=recipient, content=(TextBlock(text=notice),), by="runtime"
            )
        elif started is not None:
            self.idle_members[agent] = started

    def iter_unsettled_worktrees(self) -> Iterator[tuple[AgentResult, Path]]:
        """Yield ended agents with an unsettled worktree.

        An unchanged worktree is removed at a clean end without an event. A process that dies during the
        removal may leave no directory, but always a record.
        """
        for agent, worktree in self._worktrees.items():
            if (
                agent not in self.working_agents
                and agent in self._last_result_ids
                and is_in_agent_worktree(worktree)
            ):
                yield self.completions[self._last_result_ids[agent]], worktree

    def iter_resumable_worktrees(self) -> Iterator[Path]:
        for started in (
            *self.working_agents.values(),
            *self.active_members.values(),
            *self.idle_members.values(),
        ):
            if _has_worktree(started):
                yield Path(started.cwd)

    def was_agent_told_of_shell_end(
        self, end_event: BackgroundShellEnded, deliveries: LeadTranscriptDeliveries
    ) -> bool:
        """Return True if the agent of a command was notified of its end."""
        if end_event.agent != LEAD_ID:
            # What it got from its queue is known from its transcript when it is resumed.
            return bool(self._notified_calls.get(end_event.id))
        return (
            end_event.id in deliveries.delivered
            or self._notified_calls.get(end_event.id, "") in deliveries.answered
        )

    def was_agent_result_delivered(
        self, completion: AgentResult, deliveries: LeadTranscriptDeliveries
    ) -> bool:
        # A program reads the ends of its agents itself.
        if completion.id in deliveries.delivered or completion.call == PROGRAM_CALL:
            return True
        return completion.report_to == LEAD_ID and self.find_reporting_call(completion) in deliveries.answered

    def find_reporting_call(self, completion: AgentResult) -> str:
        """Return the call whose result reports the end; empty if there is none."""
        return self._notified_calls.get(completion.id, "") or (
            "" if completion.background else completion.call
        )

    def build_cut_off_agent_result(
        self, started: AgentStarted, sources: RecoverySources, ids: IdGenerator
    ) -> AgentResult:
        agent, result_id = started.agent, ids.new_short_id()
        try:
            messages = sources.store.restore_conversation(agent).messages
            # A transcript is created before its first line is written.
            last_text, detail = (
                find_last_assistant_text(messages),
                format_end_reason("cut_off" if messages else "cut_off_at_start"),
            )
        except SessionNotFound:
            last_text, detail = "", format_end_reason("cut_off_at_start")
        except StateFileError:
            last_text, detail = "", format_end_reason("cut_off")
        if started.isolation == "remote":
            from shoal.workspaces.member_branches import build_work_ref

            ref = build_work_ref(sources.store.session, agent)
            detail = format_end_reason("cut_off_on_machine", ref=ref)
        elif started.isolation:
            detail = format_end_reason("cut_off_in_worktree", reason=detail, path=started.cwd)
        report = excerpt_and_store_long_report(
            last_text, agent, result_id, sources.results, tokens=sources.report_tokens
        )
        return AgentResult(
            id=result_id,
            agent=agent,
            status="killed",
            kind=started.kind,
            name=started.name,
            description=started.description,
            report_to=started.parent,
            call=started.call,
            background=True,
            text=report.excerpt,
            detail=detail,
            size=report.size,
            digest=report.digest,
            result="" if report.path is None else str(report.path),
            output=str(sources.outputs / f"{agent}.output"),
            usage=self._usage.get(agent, Usage()),
            evidence=AgentWorkEvidence(
                tool_calls=self._call_counts.get(agent, 0), files=tuple(self._files.get(agent, ()))
            ),
        )


def _has_worktree(started: AgentStarted) -> bool:
    """Return False for an agent on another machine: its directory is there."""
    return bool(started.isolation) and started.isolation != "remote"


def _inbox_item_from_event(queued: QueueItemAdded) -> InboxItem:
    return InboxItem(
        id=queued.item,
        to=queued.agent,
        content=(TextBlock(text=queued.text),),
        by=queued.by,
        mode=queued.mode,
        wakes=not queued.quiet,
    )


def _load_content(item: InboxItem, file: str) -> InboxItem:
    """Return the item with the content of the file, or with a sentence that it is lost."""
    try:
        message, skipped = parse_conversation_message(
            {"role": "user", "content": decode_json(Path(file).read_bytes())}
        )
    except (OSError, ValueError, TypeError) as error:
        lost = TextBlock(text=f"[The images of this message are lost: {file} cannot be read ({error}).]")
        return replace(item, content=(*item.content, lost))
    if skipped or not message.content:
        lost = TextBlock(text=f"[A part of this message is lost: {file} is damaged.]")
        return replace(item, content=(*(message.content or item.content), lost))
    return replace(item, content=message.content)
