"""`shoal team export` command: write everything stored about a team into one file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.app.picture.mail_words import mail_words
from shoal.core.wording import clean, count, dollars
from shoal.surfaces.cli import exits
from shoal.surfaces.cli.printing import debug_option, print_json
from shoal.surfaces.cli.record import with_record
from shoal.surfaces.cli.teams.view import facts, team_named, view_of

if TYPE_CHECKING:
    from shoal.app.teams.export import Export
    from shoal.app.teams.record import AgentsRecord
    from shoal.surfaces.cli.teams.view import TeamView


@click.command("export", short_help="Give out all that is kept of a team.")
@click.argument("name", required=False)
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write it there.")
@click.option(
    "--format", "form", type=click.Choice(["json", "md"]), default="json", help="json, or md to read."
)
@click.option("--json", "as_json", is_flag=True, help="With -o: say what was written as JSON.")
@debug_option
def export(*, name: str | None, output: Path | None, form: str, as_json: bool) -> int:
    """Give out all of a team: roster, tasks, mail in order, events, costs and last reports.

    It works for a team that runs, has ended or whose lead died, and changes nothing.
    """
    from shoal.app.settings.settings import home_directory
    from shoal.app.teams.export import exported

    async def work(record: AgentsRecord) -> tuple[TeamView, Export]:
        team = await team_named(record, name)
        return await view_of(record, team), await exported(record, home_directory(), team)

    view, found = with_record(work)
    text = "\n".join(_pages(view, found)) + "\n" if form == "md" else _json(view, found)
    if output is None:
        sys.stdout.write(text)
        return exits.OK
    from shoal.stores.files.places import write_whole

    try:
        write_whole(output.absolute(), text.encode("utf-8", "surrogatepass"))
    except OSError as error:
        raise click.ClickException(f"{output} cannot be written: {error.strerror}.") from error
    if as_json:
        print_json({"team": view.team.name, "written": str(output), "bytes": len(text.encode())})
    else:
        click.echo(f"The team {view.team.name} is in {clean(str(output))}.")
    return exits.OK


def _json(view: TeamView, found: Export) -> str:
    from shoal.app.teams.export import as_data
    from shoal.wire.content import dump

    return dump({"standing": facts(view), **as_data(found)}).decode() + "\n"


def _pages(view: TeamView, found: Export) -> Iterator[str]:
    team = found.team
    yield f"# The team {team.name}\n"
    if team.description:
        yield f"{clean(team.description)}\n"
    yield f"Made {_time(team.created_at)}, led by session `{team.lead_session_id}`; its lead: {view.lead}."
    yield f"{count(found.total.usage.total_tokens)} tokens, {dollars(view.usd)}.\n"
    yield "## Members\n"
    yield "| name | type | model | state | tokens | cost |\n|---|---|---|---|---|---|"
    states = {each.member.name: each for each in view.members}
    for person in found.people:
        spent = found.by_agent.get(person.agent)
        tokens = count(spent.usage.total_tokens) if spent else "0"
        cost = dollars(None if spent and spent.unpriced else spent.usd if spent else 0.0)
        state = states[person.name].state if person.name in states else "left the team"
        yield f"| {person.name} | {person.kind} | {person.model} | {state} | {tokens} | {cost} |"
    yield "\n## Tasks\n"
    yield from _tasks(found)
    yield "\n## Last reports\n"
    for person in found.people:
        if person.report:
            yield f"### {person.name}\n\n{clean(person.report)}\n"
    yield "## Mail\n"
    for posted in found.mail:
        mail = posted.mail
        yield f"**{clean(mail.sender)} → {posted.to}**, {clean(mail.timestamp)}\n"
        yield "\n".join(f"> {line}".rstrip() for line in clean(mail_words(mail)).splitlines()) + "\n"


def _tasks(found: Export) -> Iterator[str]:
    if not found.tasks:
        yield "None."
    for task in found.tasks:
        mark = "x" if task.status == "completed" else " "
        owner = f" ({task.owner})" if task.owner else ""
        after = f", after {', '.join(f'#{each}' for each in task.blocked_by)}" if task.blocked_by else ""
        yield f"- [{mark}] #{task.id} {clean(task.subject)}{owner}: {task.status.replace('_', ' ')}{after}"
        for change in found.changes.get(task.id, ()):
            yield f"  - {_time(change.at)} {change.by}: {change.status or 'changed'}"


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
