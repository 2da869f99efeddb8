"""Export of everything stored about a team, for teams that run, have ended or have died."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from shoal.app.teams.record import AgentsRecord
from shoal.core.agents import Completion
from shoal.core.errors import ShoalError
from shoal.core.events import AgentEnded, AgentStarted, Event, Journaled, ToolFinished
from shoal.core.ids import LEAD, AgentId, SessionId
from shoal.core.mail import Mail
from shoal.core.names import LEAD_NAME, AgentName
from shoal.core.roster import Team, agent_id
from shoal.core.tasks import Task
from shoal.core.usage import Spent
from shoal.runs.endings import last_words
from shoal.stores.files.journal import read_journal
from shoal.stores.files.ledger import usage_of
from shoal.stores.files.places import journal_path, subagent_path, subagents_of
from shoal.stores.files.sessions import find_session, read_session
from shoal.wire.journal import Recorded

_CHANGED = re.compile(r"#(\d+) (\w+)")
"""Start of the answer to a task update."""


class Posted(Struct, frozen=True, kw_only=True):
    to: AgentName
    mail: Mail


class TaskChange(Struct, frozen=True, kw_only=True):
    """Change of a task: when, by whom, and the new status."""

    at: int
    by: str
    status: str


class Person(Struct, frozen=True, kw_only=True):
    """Current or former member of the team."""

    name: AgentName
    agent: AgentId
    kind: str = ""
    model: str = ""
    still: bool = True
    """True if it is still in the roster."""
    completion: Completion | None = None
    report: str = ""
    """Last message of the member."""


class Export(Struct, frozen=True, kw_only=True):
    team: Team
    people: tuple[Person, ...]
    tasks: tuple[Task, ...]
    changes: dict[str, tuple[TaskChange, ...]]
    """Changes by task."""
    mail: tuple[Posted, ...]
    """Mail of all inboxes, the oldest first."""
    events: tuple[tuple[int, Event], ...]
    by_agent: dict[AgentId, Spent]
    total: Spent


async def exported(record: AgentsRecord, home: Path, team: Team) -> Export:
    journal = journal_path(home, SessionId(team.lead_session_id))
    recorded = tuple(read_journal(journal))
    ledger = usage_of(journal)
    people = tuple(_people(home, team, recorded))
    return Export(
        team=team,
        people=people,
        tasks=tuple(await record.board(team.name).list()),
        changes=_changes(recorded, {person.agent: person.name for person in people}),
        mail=await _mail(record, team, people),
        events=tuple((each.at, each.event) for each in recorded if isinstance(each.event, Journaled)),
        by_agent=dict(ledger.by_agent),
        total=ledger.total,
    )


def _people(home: Path, team: Team, recorded: tuple[Recorded, ...]) -> list[Person]:
    told = [each.event for each in recorded]
    ended = {event.agent: event.completion for event in told if isinstance(event, AgentEnded)}
    found: dict[AgentName, Person] = {}
    for member in team.members:
        agent = LEAD if member.name == LEAD_NAME else AgentId(member.agent_id)
        found[member.name] = Person(name=member.name, agent=agent, kind=member.agent_type, model=member.model)
    for event in told:
        if isinstance(event, AgentStarted) and event.team == team.name and event.name not in found:
            name = AgentName(event.name)
            agent = AgentId(agent_id(name, team.name))
            found[name] = Person(name=name, agent=agent, kind=event.kind, model=event.model, still=False)
    return [
        replace(each, completion=ended.get(each.agent), report=_report(home, team, each.agent))
        for each in found.values()
    ]


def _report(home: Path, team: Team, agent: AgentId) -> str:
    """Return the last message; empty if there is none or the transcript is gone."""
    try:
        transcript = find_session(home, team.lead_session_id)
        if agent != LEAD:
            transcript = subagent_path(subagents_of(transcript), agent)
        return last_words(read_session(transcript, "" if agent == LEAD else agent).messages)
    except ShoalError:
        return ""


def _changes(
    recorded: tuple[Recorded, ...], names: dict[AgentId, AgentName]
) -> dict[str, tuple[TaskChange, ...]]:
    """Collect changes from the journaled answers, which are cut to their beginning."""
    found: dict[str, tuple[TaskChange, ...]] = {}
    for each in recorded:
        event = each.event
        if not isinstance(event, ToolFinished) or event.tool != "TaskUpdate" or event.is_error:
            continue
        if (task := _CHANGED.match(event.preview)) is not None:
            change = TaskChange(at=each.at, by=names.get(event.agent, event.agent), status=task[2])
            found[task[1]] = (*found.get(task[1], ()), change)
    return found


async def _mail(record: AgentsRecord, team: Team, people: tuple[Person, ...]) -> tuple[Posted, ...]:
    boxes = record.mailboxes(team.name)
    found: list[Posted] = []
    for person in people:
        try:
            found += [Posted(to=person.name, mail=mail) for mail in await boxes.history(person.name)]
        except ShoalError:
            continue  # a member that never had an inbox
    return tuple(sorted(found, key=lambda each: each.mail.timestamp))


def as_data(export: Export) -> dict[str, Any]:
    """Encode for a JSON file; team, tasks and mail have the same form as on disk."""
    from shoal.wire.content import load
    from shoal.wire.mail import entry_bytes
    from shoal.wire.roster import team_bytes
    from shoal.wire.tasks import task_bytes

    def plain(value: object) -> Any:
        return msgspec.to_builtins(value, enc_hook=str)

    return {
        "team": load(team_bytes(export.team)),
        "people": [plain(person) for person in export.people],
        "tasks": [
            {**load(task_bytes(task)), "changes": plain(export.changes.get(task.id, ()))}
            for task in export.tasks
        ],
        "mail": [{"to": each.to, **load(entry_bytes(each.mail))} for each in export.mail],
        "costs": {"total": plain(export.total), "by_agent": plain(export.by_agent)},
        "reports": {person.name: person.report for person in export.people if person.report},
        "events": [{"at": at, **plain(event)} for at, event in export.events],
    }
