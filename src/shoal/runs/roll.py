"""The roll of a session's agents: who there is, under which name, and who started whom."""

from __future__ import annotations

from collections.abc import Iterable

from shoal.core.agents import Completion, Glimpse
from shoal.core.errors import AgentRefused
from shoal.core.ids import LEAD, AgentId
from shoal.runs.run import Run

LEAD_NAMES = ("lead", "team-lead", "main")
EVERYONE = "*"
_NAMED = 20
"""How many are named to whom looks for one that is not there."""


class Roll:
    """Names live as long as the session does; ids as long as the transcripts."""

    def __init__(self) -> None:
        self._runs: dict[AgentId, Run] = {}
        self._at_work: dict[AgentId, dict[AgentId, Run]] = {}
        """By whom they report to."""
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
        """It is at work no longer."""
        theirs = self._at_work[run.report_to]
        theirs.pop(run.id, None)
        if not theirs:
            del self._at_work[run.report_to]

    def remember(self, earlier: Iterable[Completion]) -> None:
        """Those that ended in earlier processes of the session."""
        for completion in earlier:
            self._runs[completion.agent] = Run.earlier(completion)
            if completion.name:
                self._names[completion.name] = completion.agent

    def take_name(self, wished: str) -> str:
        """The name, with a number where one at work, or the lead, has it, or where it means another.

        It is kept free for one that starts, and its own when that one is entered.
        """
        name, number = wished, 1
        while self._is_taken(name):
            number += 1
            name = f"{wished}-{number}"
        self._promised.add(name)
        return name

    def free_name(self, name: str) -> None:
        """Who was to have it does not start."""
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
        """The id behind a name; what is no name is an id."""
        return self._names.get(text, AgentId(text))

    def get(self, agent: AgentId) -> Run | None:
        return self._runs.get(agent)

    def find(self, text: str) -> Run:
        """By name or id. Raises `AgentRefused`, naming those there are."""
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
        """Those still at work that report to it."""
        return tuple(self._at_work.get(parent, {}).values())

    def ended_for(self, agent: AgentId) -> tuple[Run, ...]:
        """Those that ended and report to it."""
        return tuple(run for run in self._runs.values() if run.report_to == agent and not run.live)

    def above(self, agent: AgentId) -> tuple[AgentId, ...]:
        """To whom it reports, to whom that one does, and so on to the lead."""
        found: list[AgentId] = []
        while agent != LEAD and agent in self._runs and self._runs[agent].report_to not in found:
            agent = self._runs[agent].report_to
            found.append(agent)
        return tuple(found)

    def glimpses(self, now: float) -> tuple[Glimpse, ...]:
        return tuple(run.glimpse(now) for run in self._runs.values())
