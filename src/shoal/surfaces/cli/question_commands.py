"""`shoal ask` commands: list, show and answer the open questions of agents from any terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from shoal.surfaces.cli import exit_codes
from shoal.surfaces.cli.cli_output import print_json

if TYPE_CHECKING:
    from shoal.app.run_access.pending_questions import PendingQuestion
    from shoal.core.permissions.questions import Answer, Question, RememberScope


@click.group("ask", invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print the open questions as a JSON array.")
@click.pass_context
def question_commands(ctx: click.Context, *, as_json: bool) -> int:
    """List and answer questions from agents.

    Without a sub-command, list the open questions.
    """
    return (
        ctx.invoke(list_open_questions, as_json=as_json) if ctx.invoked_subcommand is None else exit_codes.OK
    )


@question_commands.command("ls")
@click.option("--all", "everything", is_flag=True, help="Include questions from finished runs.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def list_open_questions(*, everything: bool = False, as_json: bool = False) -> int:
    """List the open questions, oldest first."""
    rows = [row for row in _load_open_questions() if row.live or everything]
    if as_json:
        print_json([_question_to_dict(row) for row in rows])
    elif not rows:
        click.echo("There are no open questions.")
    else:
        for row in rows:
            click.echo(_format_question_row(row))
        first = rows[0].question.id
        click.echo(f"\nShow the first one: shoal ask show {first}")
        click.echo(f"Answer it: shoal ask answer {first} yes   or   shoal ask answer {first} no")
    return exit_codes.OK


@question_commands.command("show")
@click.argument("question")
def show_question(*, question: str) -> int:
    """Show QUESTION in full, with everything that would run."""
    from shoal.app.run_access.pending_questions import find_pending_question
    from shoal.app.settings.settings import find_process_shoal_home

    row = find_pending_question(_load_open_questions(), question, find_process_shoal_home())
    click.echo(f"{row.question.id}  {_format_age(row)} by {_describe_asker(row)} in session {row.session}")
    for line in _format_question(row.question):
        click.echo(line)
    return exit_codes.OK


@question_commands.command("answer")
@click.argument("question")
@click.argument("answer", type=click.Choice(["yes", "no"]), required=False)
@click.option("--reason", help="With `no`: the reason to give the agent.")
@click.option(
    "--for",
    "remember",
    type=click.Choice(["once", "session", "settings"]),
    default="once",
    help="With `yes`: how long the permission applies.",
)
@click.option(
    "--choice",
    "choices",
    multiple=True,
    help="Label of the chosen option; repeat this flag for each part of the question.",
)
@click.option("--input", "changed", metavar="JSON", help="With `yes`: run the tool with this input instead.")
def answer_question(
    *,
    question: str,
    answer: str | None,
    reason: str | None,
    remember: RememberScope,
    choices: tuple[str, ...],
    changed: str | None,
) -> int:
    """Answer QUESTION (its id or the beginning of it). The first answer counts.

    After a crash, Shoal tells the agent in the resumed run that you approved its interrupted call, but does
    not repeat the call automatically.
    """
    from shoal.app.run_access.pending_questions import (
        find_interrupted_question,
        find_pending_question,
        submit_late_answer,
        submit_question_answer,
    )
    from shoal.app.settings.configured_store import open_home_store
    from shoal.app.settings.settings import find_process_shoal_home
    from shoal.core.clock import SystemClock

    rows, home = _load_open_questions(), find_process_shoal_home()
    late = None
    if not any(row.question.id.startswith(question) for row in rows):
        late = find_interrupted_question(open_home_store(home), question, SystemClock())
    row = late or find_pending_question(rows, question, home)
    given_answer = _build_question_answer(row.question, answer, reason, remember, choices)
    _reject_unused_answer_options(given_answer, reason, remember, choices)
    if changed is not None:
        given_answer = _replace_answer_tool_input(given_answer, changed)
    if late is not None:
        submit_late_answer(late, given_answer)
        click.echo(
            f"Allowed {late.question.id}. The call was interrupted when the run died. Shoal does not "
            f"repeat it, but notifies the lead, which can repeat it."
        )
        return exit_codes.OK
    if not submit_question_answer(row, given_answer):
        click.echo(f"{row.question.id} was already answered; your answer is ignored.", err=True)
        return exit_codes.ERROR
    for line in _format_question(row.question):
        click.echo(line)
    click.echo(f"Answered {row.question.id}: {_describe_asker(row)} continues.")
    return exit_codes.OK


def _load_open_questions() -> tuple[PendingQuestion, ...]:
    from shoal.app.run_access.pending_questions import list_pending_questions
    from shoal.app.settings.configured_store import open_home_store
    from shoal.app.settings.settings import find_process_shoal_home
    from shoal.core.clock import SystemClock

    return list_pending_questions(open_home_store(find_process_shoal_home()), SystemClock())


def _build_question_answer(
    question: Question,
    answer: str | None,
    reason: str | None,
    remember: RememberScope,
    choices: tuple[str, ...],
) -> Answer:
    from shoal.core.permissions.questions import (
        AllowAnswer,
        ChoiceAnswer,
        ChoiceQuestion,
        DenyAnswer,
        PermissionQuestion,
        PlanApprovalQuestion,
        PlanApprovedAnswer,
    )
    from shoal.surfaces.terminal.question_text import DEFAULT_DENIAL_REASON, list_remember_options

    if isinstance(question, ChoiceQuestion) and answer != "no":
        parts = question.choices
        if len(choices) != len(parts):
            labels = "; ".join(f"{p.question} {' | '.join(o.label for o in p.options)}" for p in parts)
            raise click.UsageError(f"Pass --choice LABEL once for each part of the question: {labels}")
        return ChoiceAnswer(
            answers={part.question: chosen for part, chosen in zip(parts, choices, strict=True)}
        )
    if answer is None:
        raise click.UsageError("Answer yes or no.")
    if answer == "no":
        return DenyAnswer(reason=reason or DEFAULT_DENIAL_REASON)
    if isinstance(question, PlanApprovalQuestion):
        return PlanApprovedAnswer(digest=question.digest)
    if isinstance(question, PermissionQuestion) and remember not in list_remember_options(question):
        raise click.UsageError(
            f"Shoal cannot store a rule for this call, so `yes` applies once. Leave out --for {remember}."
        )
    return AllowAnswer(remember=remember)


def _reject_unused_answer_options(
    answer: Answer, reason: str | None, remember: RememberScope, choices: tuple[str, ...]
) -> None:
    """Reject options that do not fit the answer: the first answer counts, so nothing may be dropped."""
    from shoal.core.permissions.questions import AllowAnswer, ChoiceAnswer, DenyAnswer

    if reason is not None and not isinstance(answer, DenyAnswer):
        raise click.UsageError("--reason works only with `no`: with `yes`, the agent gets no message.")
    if choices and not isinstance(answer, ChoiceAnswer):
        raise click.UsageError("--choice works only for a question with choices, and not with `no`.")
    if remember != "once" and not isinstance(answer, AllowAnswer):
        raise click.UsageError(f"--for {remember} works only with `yes` to a tool call.")


def _replace_answer_tool_input(answer: Answer, input_json: str) -> Answer:
    from msgspec.structs import replace

    from shoal.core.permissions.questions import AllowAnswer
    from shoal.wire.json_codec import decode_json

    if not isinstance(answer, AllowAnswer):
        raise click.UsageError("--input works only when you answer `yes` to a tool call.")
    try:
        value = decode_json(input_json.encode())
    except ValueError as error:
        raise click.UsageError(f"--input is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise click.UsageError(
            '--input must be the complete input as a JSON object, such as \'{"command": "ls"}\'.'
        )
    return replace(answer, input=value)


def _summarize_question(question: Question) -> str:
    from shoal.core.permissions.questions import ChoiceQuestion, PlanApprovalQuestion
    from shoal.core.text.text_format import to_one_line

    if isinstance(question, ChoiceQuestion):
        return to_one_line(" / ".join(choice.question for choice in question.choices))
    if isinstance(question, PlanApprovalQuestion):
        return to_one_line(f"Plan: {question.plan}")
    inputs = ", ".join(f"{key}: {value}" for key, value in question.input.items())
    return to_one_line(f"{question.tool}({inputs})  because {question.reason}")


def _format_question(question: Question) -> Iterator[str]:
    from shoal.core.permissions.questions import ChoiceQuestion, PlanApprovalQuestion
    from shoal.core.text.text_format import (
        make_visible_in_one_line,
        split_into_visible_lines,
        strip_terminal_codes,
    )
    from shoal.surfaces.terminal.question_text import format_tool_input_value

    if isinstance(question, ChoiceQuestion):
        for choice in question.choices:
            yield strip_terminal_codes(
                f"  {choice.question}  {' | '.join(option.label for option in choice.options)}"
            )
        return
    if isinstance(question, PlanApprovalQuestion):
        yield strip_terminal_codes(f"  Plan in {question.path}:")
        yield from (f"    {line}" for line in split_into_visible_lines(question.plan))
        return
    yield strip_terminal_codes(f"  {question.tool}: {question.reason}")
    for key, value in question.input.items():
        first, *rest = split_into_visible_lines(format_tool_input_value(value))
        yield f"    {make_visible_in_one_line(key)}: {first}"
        yield from (f"      {line}" for line in rest)


def _format_question_row(row: PendingQuestion) -> str:
    from shoal.surfaces.terminal.text_styles import truncate_text

    ended_note = "" if row.live else "  (its run has ended)"
    summary = truncate_text(_summarize_question(row.question), 100)
    age = "?" if row.seconds is None else row.seconds
    return f"{row.question.id}  {age:>5} s  {_describe_asker(row)}  {summary}{ended_note}"


def _format_age(row: PendingQuestion) -> str:
    return "asked" if row.seconds is None else f"asked {row.seconds} s ago"


def _describe_asker(row: PendingQuestion) -> str:
    from shoal.app.run_access.run_handle import load_agent_statuses
    from shoal.app.run_access.stored_runs import open_process_run
    from shoal.core.ids import LEAD_ID
    from shoal.surfaces.terminal.text_styles import truncate_text

    agent = row.question.agent
    if agent == LEAD_ID:
        return str(agent)
    statuses = load_agent_statuses(open_process_run(row.session))
    return truncate_text(statuses.describe_agent(agent), 60)


def _question_to_dict(row: PendingQuestion) -> dict[str, object]:
    return {
        "id": row.question.id,
        "session": row.session,
        "agent": row.question.agent,
        "seconds": row.seconds,
        "live": row.live,
        "question": row.question,
    }
