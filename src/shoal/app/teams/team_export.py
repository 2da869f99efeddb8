"""Export of everything stored about a team, for teams that run, have ended or have died."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from shoal.app.run_access.run_handle import RunHandle
from shoal.app.teams.team_store import TeamStore
from shoal.core.agents.subagents import AgentResult
from shoal.core.budgets.usage import UsageAndCostTotals
from shoal.core.errors import SessionNotFound, ShoalError
from shoal.core.events import AgentEnded, AgentStarted, Event, JournaledEvent, JournalRecord, ToolFinished
from shoal.core.ids import LEAD_ID, AgentId
from shoal.core.names import LEAD_NAME, AgentName, map_to_inbox_name
from shoal.core.teams.mail import MailMessage
from shoal.core.teams.roster import TeamRoster, format_agent_id
from shoal.core.teams.tasks import Task
from shoal.runs.run_outcome import find_last_assistant_text
from shoal.stores.files.sessions.usage_summary import summarize_journal_usage

_CHANGE_ANSWER = re.compile(r"#(\d+) (\w+)")
"""Start of the answer to a task update."""


class ExportedMail(Struct, frozen=True, kw_only=True):
    to: AgentName
    mail: MailMessage


class ExportedTaskChange(Struct, frozen=True, kw_only=True):
    """Change of a task: when, by whom, and the new status."""

    at: int
    by: str
    status: str


class ExportedMember(Struct, frozen=True, kw_only=True):
    """Current or former member of the team."""

    name: AgentName
    agent: AgentId
    kind: str = ""
    model: str = ""
    still: bool = True
    """True if it is still in the roster."""
    completion: AgentResult | None = None
    report: str = ""
    """Last message of the member."""


class TeamExport(Struct, frozen=True, kw_only=True):
    team: TeamRoster
    people: tuple[ExportedMember, ...]
    tasks: tuple[Task, ...]
    changes: dict[str, tuple[ExportedTaskChange, ...]]
    """Changes by task."""
    mail: tuple[ExportedMail, ...]
    """Mail of all inboxes, the oldest first."""
    events: tuple[tuple[int, Event], ...]
    by_agent: dict[AgentId, UsageAndCostTotals]
    total: UsageAndCostTotals


async def export_team(store: TeamStore, run: RunHandle, team: TeamRoster) -> TeamExport:
    """Export the team that works in a run, and report what is missing because it is damaged."""
    records = tuple(run.read_journal())
    usage = summarize_journal_usage(run.journal_path)
    members = tuple(_collect_members(store, run, team, records))
    _report_damaged_files(store, run)
    return TeamExport(
        team=team,
        people=members,
        tasks=tuple(await store.open_board(team.name).list_tasks()),
        changes=_collect_task_changes(records, {member.agent: member.name for member in members}),
        mail=await _collect_mail(store, team, members),
        events=tuple((each.at, each.event) for each in records if isinstance(each.event, JournaledEvent)),
        by_agent=dict(usage.by_agent),
        total=usage.total,
    )


def _report_damaged_files(store: TeamStore, run: RunHandle) -> None:
    try:
        session = run.get_store().find_session(run.session)
    except ShoalError:
        return  # the run of a foreign lead, or a run whose transcript is gone
    for report in session.report_damaged_files(now=None):
        store.report_problem(report)


def _collect_members(
    store: TeamStore, run: RunHandle, team: TeamRoster, records: tuple[JournalRecord, ...]
) -> list[ExportedMember]:
    events = [each.event for each in records]
    results = {event.agent: event.completion for event in events if isinstance(event, AgentEnded)}
    found: dict[AgentName, ExportedMember] = {}
    for member in team.members:
        agent = LEAD_ID if member.name == LEAD_NAME else AgentId(member.agent_id)
        found[member.name] = ExportedMember(
            name=member.name, agent=agent, kind=member.agent_type, model=member.model
        )
    for event in events:
        if isinstance(event, AgentStarted) and event.team == team.name and event.name not in found:
            name = AgentName(event.name)
            agent = AgentId(format_agent_id(name, team.name))
            found[name] = ExportedMember(
                name=name, agent=agent, kind=event.kind, model=event.model, still=False
            )
    return [
        replace(each, completion=results.get(each.agent), report=_read_member_report(store, run, each.agent))
        for each in found.values()
    ]


def _read_member_report(store: TeamStore, run: RunHandle, agent: AgentId) -> str:
    """Return the last message; empty if there is none or the transcript is gone."""
    try:
        session = run.get_store().find_session(run.session)
        conversation = session.restore_conversation(agent)
    except SessionNotFound:
        return ""  # it never had a turn, or its lead is another program
    except ShoalError as error:
        store.report_problem(str(error))
        return ""
    if damage := conversation.describe_damage(str(session.get_transcript_path(agent) or f"of {agent}")):
        store.report_problem(damage)
    return find_last_assistant_text(conversation.messages)


def _collect_task_changes(
    records: tuple[JournalRecord, ...], names: dict[AgentId, AgentName]
) -> dict[str, tuple[ExportedTaskChange, ...]]:
    """Collect changes from the journaled answers, which are cut to their beginning."""
    found: dict[str, tuple[ExportedTaskChange, ...]] = {}
    for record in records:
        event = record.event
        if not isinstance(event, ToolFinished) or event.tool != "TaskUpdate" or event.is_error:
            continue
        if (match := _CHANGE_ANSWER.match(event.preview)) is not None:
            change = ExportedTaskChange(at=record.at, by=names.get(event.agent, event.agent), status=match[2])
            found[match[1]] = (*found.get(match[1], ()), change)
    return found


async def _collect_mail(
    store: TeamStore, team: TeamRoster, members: tuple[ExportedMember, ...]
) -> tuple[ExportedMail, ...]:
    mailboxes = store.open_mailboxes(team.name)
    found: list[ExportedMail] = []
    for member in members:
        try:
            found += [
                ExportedMail(to=member.name, mail=mail)
                for mail in await mailboxes.read_history(map_to_inbox_name(member.name))
            ]
        except ShoalError:
            continue  # a member that never had an inbox
    return tuple(sorted(found, key=lambda each: each.mail.timestamp))


def encode_team_export(export: TeamExport) -> dict[str, Any]:
    """Encode for a JSON file; team, tasks and mail have the same form as on disk."""
    from shoal.wire.json_codec import decode_json
    from shoal.wire.mail_codec import encode_inbox_entry
    from shoal.wire.roster_codec import encode_new_team_roster
    from shoal.wire.task_codec import encode_new_task

    def to_json_value(value: object) -> Any:
        return msgspec.to_builtins(value, enc_hook=str)

    return {
        "team": decode_json(encode_new_team_roster(export.team)),
        "people": [to_json_value(member) for member in export.people],
        "tasks": [
            {**decode_json(encode_new_task(task)), "changes": to_json_value(export.changes.get(task.id, ()))}
            for task in export.tasks
        ],
        "mail": [{"to": each.to, **decode_json(encode_inbox_entry(each.mail))} for each in export.mail],
        "costs": {"total": to_json_value(export.total), "by_agent": to_json_value(export.by_agent)},
        "reports": {member.name: member.report for member in export.people if member.report},
        "events": [{"at": at, **to_json_value(event)} for at, event in export.events],
    }
