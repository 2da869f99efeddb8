"""`shoal doctor` command: check the setup, and print what is missing and what to type."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

import click

from shoal.core.text.text_format import strip_terminal_codes
from shoal.core.unused_items import count_unused_items
from shoal.surfaces.cli import exit_codes
from shoal.surfaces.cli.cli_output import print_json
from shoal.surfaces.cli.flags import settings_option
from shoal.surfaces.terminal.listings import format_diagnostic_lines
from shoal.surfaces.terminal.text_styles import has_colours


@click.command("doctor")
@click.argument("symptom", required=False)
@click.option("--session", metavar="ID", help="Examine this run; default: the latest one in this directory.")
@click.option("--about", metavar="NAME", default="", help="The agent, recipient, tool or command to examine.")
@click.option("--symptoms", "listed", is_flag=True, help="List the symptoms that doctor can examine.")
@click.option("--claude", is_flag=True, help="Show how Shoal handles each item in Claude Code's files.")
@click.option("--json", "as_json", is_flag=True, help="Print all facts as one JSON object.")
@settings_option
@click.option("--model", metavar="NAME", help="Check this model instead of the configured one.")
def doctor_command(  # noqa: PLR0913 - one argument per flag
    *,
    symptom: str | None,
    session: str | None,
    about: str,
    listed: bool,
    claude: bool,
    as_json: bool,
    settings: str | None,
    model: str | None,
) -> int:
    """Check the setup: models, home, settings and programs, with advice for each problem.

    With SYMPTOM, examine only that symptom. If the symptom concerns a run, Shoal uses the latest run in this
    directory: `shoal doctor result-not-seen --about researcher`. `--symptoms` lists the symptoms.

    `--claude` lists every item in the settings, agents, skills and instructions that Claude Code would read
    here: used, not used, refused, or wider here (less restricted than in Claude Code).

    The exit code is 1 if something prevents `shoal -p` from working, or if the cause of the symptom was
    found.
    """
    if listed:
        return _list_symptoms(as_json=as_json)
    if claude:
        return _list_claude_items(settings, as_json=as_json)
    if symptom is not None:
        return _diagnose_symptom(symptom, session, about, as_json=as_json)
    from shoal.app.doctor.health_checks import run_health_checks

    diagnostics = run_health_checks(os.environ, Path.cwd(), settings=settings, model=model)
    has_errors = any(fact.state == "bad" for fact in diagnostics)
    if as_json:
        print_json({"ok": not has_errors, "facts": diagnostics})
    else:
        for line in format_diagnostic_lines(diagnostics, colours=has_colours(sys.stdout)):
            click.echo(line)
    return exit_codes.ERROR if has_errors else exit_codes.OK


def _list_claude_items(settings: str | None, *, as_json: bool) -> int:
    from itertools import groupby

    from shoal.app.doctor.claude_items import list_claude_items

    found = list_claude_items(os.environ, Path.cwd(), given=settings)
    items = found.items
    is_refused = any(item.use == "refused" for item in items)
    if as_json:
        print_json({"ok": not is_refused, "items": items, "unused_settings": found.unused_settings})
        return exit_codes.ERROR if is_refused else exit_codes.OK
    for file, group in groupby(items, key=lambda item: item.file):
        click.echo(strip_terminal_codes(file))
        for item in group:
            advice = f"  → {item.advice}" if item.advice else ""
            click.echo(strip_terminal_codes(f"  {item.use:<10}  {item.item}{advice}"))
    counts: Counter[str] = Counter(item.use for item in items)
    uses = ("used", "not used", "refused", "wider here")
    summary = ", ".join(f"{counts[use]} {use}" for use in uses if counts[use])
    click.echo(f"\n{summary}." if summary else "There are no Claude Code files here.")
    if found.unused_settings:
        click.echo(f"\n{count_unused_items(len(found.unused_settings))}, as the startup notice says:")
        for sentence in found.unused_settings:
            click.echo(strip_terminal_codes(f"  {sentence}"))
    return exit_codes.ERROR if is_refused else exit_codes.OK


def _list_symptoms(*, as_json: bool) -> int:
    from shoal.app.doctor.symptoms import SYMPTOMS

    if as_json:
        print_json({name: what for name, (what, _) in SYMPTOMS.items()})
        return exit_codes.OK
    for name, (description, _) in SYMPTOMS.items():
        click.echo(f"  {name:<22}  {description}")
    click.echo("\nExamine one: shoal doctor wait-does-not-end")
    return exit_codes.OK


def _diagnose_symptom(symptom: str, session: str | None, about: str, *, as_json: bool) -> int:
    from difflib import get_close_matches

    from shoal.app.doctor.doctor_case import DoctorContext
    from shoal.app.doctor.symptoms import SYMPTOMS, examine_symptom
    from shoal.app.run_access.stored_runs import open_stored_runs
    from shoal.app.settings.settings import resolve_shoal_home

    if symptom not in SYMPTOMS:
        close_matches = get_close_matches(symptom, SYMPTOMS, n=1)
        suggestion = f" Did you mean {close_matches[0]}?" if close_matches else ""
        raise click.UsageError(
            f"There is no symptom {symptom!r}.{suggestion} List the symptoms: shoal doctor --symptoms"
        )
    cwd = Path.cwd()
    home = resolve_shoal_home(os.environ, cwd)
    run = open_stored_runs(home, session or "").find_named_or_latest_run(cwd, session)
    case = DoctorContext(cwd=cwd, home=home, environ=os.environ, symptom=symptom, run=run, about=about)
    diagnostics = examine_symptom(case)
    has_findings = any(fact.state in ("bad", "warn") for fact in diagnostics)
    if as_json:
        print_json({"symptom": symptom, "found": has_findings, "facts": diagnostics})
    else:
        for line in format_diagnostic_lines(
            diagnostics,
            colours=has_colours(sys.stdout),
            summary=_format_doctor_summary(has_findings=has_findings),
        ):
            click.echo(line)
    return exit_codes.ERROR if has_findings else exit_codes.OK


def _format_doctor_summary(*, has_findings: bool) -> str:
    return "The arrows show what to do." if has_findings else "No problem found."
