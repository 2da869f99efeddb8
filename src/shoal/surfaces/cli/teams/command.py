"""`shoal team` commands: list, show and remove teams."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click

from shoal.core.wording import count, dollars, one_line, seconds
from shoal.surfaces.cli import exits
from shoal.surfaces.cli.printing import Cell, debug_option, json_option, print_facts, print_json, print_table
from shoal.surfaces.cli.record import with_record
from shoal.surfaces.cli.teams.attach import attach
from shoal.surfaces.cli.teams.export import export
from shoal.surfaces.cli.teams.live import resume, send, stop
from shoal.surfaces.cli.teams.start import start
from shoal.surfaces.cli.teams.template import template, templates
from shoal.surfaces.cli.teams.view import facts, team_named, team_running, view_of
from shoal.surfaces.terminal.paint import (
    CYAN,
    DIM,
    GREEN,
    RED,
    YELLOW,
    cut,
    has_colours,
    painted,
    style_of,
)

if TYPE_CHECKING:
    from shoal.app.teams.record import AgentsRecord
    from shoal.core.roster import Team
    from shoal.surfaces.cli.teams.view import MemberView, TeamView

_STATES = {"working": GREEN, "waiting": YELLOW, "idle": DIM, "cut off": YELLOW, "ended": DIM, "died": RED}
_LEADS = {"alive": GREEN, "ended": DIM, "died": RED}


@click.group("team", context_settings={"max_content_width": 100})
def command() -> None:
    """See teams, talk to them, stop and resume them, and start one from a template.

    A team's NAME may be left out where there is only one, or where only one runs.
    """


for part in (send, stop, resume, attach, export, start, templates, template):
    command.add_command(part)


@command.command("ls", short_help="List the teams, and whether their leads are alive.")
@json_option
@debug_option
def ls(*, as_json: bool) -> int:
    """List the teams, whether their leads are alive, and what they cost."""

    async def work(record: AgentsRecord) -> list[TeamView]:
        found = [await record.rosters.read(name) for name in await record.rosters.list()]
        return [await view_of(record, team) for team in found if team is not None]

    views = with_record(work)
    if as_json:
        print_json([facts(view) for view in views])
    elif views:
        _print(views)
    else:
        click.echo("There are no teams.")
    return exits.OK


@command.command("show", short_help="Show who is in a team, what each does and took.")
@click.argument("name", required=False)
@json_option
@debug_option
def show(*, name: str | None, as_json: bool) -> int:
    """Show a team: each member with what it does and what it took, and the board."""

    async def work(record: AgentsRecord) -> TeamView:
        return await view_of(record, await team_running(record, name))

    view = with_record(work)
    if as_json:
        print_json(facts(view))
        return exits.OK
    print_facts(
        (
            ("team", view.team.name),
            ("description", view.team.description or ""),
            ("created", _time(view.team.created_at)),
            ("lead", _lead_words(view)),
            ("session", view.session),
            ("board", _board_words(view)),
            ("cost", f"{dollars(view.usd)} · {count(view.tokens)} tokens"),
        )
    )
    click.echo()
    for each in view.members:
        _print_member(each)
    if view.is_live:
        click.echo(f"\nBe there: shoal team attach {view.team.name}")
    return exits.OK


@command.command("rm", short_help="Remove a team with its mail and its tasks.")
@click.argument("name", required=False)
@click.option("--yes", is_flag=True, help="Do not ask first.")
@click.option("--force", is_flag=True, help="Even if a lead that died left members behind as active.")
@json_option
@debug_option
def rm(*, name: str | None, yes: bool, force: bool, as_json: bool) -> int:
    """Remove a team with its mail and its tasks, for good. Refused while its lead is alive."""

    async def work(record: AgentsRecord) -> str:
        team = await team_named(record, name)
        if not yes and not as_json and not _agreed(team):
            return ""
        await _remove(record, team, force=force)
        return team.name

    removed = with_record(work)
    if not removed:
        print("Nothing was removed.", file=sys.stderr)
        return exits.ERROR
    print_json({"removed": removed}) if as_json else click.echo(f"The team {removed} is removed.")
    return exits.OK


async def _remove(record: AgentsRecord, team: Team, *, force: bool) -> None:
    from shoal.core.errors import StoreError, TeamBusy
    from shoal.core.ids import SessionId
    from shoal.stores.files.locks import SessionLock
    from shoal.surfaces.cli.teams.view import run_of

    run = run_of(team)
    try:
        # Held meanwhile, so that nobody resumes the team during its removal.
        lock = SessionLock(run.home, SessionId(run.session))
    except StoreError as held:
        raise TeamBusy(
            f"The team {team.name} is led by a live session, so it was not removed. "
            f"Stop it first: shoal team stop {team.name}"
        ) from held
    try:
        left = [member for member in team.members if member.is_active]
        if left and not force:
            names = ", ".join(member.name for member in left)
            raise TeamBusy(
                f"The lead of {team.name} is gone and left members at work: {names}. Go on with them: "
                f"shoal team resume {team.name}. Or remove all of it: shoal team rm {team.name} --force"
            )
        for member in left:
            await record.rosters.change(team.name, member.name, is_active=False)
        await record.rosters.delete(team.name)
    finally:
        lock.leave_nothing()


def _agreed(team: Team) -> bool:
    if not sys.stdin.isatty():
        raise click.UsageError("There is no terminal to ask at whether to remove it. Say so with --yes.")
    return click.confirm(f"Remove the team {team.name} with its mail and its tasks?", default=False)


def _print(views: Sequence[TeamView]) -> None:
    rows = [
        (
            Cell(view.team.name, CYAN),
            Cell(view.lead, _LEADS[view.lead]),
            Cell(*_number(view.number_of("working", "waiting"), GREEN)),
            Cell(*_number(view.number_of("idle", "cut off"), "")),
            Cell(f"{view.open_tasks} open", "" if view.open_tasks else DIM),
            Cell(dollars(view.usd)),
            Cell(_time(view.team.created_at, "%m-%d %H:%M")),
            Cell(view.team.description or ""),
        )
        for view in views
    ]
    heads = ("TEAM", "LEAD", "WORKING", "IDLE", "TASKS", "COST", "CREATED", "DESCRIPTION")
    print_table(heads, rows)
    # Leads that died first: their work was cut off.
    for state, words in (("died", "A lead that died"), ("ended", "A team that has ended")):
        if which := next((view.team.name for view in views if view.lead == state), None):
            click.echo(f"\n{words} can go on: shoal team resume {which}")
            return


def _print_member(each: MemberView) -> None:
    """Print a member on two lines, activity and numbers, so that both fit a narrow terminal."""
    from shoal.surfaces.terminal.question_words import wanted

    colours, member = has_colours(sys.stdout), each.member
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 10_000
    doing = each.doing if each.question is None else ""
    what = one_line(" · ".join(filter(None, (each.task, doing))))
    head = cut(f"{member.name}  {each.state}{'  ' if what else ''}{what}", columns - 4)
    name, state = painted(member.name, style_of(member.color), colours=colours), head[len(member.name) :]
    dot = painted("●", _STATES[each.state], colours=colours)
    click.echo(f"  {dot} {name}{state}")
    details = (
        f"{each.unread} unread" if each.unread else "",
        "" if each.last_event is None else f"heard {seconds(each.last_event)} ago",
        f"{count(each.tokens)} tokens",
        dollars(each.usd),
        member.model,
        member.agent_type if member.agent_type != member.name else "",
        member.backend_type if member.backend_type not in (None, "in-process") else "",
    )
    told = " · ".join(one_line(fact) for fact in details if fact)
    click.echo(painted(f"      {cut(told, columns - 6)}", DIM, colours=colours))
    if each.question is not None:
        asks = f"      ? asks: {one_line(wanted(each.question))}  shoal ask show {each.question.id}"
        click.echo(painted(cut(asks, columns), YELLOW, colours=colours))


def _number(value: int, style: str) -> tuple[str, str]:
    return str(value), style if value else DIM


def _lead_words(view: TeamView) -> str:
    match view.lead:
        case "alive":
            return "alive"
        case "ended":
            return f"not running; go on with: shoal team resume {view.team.name}"
        case "died":
            return f"died without a word; go on with: shoal team resume {view.team.name}"


def _board_words(view: TeamView) -> str:
    if not view.tasks:
        return "no tasks"
    done = len(view.tasks) - view.open_tasks
    under_way = sum(task.status == "in_progress" for task in view.tasks)
    return f"{done} of {len(view.tasks)} tasks done, {under_way} under way"


def _time(ms: int, form: str = "%Y-%m-%d %H:%M") -> str:
    return datetime.fromtimestamp(ms / 1000).astimezone().strftime(form) if ms else "-"
