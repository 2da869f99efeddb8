"""Registry of a session's agents: their runs, their names, and their parents."""

from __future__ import annotations

from collections.abc import Iterable

from shoal.core.agents.subagents import AgentResult, AgentStatusSnapshot
from shoal.core.errors import AgentRequestRefused
from shoal.core.ids import LEAD_ID, AgentId
from shoal.core.names import fold_name
from shoal.runs.agent_run import AgentRun
from shoal.runs.run_texts import format_run_notice

LEAD_NAMES = ("lead", "team-lead", "main")
EVERYONE = "*"
_MAX_LISTED_NAMES = 20
"""Maximum number of names listed when an agent is not found."""


class AgentRegistry:
    """Runs by id and name. Names live as long as the session, ids as long as the transcripts."""

    def __init__(self) -> None:
        self._runs: dict[AgentId, AgentRun] = {}
        self._running: dict[AgentId, dict[AgentId, AgentRun]] = {}
        """Running agents by the agent they report to."""
        self._names: dict[str, AgentId] = {}
        self._names.update(dict.fromkeys(LEAD_NAMES, LEAD_ID))
        self._reserved: set[str] = set()
        self._names_by_fold: dict[str, set[str]] = {}
        """Names that are equal after case folding and normalization; only some of them are live."""
        for name in LEAD_NAMES:
            self._remember_name(name)

    def add_run(self, run: AgentRun) -> None:
        if run.facts.name in self._reserved:
            self._reserved.discard(run.facts.name)
            self._names[run.facts.name] = run.id
            self._remember_name(run.facts.name)
        self._runs[run.id] = run
        self._running.setdefault(run.report_to, {})[run.id] = run

    def remove_running_agent(self, run: AgentRun) -> None:
        """Remove a run from the running ones."""
        siblings = self._running[run.report_to]
        siblings.pop(run.id, None)
        if not siblings:
            del self._running[run.report_to]

    def restore_ended_agents(self, earlier: Iterable[AgentResult]) -> None:
        """Add the agents that ended in earlier processes of the session."""
        for completion in earlier:
            self._runs[completion.agent] = AgentRun.from_result(completion)
            if completion.name:
                self._names[completion.name] = completion.agent
                self._remember_name(completion.name)

    def reserve_agent_name(self, requested: str) -> str:
        """Reserve a name, with a number if a running agent or the lead has it, or if it is ambiguous.

        The name belongs to the starting agent once its run is added.
        """
        name, number = requested, 1
        while self._is_name_taken(name):
            number += 1
            name = f"{requested}-{number}"
        self._reserved.add(name)
        self._remember_name(name)
        return name

    def _remember_name(self, name: str) -> None:
        self._names_by_fold.setdefault(fold_name(name), set()).add(name)

    def release_agent_name(self, name: str) -> None:
        """Release a reserved name whose agent does not start."""
        self._reserved.discard(name)

    def _is_name_taken(self, name: str) -> bool:
        return any(
            self._is_exact_name_taken(each) for each in (name, *self._names_by_fold.get(fold_name(name), ()))
        )

    def _is_exact_name_taken(self, name: str) -> bool:
        if name == EVERYONE or name in self._reserved or name in self._runs:
            return True
        agent = self._names.get(name)
        if agent is None:
            return False
        run = self._runs.get(agent)
        return run is None or run.is_live

    def resolve_agent_id(self, text: str) -> AgentId:
        """Return the id for a name; other text is taken as an id."""
        return self._names.get(text, AgentId(text))

    def get_run(self, agent: AgentId) -> AgentRun | None:
        return self._runs.get(agent)

    def find_run(self, text: str) -> AgentRun:
        """Find a run by name or id. Raises `AgentRequestRefused`, listing the existing ones."""
        run = self._runs.get(self.resolve_agent_id(text))
        if run is None:
            names = [each.facts.name or each.id for each in self._runs.values()][-_MAX_LISTED_NAMES:]
            if not names:
                raise AgentRequestRefused(format_run_notice("no_agents", name=repr(text)))
            listing = ", ".join(names)
            raise AgentRequestRefused(format_run_notice("unknown_agent", name=repr(text), listing=listing))
        return run

    def list_running_agents(self) -> tuple[AgentRun, ...]:
        return tuple(run for theirs in self._running.values() for run in theirs.values())

    @property
    def has_running_agents(self) -> bool:
        return bool(self._running)

    def list_running_children(self, parent: AgentId) -> tuple[AgentRun, ...]:
        """Return the running agents that report to it."""
        return tuple(self._running.get(parent, {}).values())

    def list_ended_children(self, agent: AgentId) -> tuple[AgentRun, ...]:
        """Return the ended agents that report to it."""
        return tuple(run for run in self._runs.values() if run.report_to == agent and not run.is_live)

    def list_ancestors(self, agent: AgentId) -> tuple[AgentId, ...]:
        """Return the chain of agents that it reports to, up to the lead."""
        ancestors: list[AgentId] = []
        while agent != LEAD_ID and agent in self._runs and self._runs[agent].report_to not in ancestors:
            agent = self._runs[agent].report_to
            ancestors.append(agent)
        return tuple(ancestors)

    def take_agent_snapshots(self, now: float) -> tuple[AgentStatusSnapshot, ...]:
        return tuple(run.take_snapshot(now) for run in self._runs.values())
