"""`shoal task` commands: show and change a task board, as a person or a script."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from shoal.surfaces.cli import exit_codes
from shoal.surfaces.cli.cli_output import (
    CliTableCell,
    debug_option,
    json_option,
    print_json,
    print_name_value_lines,
    print_table,
)
from shoal.surfaces.cli.team_store_access import (
    choose_task_board,
    get_person_agent_name,
    run_with_team_store,
    team_option,
)
from shoal.surfaces.terminal.text_styles import CYAN, DIM, GREEN, YELLOW

if TYPE_CHECKING:
    from shoal.app.teams.team_store import TeamStore
    from shoal.core.names import TaskId
    from shoal.core.teams.tasks import Task, TaskUpdate

_STYLES = {"pending": "", "in_progress": YELLOW, "completed": GREEN}
session_option = click.option("--session", metavar="ID", help="Use the board of a session without a team.")


@click.group("task")
def task_commands() -> None:
    """List, show, add and change the tasks of a team or a session.

    Without --team or --session, Shoal uses the board of the only team. If there is no team, it uses the
    board of the latest session in this directory.
    """


@task_commands.command("ls")
@team_option
@session_option
@click.option("--open", "only_open", is_flag=True, help="List only tasks that are not completed.")
@json_option
@debug_option
def list_board_tasks(*, team: str | None, session: str | None, only_open: bool, as_json: bool) -> int:
    """List the tasks."""

    async def load_tasks(store: TeamStore) -> tuple[str, Sequence[Task], frozenset[TaskId]]:
        name = await choose_task_board(store, team, session)
        board = store.open_board(name)
        return name, await board.list_tasks(), await board.list_abandoned()

    name, all_tasks, abandoned = run_with_team_store(load_tasks, read_only=True)
    tasks = [task for task in all_tasks if not only_open or task.status != "completed"]
    if as_json:
        print_json([_task_to_dict(task, is_abandoned=task.id in abandoned) for task in tasks])
    elif tasks:
        _print_tasks(tasks, all_tasks, abandoned)
    else:
        click.echo(f"The board {name} has no {'open ' if only_open else ''}tasks.")
    return exit_codes.OK


@task_commands.command("show")
@click.argument("task")
@team_option
@session_option
@json_option
@debug_option
def show_board_task(*, task: str, team: str | None, session: str | None, as_json: bool) -> int:
    """Show one task with all its fields."""

    async def find_task(store: TeamStore) -> tuple[Task, bool]:
        from shoal.core.errors import TaskUpdateRefused
        from shoal.core.names import parse_task_id

        name = await choose_task_board(store, team, session)
        board = store.open_board(name)
        board_task = await board.get(parse_task_id(task))
        if board_task is None:
            raise TaskUpdateRefused(f"The board {name} has no task {task}. List its tasks: shoal task ls")
        return board_task, board_task.id in await board.list_abandoned()

    found, is_abandoned = run_with_team_store(find_task, read_only=True)
    _print_task(found, as_json=as_json, is_abandoned=is_abandoned)
    return exit_codes.OK


@task_commands.command("add")
@click.argument("subject")
@click.option("-d", "--description", default="", help="Details of the task.")
@click.option(
    "--active-form",
    default="",
    metavar="TEXT",
    help='Shown while the task is in progress, such as "Running the tests".',
)
@click.option(
    "--blocked-by", multiple=True, metavar="ID", help="Task that must be completed first; repeatable."
)
@team_option
@session_option
@json_option
@debug_option
def add_board_task(
    *,
    subject: str,
    description: str,
    active_form: str,
    blocked_by: tuple[str, ...],
    team: str | None,
    session: str | None,
    as_json: bool,
) -> int:
    """Add a task to the board."""

    _check_task_subject(subject)

    async def create_task(store: TeamStore) -> Task:
        from shoal.app.teams.board_changes import add_board_task
        from shoal.core.names import parse_task_id
        from shoal.core.teams.tasks import TaskDraft

        name = await choose_task_board(store, team, session)
        draft = TaskDraft(subject=subject, description=description, active_form=active_form)
        blocker_ids = tuple(map(parse_task_id, blocked_by))
        return await add_board_task(store, name, draft, blocked_by=blocker_ids, by=get_person_agent_name())

    task = run_with_team_store(create_task)
    if as_json:
        print_json(_task_to_dict(task))
    else:
        click.echo(f"Added task {task.id} to the board.")
    return exit_codes.OK


@task_commands.command("update")
@click.argument("task")
@click.option("--status", type=click.Choice(["pending", "in_progress", "completed", "deleted"]))
@click.option("--owner", metavar="NAME", help="The member working on it; '' for nobody.")
@click.option("--subject", metavar="TEXT")
@click.option("-d", "--description", metavar="TEXT")
@click.option("--active-form", metavar="TEXT")
@click.option("--blocks", multiple=True, metavar="ID", help="Task that must wait for TASK; repeatable.")
@click.option("--blocked-by", multiple=True, metavar="ID", help="Task that TASK must wait for; repeatable.")
@click.option("--metadata", metavar="JSON", help="A JSON object, merged key by key; null deletes a key.")
@team_option
@session_option
@json_option
@debug_option
def update_board_task(
    *, task: str, team: str | None, session: str | None, as_json: bool, **given: Any
) -> int:
    """Change a task. Concurrent changes by agents are not lost, because every change is made under a lock."""

    async def apply_task_update(store: TeamStore) -> Task:
        from shoal.app.teams.board_changes import change_task_and_notify_owners
        from shoal.core.names import parse_task_id

        name = await choose_task_board(store, team, session)
        return await change_task_and_notify_owners(
            store,
            name,
            parse_task_id(task),
            await _build_task_update(store, name, given),
            by=get_person_agent_name(),
        )

    updated_task = run_with_team_store(apply_task_update)
    if given["status"] == "deleted":
        click.echo(f"Deleted task {updated_task.id}.") if not as_json else print_json(
            {"deleted": updated_task.id}
        )
    else:
        _print_task(updated_task, as_json=as_json)
    return exit_codes.OK


def _check_task_subject(subject: str | None) -> None:
    if subject is not None and not subject.strip():
        raise click.UsageError("The subject is empty. Describe the task in one line.")


async def _build_task_update(store: TeamStore, board: str, flag_values: dict[str, Any]) -> TaskUpdate:
    from msgspec import UNSET

    from shoal.app.teams.team_lookup import resolve_task_owner
    from shoal.core.names import parse_task_id
    from shoal.core.teams.tasks import TaskUpdate

    def get_flag_or_unset(name: str) -> Any:
        return UNSET if flag_values[name] is None else flag_values[name]

    owner = flag_values["owner"]
    _check_task_subject(flag_values["subject"])
    change = TaskUpdate(
        subject=get_flag_or_unset("subject"),
        description=get_flag_or_unset("description"),
        active_form=get_flag_or_unset("active_form"),
        status=get_flag_or_unset("status"),
        owner=UNSET if owner is None else await resolve_task_owner(store, board, owner),
        add_blocks=tuple(map(parse_task_id, flag_values["blocks"])),
        add_blocked_by=tuple(map(parse_task_id, flag_values["blocked_by"])),
        metadata=_parse_task_metadata(flag_values["metadata"]),
    )
    if change == TaskUpdate():
        raise click.UsageError("There is nothing to change. Pass --status, --owner or another option.")
    return change


def _parse_task_metadata(text: str | None) -> dict[str, Any]:
    from shoal.wire.json_codec import decode_json

    try:
        value = {} if text is None else decode_json(text.encode())
    except ValueError as error:
        raise click.BadParameter(f"it is not valid JSON: {error}", param_hint="--metadata") from error
    if not isinstance(value, dict):
        raise click.BadParameter('it must be a JSON object, such as {"key": 1}.', param_hint="--metadata")
    return value


def _describe_status(task: Task, *, is_abandoned: bool) -> str:
    """Return the status. A view does not release a task whose holder is gone, but says so."""
    status = task.status.replace("_", " ")
    return f"{status} ({task.owner or 'its holder'} is gone)" if is_abandoned else status


def _print_tasks(tasks: Sequence[Task], all_tasks: Sequence[Task], abandoned: frozenset[TaskId]) -> None:
    from shoal.core.teams.tasks import find_open_blockers

    board = {task.id: task for task in all_tasks}
    rows = []
    for task in tasks:
        open_blockers = find_open_blockers(task, board)
        row_style = DIM if task.status == "completed" else ""
        rows.append(
            (
                CliTableCell(task.id, row_style),
                CliTableCell(_describe_status(task, is_abandoned=task.id in abandoned), _STYLES[task.status]),
                CliTableCell(task.owner or "-", CYAN if task.owner else DIM),
                CliTableCell(_join_task_ids(open_blockers) or "-", YELLOW if open_blockers else DIM),
                CliTableCell(task.subject, row_style),
            )
        )
    print_table(("ID", "STATUS", "OWNER", "WAITS FOR", "SUBJECT"), rows)


def _print_task(task: Task, *, as_json: bool, is_abandoned: bool = False) -> None:
    if as_json:
        print_json(_task_to_dict(task, is_abandoned=is_abandoned))
        return
    from shoal.tools.task_format import get_visible_task_metadata
    from shoal.wire.json_codec import encode_json

    metadata = get_visible_task_metadata(task)
    print_name_value_lines(
        (
            ("task", task.id),
            ("subject", task.subject),
            ("status", _describe_status(task, is_abandoned=is_abandoned)),
            ("owner", task.owner or ""),
            ("waits for", _join_task_ids(task.blocked_by)),
            ("blocks", _join_task_ids(task.blocks)),
            ("active form", task.active_form),
            ("metadata", encode_json(metadata).decode() if metadata else ""),
            ("description", task.description),
        )
    )


def _join_task_ids(ids: Sequence[TaskId]) -> str:
    return ", ".join(ids)


def _task_to_dict(task: Task, *, is_abandoned: bool = False) -> Any:
    """Return the task in the format of its file, with `holderGone` if its holder is gone."""
    from shoal.wire.json_codec import decode_json
    from shoal.wire.task_codec import encode_new_task

    fields = decode_json(encode_new_task(task))
    return {**fields, "holderGone": True} if is_abandoned else fields
