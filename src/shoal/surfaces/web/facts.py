"""Facts for the list of runs, read incrementally from each journal.

A run view applies every event; here only the few relevant kinds are parsed, so that a thousand runs
cost little.
"""

from __future__ import annotations

import re
from pathlib import Path

from msgspec import Struct

from shoal.core.events import (
    AgentStarted,
    Asked,
    Journaled,
    RequestSettled,
    SessionEnded,
    SessionStarted,
    TaskChanged,
    TurnStarted,
)
from shoal.core.ids import LEAD, AgentId
from shoal.core.questions import ApprovePlan
from shoal.wire.journal import Unknown, read_event

_CHUNK = 1 << 20
_KINDS = rb"session_started|session_ended|turn_started|agent_started|request_settled|task_changed|asked"
# Anchored at the start of a line: a model may have put anything inside an event.
_LINE = re.compile(rb'^\{"at":"[^"]{1,40}","type":"(?:' + _KINDS + rb')".*$', re.MULTILINE)


class Known(Struct, frozen=True, kw_only=True):
    """An agent of a run."""

    name: str
    team: str = ""


class RunFacts:
    """Facts of one journal."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self.offset = 0
        self.began = 0
        self.cwd = ""
        self.prompt = ""
        self.ended = False
        self.usd = 0.0
        self.tokens = 0
        self.teams: list[str] = []
        self.boards: set[str] = set()
        self.agents: dict[AgentId, Known] = {LEAD: Known(name="lead")}
        self.earlier_plans: dict[str, str] = {}
        """By question: the plan that the same agent presented before."""
        self._plans: dict[AgentId, str] = {}

    def read_on(self, journal: Path) -> None:
        """Read up to the last whole line; a journal that became shorter is a new one."""
        try:
            size = journal.stat().st_size
            if size == self.offset:
                return
            if size < self.offset:
                self._forget()
            with journal.open("rb") as file:
                file.seek(self.offset)
                rest = b""
                while chunk := file.read(_CHUNK):
                    whole, mark, rest = (rest + chunk).rpartition(b"\n")
                    self.offset += len(whole) + len(mark)
                    for line in _LINE.findall(whole):
                        self._take(line)
        except OSError:
            return  # deleted, or not there yet

    def _take(self, line: bytes) -> None:
        try:
            at, event = read_event(line)
        except ValueError:
            return
        if not isinstance(event, Unknown):
            self.began = self.began or at
            self._hear(event)

    def _hear(self, event: Journaled) -> None:
        match event:
            case RequestSettled(usage=usage, cost_usd=usd):
                self.usd += usd or 0.0
                self.tokens += usage.total_tokens
            case TaskChanged(board=board):
                self.boards.add(board)
            case SessionStarted(cwd=cwd):
                self.cwd, self.ended = cwd, False
            case SessionEnded():
                self.ended = True
            case TurnStarted(agent=agent, prompt=prompt) if agent == LEAD:
                self.prompt = self.prompt or prompt
            case AgentStarted(agent=agent, name=name, kind=kind, team=team):
                self.agents[agent] = Known(name=name or kind, team=team)
                if team and team not in self.teams:
                    self.teams.append(team)
            case Asked(agent=agent, question=ApprovePlan(id=ident, plan=plan)):
                if agent in self._plans:
                    self.earlier_plans[ident] = self._plans[agent]
                self._plans[agent] = plan
            case _:
                pass
