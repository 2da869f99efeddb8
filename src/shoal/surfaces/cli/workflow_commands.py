"""`shoal workflow` commands: list, run, show and resume workflows."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.core.text.text_format import strip_terminal_codes
from shoal.surfaces.cli import exit_codes
from shoal.surfaces.cli.cli_output import CliTableCell, print_json, print_table
from shoal.surfaces.cli.run_launch import RUN_FLAGS, build_options_from_run_flags

if TYPE_CHECKING:
    from shoal.app.library.library_session import LibrarySession
    from shoal.app.workflows.step_log import WorkflowRecord
    from shoal.app.workflows.workflow_definition import WorkflowDefinition
    from shoal.core.events import Event


@click.group("workflow")
def workflow_commands() -> None:
    """Run plans in Python that survive a crash."""


@workflow_commands.command("ls")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def list_workflows(*, as_json: bool) -> int:
    """List the workflows in this project and in the home."""
    from shoal.app.settings.settings import find_process_shoal_home
    from shoal.app.workflows.workflow_files import list_workflow_files

    files = list_workflow_files(cwd=Path.cwd(), home=find_process_shoal_home())
    if as_json:
        print_json(
            [{"path": str(file.path), "names": file.names, "problem": file.problem or None} for file in files]
        )
        return exit_codes.OK
    if not files:
        click.echo(
            "There are no workflows in .claude/workflows or in the home. docs/workflows.md shows how to "
            "write one."
        )
        return exit_codes.OK
    for file in files:
        click.echo(f"{', '.join(file.names) or '-'}  {strip_terminal_codes(str(file.path))}")
        if file.problem:
            click.echo(f"  not usable: {strip_terminal_codes(file.problem)}")
    return exit_codes.OK


def _run_workflow(workflow: str, arguments: tuple[str, ...], **flag_values: Any) -> int:
    definition = _load_definition(workflow)
    as_json, given = flag_values.pop("as_json"), _parse_arguments(arguments, flag_values.pop("args_json"))
    values = definition.parse_arguments(given)

    async def run(session: LibrarySession[Any]) -> Any:
        click.echo(
            f"Session {session.id}. If it is interrupted: shoal workflow resume {session.id}", err=True
        )
        return await definition.run(session, **values)

    return _run_in_session(run, flag_values, resume=None, as_json=as_json)


def _resume_workflow(session: str, **flag_values: Any) -> int:
    from shoal.app.workflows.workflow_files import load_workflow

    as_json, rerun_from = flag_values.pop("as_json"), flag_values.pop("rerun_from")
    found_session, record = _find_latest_workflow(session)
    definition = load_workflow(Path(record.started.source), record.started.name)

    async def resume(session: LibrarySession[Any]) -> Any:
        return await definition.resume(session, record.started.workflow, rerun_from=rerun_from)

    return _run_in_session(resume, flag_values, resume=found_session, as_json=as_json)


_JSON_OPTION = click.Option(["--json", "as_json"], is_flag=True, help="Print the returned value as JSON.")
workflow_commands.add_command(
    click.Command(
        "run",
        callback=_run_workflow,
        short_help="Run a workflow and print what it returns.",
        help=(
            "Run WORKFLOW and print what it returns.\n\n    WORKFLOW is FILE.py, FILE.py:NAME, or the name "
            "of a workflow in the home. Each argument is NAME=VALUE, and\n    VALUE is JSON or plain text. "
            "The "
            "flags of `shoal` apply here too."
        ),
        params=[
            click.Argument(["workflow"]),
            click.Argument(["arguments"], nargs=-1, metavar="[NAME=VALUE]..."),
            click.Option(["--args", "args_json"], metavar="JSON", help="All arguments as one JSON object."),
            _JSON_OPTION,
            *RUN_FLAGS,
        ],
    )
)
workflow_commands.add_command(
    click.Command(
        "resume",
        callback=_resume_workflow,
        short_help="Continue a workflow that was interrupted or failed.",
        help=(
            "Continue the latest workflow of SESSION (the beginning of its id).\n\n    Finished steps are "
            "not repeated, unless --from names one of them."
        ),
        params=[
            click.Argument(["session"]),
            click.Option(
                ["--from", "rerun_from"],
                type=click.IntRange(min=1),
                metavar="STEP",
                help="Run this step and all later steps again.",
            ),
            _JSON_OPTION,
            *RUN_FLAGS,
        ],
    )
)


@workflow_commands.command("show")
@click.argument("session")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show_workflow(*, session: str, as_json: bool) -> int:
    """Show the steps of the latest workflow of SESSION."""
    found_session, record = _find_latest_workflow(session)
    status = "running or interrupted" if record.ended is None else record.ended.status
    steps = record.steps.values()
    if as_json:
        print_json(
            {
                "session": found_session,
                "workflow": record.started.workflow,
                "status": status,
                "phases": record.phases,
                "steps": [
                    {"step": s.number, "path": s.path, "input": s.preview, "finished": s.is_finished}
                    for s in steps
                ],
            }
        )
        return exit_codes.OK
    click.echo(f"{record.started.workflow}: {status}")
    if record.ended is not None and record.ended.detail:
        click.echo(strip_terminal_codes(record.ended.detail))
    rows = [
        [
            CliTableCell(text)
            for text in (str(s.number), "done" if s.is_finished else "open", s.path, s.preview)
        ]
        for s in steps
    ]
    print_table(("step", "state", "path", "input"), rows)
    return exit_codes.OK


def _load_definition(reference: str) -> WorkflowDefinition[Any, Any]:
    from shoal.app.settings.settings import find_process_shoal_home
    from shoal.app.workflows.workflow_files import find_workflow_file, load_workflow

    return load_workflow(*find_workflow_file(reference, cwd=Path.cwd(), home=find_process_shoal_home()))


def _parse_arguments(words: tuple[str, ...], args_json: str | None) -> dict[str, Any]:
    try:
        given = {} if args_json is None else json.loads(args_json)
    except ValueError as error:
        raise click.UsageError(f"--args is not JSON: {error}") from error
    if not isinstance(given, dict):
        raise click.UsageError('--args must be a JSON object, such as --args \'{"files": ["a.py"]}\'.')
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise click.UsageError(f"{word!r} is not an argument. Write NAME=VALUE.")
        try:
            given[name] = json.loads(text)
        except ValueError:
            given[name] = text
    return given


def _find_latest_workflow(name: str) -> tuple[str, WorkflowRecord]:
    from shoal.app.run_access.run_handle import find_run
    from shoal.app.settings.settings import find_process_shoal_home
    from shoal.app.workflows.step_log import WorkflowRecords
    from shoal.stores.files.sessions.file_journal import read_journal

    run = find_run(find_process_shoal_home(), name)
    records = WorkflowRecords(read_journal(run.directory / "journal.jsonl"))
    if not records.workflows:
        raise click.UsageError(f"The session {run.session} has no workflow.")
    return run.session, list(records.workflows.values())[-1]


def _run_in_session(
    work: Callable[[LibrarySession[Any]], Awaitable[Any]],
    flag_values: dict[str, Any],
    *,
    resume: str | None,
    as_json: bool,
) -> int:
    from shoal.app.library.library_session import LibrarySession
    from shoal.app.workflows.json_values import to_json_value
    from shoal.core.errors import RunFailed

    options = build_options_from_run_flags(flag_values, resume=resume, attended=False)

    async def run_to_end() -> Any:
        async with LibrarySession[Any](options) as session:
            session.subscribe(_print_progress)
            return await work(session)

    try:
        value = asyncio.run(run_to_end())
    except RunFailed as error:
        click.echo(f"The workflow failed: {strip_terminal_codes(str(error))}", err=True)
        return exit_codes.ERROR
    if as_json or not isinstance(value, str):
        print_json(to_json_value(value, "The returned value"))
    else:
        click.echo(strip_terminal_codes(value))
    return exit_codes.OK


def _print_progress(event: Event) -> None:
    from shoal.core.events import AgentEnded, WorkflowPhaseStarted

    match event:
        case WorkflowPhaseStarted(phase=phase):
            click.echo(f"phase: {strip_terminal_codes(phase)}", err=True)
        case AgentEnded(completion=completion):
            line = f"  {completion.status}: {completion.kind}: {completion.description}"
            click.echo(strip_terminal_codes(line), err=True)
        case _:
            pass
    sys.stderr.flush()
