"""Registry of a session's agents: their runs, their names, and their parents."""

from __future__ import annotations

from collections.abc import Iterable

from shoal.core.agents import Completion, Glimpse
from shoal.core.errors import AgentRefused
from shoal.core.ids import LEAD, AgentId
from shoal.runs.run import Run

LEAD_NAMES = ("lead", "team-lead", "main")
EVERYONE = "*"
_NAMED = 20
"""Maximum number of names listed when an agent is not found."""


class Roll:
    """Runs by id and name. Names live as long as the session, ids as long as the transcripts."""

    def __init__(self) -> None:
        self._runs: dict[AgentId, Run] = {}
        self._at_work: dict[AgentId, dict[AgentId, Run]] = {}
        """Running agents by the agent they report to."""
        self._names: dict[str, AgentId] = {}
        self._names.update(dict.fromkeys(LEAD_NAMES, LEAD))
        self._promised: set[str] = set()

    def enter(self, run: Run) -> None:
        if run.facts.name in self._promised:
            self._promised.discard(run.facts.name)
            self._names[run.facts.name] = run.id
        self._runs[run.id] = run
        self._at_work.setdefault(run.report_to, {})[run.id] = run

    def leave(self, run: Run) -> None:
        """Remove a run from the running ones."""
        theirs = self._at_work[run.report_to]
        theirs.pop(run.id, None)
        if not theirs:
            del self._at_work[run.report_to]

    def remember(self, earlier: Iterable[Completion]) -> None:
        """Add the agents that ended in earlier processes of the session."""
        for completion in earlier:
            self._runs[completion.agent] = Run.earlier(completion)
            if completion.name:
                self._names[completion.name] = completion.agent

    def take_name(self, wished: str) -> str:
        """Reserve a name, with a number if a running agent or the lead has it, or if it is ambiguous.

        The name belongs to the starting agent once its run is added.
        """
        name, number = wished, 1
        while self._is_taken(name):
            number += 1
            name = f"{wished}-{number}"
        self._promised.add(name)
        return name

    def free_name(self, name: str) -> None:
        """Release a reserved name whose agent does not start."""
        self._promised.discard(name)

    def _is_taken(self, name: str) -> bool:
        if name == EVERYONE or name in self._promised or name in self._runs:
            return True
        holder = self._names.get(name)
        if holder is None:
            return False
        run = self._runs.get(holder)
        return run is None or run.live

    def meant(self, text: str) -> AgentId:
        """Return the id of a name; text that is no name is taken as an id."""
        return self._names.get(text, AgentId(text))

    def get(self, agent: AgentId) -> Run | None:
        return self._runs.get(agent)

    def find(self, text: str) -> Run:
        """Find a run by name or id. Raises `AgentRequestRefused`, listing the existing ones."""
        run = self._runs.get(self.meant(text))
        if run is None:
            known = [each.facts.name or each.id for each in self._runs.values()][-_NAMED:]
            there = f" There are: {', '.join(known)}." if known else " None has been started."
            raise AgentRefused(f"There is no agent or task {text!r} in this session.{there}")
        return run

    def at_work(self) -> tuple[Run, ...]:
        return tuple(run for theirs in self._at_work.values() for run in theirs.values())

    @property
    def any_at_work(self) -> bool:
        return bool(self._at_work)

    def started_by(self, parent: AgentId) -> tuple[Run, ...]:
        """Return the running agents that report to it."""
        return tuple(self._at_work.get(parent, {}).values())

    def ended_for(self, agent: AgentId) -> tuple[Run, ...]:
        """Return the ended agents that report to it."""
        return tuple(run for run in self._runs.values() if run.report_to == agent and not run.live)

    def above(self, agent: AgentId) -> tuple[AgentId, ...]:
        """Return the chain of agents that it reports to, up to the lead."""
        found: list[AgentId] = []
        while agent != LEAD and agent in self._runs and self._runs[agent].report_to not in found:
            agent = self._runs[agent].report_to
            found.append(agent)
        return tuple(found)

    def glimpses(self, now: float) -> tuple[Glimpse, ...]:
        return tuple(run.glimpse(now) for run in self._runs.values())
