"""Facts for the list of runs, read incrementally from each journal.

A run view applies every event; here only the few relevant kinds are parsed, so that a thousand runs
cost little.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import ClassVar

from msgspec import Struct

from shoal.core.errors import StateFileError
from shoal.core.events import (
    AgentStarted,
    JournaledEvent,
    JournalRecord,
    ModelRequestSettled,
    QuestionAsked,
    SessionEnded,
    SessionStarted,
    TaskChanged,
    TurnStarted,
    UnknownJournalEvent,
)
from shoal.core.ids import LEAD_ID, AgentId
from shoal.core.permissions.questions import PlanApprovalQuestion
from shoal.stores.files.home.home_paths import open_state_file
from shoal.stores.files.sessions.journal_snapshots import SAVE_AFTER, load_journal_state
from shoal.wire.journal_codec import parse_journal_line

_CHUNK = 1 << 20
_KINDS = rb"session_started|session_ended|turn_started|agent_started|request_settled|task_changed|asked"
# Anchored at the start of a line: a model may have put anything inside an event.
_LINE = re.compile(rb'^\{"at":"[^"]{1,40}","type":"(?:' + _KINDS + rb')".*$', re.MULTILINE)


class JournaledAgentSummary(Struct, frozen=True, kw_only=True):
    """An agent of a run."""

    name: str
    team: str = ""


class JournaledRunSummary:
    """Facts of one journal."""

    snapshot_name: ClassVar[str] = "facts"
    snapshot_modules: ClassVar[tuple[str, ...]] = (__name__,)

    def __init__(self) -> None:
        self._reset_summary()

    def _reset_summary(self) -> None:
        self.offset = 0
        self.began = 0
        self.cwd = ""
        self.prompt = ""
        self.ended = False
        self.usd = 0.0
        self.tokens = 0
        self.teams: list[str] = []
        self.boards: set[str] = set()
        self.agents: dict[AgentId, JournaledAgentSummary] = {LEAD_ID: JournaledAgentSummary(name="lead")}
        self.earlier_plans: dict[str, str] = {}
        """By question: the plan that the same agent presented before."""
        self._plans: dict[AgentId, str] = {}

    def read_new_journal_events(self, journal: Path) -> None:
        """Read up to the last whole line; a journal that became shorter is a new one."""
        try:
            size = journal.stat().st_size
            if size == self.offset:
                return
            if size < self.offset:
                self._reset_summary()
            if size - self.offset >= SAVE_AFTER:
                loaded, self.offset = load_journal_state(journal, JournaledRunSummary)
                self.__dict__ |= {**loaded.__dict__, "offset": self.offset}
                return
            with open_state_file(journal) as file:
                file.seek(self.offset)
                rest = b""
                while chunk := file.read(_CHUNK):
                    complete_lines, mark, rest = (rest + chunk).rpartition(b"\n")
                    self.offset += len(complete_lines) + len(mark)
                    for line in _LINE.findall(complete_lines):
                        self._apply_journal_line(line)
        except (OSError, StateFileError):
            return  # deleted, or not there yet

    def apply_record(self, record: JournalRecord) -> None:
        if not isinstance(record.event, UnknownJournalEvent):
            self._apply_timed_event(record.at, record.event)

    def _apply_journal_line(self, line: bytes) -> None:
        try:
            time, event = parse_journal_line(line)
        except ValueError:
            return
        if not isinstance(event, UnknownJournalEvent):
            self._apply_timed_event(time, event)

    def _apply_timed_event(self, time: int, event: JournaledEvent) -> None:
        self.began = self.began or time
        self._apply_event(event)

    def _apply_event(self, event: JournaledEvent) -> None:
        match event:
            case ModelRequestSettled(usage=usage, cost_usd=usd):
                self.usd += usd or 0.0
                self.tokens += usage.total_tokens
            case TaskChanged(board=board):
                self.boards.add(board)
            case SessionStarted(cwd=cwd):
                self.cwd, self.ended = cwd, False
            case SessionEnded():
                self.ended = True
            case TurnStarted(agent=agent, prompt=prompt) if agent == LEAD_ID:
                self.prompt = self.prompt or prompt
            case AgentStarted(agent=agent, name=name, kind=kind, team=team):
                self.agents[agent] = JournaledAgentSummary(name=name or kind, team=team)
                if team and team not in self.teams:
                    self.teams.append(team)
            case QuestionAsked(agent=agent, question=PlanApprovalQuestion(id=question_id, plan=plan)):
                if agent in self._plans:
                    self.earlier_plans[question_id] = self._plans[agent]
                self._plans[agent] = plan
            case _:
                pass
