"""`shoal doctor` command: check the set-up, and print what is missing and what to type."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from shoal.surfaces.cli import exits
from shoal.surfaces.cli.flags import settings_option
from shoal.surfaces.cli.printing import print_json
from shoal.surfaces.terminal.listings import fact_lines
from shoal.surfaces.terminal.paint import has_colours


@click.command("doctor")
@click.argument("symptom", required=False)
@click.option("--session", metavar="ID", help="Look into this run; else the latest of this directory.")
@click.option(
    "--about", metavar="NAME", default="", help="The agent, recipient, tool or command it is about."
)
@click.option("--symptoms", "listed", is_flag=True, help="List the symptoms that can be looked into.")
@click.option("--json", "as_json", is_flag=True, help="All facts as one JSON object.")
@settings_option
@click.option("--model", metavar="NAME", help="Check this model instead of the configured one.")
def command(
    *,
    symptom: str | None,
    session: str | None,
    about: str,
    listed: bool,
    as_json: bool,
    settings: str | None,
    model: str | None,
) -> int:
    """Check the set-up: models, home, settings, programs; and say what to type.

    With a SYMPTOM look into that instead, in the latest run of this directory where it is about a run:
    `shoal doctor result-not-seen --about researcher`. `--symptoms` lists them.

    Exits with 1 when something keeps `shoal -p` from working, or when the cause of the symptom was found.
    """
    if listed:
        return _list(as_json=as_json)
    if symptom is not None:
        return _look_into(symptom, session, about, as_json=as_json)
    from shoal.app.doctor.doctor import examine

    facts = examine(os.environ, Path.cwd(), settings=settings, model=model)
    bad = any(fact.state == "bad" for fact in facts)
    if as_json:
        print_json({"ok": not bad, "facts": facts})
    else:
        for line in fact_lines(facts, colours=has_colours(sys.stdout)):
            click.echo(line)
    return exits.ERROR if bad else exits.OK


def _list(*, as_json: bool) -> int:
    from shoal.app.doctor.known import SYMPTOMS

    if as_json:
        print_json({name: what for name, (what, _) in SYMPTOMS.items()})
        return exits.OK
    for name, (what, _) in SYMPTOMS.items():
        click.echo(f"  {name:<22}  {what}")
    click.echo("\nLook into one: shoal doctor wait-does-not-end")
    return exits.OK


def _look_into(symptom: str, session: str | None, about: str, *, as_json: bool) -> int:
    from difflib import get_close_matches

    from shoal.app.doctor.case import Case
    from shoal.app.doctor.known import SYMPTOMS, looked_into
    from shoal.app.outside.watching import latest_run
    from shoal.app.settings.settings import find_home

    if symptom not in SYMPTOMS:
        near = get_close_matches(symptom, SYMPTOMS, n=1)
        meant = f" Is {near[0]} meant?" if near else ""
        raise click.UsageError(f"There is no symptom {symptom!r}.{meant} List them: shoal doctor --symptoms")
    cwd = Path.cwd()
    home = find_home(os.environ, cwd)
    run = latest_run(home, cwd, session)
    case = Case(cwd=cwd, home=home, environ=os.environ, symptom=symptom, run=run, about=about)
    facts = looked_into(case)
    found = any(fact.state in ("bad", "warn") for fact in facts)
    if as_json:
        print_json({"symptom": symptom, "found": found, "facts": facts})
    else:
        for line in fact_lines(facts, colours=has_colours(sys.stdout), summary=_found(found=found)):
            click.echo(line)
    return exits.ERROR if found else exits.OK


def _found(*, found: bool) -> str:
    return "The arrows say what to do." if found else "Nothing is wrong there."
