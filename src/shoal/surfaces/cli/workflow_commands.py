"""`shoal workflow` commands: list, run, show, resume and stop workflows."""

from __future__ import annotations

import asyncio
import re
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.core.text.filenames import escape_filename
from shoal.core.text.text_format import strip_terminal_codes
from shoal.surfaces.cli import exit_codes
from shoal.surfaces.cli.cli_output import CliTableCell, print_json, print_table
from shoal.surfaces.cli.run_launch import RUN_FLAGS, build_options_from_run_flags

if TYPE_CHECKING:
    from shoal.app.definitions.workflow_files import WorkflowFiles
    from shoal.app.library.library_session import LibrarySession
    from shoal.app.run_access.run_handle import RunHandle
    from shoal.app.workflows.step_log import StepRecord, WorkflowRecord
    from shoal.app.workflows.workflow_definition import WorkflowDefinition
    from shoal.core.events import Event

_WORKFLOW_HELP = "the beginning of a session's id, or the id or name of a workflow"
_RERUN_KEYWORD = re.compile(r"pass rerun_from=(\d+)")


@click.group("workflow")
def workflow_commands() -> None:
    """Run Python workflows that survive a crash."""


@workflow_commands.command("ls")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def list_workflows(*, as_json: bool) -> int:
    """List the workflows in this project, in the home and in plug-ins."""
    files = _open_workflow_files().list_files()
    if as_json:
        print_json(
            [
                {
                    "path": str(file.path),
                    "source": file.source,
                    "names": file.names,
                    "problem": file.problem or None,
                }
                for file in files
            ]
        )
        return exit_codes.OK
    if not files:
        click.echo(
            "There are no workflows in .claude/workflows, in Shoal's home or in plug-ins. docs/workflows.md "
            "shows how to write one."
        )
        return exit_codes.OK
    for file in files:
        click.echo(f"{', '.join(file.names) or '-'}  {strip_terminal_codes(str(file.path))}")
        if file.problem:
            click.echo(f"  cannot run: {strip_terminal_codes(file.problem)}")
    return exit_codes.OK


def _run_workflow(workflow: str, arguments: tuple[str, ...], **flag_values: Any) -> int:
    from shoal.app.workflows.workflow_loader import find_workflow, parse_argument_words, parse_json_object

    as_json, args_json = flag_values.pop("as_json"), flag_values.pop("args_json")
    definition = find_workflow(workflow, _open_workflow_files(), Path.cwd())
    given = {} if args_json is None else parse_json_object(args_json, "--args")
    values = definition.parse_arguments(parse_argument_words(arguments, given))

    async def run(session: LibrarySession[Any]) -> Any:
        click.echo(
            f"Session {session.id}. If it is interrupted: shoal workflow resume {session.id}", err=True
        )
        with _explain_program_error(definition, session.id):
            return await definition.run(session, **values)

    return _run_in_session(run, flag_values, resume=None, as_json=as_json)


def _resume_workflow(workflow: str, **flag_values: Any) -> int:
    as_json, rerun_from = flag_values.pop("as_json"), flag_values.pop("rerun_from")
    run, record = _find_recorded_workflow(workflow)
    definition = None if record.started.script else _load_recorded_workflow(record)

    async def resume(session: LibrarySession[Any]) -> Any:
        from shoal.app.session.session_changes import resume_script_workflow
        from shoal.core.errors import WorkflowChanged

        try:
            if definition is None:
                return await resume_script_workflow(session, record.started.workflow, rerun_from)
            with _explain_program_error(definition, session.id):
                return await definition.resume(session, record.started.workflow, rerun_from=rerun_from)
        except WorkflowChanged as error:
            raise WorkflowChanged(_name_resume_flag(str(error), session.id), step=error.step) from error

    return _run_in_session(resume, flag_values, resume=run.session, as_json=as_json)


_JSON_OPTION = click.Option(["--json", "as_json"], is_flag=True, help="Print the returned value as JSON.")
workflow_commands.add_command(
    click.Command(
        "run",
        callback=_run_workflow,
        short_help="Run a workflow and print what it returns.",
        help=(
            "Run WORKFLOW and print what it returns.\n\n    WORKFLOW is a name that `shoal workflow ls` "
            "lists, FILE.py, FILE.py:NAME, or MODULE:NAME. Each argument is\n    NAME=VALUE, and VALUE is "
            "JSON or plain text. The flags of `shoal` apply here too."
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
            f"Continue a workflow. WORKFLOW is {_WORKFLOW_HELP}.\n\n    Finished steps are not repeated, "
            "unless --from names one of them."
        ),
        params=[
            click.Argument(["workflow"]),
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


@workflow_commands.command("show", help=f"Show the steps of a workflow. WORKFLOW is {_WORKFLOW_HELP}.")
@click.argument("workflow")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show_workflow(*, workflow: str, as_json: bool) -> int:
    run, record = _find_recorded_workflow(workflow)
    status = _describe_status(run, record)
    detail = "" if record.ended is None else _name_resume_flag(record.ended.detail or "", run.session)
    steps = record.steps.values()
    if as_json:
        print_json(
            {
                "session": run.session,
                "workflow": record.started.workflow,
                "status": status,
                "detail": detail or None,
                "phases": record.phases,
                "steps": [
                    {
                        "step": step.number,
                        "phase": step.phase,
                        "path": step.path,
                        "input": step.preview,
                        "agent": step.child,
                        "finished": step.is_finished,
                        "error": step.error or None,
                    }
                    for step in steps
                ],
            }
        )
        return exit_codes.OK
    click.echo(f"{record.started.workflow}: {status}")
    if detail:
        click.echo(strip_terminal_codes(detail))
    rows = [
        [
            CliTableCell(text)
            for text in (str(step.number), _describe_step_state(step), step.path, step.preview)
        ]
        for step in steps
    ]
    print_table(("step", "state", "path", "input"), rows)
    return exit_codes.OK


def _describe_step_state(step: StepRecord) -> str:
    return "failed" if step.error else "done" if step.is_finished else "open"


@workflow_commands.command(
    "stop",
    help=(
        f"Stop a workflow and its agents. WORKFLOW is {_WORKFLOW_HELP}.\n\n`shoal workflow resume` continues "
        "it."
    ),
)
@click.argument("workflow")
@click.option("--json", "as_json", is_flag=True, help="Report what was stopped as a JSON object.")
def stop_workflow(*, workflow: str, as_json: bool) -> int:
    from shoal.app.run_access.run_handle import send_control_command
    from shoal.core.errors import WorkflowError
    from shoal.wire.control_codec import StopAgentOrShellControlCommand

    run, record = _find_recorded_workflow(workflow)
    name = record.started.workflow
    if record.ended is not None or not run.is_live:
        raise WorkflowError(f"The workflow {name} is not running: {_describe_status(run, record)}.")
    asyncio.run(send_control_command(run, StopAgentOrShellControlCommand(task_id=name)))
    if as_json:
        print_json({"session": run.session, "stopped": name})
    else:
        click.echo(f"Stopped the workflow {name}. To continue it: shoal workflow resume {run.session}")
    return exit_codes.OK


def _name_resume_flag(text: str, session: str) -> str:
    """Replace the keyword that repeats steps with the command that does."""
    return _RERUN_KEYWORD.sub(rf"run: shoal workflow resume {session} --from \1", text)


def _describe_status(run: RunHandle, record: WorkflowRecord) -> str:
    if record.ended is not None:
        return record.ended.status
    return "running" if run.is_live else "interrupted"


def _open_workflow_files() -> WorkflowFiles:
    from shoal.app.definitions.plugin_set import load_plugins
    from shoal.app.definitions.workflow_files import WorkflowFiles
    from shoal.app.settings.settings import load_settings

    project = Path.cwd().resolve()
    settings = load_settings(cwd=project)
    return WorkflowFiles(home=settings.home, project=project, plugins=load_plugins(settings, project))


def _find_recorded_workflow(reference: str) -> tuple[RunHandle, WorkflowRecord]:
    from shoal.app.run_access.stored_runs import open_stored_runs
    from shoal.app.settings.settings import find_process_shoal_home
    from shoal.app.workflows.workflow_runs import find_recorded_workflow

    return find_recorded_workflow(open_stored_runs(find_process_shoal_home()), reference)


def _load_recorded_workflow(record: WorkflowRecord) -> WorkflowDefinition[Any, Any]:
    from shoal.app.settings.settings import load_settings
    from shoal.app.workflows.workflow_loader import load_recorded_workflow

    cwd = Path.cwd().resolve()
    return load_recorded_workflow(record.started, load_settings(cwd=cwd).home, cwd)


@contextmanager
def _explain_program_error(definition: WorkflowDefinition[Any, Any], session: str) -> Iterator[None]:
    """Raise `WorkflowError` in place of an error of the user's program, with the line in its file."""
    from shoal.core.errors import ShoalError, WorkflowError
    from shoal.surfaces.terminal.user_messages import unwrap_error_group

    try:
        yield
    except (ShoalError, BrokenPipeError):
        raise
    except Exception as raised:  # boundary around the user's program: it may raise anything
        error = unwrap_error_group(raised)
        lines = [
            line
            for each in (raised, error)
            for frame, line in traceback.walk_tb(each.__traceback__)
            if frame.f_code.co_filename == definition.source
        ]
        if not lines:  # the program was not running: a bug in Shoal
            raise
        what = ": ".join(filter(None, (type(error).__name__, str(error))))
        where = f"{escape_filename(definition.source)}:{lines[-1]}"
        raise WorkflowError(
            f"The workflow {definition.name} raised {what} ({where}).\n"
            f"To continue it, fix the cause and run: shoal workflow resume {session}"
        ) from raised


def _run_in_session(
    work: Callable[[LibrarySession[Any]], Awaitable[Any]],
    flag_values: dict[str, Any],
    *,
    resume: str | None,
    as_json: bool,
) -> int:
    from shoal.app.library.library_session import LibrarySession
    from shoal.app.workflows.json_values import to_json_value
    from shoal.core.errors import RunFailed, WorkflowStopped
    from shoal.surfaces.cli.workflow_questions import TerminalQuestionPrompt, can_ask_at_terminal

    given = build_options_from_run_flags(flag_values, resume=resume, attended=False)

    async def run_to_end() -> Any:
        ask = TerminalQuestionPrompt().ask if can_ask_at_terminal() else None
        async with LibrarySession[Any](given, by_command=True, ask=ask) as session:
            session.subscribe(_print_progress)
            watcher = session.create_background_task(_stop_workflows_when_asked(session))
            try:
                return await work(session)
            finally:
                watcher.cancel()

    try:
        value = asyncio.run(run_to_end())
    except WorkflowStopped as error:
        click.echo(strip_terminal_codes(str(error)), err=True)
        return exit_codes.STOPPED
    except RunFailed as error:
        click.echo(f"The workflow failed: {strip_terminal_codes(str(error))}", err=True)
        return exit_codes.ERROR
    if as_json or not isinstance(value, str):
        print_json(to_json_value(value, "The returned value"))
    else:
        click.echo(strip_terminal_codes(value))
    return exit_codes.OK


async def _stop_workflows_when_asked(session: LibrarySession[Any]) -> None:
    """End the run when `shoal stop` asks for it."""
    from shoal.app.session.session_changes import stop_workflows

    await session.stop_requested.wait()
    await stop_workflows(session, "the user stopped the run")


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
