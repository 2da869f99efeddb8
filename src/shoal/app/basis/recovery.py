"""Recovers from the journal what an earlier process left: working agents, pending items, the last turn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from shoal.app.basis.left_questions import LeftQuestions
from shoal.app.basis.left_schedules import LeftSchedules
from shoal.app.basis.left_shells import LeftShells
from shoal.core.agents import Completion, Evidence, KeptWork
from shoal.core.arrivals import Item
from shoal.core.budget import Purse
from shoal.core.errors import NoSuchSession, StoreError
from shoal.core.events import (
    AgentEnded,
    AgentStarted,
    FileChanged,
    Journaled,
    Notified,
    Queued,
    RequestSettled,
    ShellEnded,
    ToolFinished,
    TurnStarted,
    Withdrawn,
    WorkKept,
)
from shoal.core.ids import LEAD, AgentId, Ids
from shoal.core.messages import Text
from shoal.core.questions import MayRun
from shoal.core.usage import Usage
from shoal.runs.endings import last_words, notification
from shoal.runs.reports import kept
from shoal.runs.shell_news import shell_item
from shoal.runs.timetable import LeftSchedule
from shoal.stores.files.journal import read_journal
from shoal.stores.files.results import FileResults
from shoal.stores.files.sessions import read_session
from shoal.tools.shells import Shells
from shoal.workspaces.worktree_files import is_recorded

CUT_OFF = "its process ended while it was at work; SendMessage lets it go on"
CUT_OFF_AT_START = "its process ended before it had begun; start it again"


class Told(Struct, frozen=True, kw_only=True):
    """Items and results that the lead's transcript contains."""

    delivered: frozenset[str]
    answered: frozenset[str]


class LeftOver(Struct, frozen=True, kw_only=True):
    turns: int
    pending: dict[AgentId, list[Item]]
    """Pending items by recipient; those that other agents already have are known from their transcripts."""
    completions: tuple[Completion, ...]
    agents: int
    """Number of agents ever started."""
    cut_off: tuple[Completion, ...]
    """Results of agents that were working; not in the journal yet."""
    unkept: tuple[tuple[Completion, Path], ...] = ()
    """Results of ended agents whose worktrees are not settled yet."""
    going_on: tuple[Path, ...] = ()
    """Worktrees of working or idle agents that may be resumed there."""
    delivered: frozenset[str] = frozenset()
    """Ids of the items that the lead received."""
    shells: tuple[ShellEnded, ...] = ()
    """End events of commands that ran when the process ended; not in the journal yet."""
    last_shell: int = 0
    """Highest number in a shell name."""
    schedules: tuple[LeftSchedule, ...] = ()
    serving: tuple[AgentStarted, ...] = ()
    """Teammates without an announced end; the roster shows whether they still are members."""
    cut_off_questions: tuple[MayRun, ...] = ()
    """Questions about calls without a result whose answer nobody received."""
    resting: frozenset[AgentId] = frozenset()
    """Teammates that ended with an earlier process and continue in this one."""
    unknown_types: tuple[str, ...] = ()
    """Types of unreadable events, whose content is missing above."""

    def tell_of(self, work: KeptWork, completion: Completion) -> None:
        """Add the retained work to the pending notice of the agent's end, if there is one."""
        completion = replace(completion, worktree=work)
        waiting = self.pending.get(completion.report_to, [])
        for at, item in enumerate(waiting):
            if item.id == completion.id:
                waiting[at] = replace(notification(completion), instead_of=item.instead_of)

    def count_on(self, purse: Purse, shells: Shells) -> None:
        """Continue the counters of agents and commands."""
        purse.carry_started(self.agents)
        shells.number_from(self.last_shell + 1)


class Places(Struct, frozen=True, kw_only=True):
    journal: Path
    subagents: Path
    outputs: Path
    results: Path
    report_tokens: int


def left_over(places: Places, told: Told, ids: Ids) -> LeftOver:
    """Read the state from the journal without writing; the session writes what is missing."""
    reading = _Reading()
    unknown: dict[str, None] = {}
    for recorded in read_journal(places.journal):
        if isinstance(recorded.event, Journaled):
            reading.take(recorded.event)
        else:
            unknown[recorded.event.type] = None
    cut_off = tuple(reading.cut_off(started, places, ids) for started in reading.at_work.values())
    completions = tuple(reading.completions.values())
    pending: dict[AgentId, list[Item]] = {}
    for item in reading.waiting.values():
        if item.to != LEAD or item.id not in told.delivered:
            pending.setdefault(item.to, []).append(item)
    for completion in (*completions, *cut_off):
        if not reading.was_told(completion, told):
            item = replace(notification(completion), instead_of=reading.told_by(completion))
            pending.setdefault(completion.report_to, []).append(item)
    lost_shells = tuple(reading.shells.cut_off(ids))
    for ended in (*reading.shells.ended.values(), *lost_shells):
        if not ended.end.quiet and not reading.knows(ended, told):
            pending.setdefault(ended.agent, []).append(shell_item(ended.id, ended.end))
    return LeftOver(
        turns=reading.turns,
        pending=pending,
        completions=(*completions, *cut_off),
        agents=reading.started,
        cut_off=cut_off,
        unkept=tuple(reading.unkept()),
        going_on=tuple(reading.going_on()),
        delivered=told.delivered,
        shells=lost_shells,
        last_shell=reading.shells.last,
        schedules=reading.schedules.kept,
        serving=tuple(reading.serving.values()),
        cut_off_questions=reading.questions.cut_off(told.answered),
        resting=frozenset(reading.resting),
        unknown_types=tuple(unknown),
    )


class _Reading:
    def __init__(self) -> None:
        self.turns = self.started = 0
        self.at_work: dict[AgentId, AgentStarted] = {}
        self.completions: dict[str, Completion] = {}
        self.waiting: dict[str, Item] = {}
        self.serving: dict[AgentId, AgentStarted] = {}
        self.resting: dict[AgentId, AgentStarted] = {}
        self._teammates: set[AgentId] = set()
        self.shells = LeftShells()
        self.schedules = LeftSchedules()
        self.questions = LeftQuestions()
        self._last: dict[AgentId, str] = {}
        self._worktrees: dict[AgentId, Path] = {}
        self._notified: dict[str, str] = {}
        self._calls: dict[AgentId, int] = {}
        self._files: dict[AgentId, dict[str, None]] = {}
        self._usage: dict[AgentId, Usage] = {}

    def take(self, event: Journaled) -> None:  # noqa: C901, PLR0912 - one case for each kind of event
        self.shells.take(event)
        self.schedules.take(event)
        self.questions.take(event)
        match event:
            case TurnStarted(turn=turn):
                self.turns = max(self.turns, turn)
            case AgentStarted(agent=agent, resumed=resumed, team=team) if team:
                # A teammate is resumed from its roster.
                self.started += not resumed
                self._teammates.add(agent)
                self.serving[agent] = event
            case AgentStarted(agent=agent, resumed=resumed):
                self.started += not resumed
                self.at_work[agent] = event
                if event.isolation:
                    self._worktrees[agent] = Path(event.cwd)
                for seen in (self._calls, self._files, self._usage):
                    seen.pop(agent, None)
            case AgentEnded(agent=agent, completion=completion, notice=notice) if agent in self._teammates:
                self._mate_ended(completion, notice)
            case AgentEnded(completion=completion):
                self.at_work.pop(completion.agent, None)
                self.completions[completion.id] = completion
                self._last[completion.agent] = completion.id
            case WorkKept(agent=agent, work=work) if agent in self._last:
                self._worktrees.pop(agent, None)
                last = self._last[agent]
                self.completions[last] = replace(self.completions[last], worktree=work)
            case Notified(completion=completion_id, call=call):
                self._notified[completion_id] = call
            case Queued() as queued:
                self.waiting[queued.item] = _item(queued)
            case Withdrawn(item=item):
                self.waiting.pop(item, None)
            case ToolFinished(agent=agent):
                self._calls[agent] = self._calls.get(agent, 0) + 1
            case FileChanged(agent=agent, path=path):
                self._files.setdefault(agent, {})[path] = None
            case RequestSettled(agent=agent, usage=usage) if agent in self.at_work:
                self._usage[agent] = self._usage.get(agent, Usage()) + usage
            case _:
                pass

    def _mate_ended(self, completion: Completion, notice: str) -> None:
        agent, ident, to = completion.agent, completion.id, completion.report_to
        started = self.serving.pop(agent, None)
        if notice:
            self.resting.pop(agent, None)
            self.waiting[ident] = Item(id=ident, to=to, content=(Text(text=notice),), by="runtime")
        elif started is not None:
            self.resting[agent] = started

    def unkept(self) -> Iterator[tuple[Completion, Path]]:
        """Yield ended agents with an unsettled worktree.

        An unchanged worktree is removed at a clean end without an event. A process that dies during the
        removal may leave no directory, but always a record.
        """
        for agent, place in self._worktrees.items():
            if agent not in self.at_work and agent in self._last and is_recorded(place):
                yield self.completions[self._last[agent]], place

    def going_on(self) -> Iterator[Path]:
        for started in (*self.at_work.values(), *self.serving.values(), *self.resting.values()):
            if started.isolation:
                yield Path(started.cwd)

    def knows(self, ended: ShellEnded, told: Told) -> bool:
        """Return True if the agent of a command was notified of its end."""
        if ended.agent != LEAD:
            # What it got from its queue is known from its transcript when it is resumed.
            return bool(self._notified.get(ended.id))
        return ended.id in told.delivered or self._notified.get(ended.id, "") in told.answered

    def was_told(self, completion: Completion, told: Told) -> bool:
        if completion.id in told.delivered:
            return True
        return completion.report_to == LEAD and self.told_by(completion) in told.answered

    def told_by(self, completion: Completion) -> str:
        """Return the call whose result reports the end; empty if there is none."""
        return self._notified.get(completion.id, "") or ("" if completion.background else completion.call)

    def cut_off(self, started: AgentStarted, places: Places, ids: Ids) -> Completion:
        agent, identity = started.agent, ids.short()
        try:
            messages = read_session(places.subagents / f"agent-{agent}.jsonl", agent).messages
            # A transcript is created before its first line is written.
            said, why = last_words(messages), CUT_OFF if messages else CUT_OFF_AT_START
        except NoSuchSession:
            said, why = "", CUT_OFF_AT_START
        except StoreError:
            said, why = "", CUT_OFF
        report = kept(said, agent, identity, FileResults(places.results), tokens=places.report_tokens)
        return Completion(
            id=identity,
            agent=agent,
            status="killed",
            kind=started.kind,
            name=started.name,
            description=started.description,
            report_to=started.parent,
            call=started.call,
            background=True,
            text=report.shown,
            detail=f"{why}; its worktree is {started.cwd}" if started.isolation else why,
            size=report.size,
            digest=report.digest,
            result="" if report.whole is None else str(report.whole),
            output=str(places.outputs / f"{agent}.output"),
            usage=self._usage.get(agent, Usage()),
            evidence=Evidence(tool_calls=self._calls.get(agent, 0), files=tuple(self._files.get(agent, ()))),
        )


def _item(queued: Queued) -> Item:
    return Item(
        id=queued.item,
        to=queued.agent,
        content=(Text(text=queued.text),),
        by=queued.by,
        mode=queued.mode,
        wakes=not queued.quiet,
    )
