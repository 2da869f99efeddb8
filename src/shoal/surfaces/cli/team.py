"""`shoal team`: which teams there are, who is in them, and removing one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from shoal.surfaces.cli import exits
from shoal.surfaces.cli.paint import CYAN, DIM, GREEN, style_of
from shoal.surfaces.cli.record import (
    Cell,
    chosen_team,
    debug_option,
    json_option,
    print_facts,
    print_json,
    print_table,
    with_record,
)

if TYPE_CHECKING:
    from shoal.app.record import AgentsRecord
    from shoal.core.roster import Member, Team


@click.group("team")
def command() -> None:
    """List and show teams, and remove one with its mail and its tasks."""


@command.command("ls")
@json_option
@debug_option
def ls(*, as_json: bool) -> int:
    """List the teams."""

    async def work(record: AgentsRecord) -> list[Team]:
        found = [await record.rosters.read(name) for name in await record.rosters.list()]
        return [team for team in found if team is not None]

    teams = with_record(work)
    if as_json:
        print_json([_data(team) for team in teams])
    elif teams:
        _print(teams)
    else:
        click.echo("There are no teams.")
    return exits.OK


@command.command("show")
@click.argument("name", required=False)
@json_option
@debug_option
def show(*, name: str | None, as_json: bool) -> int:
    """Show a team and its members. NAME may be left out where there is only one."""
    team = with_record(lambda record: _read(record, name))
    if as_json:
        print_json(_data(team))
        return exits.OK
    print_facts(
        (
            ("team", team.name),
            ("description", team.description or ""),
            ("created", _time(team.created_at)),
            ("lead session", team.lead_session_id),
        )
    )
    click.echo()
    print_table(
        ("NAME", "STATE", "TYPE", "MODEL", "RUNS IN", "DIRECTORY"), [_row(member) for member in team.members]
    )
    return exits.OK


@command.command("rm")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask first.")
@click.option("--force", is_flag=True, help="Even if members are said to be active, as after a crash.")
@json_option
@debug_option
def rm(*, name: str, yes: bool, force: bool, as_json: bool) -> int:
    """Remove a team with its mail and its tasks, for good. Refused while a member is active."""

    async def work(record: AgentsRecord) -> str:
        from shoal.core.errors import TeamBusy

        team = await _read(record, name)
        if not yes and not as_json and not _agreed(team):
            return ""
        for member in team.members if force else ():
            if member.is_active:
                await record.rosters.change(team.name, member.name, is_active=False)
        try:
            await record.rosters.delete(team.name)
        except TeamBusy as busy:
            raise TeamBusy(f"{busy} If they are gone already: shoal team rm {team.name} --force") from busy
        return team.name

    removed = with_record(work)
    if not removed:
        print("Nothing was removed.", file=sys.stderr)
        return exits.ERROR
    print_json({"removed": removed}) if as_json else click.echo(f"The team {removed} is removed.")
    return exits.OK


async def _read(record: AgentsRecord, name: str | None) -> Team:
    from shoal.core.errors import NoSuchTeam
    from shoal.core.names import TeamName

    chosen = TeamName(await chosen_team(record, name))
    team = await record.rosters.read(chosen)
    if team is None:
        raise NoSuchTeam(f"The team {chosen} is gone.")
    return team


def _agreed(team: Team) -> bool:
    if not sys.stdin.isatty():
        raise click.UsageError("There is no terminal to ask at whether to remove it. Say so with --yes.")
    return click.confirm(f"Remove the team {team.name} with its mail and its tasks?", default=False)


def _print(teams: Sequence[Team]) -> None:
    rows = [
        (
            Cell(team.name, CYAN),
            Cell(str(len(team.members))),
            Cell(str(active), GREEN if active else DIM),
            Cell(_time(team.created_at)),
            Cell(team.description or ""),
        )
        for team in teams
        for active in [sum(member.is_active is True for member in team.members)]
    ]
    print_table(("TEAM", "MEMBERS", "ACTIVE", "CREATED", "DESCRIPTION"), rows)


def _row(member: Member) -> tuple[Cell, ...]:
    state = {True: Cell("active", GREEN), False: Cell("idle", DIM), None: Cell("lead")}[member.is_active]
    return (
        Cell(member.name, style_of(member.color)),
        state,
        Cell(member.agent_type),
        Cell(member.model),
        Cell(member.backend_type or "-"),
        Cell(member.cwd),
    )


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M") if ms else "-"


def _data(team: Team) -> Any:
    """As its file has it."""
    from shoal.wire.content import load
    from shoal.wire.roster import team_bytes

    return load(team_bytes(team))
