"""`shoal task` commands: show and change a task board, as a person or a script."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from shoal.surfaces.cli import exits
from shoal.surfaces.cli.printing import Cell, debug_option, json_option, print_facts, print_json, print_table
from shoal.surfaces.cli.record import chosen_board, person, team_option, with_record
from shoal.surfaces.terminal.paint import CYAN, DIM, GREEN, YELLOW

if TYPE_CHECKING:
    from shoal.app.teams.record import AgentsRecord
    from shoal.core.names import TaskId
    from shoal.core.tasks import Change, Task

_STYLES = {"pending": "", "in_progress": YELLOW, "completed": GREEN}
session_option = click.option("--session", metavar="ID", help="The board of a session without a team.")


@click.group("task")
def command() -> None:
    """List, show, add and change the tasks of a team or of a session.

    Without --team and --session it is the only team's board, or where there is no team, that of the latest
    session of this directory.
    """


@command.command("ls")
@team_option
@session_option
@click.option("--open", "only_open", is_flag=True, help="Only what is not completed.")
@json_option
@debug_option
def ls(*, team: str | None, session: str | None, only_open: bool, as_json: bool) -> int:
    """List the tasks."""

    async def work(record: AgentsRecord) -> tuple[str, Sequence[Task]]:
        name = await chosen_board(record, team, session)
        return name, await record.board(name).list()

    name, every = with_record(work)
    tasks = [task for task in every if not only_open or task.status != "completed"]
    if as_json:
        print_json([_data(task) for task in tasks])
    elif tasks:
        _print(tasks, every)
    else:
        click.echo(f"The board {name} has no {'open ' if only_open else ''}tasks.")
    return exits.OK


@command.command("show")
@click.argument("task")
@team_option
@session_option
@json_option
@debug_option
def show(*, task: str, team: str | None, session: str | None, as_json: bool) -> int:
    """Show one task with everything it holds."""

    async def work(record: AgentsRecord) -> Task:
        from shoal.core.errors import TaskRefused
        from shoal.core.names import task_id

        name = await chosen_board(record, team, session)
        found = await record.board(name).get(task_id(task))
        if found is None:
            raise TaskRefused(f"The board {name} has no task {task}. `shoal task ls` shows those it has.")
        return found

    _show(with_record(work), as_json=as_json)
    return exits.OK


@command.command("add")
@click.argument("subject")
@click.option("-d", "--description", default="", help="What belongs to it.")
@click.option("--active-form", default="", metavar="TEXT", help="As it is being done: Running the tests.")
@click.option("--blocked-by", multiple=True, metavar="ID", help="Waits for this task; may be repeated.")
@team_option
@session_option
@json_option
@debug_option
def add(
    *,
    subject: str,
    description: str,
    active_form: str,
    blocked_by: tuple[str, ...],
    team: str | None,
    session: str | None,
    as_json: bool,
) -> int:
    """Put a task on the board."""

    _check_subject(subject)

    async def work(record: AgentsRecord) -> Task:
        from shoal.app.teams.board_orders import add_task
        from shoal.core.names import task_id
        from shoal.core.tasks import Draft

        name = await chosen_board(record, team, session)
        draft = Draft(subject=subject, description=description, active_form=active_form)
        waits_for = tuple(map(task_id, blocked_by))
        return await add_task(record, name, draft, blocked_by=waits_for, by=person())

    task = with_record(work)
    if as_json:
        print_json(_data(task))
    else:
        click.echo(f"Task {task.id} is on the board.")
    return exits.OK


@command.command("update")
@click.argument("task")
@click.option("--status", type=click.Choice(["pending", "in_progress", "completed", "deleted"]))
@click.option("--owner", metavar="NAME", help="Who works on it; '' for nobody.")
@click.option("--subject", metavar="TEXT")
@click.option("-d", "--description", metavar="TEXT")
@click.option("--active-form", metavar="TEXT")
@click.option("--blocks", multiple=True, metavar="ID", help="This task waits for it; may be repeated.")
@click.option("--blocked-by", multiple=True, metavar="ID", help="It waits for this task; may be repeated.")
@click.option("--metadata", metavar="JSON", help="An object, merged key by key; null deletes a key.")
@team_option
@session_option
@json_option
@debug_option
def update(*, task: str, team: str | None, session: str | None, as_json: bool, **given: Any) -> int:
    """Change a task. What an agent does with it meanwhile is not lost: every change is made under locks."""

    async def work(record: AgentsRecord) -> Task:
        from shoal.app.teams.board_orders import change_task
        from shoal.core.names import task_id

        name = await chosen_board(record, team, session)
        return await change_task(record, name, task_id(task), _change(given), by=person())

    after = with_record(work)
    if given["status"] == "deleted":
        click.echo(f"Task {after.id} is deleted.") if not as_json else print_json({"deleted": after.id})
    else:
        _show(after, as_json=as_json)
    return exits.OK


def _check_subject(subject: str | None) -> None:
    if subject is not None and not subject.strip():
        raise click.UsageError("The subject is empty: say in a line what is to be done.")


def _change(given: dict[str, Any]) -> Change:
    from msgspec import UNSET

    from shoal.core.names import agent_name, task_id
    from shoal.core.tasks import Change

    def of(name: str) -> Any:
        return UNSET if given[name] is None else given[name]

    owner = given["owner"]
    _check_subject(given["subject"])
    change = Change(
        subject=of("subject"),
        description=of("description"),
        active_form=of("active_form"),
        status=of("status"),
        owner=UNSET if owner is None else agent_name(owner) if owner.strip() else None,
        add_blocks=tuple(map(task_id, given["blocks"])),
        add_blocked_by=tuple(map(task_id, given["blocked_by"])),
        metadata=_metadata(given["metadata"]),
    )
    if change == Change():
        raise click.UsageError("There is nothing to change. Give --status, --owner or another option.")
    return change


def _metadata(text: str | None) -> dict[str, Any]:
    from shoal.wire.content import load

    try:
        value = {} if text is None else load(text.encode())
    except ValueError as error:
        raise click.BadParameter(f"it is not JSON: {error}", param_hint="--metadata") from error
    if not isinstance(value, dict):
        raise click.BadParameter('it must be a JSON object, like {"key": 1}.', param_hint="--metadata")
    return value


def _print(tasks: Sequence[Task], every: Sequence[Task]) -> None:
    from shoal.core.tasks import open_blockers

    board = {task.id: task for task in every}
    rows = []
    for task in tasks:
        waits_for = open_blockers(task, board)
        dim = DIM if task.status == "completed" else ""
        rows.append(
            (
                Cell(task.id, dim),
                Cell(task.status.replace("_", " "), _STYLES[task.status]),
                Cell(task.owner or "-", CYAN if task.owner else DIM),
                Cell(_ids(waits_for) or "-", YELLOW if waits_for else DIM),
                Cell(task.subject, dim),
            )
        )
    print_table(("ID", "STATUS", "OWNER", "WAITS FOR", "SUBJECT"), rows)


def _show(task: Task, *, as_json: bool) -> None:
    if as_json:
        print_json(_data(task))
        return
    from shoal.tools.task_texts import shown_metadata
    from shoal.wire.content import dump

    metadata = shown_metadata(task)
    print_facts(
        (
            ("task", task.id),
            ("subject", task.subject),
            ("status", task.status.replace("_", " ")),
            ("owner", task.owner or ""),
            ("waits for", _ids(task.blocked_by)),
            ("blocks", _ids(task.blocks)),
            ("active form", task.active_form),
            ("metadata", dump(metadata).decode() if metadata else ""),
            ("description", task.description),
        )
    )


def _ids(ids: Sequence[TaskId]) -> str:
    return ", ".join(ids)


def _data(task: Task) -> Any:
    """Return the task in the format of its file."""
    from shoal.wire.content import load
    from shoal.wire.tasks import task_bytes

    return load(task_bytes(task))
