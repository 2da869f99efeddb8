"""View of a run after the events so far: agents, board, mail, questions and costs.

Every surface draws from this and from nothing else. It is the same for live events and for the journal of a
run that ended long ago, so a replay ends in the same state as the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from shoal.app.picture.bounded import Bounded
from shoal.app.picture.costs import Costs, Payer
from shoal.app.picture.letters import Letters
from shoal.app.picture.rows import AgentRow, Frame, NoteRow, QuestionRow, RunRow, TaskRow
from shoal.app.picture.standing import Standing, Standings
from shoal.app.picture.table import Table
from shoal.app.picture.tasks import Tasks
from shoal.core.events import (
    PREVIEW,
    AgentEnded,
    AgentMoved,
    AgentStarted,
    Answered,
    Asked,
    BudgetWarned,
    Event,
    MailPosted,
    MailTaken,
    ModeChanged,
    Noted,
    RequestFailed,
    RequestSettled,
    SessionEnded,
    SessionStarted,
    TaskChanged,
    TurnStarted,
)
from shoal.core.ids import LEAD, LEAD_KIND, AgentId
from shoal.core.names import LEAD_NAME
from shoal.core.wording import one_line
from shoal.wire.journal import Recorded, Unknown

MOST_NOTES = MOST_QUESTIONS = 1_000
"""Maximum number held; the journal has all. Answered questions are evicted first."""


class Picture:
    def __init__(self) -> None:
        self.run = RunRow()
        self.standings = Standings()
        self.tasks = Tasks()
        self.letters = Letters()
        self.questions: Bounded[QuestionRow] = Bounded(MOST_QUESTIONS)
        self.costs = Costs()
        self.notes: Table[int, NoteRow] = Table()
        self.offset = 0
        """Offset of the next event."""
        self._agents: Table[AgentId, Standing] = Table()
        self._names: dict[str, AgentId] = {"lead": LEAD, LEAD_NAME: LEAD}
        self._jobs: dict[AgentId, list[Standing]] = {}
        """Agents started for one job, by parent."""
        self._run_changed = 0
        self._noted = 0
        self._unknown: set[str] = set()
        """Types of unreadable events; each is noted once."""
        self._at = 0

    def record(self, recorded: Recorded) -> None:
        """Apply an event of the journal."""
        if isinstance(recorded.event, Event):
            # A run that was marked lost and goes on has changed since.
            self._hear(recorded.event, recorded.at, max(recorded.offset, self.offset))
        else:
            self._note_unknown(recorded.event, recorded.at, max(recorded.offset, self.offset))
        self.offset = recorded.next

    def hear(self, event: Event, at: int) -> None:
        """Apply a live event, without a journal; offsets are then only numbers."""
        self._hear(event, at, self.offset)
        self.offset += 1

    def lost(self) -> None:
        """Mark the run as lost: no process works on it."""
        self._touch_lost(self.offset)
        self.standings.lost()
        self._withdraw_questions(self.offset)
        self.offset += 1

    # Queries of the surfaces

    def agents(self) -> Iterator[AgentRow]:
        """Yield the agents, each after its parent."""
        return (self._agent_row(each) for each in self.standings.tree())

    def agent(self, agent: AgentId) -> AgentRow | None:
        standing = self.standings.all.get(agent)
        return None if standing is None else self._agent_row(standing)

    def open_questions(self) -> list[QuestionRow]:
        """Return the open questions, the oldest first."""
        return [row for row in self.questions.values() if not row.answered]

    def since(self, offset: int) -> Frame:
        """Return the changes by events at or after the offset."""
        return Frame(
            since=offset,
            offset=self.offset,
            at=self._at,
            run=self.run if self._run_changed >= offset else None,
            agents=tuple(self._agent_row(self._agents.row(key)) for key in self._agents.since(offset)),
            tasks=self.tasks.since(offset),
            letters=self.letters.rows_since(offset),
            questions=_rows(self.questions, offset),
            costs=_rows(self.costs.rows, offset),
            spend=_rows(self.costs.points, offset),
            notes=_rows(self.notes, offset),
            letters_in_all=self.letters.in_all,
            letters_unread=self.letters.unread,
            questions_in_all=self.questions.in_all,
        )

    # Events

    def _hear(self, event: Event, at: int, offset: int) -> None:
        self._at = max(self._at, at)
        match event:
            case TaskChanged():
                self._task_changed(event, at, offset)
            case MailPosted() | MailTaken():
                self.letters.hear(event, at, offset)
            case _:
                self._agent_heard(event, at, offset)
        self._run_heard(event, at, offset)

    def _touch_lost(self, offset: int) -> None:
        """Mark the agents as changed that count as gone when no process works on the run."""
        for standing in self.standings.all.values():
            if standing.live:
                self._agents.touch(standing.agent, offset)

    def _withdraw_questions(self, offset: int) -> None:
        """Close the questions of a lost run. The next process of the run may still journal an answer."""
        for row in self.open_questions():
            self.questions.keep(row.id, replace(row, answered=self._at), offset, settled=True)

    def _agent_heard(self, event: Event, at: int, offset: int) -> None:
        if isinstance(event, SessionStarted | SessionEnded):
            self._touch_lost(offset)
            self._withdraw_questions(offset)
        standing = self.standings.hear(event, at / 1000)
        if event.agent in self._agents:
            self._agents.touch(event.agent, offset)
        else:
            self._agents.put(event.agent, standing, offset)
        match event:
            case AgentStarted() | AgentMoved() | AgentEnded():
                self._family(event, standing, offset)
            case Asked(question=question):
                name = self.name_of(event.agent)
                row = QuestionRow(id=question.id, agent=event.agent, name=name, asked=at, question=question)
                self.questions.keep(question.id, row, offset, settled=False)
            case Answered(question=ident, answer=answer):
                asked = self.questions.get(ident)
                if asked is not None and asked.answer is None:
                    row = replace(asked, answered=at, answer=answer)
                    self.questions.keep(ident, row, offset, settled=True)
            case RequestSettled():
                self._spent(event, at, offset)
            case _:
                self._note_heard(event, at, offset)

    def _family(self, event: AgentStarted | AgentMoved | AgentEnded, standing: Standing, offset: int) -> None:
        """Register a started agent. Mark its parent as changed: it may wait for other agents now."""
        parent = standing.parent
        if isinstance(event, AgentStarted):
            self._names[standing.who] = event.agent
            jobs = self._jobs.setdefault(event.parent, [])
            if not event.team and standing not in jobs:
                jobs.append(standing)
        if parent is not None and parent in self._agents:
            self._agents.touch(parent, offset)

    def _spent(self, event: RequestSettled, at: int, offset: int) -> None:
        standing, name = self.standings.all[event.agent], self.name_of(event.agent)
        task = self._task_of(standing)
        payer = Payer(name=name, kind=self._kind(standing))
        if task is not None:
            payer = replace(payer, board=task.board, task=task.id)
        self.costs.enter(event, payer, at, offset)
        if task is not None:
            self.tasks.charge(task, event.cost_usd or 0.0, event.usage.total_tokens, offset)

    def _note_heard(self, event: Event, at: int, offset: int) -> None:
        match event:
            case Noted(text=text) if not self.standings.is_told(event):
                self._note(event.agent, "note", text, at, offset)
            case BudgetWarned(percent=percent, spent=spent, of=of, limit=limit, whose=whose):
                text = f"{percent} % of the limit is spent: {spent:g} of {of:g} {limit}"
                text += f" for {whose}." if whose else "."
                self._note(event.agent, "warning", text, at, offset)
            case RequestFailed(billed=True, reason=reason):
                text = f"What a request cost was not told: {reason}"
                self._note(event.agent, "unsettled", text, at, offset)
            case _:
                pass

    def _note_unknown(self, event: Unknown, at: int, offset: int) -> None:
        """Note the first event of each type that this version cannot read."""
        self._at = max(self._at, at)
        if event.type not in self._unknown:
            self._unknown.add(event.type)
            self._note(LEAD, "unknown", describe_unknown_event(event), at, offset)

    def _note(self, agent: AgentId, kind: str, text: str, at: int, offset: int) -> None:
        self._noted += 1
        row = NoteRow(number=self._noted, at=at, agent=agent, text=text, kind=kind)
        self.notes.put(self._noted, row, offset)
        if len(self.notes) > MOST_NOTES:
            self.notes.drop(self._noted - MOST_NOTES)

    def _task_changed(self, event: TaskChanged, at: int, offset: int) -> None:
        touched = self.tasks.hear(event, at, offset)
        for name in touched:
            if (agent := self.agent_called(name)) is not None:
                self._agents.touch(agent, offset)

    def _run_heard(self, event: Event, at: int, offset: int) -> None:
        run = self.run
        match event:
            case SessionStarted():
                new = _begun(run, event, at)
            case SessionEnded():
                new = replace(run, ended=True)
            case ModeChanged(agent=agent, mode=mode) if agent == LEAD:
                new = replace(run, mode=mode)
            case TurnStarted(agent=agent, turn=turn, prompt=prompt) if agent == LEAD:
                new = replace(run, turns=turn, prompt=run.prompt or prompt)
            case AgentStarted(team=team) if team and team not in run.teams:
                new = replace(run, teams=(*run.teams, team))
            case _:
                self.run = replace(run, last=at)
                return
        self.run, self._run_changed = replace(new, last=at), offset

    # Names

    def name_of(self, agent: AgentId) -> str:
        """Return the name by which the team or the user calls the agent."""
        return "lead" if agent == LEAD else self.standings.name(agent)

    def agent_called(self, name: str) -> AgentId | None:
        """Return the agent of that name that was started last."""
        return self._names.get(name)

    def _kind(self, standing: Standing) -> str:
        return LEAD_KIND if standing.facts is None else standing.facts.kind

    def _agent_row(self, standing: Standing) -> AgentRow:
        facts, name = standing.facts, self.name_of(standing.agent)
        at_work = self._task_of(standing)
        return AgentRow(
            id=standing.agent,
            name=name,
            kind=self._kind(standing),
            state=standing.state,
            doing=standing.doing,
            task=standing.task if at_work is None else f"#{at_work.id} {at_work.subject}",
            model=standing.model,
            mode=self.run.mode if facts is None else facts.mode,
            color=standing.color or "",
            parent=standing.parent or "",
            team=facts.team if facts is not None else "",
            depth=standing.depth,
            background=standing.background,
            since=int(standing.since * 1000),
            heard=int(standing.heard * 1000),
            tokens=standing.tokens,
            usd=standing.usd,
            priced=standing.priced,
            requests=standing.requests,
            tool_calls=standing.tool_calls,
            question="" if standing.question is None else standing.question.id,
            waits_for=self._waits_for(standing, name),
            detail="" if standing.completion is None else standing.completion.detail,
        )

    def _waits_for(self, standing: Standing, name: str) -> tuple[str, ...]:
        """Return the owners of tasks that block the agent's tasks, and the child agents it waits for."""
        jobs = self._jobs.get(standing.agent, ())
        waited = [each.who for each in jobs if each.live and not each.background]
        return tuple(dict.fromkeys((*self.tasks.holding_up(name, _board_of(standing)), *waited)))

    def _task_of(self, standing: Standing) -> TaskRow | None:
        return self.tasks.at_work(self.name_of(standing.agent), _board_of(standing))


def _board_of(standing: Standing) -> str:
    """Return the team's board for a member, whose name is unique only there; else "", any board."""
    return "" if standing.facts is None else standing.facts.team


def _begun(run: RunRow, event: SessionStarted, at: int) -> RunRow:
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


def _rows(table: Table[Any, Any], offset: int) -> tuple[Any, ...]:
    return tuple(table.row(key) for key in table.since(offset))


def describe_unknown_event(event: Unknown) -> str:
    """Return a sentence about an event whose type or shape this version does not know."""
    kind = one_line(event.type)[:PREVIEW]
    return (
        f"Cannot read events of the type {kind!r}, written by another version. Their changes are not shown."
    )


def drawn(recorded: Iterable[Recorded], until: int | None = None) -> Picture:
    """Build the view of a journal, or of its part before an offset."""
    picture = Picture()
    for each in recorded:
        if until is not None and each.offset >= until:
            break
        picture.record(each)
    return picture
