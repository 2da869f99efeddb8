"""`shoal ask` commands: list, show and answer the open questions of agents from any terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from shoal.surfaces.cli import exits
from shoal.surfaces.cli.printing import print_json

if TYPE_CHECKING:
    from shoal.app.outside.questions import Row
    from shoal.core.questions import Answer, Question, Remember


@click.group("ask", invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="The open questions as a JSON array.")
@click.pass_context
def command(ctx: click.Context, *, as_json: bool) -> int:
    """See what agents ask, and answer.

    Without a sub-command the open questions are listed.
    """
    return ctx.invoke(listing, as_json=as_json) if ctx.invoked_subcommand is None else exits.OK


@command.command("ls")
@click.option("--all", "everything", is_flag=True, help="Also those of runs that have ended.")
@click.option("--json", "as_json", is_flag=True, help="As a JSON array.")
def listing(*, everything: bool = False, as_json: bool = False) -> int:
    """List the open questions, the oldest first."""
    rows = [row for row in _rows() if row.live or everything]
    if as_json:
        print_json([_facts(row) for row in rows])
    elif not rows:
        click.echo("Nobody asks anything.")
    else:
        for row in rows:
            click.echo(_line(row))
        click.echo("\nSee one whole: shoal ask show ID")
        click.echo("Answer one: shoal ask answer ID yes   or   shoal ask answer ID no --reason WHY")
    return exits.OK


@command.command("show")
@click.argument("question")
def showing(*, question: str) -> int:
    """Show QUESTION whole: every word of what would run."""
    from shoal.app.outside.questions import find_row
    from shoal.app.settings.settings import home_directory

    row = find_row(_rows(), question, home_directory())
    click.echo(f"{row.question.id}  asked {row.seconds} s ago by {_asker(row)} in session {row.session}")
    for line in _whole(row.question):
        click.echo(line)
    return exits.OK


@command.command("answer")
@click.argument("question")
@click.argument("answer", type=click.Choice(["yes", "no"]), required=False)
@click.option("--reason", help="Why not; the agent reads it.")
@click.option(
    "--for",
    "remember",
    type=click.Choice(["once", "session", "settings"]),
    default="once",
    help="How long a yes holds.",
)
@click.option(
    "--choice", "choices", multiple=True, help="The label chosen, once for each part of the question."
)
@click.option("--input", "changed", metavar="JSON", help="With yes: run it with this input instead.")
def answering(
    *,
    question: str,
    answer: str | None,
    reason: str | None,
    remember: Remember,
    choices: tuple[str, ...],
    changed: str | None,
) -> int:
    """Answer QUESTION (its id, or the start of it). The first answer stands.

    After a crash, a yes to a call that was cut off is told to the agent of the resumed run; the call is
    not run by itself.
    """
    from shoal.app.outside.questions import find_cut_off, find_row, give, give_late
    from shoal.app.settings.settings import home_directory
    from shoal.core.clock import SystemClock

    rows = _rows()
    late = None
    if not any(row.question.id.startswith(question) for row in rows):
        late = find_cut_off(home_directory(), question, SystemClock())
    row = late or find_row(rows, question, home_directory())
    given = _answer(row.question, answer, reason, remember, choices)
    _refuse_what_is_not_passed_on(given, reason, remember, choices)
    if changed is not None:
        given = _with_input(given, changed)
    if late is not None:
        give_late(late, given)
        click.echo(
            f"Allowed {late.question.id}: its call was cut off when the run died and is not run by itself. "
            "The lead is told, and may have it made again."
        )
        return exits.OK
    if not give(row, given):
        click.echo(f"Somebody answered {row.question.id} first; this answer is dropped.", err=True)
        return exits.ERROR
    for line in _whole(row.question):
        click.echo(line)
    click.echo(f"Answered {row.question.id}: {_asker(row)} goes on.")
    return exits.OK


def _rows() -> tuple[Row, ...]:
    from shoal.app.outside.questions import open_rows
    from shoal.app.settings.settings import home_directory
    from shoal.core.clock import SystemClock

    return open_rows(home_directory(), SystemClock())


def _answer(
    question: Question, answer: str | None, reason: str | None, remember: Remember, choices: tuple[str, ...]
) -> Answer:
    from shoal.core.questions import Allowed, Approved, ApprovePlan, Choose, Chosen, Denied, MayRun
    from shoal.surfaces.terminal.question_words import SAID_NO, can_hold

    if isinstance(question, Choose) and answer != "no":
        parts = question.choices
        if len(choices) != len(parts):
            labels = "; ".join(f"{p.question} {' | '.join(o.label for o in p.options)}" for p in parts)
            raise click.UsageError(f"Give --choice LABEL {len(parts)} times, for: {labels}")
        return Chosen(answers={part.question: chosen for part, chosen in zip(parts, choices, strict=True)})
    if answer is None:
        raise click.UsageError("Say yes or no.")
    if answer == "no":
        return Denied(reason=reason or SAID_NO)
    if isinstance(question, ApprovePlan):
        return Approved(digest=question.digest)
    if isinstance(question, MayRun) and remember not in can_hold(question):
        raise click.UsageError(
            f"There is no rule to keep for this call, so a yes holds once: leave --for {remember} out."
        )
    return Allowed(remember=remember)


def _refuse_what_is_not_passed_on(
    given: Answer, reason: str | None, remember: Remember, choices: tuple[str, ...]
) -> None:
    """Reject options that the answer cannot carry: the first answer stands, so nothing may be dropped."""
    from shoal.core.questions import Allowed, Chosen, Denied

    if reason is not None and not isinstance(given, Denied):
        raise click.UsageError("--reason goes with a no: an agent that may go on is told no words.")
    if choices and not isinstance(given, Chosen):
        raise click.UsageError("--choice goes with a question that has choices, and with no `no`.")
    if remember != "once" and not isinstance(given, Allowed):
        raise click.UsageError(f"--for {remember} goes with a yes to a tool call.")


def _with_input(answer: Answer, changed: str) -> Answer:
    from msgspec.structs import replace

    from shoal.core.questions import Allowed
    from shoal.wire.content import load

    if not isinstance(answer, Allowed):
        raise click.UsageError("--input goes with a yes to a tool call.")
    try:
        value = load(changed.encode())
    except ValueError as error:
        raise click.UsageError(f"--input is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise click.UsageError('--input is the whole input as a JSON object, like \'{"command": "ls"}\'.')
    return replace(answer, input=value)


def _what(question: Question) -> str:
    from shoal.core.questions import ApprovePlan, Choose
    from shoal.core.wording import one_line

    if isinstance(question, Choose):
        return one_line(" / ".join(choice.question for choice in question.choices))
    if isinstance(question, ApprovePlan):
        return one_line(f"Plan: {question.plan}")
    shown = ", ".join(f"{key}: {value}" for key, value in question.input.items())
    return one_line(f"{question.tool}({shown})  because {question.reason}")


def _whole(question: Question) -> Iterator[str]:
    from shoal.core.questions import ApprovePlan, Choose
    from shoal.core.wording import clean

    if isinstance(question, Choose):
        for choice in question.choices:
            yield clean(f"  {choice.question}  {' | '.join(option.label for option in choice.options)}")
        return
    if isinstance(question, ApprovePlan):
        yield clean(f"  The plan in {question.path}:")
        yield from (clean(f"    {line}") for line in question.plan.splitlines())
        return
    yield clean(f"  {question.tool}: {question.reason}")
    for key, value in question.input.items():
        first, *rest = str(value).splitlines() or [""]
        yield clean(f"    {key}: {first}")
        yield from (clean(f"      {line}") for line in rest)


def _line(row: Row) -> str:
    from shoal.surfaces.terminal.paint import cut

    gone = "" if row.live else "  (its run has ended)"
    return f"{row.question.id}  {row.seconds:>5} s  {_asker(row)}  {cut(_what(row.question), 100)}{gone}"


def _asker(row: Row) -> str:
    from shoal.app.outside.watching import Run, standings_of
    from shoal.app.settings.settings import home_directory
    from shoal.core.ids import LEAD
    from shoal.surfaces.terminal.paint import cut

    standings = standings_of(Run(session=row.session, home=home_directory()))
    agent = row.question.agent
    return str(agent) if agent == LEAD else cut(standings.described(agent), 60)


def _facts(row: Row) -> dict[str, object]:
    return {
        "id": row.question.id,
        "session": row.session,
        "agent": row.question.agent,
        "seconds": row.seconds,
        "live": row.live,
        "question": row.question,
    }
