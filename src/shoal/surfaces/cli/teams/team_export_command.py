"""`shoal team export` command: write everything stored about a team into one file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.app.run_view.mail_text import format_mail
from shoal.core.text.text_format import format_dollars, format_token_count, strip_terminal_codes
from shoal.surfaces.cli import exit_codes
from shoal.surfaces.cli.cli_output import debug_option, print_json
from shoal.surfaces.cli.export_command import load_export_redactor
from shoal.surfaces.cli.team_store_access import run_with_team_store
from shoal.surfaces.cli.teams.team_overview import (
    build_team_overview,
    find_named_or_only_team,
    team_overview_to_dict,
)

if TYPE_CHECKING:
    from shoal.app.teams.team_export import TeamExport
    from shoal.app.teams.team_store import TeamStore
    from shoal.surfaces.cli.teams.team_overview import TeamOverview


@click.command("export", short_help="Export everything stored about a team.")
@click.argument("name", required=False)
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Output file.")
@click.option(
    "--format", "form", type=click.Choice(["json", "md"]), default="json", help="json, or md for reading."
)
@click.option("--json", "as_json", is_flag=True, help="With -o: report the written file as JSON.")
@debug_option
def export_team_data(*, name: str | None, output: Path | None, form: str, as_json: bool) -> int:
    """Export a team: roster, tasks, mail in order, events, costs and last reports.

    The export changes nothing. It works for a running team, a finished team, and a team whose lead died.
    """
    from shoal.app.teams.team_export import export_team

    async def load_team_export(store: TeamStore) -> tuple[TeamOverview, TeamExport]:
        team = await find_named_or_only_team(store, name)
        view = await build_team_overview(store, team)
        return view, await export_team(store, view.run, team)

    view, team_export = run_with_team_store(load_team_export, read_only=True)
    text = (
        "\n".join(_render_team_export_markdown(view, team_export)) + "\n"
        if form == "md"
        else _render_team_export_json(view, team_export)
    )
    project = next((member.cwd for member in view.team.members), ".")
    text = load_export_redactor(Path(project)).redact_text(text)
    if output is None:
        sys.stdout.write(text)
        return exit_codes.OK
    from shoal.stores.files.home.home_paths import write_file_atomically

    try:
        write_file_atomically(output.absolute(), text.encode("utf-8", "surrogatepass"))
    except OSError as error:
        raise click.ClickException(f"Cannot write {output}: {error.strerror}.") from error
    if as_json:
        print_json({"team": view.team.name, "written": str(output), "bytes": len(text.encode())})
    else:
        click.echo(f"Wrote the team {view.team.name} to {strip_terminal_codes(str(output))}.")
    return exit_codes.OK


def _render_team_export_json(view: TeamOverview, team_export: TeamExport) -> str:
    from shoal.app.teams.team_export import encode_team_export
    from shoal.wire.json_codec import encode_json

    return (
        encode_json({"standing": team_overview_to_dict(view), **encode_team_export(team_export)}).decode()
        + "\n"
    )


def _render_team_export_markdown(view: TeamOverview, team_export: TeamExport) -> Iterator[str]:
    team = team_export.team
    yield f"# The team {team.name}\n"
    if team.description:
        yield f"{strip_terminal_codes(team.description)}\n"
    yield (
        f"Created {_format_utc_time(team.created_at)}, led by session `{team.lead_session_id}` (lead: "
        f"{view.lead})."
    )
    yield f"{format_token_count(team_export.total.usage.total_tokens)} tokens, {format_dollars(view.usd)}.\n"
    yield "## Members\n"
    yield "| name | type | model | state | tokens | cost |\n|---|---|---|---|---|---|"
    states = {each.member.name: each for each in view.members}
    for person in team_export.people:
        totals = team_export.by_agent.get(person.agent)
        tokens = format_token_count(totals.usage.total_tokens) if totals else "0"
        cost = format_dollars(None if totals and totals.unpriced else totals.usd if totals else 0.0)
        state = states[person.name].state if person.name in states else "left the team"
        yield f"| {person.name} | {person.kind} | {person.model} | {state} | {tokens} | {cost} |"
    yield "\n## Tasks\n"
    yield from _render_task_list_markdown(team_export)
    yield "\n## Last reports\n"
    for person in team_export.people:
        if person.report:
            yield f"### {person.name}\n\n{strip_terminal_codes(person.report)}\n"
    yield "## Mail\n"
    for delivered_mail in team_export.mail:
        mail = delivered_mail.mail
        sender, sent_at = strip_terminal_codes(mail.sender), strip_terminal_codes(mail.timestamp)
        yield f"**{sender} → {delivered_mail.to}**, {sent_at}\n"
        yield (
            "\n".join(f"> {line}".rstrip() for line in strip_terminal_codes(format_mail(mail)).splitlines())
            + "\n"
        )


def _render_task_list_markdown(team_export: TeamExport) -> Iterator[str]:
    if not team_export.tasks:
        yield "None."
    for task in team_export.tasks:
        mark = "x" if task.status == "completed" else " "
        owner = f" ({task.owner})" if task.owner else ""
        blockers_note = (
            f", after {', '.join(f'#{each}' for each in task.blocked_by)}" if task.blocked_by else ""
        )
        status = task.status.replace("_", " ")
        yield f"- [{mark}] #{task.id} {strip_terminal_codes(task.subject)}{owner}: {status}{blockers_note}"
        for change in team_export.changes.get(task.id, ()):
            yield f"  - {_format_utc_time(change.at)} {change.by}: {change.status or 'changed'}"


def _format_utc_time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
