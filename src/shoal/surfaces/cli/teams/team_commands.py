"""`shoal team` commands: list, show and remove teams."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click

from shoal.core.text.text_format import format_dollars, format_duration, format_token_count, to_one_line
from shoal.surfaces.cli import exit_codes
from shoal.surfaces.cli.cli_output import (
    CliTableCell,
    debug_option,
    json_option,
    print_json,
    print_name_value_lines,
    print_table,
)
from shoal.surfaces.cli.team_store_access import run_with_team_store
from shoal.surfaces.cli.teams.team_attach_command import attach_to_team
from shoal.surfaces.cli.teams.team_control_commands import (
    restart_members,
    resume_command,
    send_to_team,
    stop_team,
)
from shoal.surfaces.cli.teams.team_export_command import export_team_data
from shoal.surfaces.cli.teams.team_overview import (
    build_team_overview,
    find_named_or_only_team,
    find_named_or_running_team,
    team_overview_to_dict,
)
from shoal.surfaces.cli.teams.team_start_command import start_command
from shoal.surfaces.cli.teams.template_commands import list_team_templates, template_group
from shoal.surfaces.terminal.text_styles import (
    CYAN,
    DIM,
    GREEN,
    RED,
    YELLOW,
    apply_style,
    get_agent_style,
    has_colours,
    truncate_text,
)

if TYPE_CHECKING:
    from shoal.app.teams.team_store import TeamStore
    from shoal.core.teams.roster import TeamRoster
    from shoal.surfaces.cli.teams.team_overview import TeamMemberOverview, TeamOverview

_STATE_STYLES = {
    "working": GREEN,
    "waiting": YELLOW,
    "idle": DIM,
    "cut off": YELLOW,
    "down": RED,
    "ended": DIM,
    "died": RED,
    "foreign": CYAN,
}
_LEAD_STYLES = {"alive": GREEN, "ended": DIM, "died": RED, "foreign": CYAN}


@click.group("team", context_settings={"max_content_width": 100})
def team_commands() -> None:
    """Show, message, stop and resume teams, and start one from a template.

    You can leave out NAME if there is only one team, or if only one is running.
    """


for part in (
    send_to_team,
    stop_team,
    restart_members,
    resume_command,
    attach_to_team,
    export_team_data,
    start_command,
    list_team_templates,
    template_group,
):
    team_commands.add_command(part)


@team_commands.command("ls", short_help="List the teams and the state of their leads.")
@json_option
@debug_option
def list_teams(*, as_json: bool) -> int:
    """List the teams, the state of their leads, and their cost."""

    async def load_all_overviews(store: TeamStore) -> list[TeamOverview]:
        rosters = [await store.rosters.read_team_roster(name) for name in await store.rosters.list_teams()]
        return [await build_team_overview(store, team) for team in rosters if team is not None]

    overviews = run_with_team_store(load_all_overviews, read_only=True)
    if as_json:
        print_json([team_overview_to_dict(view) for view in overviews])
    elif overviews:
        _print_teams(overviews)
    else:
        click.echo("There are no teams.")
    return exit_codes.OK


@team_commands.command("show", short_help="Show the members of a team, their work and their cost.")
@click.argument("name", required=False)
@json_option
@debug_option
def show_team(*, name: str | None, as_json: bool) -> int:
    """Show a team: each member with its activity and cost, and the board."""

    async def load_team_overview(store: TeamStore) -> TeamOverview:
        return await build_team_overview(store, await find_named_or_running_team(store, name))

    view = run_with_team_store(load_team_overview, read_only=True)
    if as_json:
        print_json(team_overview_to_dict(view))
        return exit_codes.OK
    print_name_value_lines(
        (
            ("team", view.team.title),
            ("description", view.team.description or ""),
            ("created", _format_local_time(view.team.created_at)),
            ("lead", _describe_lead_state(view)),
            ("session", view.session),
            ("board", _describe_board_progress(view)),
            ("cost", f"{format_dollars(view.usd)} · {format_token_count(view.tokens)} tokens"),
        )
    )
    click.echo()
    for member_overview in view.members:
        _print_member(member_overview)
    if view.is_live:
        click.echo(f"\nAttach to it: shoal team attach {view.team.name}")
    return exit_codes.OK


@team_commands.command("rm", short_help="Remove a team and its mail and tasks.")
@click.argument("name", required=False)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option(
    "--force",
    is_flag=True,
    help="Remove it even if another program leads it, or if its lead died and left active members.",
)
@json_option
@debug_option
def remove_team(*, name: str | None, yes: bool, force: bool, as_json: bool) -> int:
    """Permanently remove a team and its mail and tasks. Shoal refuses while the team's lead is alive."""

    async def confirm_and_remove(store: TeamStore) -> str:
        team = await find_named_or_only_team(store, name)
        if not yes and not as_json and not _confirm_removal(team):
            return ""
        await _delete_team(store, team, force=force)
        return team.name

    removed_name = run_with_team_store(confirm_and_remove)
    if not removed_name:
        print("Nothing was removed.", file=sys.stderr)
        return exit_codes.ERROR
    print_json({"removed": removed_name}) if as_json else click.echo(f"Removed the team {removed_name}.")
    return exit_codes.OK


async def _delete_team(store: TeamStore, team: TeamRoster, *, force: bool) -> None:
    from contextlib import ExitStack

    from shoal.app.run_access.stored_runs import lock_run
    from shoal.app.teams.foreign_lead import find_live_foreign_lead
    from shoal.core.errors import StateFileError, TeamHasActiveMembers
    from shoal.surfaces.cli.teams.team_overview import find_team_run

    run = find_team_run(team)
    if not force and (evidence := find_live_foreign_lead(run.home, team)):
        raise TeamHasActiveMembers(
            f"The team {team.name} was not removed because another program leads it: {evidence}. Remove it "
            f"anyway: shoal team rm {team.name} --force"
        )
    with ExitStack() as exit_stack:
        try:
            # Held meanwhile, so that nobody resumes the team during its removal.
            exit_stack.enter_context(lock_run(run))
        except StateFileError as lock_error:
            raise TeamHasActiveMembers(
                f"The team {team.name} was not removed because its lead is running. Stop it first: "
                f"shoal team stop {team.name}"
            ) from lock_error
        active_members = [member for member in team.members if member.is_active]
        if active_members and not force:
            names = ", ".join(member.name for member in active_members)
            raise TeamHasActiveMembers(
                f"The lead of {team.name} is gone and left active members: {names}. Resume the team: shoal "
                f"team resume {team.name}. Or remove it: shoal team rm {team.name} --force"
            )
        for member in active_members:
            await store.rosters.update_member(team.name, member.name, is_active=False)
        await store.rosters.delete_team(team.name)


def _confirm_removal(team: TeamRoster) -> bool:
    if not sys.stdin.isatty():
        raise click.UsageError(
            "Cannot ask for confirmation because standard input is not a terminal. Use --yes."
        )
    return click.confirm(f"Remove the team {team.name} and its mail and tasks?", default=False)


def _print_teams(overviews: Sequence[TeamOverview]) -> None:
    rows = [
        (
            CliTableCell(view.team.title, CYAN),
            CliTableCell(view.lead, _LEAD_STYLES[view.lead]),
            CliTableCell(*_style_nonzero_number(view.count_members("working", "waiting"), GREEN)),
            CliTableCell(*_style_nonzero_number(view.count_members("idle", "cut off", "down"), "")),
            CliTableCell(f"{view.open_task_count} open", "" if view.open_task_count else DIM),
            CliTableCell(format_dollars(view.usd)),
            CliTableCell(_format_local_time(view.team.created_at, "%m-%d %H:%M")),
            CliTableCell(view.team.description or ""),
        )
        for view in overviews
    ]
    heads = ("TEAM", "LEAD", "WORKING", "IDLE", "TASKS", "COST", "CREATED", "DESCRIPTION")
    print_table(heads, rows)
    # Leads that died first: their work was cut off.
    for state, description in (("died", "A team whose lead died"), ("ended", "A finished team")):
        if team_name := next((view.team.name for view in overviews if view.lead == state), None):
            click.echo(f"\n{description} can be resumed: shoal team resume {team_name}")
            return


def _print_member(overview: TeamMemberOverview) -> None:
    """Print a member on two lines, activity and numbers, so that both fit a narrow terminal."""
    from shoal.surfaces.terminal.question_text import describe_question

    colours, member = has_colours(sys.stdout), overview.member
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 10_000
    activity = overview.doing if overview.question is None else ""
    work = to_one_line(" · ".join(filter(None, (overview.task, activity))))
    head = truncate_text(f"{member.name}  {overview.state}{'  ' if work else ''}{work}", columns - 4)
    name, state = (
        apply_style(member.name, get_agent_style(member.color), colours=colours),
        head[len(member.name) :],
    )
    dot = apply_style("●", _STATE_STYLES[overview.state], colours=colours)
    click.echo(f"  {dot} {name}{state}")
    details = (
        f"{overview.unread} unread" if overview.unread else "",
        "" if overview.last_event is None else f"last event {format_duration(overview.last_event)} ago",
        f"{format_token_count(overview.tokens)} tokens",
        format_dollars(overview.usd),
        member.model,
        member.agent_type if member.agent_type != member.name else "",
        member.backend_type if member.backend_type not in (None, "in-process") else "",
    )
    detail_line = " · ".join(to_one_line(fact) for fact in details if fact)
    click.echo(apply_style(f"      {truncate_text(detail_line, columns - 6)}", DIM, colours=colours))
    if overview.question is not None:
        question = overview.question
        question_line = (
            f"      ? asks: {to_one_line(describe_question(question))}  shoal ask show {question.id}"
        )
        click.echo(apply_style(truncate_text(question_line, columns), YELLOW, colours=colours))


def _style_nonzero_number(value: int, style: str) -> tuple[str, str]:
    return str(value), style if value else DIM


def _describe_lead_state(view: TeamOverview) -> str:
    match view.lead:
        case "alive":
            return "alive"
        case "ended":
            return f"not running; resume it: shoal team resume {view.team.name}"
        case "foreign":
            return f"alive, but in another program: {view.foreign_lead}"
        case "died":
            return f"died unexpectedly; resume it: shoal team resume {view.team.name}"


def _describe_board_progress(view: TeamOverview) -> str:
    if not view.tasks:
        return "no tasks"
    completed = len(view.tasks) - view.open_task_count
    in_progress = sum(task.status == "in_progress" for task in view.tasks)
    return f"{completed} of {len(view.tasks)} tasks done, {in_progress} in progress"


def _format_local_time(ms: int, form: str = "%Y-%m-%d %H:%M") -> str:
    return datetime.fromtimestamp(ms / 1000).astimezone().strftime(form) if ms else "-"
