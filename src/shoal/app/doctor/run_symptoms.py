"""Symptoms that the journal of a run explains."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from shoal.app.doctor.doctor_case import DoctorContext
from shoal.app.isolation.machine_checks import DoctorDiagnostic
from shoal.app.run_view.run_view import RunView
from shoal.app.run_view.view_rows import RunViewAgentRow
from shoal.core.agents.subagents import AgentResult
from shoal.core.clock import SystemClock
from shoal.core.events import (
    AgentEnded,
    BackgroundShellEnded,
    BackgroundShellStarted,
    NotificationDelivered,
    PermissionDenied,
)
from shoal.core.ids import LEAD_ID, AgentId
from shoal.core.permissions.questions import DenyAnswer
from shoal.core.text.text_format import format_duration, to_one_line
from shoal.runs.agent_registry import LEAD_NAMES
from shoal.stores.files.sessions.journal_snapshots import load_journal_state


def explain_agent_result_not_seen(case: DoctorContext) -> Iterator[DoctorDiagnostic]:
    view = load_run_view(case)
    delivered = {
        event.completion
        for _, event in case.iter_run_events(NotificationDelivered)
        if isinstance(event, NotificationDelivered)
    }
    completions = {
        e.agent: e.completion for _, e in case.iter_run_events(AgentEnded) if isinstance(e, AgentEnded)
    }
    rows = [
        row for row in view.iter_agent_rows() if row.id != LEAD_ID and case.is_about_subject(row.id, row.name)
    ]
    if not rows:
        yield case.make_diagnostic(
            "agents",
            f"no agent{f' {case.about}' if case.about else ''} was started in this run",
            state="none",
        )
    for row in rows:
        completion = completions.get(AgentId(row.id))
        if completion is None or row.state in ("working", "waiting", "idle"):
            yield _explain_unfinished_agent(case, row)
        else:
            yield _explain_agent_result(case, row, completion, is_delivered=completion.id in delivered)


def _explain_unfinished_agent(case: DoctorContext, row: RunViewAgentRow) -> DoctorDiagnostic:
    if row.state == "waiting":
        advice = f"Answer it: shoal ask answer {row.question}"
        return case.make_diagnostic(
            row.name, "it is waiting for an answer, so there is no result yet", state="warn", advice=advice
        )
    if row.state == "idle":
        advice = f'Ask it for its report: shoal send {case.short_session_id} {row.id} "…"'
        return case.make_diagnostic(
            row.name, "it is an idle teammate: its last message went to the lead", advice=advice
        )
    if row.state == "gone":
        advice = f"Resume it: shoal --resume {case.required_run.session}"
        return case.make_diagnostic(
            row.name, "its process died before it finished", state="bad", advice=advice
        )
    ago = format_duration(SystemClock().now() / 1000 - row.heard / 1000)
    return case.make_diagnostic(
        row.name, f"it is still working ({row.doing or 'thinking'}); last event {ago} ago", state="none"
    )


def _explain_agent_result(
    case: DoctorContext, row: RunViewAgentRow, completion: AgentResult, *, is_delivered: bool
) -> DoctorDiagnostic:
    path = completion.result or completion.output
    location = f" The full text ({completion.size} characters) is in {path}." if path else ""
    if not completion.text:
        return case.make_diagnostic(
            row.name,
            f"it {completion.status} without a report: {completion.detail or 'no text'}",
            state="warn",
            advice=f'Ask it: shoal send {case.short_session_id} {row.id} "What did you find?"',
        )
    if completion.call and not completion.background:
        return case.make_diagnostic(
            row.name, f"its result is in the reply to call {completion.call}, which started it.{location}"
        )
    if is_delivered:
        return case.make_diagnostic(row.name, f"{completion.report_to} got its result.{location}")
    return case.make_diagnostic(
        row.name,
        f"it {completion.status}, but {completion.report_to} has not been notified yet.{location}",
        state="warn",
        advice=f"The notification will arrive with the next turn: shoal --resume {case.required_run.session}",
    )


def explain_recipient_not_found(case: DoctorContext) -> Iterator[DoctorDiagnostic]:
    view = load_run_view(case)
    rows = {row.name: row for row in view.iter_agent_rows()}
    if not case.about:
        yield case.make_diagnostic("who", "name the recipient: --about NAME", state="none")
    elif case.about in LEAD_NAMES:
        yield case.make_diagnostic("lead", "the lead always exists")
    else:
        yield _explain_message_recipient(case, view, rows)
    started = ", ".join(f"{row.name} ({row.state})" for row in rows.values())
    yield case.make_diagnostic(
        "agents in this run", started or "no agent has been started", state="ok" if rows else "none"
    )


def _explain_message_recipient(
    case: DoctorContext, view: RunView, rows: dict[str, RunViewAgentRow]
) -> DoctorDiagnostic:
    row = rows.get(case.about) or view.find_agent_row(AgentId(case.about))
    if row is None:
        close_names = get_close_matches(case.about, rows, n=1)
        advice = (
            f"Did you mean {close_names[0]}?"
            if close_names
            else "Use the name that the agent was started with, or its id."
        )
        return case.make_diagnostic(
            case.about, "no agent with that name was started in this run", state="bad", advice=advice
        )
    if row.state in ("completed", "failed", "killed", "gone"):
        if row.team:
            advice = "Start it again with the Agent tool, or resume the session if its process died."
            return case.make_diagnostic(
                row.name,
                f"that teammate has left ({row.state}), so its mailbox is closed",
                state="bad",
                advice=advice,
            )
        advice = f'A message resumes it: shoal send {case.short_session_id} {row.id} "…"'
        return case.make_diagnostic(row.name, f"it has ended ({row.state})", advice=advice)
    return case.make_diagnostic(row.name, f"it is {row.state}: it gets messages at its next step")


def explain_permission_unexpected(case: DoctorContext) -> Iterator[DoctorDiagnostic]:
    view = load_run_view(case)
    denied = [
        (at, e)
        for at, e in case.iter_run_events(PermissionDenied)
        if isinstance(e, PermissionDenied) and case.is_about_subject(e.tool, e.agent)
    ]
    for _, event in denied[-10:]:
        row = view.find_agent_row(event.agent)
        subject = event.agent if row is None else f"{row.name} (mode {row.mode or 'default'})"
        advice = f"Show the decision: shoal permissions explain {event.tool} '{{…}}'"
        yield case.make_diagnostic(
            subject, f"{event.tool} was refused: {to_one_line(event.reason)}", state="warn", advice=advice
        )
    for question in view.questions.values():
        if isinstance(question.answer, DenyAnswer) and not denied:
            is_person = question.answer.by == "person"
            denial = "a person denied it" if is_person else "Shoal denied it because nobody was present"
            yield case.make_diagnostic(question.name, f"{denial}: {question.answer.reason}", state="warn")
    if not denied:
        yield case.make_diagnostic("refusals", "no call was refused in this run", state="none")
    kinds = dict.fromkeys(row.kind for row in view.iter_agent_rows() if row.id != LEAD_ID)
    commands = (
        " and ".join(f"shoal agents show {kind} --permissions" for kind in kinds) or "shoal permissions ls"
    )
    yield case.make_diagnostic(
        "active",
        "an agent has its parent's rules and its own; deny rules take precedence",
        advice=f"See them: {commands}",
    )


def explain_wait_does_not_end(case: DoctorContext) -> Iterator[DoctorDiagnostic]:
    view, now = load_run_view(case), SystemClock().now()
    is_live = case.required_run.is_live
    if not is_live:
        advice = f"Resume it: shoal --resume {case.required_run.session}"
        yield case.make_diagnostic(
            "run", "the run has no process, so nothing more will happen", state="bad", advice=advice
        )
        return
    for question in view.list_open_questions():
        ago = format_duration((now - question.asked) / 1000)
        advice = f"Answer it: shoal ask answer {question.id}"
        yield case.make_diagnostic(
            question.name, f"has been waiting for your answer for {ago}", state="bad", advice=advice
        )
    for row in view.iter_agent_rows():
        if row.state == "working" and case.is_about_subject(row.id, row.name):
            yield _explain_working_agent(case, row, now)
    for task in view.tasks.values():
        blockers = view.tasks.list_open_blockers(task)
        if task.status == "pending" and blockers:
            awaited = ", ".join(
                f"#{each.id} ({each.status}{f', {each.owner}' if each.owner else ''})" for each in blockers
            )
            yield case.make_diagnostic(
                f"task #{task.id}", f"{to_one_line(task.subject)}: waiting for {awaited}", state="none"
            )
    yield from _explain_running_shells(case)


def _explain_working_agent(case: DoctorContext, row: RunViewAgentRow, now: int) -> DoctorDiagnostic:
    silent_seconds = (now - row.heard) / 1000
    awaited = f" waiting for {', '.join(row.waits_for)};" if row.waits_for else ""
    value = f"working:{awaited} {row.doing or 'thinking'}; last event {format_duration(silent_seconds)} ago"
    if silent_seconds < 120:
        return case.make_diagnostic(row.name, value, state="none")
    target = f"{case.short_session_id} {row.name}"
    advice = f"Watch it: shoal view {target}; stop it: shoal stop {target}"
    return case.make_diagnostic(row.name, value, state="warn", advice=advice)


def _explain_running_shells(case: DoctorContext) -> Iterator[DoctorDiagnostic]:
    ended = {
        event.end.facts.shell
        for _, event in case.iter_run_events(BackgroundShellEnded)
        if isinstance(event, BackgroundShellEnded)
    }
    for _, event in case.iter_run_events(BackgroundShellStarted):
        if isinstance(event, BackgroundShellStarted) and event.facts.shell not in ended:
            advice = f"Stop it: shoal stop {case.short_session_id} {event.facts.shell}"
            yield case.make_diagnostic(
                "command",
                f"runs in the background: {to_one_line(event.facts.command)}",
                state="none",
                advice=advice,
            )


def load_run_view(case: DoctorContext) -> RunView:
    run = case.required_run
    view, _ = load_journal_state(run.journal_path, RunView)
    if not run.is_live:
        view.mark_run_lost()
    return view
