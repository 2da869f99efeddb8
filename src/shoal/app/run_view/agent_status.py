"""Status of the agents of a run, derived from its events: identity, activity and cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal, TypeAlias

from msgspec.structs import replace

from shoal.app.run_view.agent_activity import describe_agent_activity
from shoal.core.agents.subagents import AgentResult
from shoal.core.events import (
    EVENT_MODULES,
    AgentEnded,
    AgentMovedToBackground,
    AgentStarted,
    Event,
    JournalRecord,
    MailPosted,
    MailTaken,
    MemberWentDown,
    MemberWentIdle,
    MemberWoken,
    ModelRequestSent,
    ModelRequestSettled,
    NoteAdded,
    PermissionModeChanged,
    QuestionAnswered,
    QuestionAsked,
    SessionEnded,
    SessionStarted,
    TaskChanged,
    ToolFinished,
    TurnEnded,
    TurnStarted,
)
from shoal.core.ids import LEAD_ID, AgentId
from shoal.core.permissions.questions import Question
from shoal.core.text.text_format import to_one_line

_MAX_NOTES = 1_000
"""Maximum number of notes whose first author is remembered."""
AgentState: TypeAlias = Literal["working", "waiting", "idle", "down", "completed", "failed", "killed", "gone"]


class AgentStatusRecord:
    """Status of one agent. Times use the caller's clock; only their differences are shown."""

    def __init__(self, agent: AgentId, since: float, facts: AgentStarted | None = None) -> None:
        self.agent = agent
        self.start_event = facts
        self.model = facts.model if facts else ""
        self.task = facts.description if facts else ""
        self.background = facts is not None and facts.background
        self.since = self.last_event_at = since
        self.activity = ""
        self.tool_calls = self.tokens = self.requests = 0
        self.usd = 0.0
        self.priced = True
        self.question: Question | None = None
        self.completion: AgentResult | None = None
        self.is_working = _is_working_from_start(facts)
        self.is_gone = False
        """True if the process ended without an end event of this agent."""
        self.is_down = False
        """True if it is a teammate that failed unexpectedly and has not been started again."""
        self._calls: dict[str, str] = {}

    @property
    def display_name(self) -> str:
        if (
            self.start_event is None
        ):  # a member that a resumed run took over: its start event is in an earlier run
            return self.agent.partition("@")[0]
        return to_one_line(self.start_event.name or self.start_event.kind)

    @property
    def color(self) -> str | None:
        return self.start_event.color if self.start_event else None

    @property
    def parent(self) -> AgentId | None:
        return self.start_event.parent if self.start_event else None

    @property
    def starting_call(self) -> str:
        """The tool call that started it."""
        return self.start_event.call if self.start_event else ""

    @property
    def depth(self) -> int:
        return self.start_event.depth if self.start_event else 0

    @property
    def state(self) -> AgentState:
        if self.is_gone:
            return "gone"
        if self.completion is not None:
            return self.completion.status
        if self.is_down:
            return "down"
        if self.question is not None:
            return "waiting"
        return "working" if self.is_working else "idle"

    @property
    def state_label(self) -> str:
        """State for display; programs use `state`."""
        return "stopped" if self.state == "killed" else self.state

    @property
    def is_live(self) -> bool:
        return self.state in ("working", "waiting")

    def mark_resumed(self, facts: AgentStarted, at: float) -> None:
        """Mark the agent as resumed; its earlier costs still count."""
        # A message of the user is not a call, and programs know the agent by the call that first started it.
        self.start_event = replace(facts, call=facts.call or self.starting_call)
        self.background, self.completion, self.is_gone = facts.background, None, False
        self.is_working, self.is_down = _is_working_from_start(facts), False
        self.since = self.last_event_at = at

    def apply_event(self, event: Event, at: float) -> None:
        self.last_event_at = at
        match event:
            case AgentMovedToBackground():
                self.background = True
            case SessionStarted(model=model) | ModelRequestSent(model=model):
                self.model = model
            case PermissionModeChanged(model=model):
                self.model = model or self.model
            case QuestionAsked(question=question):
                self.question = question
            case QuestionAnswered():
                self.question = None
            case ToolFinished():
                self.tool_calls += 1
            case ModelRequestSettled(usage=usage, cost_usd=cost, model=model):
                self.requests += 1
                self.tokens += usage.total_tokens
                self.usd += cost or 0.0
                self.priced = self.priced and cost is not None
                self.model = model
            case _:
                self._update_working_state(event, at)
        self.activity = describe_agent_activity(event, self._calls, self.activity)

    def _update_working_state(self, event: Event, at: float) -> None:
        match event:
            case AgentEnded(completion=completion):
                self.completion, self.is_working, self.activity, self.question = completion, False, "", None
            case MemberWentDown():
                self.is_down, self.is_working, self.activity, self.question = True, False, "", None
            case TurnStarted(prompt=prompt):
                self.is_working, self.since = True, at
                self.task = to_one_line(prompt) or self.task
            case MemberWoken():
                self.is_working = True
            case TurnEnded() | SessionEnded() | MemberWentIdle():
                self.is_working, self.activity = False, ""
            case _:
                pass


class RunViewAgentsState:
    """Statuses of all agents, fed with every event of a run from its beginning."""

    snapshot_name: ClassVar[str] = "agents"
    snapshot_modules: ClassVar[tuple[str, ...]] = (
        __name__,
        "shoal.app.run_view.agent_activity",
        *EVENT_MODULES,
    )

    def __init__(self) -> None:
        self.is_run_ended = False
        """True if the last event is the end of the session."""
        self.all: dict[AgentId, AgentStatusRecord] = {}
        self._noted_by: dict[str, AgentId] = {}

    def apply_record(self, record: JournalRecord) -> None:
        """Apply an event from the journal; an event of an unknown type has no information about agents."""
        self.is_run_ended = isinstance(record.event, SessionEnded)
        if isinstance(record.event, Event):
            self.apply_event(record.event, record.at / 1000)

    def apply_event(self, event: Event, at: float) -> AgentStatusRecord:
        """Apply an event and return the status of its agent."""
        status = self.all.get(event.agent)
        if isinstance(event, AgentStarted):
            if status is None:
                status = self.all[event.agent] = AgentStatusRecord(event.agent, at, event)
            else:
                status.mark_resumed(event, at)
        elif status is None:
            status = self.all[event.agent] = AgentStatusRecord(event.agent, at)
        if not isinstance(event, MailPosted | MailTaken | TaskChanged):
            status.apply_event(event, at)  # these are about the team, whatever journal they are in
        if isinstance(event, NoteAdded):
            self._noted_by.setdefault(event.text, event.agent)
            if len(self._noted_by) > _MAX_NOTES:
                del self._noted_by[next(iter(self._noted_by))]
        if isinstance(event, SessionEnded | SessionStarted):
            self.mark_agents_lost()
        return status

    def is_repeated_note(self, event: Event) -> bool:
        """Return True if another agent noted this before, e.g. every member notes the same missing server."""
        return isinstance(event, NoteAdded) and self._noted_by.get(event.text, event.agent) != event.agent

    def mark_agents_lost(self) -> None:
        """Mark unfinished agents as gone and the lead as idle: no process works on the run."""
        for status in self.all.values():
            if status.is_live:
                status.is_gone, status.question = status.agent != LEAD_ID, None
                if not status.is_gone:
                    status.is_working, status.activity = False, ""

    def iter_agents_except_lead(self) -> Iterator[AgentStatusRecord]:
        return (each for each in self.all.values() if each.agent != LEAD_ID)

    def list_working_agents(self) -> list[AgentStatusRecord]:
        """Return all working agents except the lead."""
        return [each for each in self.iter_agents_except_lead() if each.is_live]

    def iter_agents_in_tree_order(self) -> Iterator[AgentStatusRecord]:
        """Yield the agents, each after its parent."""
        by_parent: dict[AgentId | None, list[AgentStatusRecord]] = {}
        for status in self.all.values():
            parent = status.parent if status.parent in self.all else None
            by_parent.setdefault(parent, []).append(status)
        yield from _iter_descendants(None, by_parent)

    def describe_agent(self, agent: AgentId) -> str:
        """Return its name and its task."""
        status = self.all.get(agent)
        return str(agent) if status is None else f"{status.display_name} ({to_one_line(status.task)})"

    def get_agent_name(self, agent: AgentId) -> str:
        status = self.all.get(agent)
        return str(agent) if status is None else status.display_name


def _is_working_from_start(facts: AgentStarted | None) -> bool:
    """Return False for a member, which reports itself when it has work."""
    return facts is not None and not facts.team


def _iter_descendants(
    parent: AgentId | None, by_parent: dict[AgentId | None, list[AgentStatusRecord]]
) -> Iterator[AgentStatusRecord]:
    for status in by_parent.pop(parent, ()):
        yield status
        yield from _iter_descendants(status.agent, by_parent)
