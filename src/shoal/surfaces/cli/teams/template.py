"""`shoal team templates` and `shoal team template` commands: list, show, validate and create templates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.core.wording import clean, many
from shoal.surfaces.cli import exits
from shoal.surfaces.cli.printing import Cell, debug_option, json_option, print_facts, print_json, print_table
from shoal.surfaces.terminal.paint import CYAN, DIM, RED

if TYPE_CHECKING:
    from shoal.app.teams.templates import Found, Templates
    from shoal.core.templates import Flaw, Template

_NEW = """\
---
name: {name}
# What it is for: `shoal team templates` shows this.
description: Say in a sentence what this team does and when to use it.
# Each role is a teammate, or `count` of them. {{goal}} is what the person asks for.
roles:
  - name: worker
    # A type of agent: `shoal agents ls` lists them.
    type: general-purpose
    # model: sonnet
    # mode: plan            only reads until its plan is approved
    # isolation: worktree   works in a copy of its own
    # count: 2              worker-1 and worker-2
    prompt: |
      Work on this: {{goal}}
      Report to team-lead what you did and how one sees that it is done.
  - name: checker
    type: general-purpose
    prompt: |
      Check what worker did for: {{goal}}
      Run it, look for what is missing, and report to team-lead.
# Without an owner, whoever is free takes a task. blockedBy names keys.
tasks:
  - key: work
    subject: Do it
    owner: worker
  - key: check
    subject: Check it
    blockedBy: [work]
    owner: checker
# For the whole team with its lead.
# budget:
#   usd: 5
#   tokens: 2000000
---
You lead this team. Wait for what its members report, settle what they disagree about, and give the person
the result.
"""


@click.command("templates", short_help="List the team templates.")
@json_option
@debug_option
def templates(*, as_json: bool) -> int:
    """List the team templates: the project's, your own, and those that come with Shoal."""
    found = _found()
    if as_json:
        print_json([_summary(each) for each in found.standing])
        return exits.OK
    rows = [
        (
            Cell(each.name, CYAN),
            Cell("-" if each.template is None else str(len(each.template.members))),
            Cell("-" if each.template is None else str(len(each.template.tasks))),
            Cell(each.origin.kind, DIM),
            Cell(f"cannot be used: {each.flaw}", RED)
            if each.template is None
            else Cell(each.template.description),
        )
        for each in found.standing
    ]
    print_table(("TEMPLATE", "MEMBERS", "TASKS", "SOURCE", "DESCRIPTION"), rows)
    click.echo('\nStart one: shoal team start NAME "the goal"\nSee one: shoal team template show NAME')
    return exits.OK


@click.group("template", short_help="Show, check and write team templates.")
def template() -> None:
    """Show, check and write team templates: .claude/teams in the project, `teams` in Shoal's home."""


@template.command("show")
@click.argument("name")
@json_option
@debug_option
def show(*, name: str, as_json: bool) -> int:
    """Show a template: its roles, its tasks, and what the lead is told."""
    from shoal.surfaces.cli.teams.start import budget_words, print_roster, print_tasks, template_named

    found = template_named(name)
    if as_json:
        print_json(_data(found))
        return exits.OK
    print_facts(
        (
            ("template", found.name),
            ("description", found.description),
            ("source", f"{found.origin.kind}, {found.origin}"),
            ("budget", budget_words(found.budget_usd, found.budget_tokens)),
        )
    )
    click.echo()
    print_roster(found)
    if found.tasks:
        print_tasks([(task.key, task.owner, task.blocked_by, task.subject) for task in found.ordered_tasks()])
    click.echo(f"\n{clean(found.prompt)}")
    return exits.OK


@template.command("validate")
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path(path_type=Path))
@json_option
@debug_option
def validate(*, paths: Sequence[Path], as_json: bool) -> int:
    """Check templates: these files, or all that are found from here. Exit code 1 where one cannot be used."""
    from shoal.app.teams.templates import read_file

    for path in paths:
        if not path.is_file():
            raise click.UsageError(f"There is no file {str(path)!r}.")
    every = [read_file(path) for path in paths] if paths else [*_found().all]
    flaws = [flaw for each in every if (flaw := _flaw(each)) is not None]
    shadowed = [f"{each.origin}: not used, {each.hidden_by} comes first" for each in every if each.hidden_by]
    if as_json:
        problems = [_flaw_data(each) for each in flaws]
        print_json({"templates": len(every), "problems": problems, "shadowed": shadowed})
    else:
        for line in (*map(str, flaws), *shadowed):
            click.echo(clean(line))
        click.echo(f"{many(len(every), 'template')}, {many(len(flaws), 'problem')}.")
    return exits.ERROR if flaws else exits.OK


@template.command("new")
@click.argument("name")
@click.option("--user", is_flag=True, help="For you in every project, instead of for this project.")
@json_option
@debug_option
def new(*, name: str, user: bool, as_json: bool) -> int:
    """Write the file of a new template, with every field explained, for you to change."""
    from shoal.app.settings.settings import home_directory
    from shoal.core.names import team_name
    from shoal.surfaces.cli.new_files import write_new

    name = team_name(name)
    directory = home_directory() / "teams" if user else Path.cwd() / ".claude" / "teams"
    path = directory / f"{name}.md"
    write_new(path, _NEW.format(name=name))
    if as_json:
        print_json({"template": name, "written": str(path)})
    else:
        click.echo(f'{clean(str(path))} is written. Change it, then: shoal team start {name} "…" --dry-run')
    return exits.OK


def _found() -> Templates:
    from shoal.app.settings.settings import home_directory
    from shoal.app.teams.templates import templates_for

    return templates_for(cwd=Path.cwd(), home=home_directory())


def _flaw(found: Found) -> Flaw | None:
    """Return the flaw of a template: in its file, or an agent that does not exist."""
    from shoal.app.definitions.definitions import definitions_for
    from shoal.app.settings.settings import home_directory
    from shoal.app.teams.templates import checked
    from shoal.core.errors import BadTemplate

    if found.template is None:
        return found.flaw
    try:
        checked(found.template, definitions_for(cwd=Path.cwd(), home=home_directory()))
    except BadTemplate as bad:
        return bad.flaw
    return None


def _summary(found: Found) -> dict[str, Any]:
    data = {"name": found.name, "source": {"kind": found.origin.kind, "path": str(found.origin.path)}}
    if found.template is None:
        return {**data, "problem": None if found.flaw is None else _flaw_data(found.flaw)}
    return {**data, **_data(found.template)}


def _data(found: Template) -> dict[str, Any]:
    return {
        "name": found.name,
        "description": found.description,
        "source": {"kind": found.origin.kind, "path": str(found.origin.path)},
        "roles": [
            {"name": role.name, "members": role.members, "type": role.kind, "model": role.model}
            | {"mode": role.mode, "isolation": role.isolation, "prompt": role.prompt}
            for role in found.roles
        ],
        "tasks": found.ordered_tasks(),
        "budget": {"usd": found.budget_usd, "tokens": found.budget_tokens},
        "prompt": found.prompt,
    }


def _flaw_data(flaw: Flaw) -> dict[str, Any]:
    return {"path": str(flaw.origin.path), "line": flaw.line, "field": flaw.field, "what": flaw.what}
