"""Symptoms that the journal of a run explains."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from shoal.app.doctor.case import Case
from shoal.app.picture.picture import Picture, drawn
from shoal.app.picture.rows import AgentRow
from shoal.app.quarters.machine import Fact
from shoal.core.agents import Completion
from shoal.core.clock import SystemClock
from shoal.core.events import AgentEnded, Notified, PermissionDenied, ShellEnded, ShellStarted
from shoal.core.ids import LEAD, AgentId
from shoal.core.questions import Denied
from shoal.core.wording import one_line, seconds
from shoal.runs.roll import LEAD_NAMES
from shoal.stores.files.journal import read_journal


def result_not_seen(case: Case) -> Iterator[Fact]:
    picture = picture_of(case)
    told = {event.completion for _, event in case.events() if isinstance(event, Notified)}
    ended = {e.agent: e.completion for _, e in case.events() if isinstance(e, AgentEnded)}
    rows = [row for row in picture.agents() if row.id != LEAD and case.concerns(row.id, row.name)]
    if not rows:
        yield case.fact(
            "agents",
            f"no agent{f' {case.about}' if case.about else ''} was started in this run",
            state="none",
        )
    for row in rows:
        completion = ended.get(AgentId(row.id))
        if completion is None or row.state in ("working", "waiting", "idle"):
            yield _not_ended(case, row)
        else:
            yield _result(case, row, completion, told=completion.id in told)


def _not_ended(case: Case, row: AgentRow) -> Fact:
    if row.state == "waiting":
        advice = f"Answer it: shoal ask answer {row.question}"
        return case.fact(
            row.name, "it waits for an answer, so there is no result yet", state="warn", advice=advice
        )
    if row.state == "idle":
        advice = f'Ask it for its report: shoal send {case.short} {row.id} "…"'
        return case.fact(
            row.name, "it is a teammate and idle: its last words went to the lead", advice=advice
        )
    if row.state == "gone":
        advice = f"Let it go on: shoal --resume {case.of_run.session}"
        return case.fact(row.name, "its process died before it ended", state="bad", advice=advice)
    ago = seconds(SystemClock().now() / 1000 - row.heard / 1000)
    return case.fact(
        row.name, f"it still works ({row.doing or 'thinking'}); last heard of {ago} ago", state="none"
    )


def _result(case: Case, row: AgentRow, completion: Completion, *, told: bool) -> Fact:
    whole = completion.result or completion.output
    where = f" The whole of it ({completion.size} characters) is in {whole}." if whole else ""
    if not completion.text:
        return case.fact(
            row.name,
            f"it {completion.status} without a report: {completion.detail or 'it said nothing'}",
            state="warn",
            advice=f'Ask it: shoal send {case.short} {row.id} "What did you find?"',
        )
    if completion.call and not completion.background:
        return case.fact(
            row.name, f"its result is the answer to the call {completion.call} that started it.{where}"
        )
    if told:
        return case.fact(row.name, f"{completion.report_to} was given its result.{where}")
    return case.fact(
        row.name,
        f"it {completion.status}, and {completion.report_to} has not heard of it yet.{where}",
        state="warn",
        advice=f"It is told with the next turn: shoal --resume {case.of_run.session}",
    )


def recipient_not_found(case: Case) -> Iterator[Fact]:
    picture = picture_of(case)
    rows = {row.name: row for row in picture.agents()}
    if not case.about:
        yield case.fact("who", "name whom you wrote to: --about NAME", state="none")
    elif case.about in LEAD_NAMES:
        yield case.fact("lead", "the lead is always there")
    else:
        yield _recipient(case, picture, rows)
    known = ", ".join(f"{row.name} ({row.state})" for row in rows.values())
    yield case.fact("those there", known or "nobody has started", state="ok" if rows else "none")


def _recipient(case: Case, picture: Picture, rows: dict[str, AgentRow]) -> Fact:
    row = rows.get(case.about) or picture.agent(AgentId(case.about))
    if row is None:
        near = get_close_matches(case.about, rows, n=1)
        advice = (
            f"Is {near[0]} meant?" if near else "Names are those given when they were started; ids do too."
        )
        return case.fact(
            case.about, "nobody of that name was started in this run", state="bad", advice=advice
        )
    if row.state in ("completed", "failed", "killed", "gone"):
        if row.team:
            advice = "Start it again with the Agent tool, or resume the session if its process died."
            return case.fact(
                row.name,
                f"that teammate has left ({row.state}): its inbox is closed",
                state="bad",
                advice=advice,
            )
        advice = f'It goes on with what is said to it: shoal send {case.short} {row.id} "…"'
        return case.fact(row.name, f"it has ended ({row.state})", advice=advice)
    return case.fact(row.name, f"it is there and {row.state}: what is sent reaches it at its next step")


def permission_unexpected(case: Case) -> Iterator[Fact]:
    picture = picture_of(case)
    denied = [
        (at, e)
        for at, e in case.events()
        if isinstance(e, PermissionDenied) and case.concerns(e.tool, e.agent)
    ]
    for _, event in denied[-10:]:
        row = picture.agent(event.agent)
        who = event.agent if row is None else f"{row.name} (mode {row.mode or 'default'})"
        advice = f"See what would be decided: shoal permissions explain {event.tool} '{{…}}'"
        yield case.fact(
            who, f"{event.tool} was refused: {one_line(event.reason)}", state="warn", advice=advice
        )
    for question in picture.questions.values():
        if isinstance(question.answer, Denied) and not denied:
            whose = "a person" if question.answer.by == "person" else "policy, since nobody was there,"
            yield case.fact(question.name, f"{whose} said no: {question.answer.reason}", state="warn")
    if not denied:
        yield case.fact("refusals", "nothing was refused in this run", state="none")
    kinds = dict.fromkeys(row.kind for row in picture.agents() if row.id != LEAD)
    shown = (
        " and ".join(f"shoal agents show {kind} --permissions" for kind in kinds) or "shoal permissions ls"
    )
    yield case.fact(
        "in force", "a child's rules are its parent's and its own; deny wins", advice=f"See them: {shown}"
    )


def wait_does_not_end(case: Case) -> Iterator[Fact]:
    picture, now = picture_of(case), SystemClock().now()
    live = case.of_run.is_live
    if not live:
        advice = f"Go on with it: shoal --resume {case.of_run.session}"
        yield case.fact(
            "run", "no process works on this run: nothing will come by itself", state="bad", advice=advice
        )
        return
    for question in picture.open_questions():
        ago = seconds((now - question.asked) / 1000)
        advice = f"Answer it: shoal ask answer {question.id}"
        yield case.fact(question.name, f"asks a person, for {ago} now", state="bad", advice=advice)
    for row in picture.agents():
        if row.state == "working" and case.concerns(row.id, row.name):
            yield _worker(case, row, now)
    for task in picture.tasks.values():
        blockers = picture.tasks.open_blockers(task)
        if task.status == "pending" and blockers:
            waits = ", ".join(
                f"#{each.id} ({each.status}{f', {each.owner}' if each.owner else ''})" for each in blockers
            )
            yield case.fact(f"task #{task.id}", f"{one_line(task.subject)}: waits for {waits}", state="none")
    yield from _shells(case)


def _worker(case: Case, row: AgentRow, now: int) -> Fact:
    silent = (now - row.heard) / 1000
    waits = f" waits for {', '.join(row.waits_for)};" if row.waits_for else ""
    value = f"works:{waits} {row.doing or 'thinking'}; last heard of {seconds(silent)} ago"
    if silent < 120:
        return case.fact(row.name, value, state="none")
    advice = f"Look at it: shoal view {case.short} {row.name}; end it: shoal stop {case.short} {row.name}"
    return case.fact(row.name, value, state="warn", advice=advice)


def _shells(case: Case) -> Iterator[Fact]:
    ended = {event.end.facts.shell for _, event in case.events() if isinstance(event, ShellEnded)}
    for _, event in case.events():
        if isinstance(event, ShellStarted) and event.facts.shell not in ended:
            advice = f"End it: shoal stop {case.short} {event.facts.shell}"
            yield case.fact(
                "command",
                f"runs in the background: {one_line(event.facts.command)}",
                state="none",
                advice=advice,
            )


def picture_of(case: Case) -> Picture:
    run = case.of_run
    picture = drawn(read_journal(run.journal))
    if not run.is_live:
        picture.lost()
    return picture
