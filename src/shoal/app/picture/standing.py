"""Status of the agents of a run, derived from its events: identity, activity and cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

from msgspec.structs import replace

from shoal.app.picture.doing import doing_now
from shoal.core.agents import Completion
from shoal.core.events import (
    AgentEnded,
    AgentMoved,
    AgentStarted,
    Answered,
    Asked,
    Event,
    MailPosted,
    MailTaken,
    MemberRested,
    MemberWoken,
    Noted,
    RequestSettled,
    SessionEnded,
    SessionStarted,
    TaskChanged,
    ToolFinished,
    TurnEnded,
    TurnStarted,
)
from shoal.core.ids import LEAD, AgentId
from shoal.core.questions import Question
from shoal.core.wording import one_line

_MOST_NOTED = 1_000
"""Maximum number of notes whose first author is remembered."""
State: TypeAlias = Literal["working", "waiting", "idle", "completed", "failed", "killed", "gone"]


class Standing:
    """Status of one agent. Times use the caller's clock; only their differences are shown."""

    def __init__(self, agent: AgentId, since: float, facts: AgentStarted | None = None) -> None:
        self.agent = agent
        self.facts = facts
        self.model = facts.model if facts else ""
        self.task = facts.description if facts else ""
        self.background = facts is not None and facts.background
        self.since = self.heard = since
        self.doing = ""
        self.tool_calls = self.tokens = self.requests = 0
        self.usd = 0.0
        self.priced = True
        self.question: Question | None = None
        self.completion: Completion | None = None
        self.at_work = _begins_at_work(facts)
        self.gone = False
        """True if the process ended without an end event of this agent."""
        self._calls: dict[str, str] = {}

    @property
    def who(self) -> str:
        if self.facts is None:  # a member that a resumed run took over: its start event is in an earlier run
            return self.agent.partition("@")[0]
        return one_line(self.facts.name or self.facts.kind)

    @property
    def color(self) -> str | None:
        return self.facts.color if self.facts else None

    @property
    def parent(self) -> AgentId | None:
        return self.facts.parent if self.facts else None

    @property
    def call(self) -> str:
        """The tool call that started it."""
        return self.facts.call if self.facts else ""

    @property
    def depth(self) -> int:
        return self.facts.depth if self.facts else 0

    @property
    def state(self) -> State:
        if self.gone:
            return "gone"
        if self.completion is not None:
            return self.completion.status
        if self.question is not None:
            return "waiting"
        return "working" if self.at_work else "idle"

    @property
    def state_words(self) -> str:
        """State for display; programs use `state`."""
        return "stopped" if self.state == "killed" else self.state

    @property
    def live(self) -> bool:
        return self.state in ("working", "waiting")

    def again(self, facts: AgentStarted, at: float) -> None:
        """Mark the agent as resumed; its earlier costs still count."""
        # A message of the user is not a call, and programs know the agent by the call that first started it.
        self.facts = replace(facts, call=facts.call or self.call)
        self.background, self.completion, self.gone = facts.background, None, False
        self.at_work = _begins_at_work(facts)
        self.since = self.heard = at

    def hear(self, event: Event, at: float) -> None:
        self.heard = at
        match event:
            case AgentMoved():
                self.background = True
            case SessionStarted(model=model):
                self.model = model
            case Asked(question=question):
                self.question = question
            case Answered():
                self.question = None
            case ToolFinished():
                self.tool_calls += 1
            case RequestSettled(usage=usage, cost_usd=cost, model=model):
                self.requests += 1
                self.tokens += usage.total_tokens
                self.usd += cost or 0.0
                self.priced = self.priced and cost is not None
                self.model = model
            case _:
                self._work_or_rest(event, at)
        self.doing = doing_now(event, self._calls, self.doing)

    def _work_or_rest(self, event: Event, at: float) -> None:
        match event:
            case AgentEnded(completion=completion):
                self.completion, self.at_work, self.doing, self.question = completion, False, "", None
            case TurnStarted(prompt=prompt):
                self.at_work, self.since = True, at
                self.task = one_line(prompt) or self.task
            case MemberWoken():
                self.at_work = True
            case TurnEnded() | SessionEnded() | MemberRested():
                self.at_work, self.doing = False, ""
            case _:
                pass


class Standings:
    """Statuses of all agents, fed with every event of a run from its beginning."""

    def __init__(self) -> None:
        self.all: dict[AgentId, Standing] = {}
        self._noted_by: dict[str, AgentId] = {}

    def hear(self, event: Event, at: float) -> Standing:
        """Apply an event and return the status of its agent."""
        known = self.all.get(event.agent)
        if isinstance(event, AgentStarted):
            if known is None:
                known = self.all[event.agent] = Standing(event.agent, at, event)
            else:
                known.again(event, at)
        elif known is None:
            known = self.all[event.agent] = Standing(event.agent, at)
        if not isinstance(event, MailPosted | MailTaken | TaskChanged):
            known.hear(event, at)  # those are about the team, in whichever journal they are
        if isinstance(event, Noted):
            self._noted_by.setdefault(event.text, event.agent)
            if len(self._noted_by) > _MOST_NOTED:
                del self._noted_by[next(iter(self._noted_by))]
        if isinstance(event, SessionEnded | SessionStarted):
            self.lost()
        return known

    def is_told(self, event: Event) -> bool:
        """Return True if another agent noted this before, e.g. every member notes the same missing server."""
        return isinstance(event, Noted) and self._noted_by.get(event.text, event.agent) != event.agent

    def lost(self) -> None:
        """Mark unfinished agents as gone and the lead as idle: no process works on the run."""
        for standing in self.all.values():
            if standing.live:
                standing.gone, standing.question = standing.agent != LEAD, None
                if not standing.gone:
                    standing.at_work, standing.doing = False, ""

    def children(self) -> Iterator[Standing]:
        return (each for each in self.all.values() if each.agent != LEAD)

    def at_work(self) -> list[Standing]:
        """Return all working agents except the lead."""
        return [each for each in self.children() if each.live]

    def tree(self) -> Iterator[Standing]:
        """Yield the agents, each after its parent."""
        by_parent: dict[AgentId | None, list[Standing]] = {}
        for each in self.all.values():
            parent = each.parent if each.parent in self.all else None
            by_parent.setdefault(parent, []).append(each)
        yield from _below(None, by_parent)

    def described(self, agent: AgentId) -> str:
        """Return its name and its task."""
        known = self.all.get(agent)
        return str(agent) if known is None else f"{known.who} ({one_line(known.task)})"

    def name(self, agent: AgentId) -> str:
        known = self.all.get(agent)
        return str(agent) if known is None else known.who


def _begins_at_work(facts: AgentStarted | None) -> bool:
    """Return False for a member, which reports itself when it has work."""
    return facts is not None and not facts.team


def _below(parent: AgentId | None, by_parent: dict[AgentId | None, list[Standing]]) -> Iterator[Standing]:
    for each in by_parent.pop(parent, ()):
        yield each
        yield from _below(each.agent, by_parent)
