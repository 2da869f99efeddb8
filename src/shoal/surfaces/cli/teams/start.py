"""`shoal team start` command: a team from a template, whose members work before the lead's first turn."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.core.wording import clean
from shoal.surfaces.cli import exits
from shoal.surfaces.cli.flags import session_uuid
from shoal.surfaces.cli.printing import Cell, print_facts, print_json, print_table
from shoal.surfaces.cli.run_flags import RUN_FLAGS, run_with
from shoal.surfaces.terminal.paint import BOLD, DIM, YELLOW, has_colours, painted

if TYPE_CHECKING:
    from shoal.app.options import Options
    from shoal.app.session.session import Session
    from shoal.app.teams.templates import Standing
    from shoal.core.templates import Role, Template


def _start(template: str, goal: str | None, **given: Any) -> int:
    found = template_named(template)
    name, dry_run, as_json = given.pop("team_name"), given.pop("dry_run"), given.pop("as_json")
    headless = given.pop("print_") or not (sys.stdin.isatty() and sys.stdout.isatty())
    goal = _goal(found, goal)
    _check(found, given)
    if dry_run:
        _show_plan(found, goal, name or found.name, given, as_json=as_json)
        return exits.OK
    if as_json:
        given["output_format"] = "json"
    return run_with(
        given,
        headless=headless,
        prepare=_preparing(found, goal, name),
        adapt=lambda options: _bounded(options, found),
    )


start = click.Command(
    "start",
    callback=_start,
    short_help="Start a team from a template, and lead it.",
    help="""Start a team from TEMPLATE for GOAL, and lead it.

    The team, its tasks and its members are made before the lead's first turn. At a terminal you talk to the
    lead; with -p, or without a terminal, it runs headless and prints the result. With `-` as GOAL it is read
    from standard input. The flags of a run hold here too.""",
    params=[
        click.Argument(["template"]),
        click.Argument(["goal"], required=False),
        click.Option(
            ["-p", "--print", "print_"], is_flag=True, help="Headless: run, print the result, exit."
        ),
        click.Option(["--name", "team_name"], metavar="NAME", help="Call the team so; else as the template."),
        click.Option(["--dry-run"], is_flag=True, help="Show what would be made, and make nothing."),
        click.Option(["--json", "as_json"], is_flag=True, help="Print JSON: the plan, or one result object."),
        click.Option(["--session-id"], type=session_uuid, hidden=True),
        *RUN_FLAGS,
    ],
)


def template_named(name: str) -> Template:
    """Find a template by name, or by the path of a file."""
    from shoal.app.settings.settings import home_directory
    from shoal.app.teams.templates import SUFFIXES, read_file, templates_for
    from shoal.core.errors import BadTemplate

    path = Path(name)
    if path.suffix in SUFFIXES or "/" in name:
        found = read_file(path)
        if found.template is None:
            assert found.flaw is not None
            raise BadTemplate(found.flaw)
        return found.template
    return templates_for(cwd=Path.cwd(), home=home_directory()).find(name)


def _goal(template: Template, given: str | None) -> str:
    from shoal.surfaces.cli.headless.stdin import as_text, read_prompt

    goal = (read_prompt() if given == "-" else as_text(os.fsencode(given or ""), "The goal")).strip()
    if template.needs_goal and not goal:
        raise click.UsageError(
            f"The template {template.name} needs a goal. Give it in quotes: "
            f'shoal team start {template.name} "what is to be achieved"'
        )
    return goal


def _check(template: Template, given: dict[str, Any]) -> None:
    """Check, before anything starts, that the agents exist and that the template stays within the limits."""
    from shoal.app.definitions.definitions import definitions_for, given_definitions
    from shoal.app.definitions.plugins import plugins_for
    from shoal.app.teams.templates import checked
    from shoal.app.views import permissions as permissions_view

    cwd = Path.cwd()
    settings = permissions_view.load(cwd, given=given["settings"])
    definitions = definitions_for(
        cwd=cwd,
        home=settings.home,
        given=given_definitions(given["agents"], cwd),
        plugins=plugins_for(settings, cwd, given["plugin_dirs"]).agents(),
    )
    checked(template, definitions, _allowed(given, permissions_view.view(settings, cwd).mode, settings.own))
    if any(role.isolation == "worktree" for role in template.roles) and not _in_repository(cwd):
        which = ", ".join(role.name for role in template.roles if role.isolation == "worktree")
        raise click.UsageError(
            f"{which} works in a worktree of its own, and {cwd} is in no git repository. "
            "Make one first: git init && git add -A && git commit -m start"
        )


def _allowed(given: dict[str, Any], mode: Any, own: Any) -> Standing:
    """Return the limits; a flag of the user overrides the settings."""
    from shoal.app.teams.templates import Standing

    if given["skip_permissions"]:
        mode = "bypassPermissions"
    usd, tokens = given["max_budget_usd"], given["max_total_tokens"]
    return Standing(
        mode=given["mode"] or mode,
        max_usd=None if usd else own.max_budget_usd,
        max_tokens=None if tokens else own.max_total_tokens,
    )


def _in_repository(cwd: Path) -> bool:
    return any((place / ".git").exists() for place in (cwd, *cwd.parents))


def _bounded(options: Options, template: Template) -> Options:
    """Apply the template's budget where the user gave none."""
    from msgspec.structs import replace

    return replace(
        options,
        max_budget_usd=options.max_budget_usd or template.budget_usd,
        max_total_tokens=options.max_total_tokens or template.budget_tokens,
    )


def _preparing(template: Template, goal: str, name: str | None) -> Callable[[Session], Awaitable[str]]:
    async def prepare(session: Session) -> str:
        from shoal.app.session.team_start import start_team

        started = await start_team(session, template, goal, name=name or "")
        session.note(f"The team {started.name} is made: {', '.join(each.name for each in started.members)}.")
        return started.prompt

    return prepare


def _show_plan(template: Template, goal: str, name: str, given: dict[str, Any], *, as_json: bool) -> None:
    from shoal.app.session.team_start import first_prompt, planned_tasks

    filled = template.filled(goal)
    tasks = planned_tasks(filled)
    prompt = first_prompt(name, filled, goal, tasks)
    usd = given["max_budget_usd"] or template.budget_usd
    tokens = given["max_total_tokens"] or template.budget_tokens
    if as_json:
        print_json(
            {
                "team": name,
                "template": template.name,
                "source": str(template.origin),
                "members": [_member_data(member, role) for member, role in filled.members],
                "tasks": tasks,
                "budget": {"usd": usd, "tokens": tokens},
                "prompt": prompt,
            }
        )
        return
    print_facts(
        (
            ("team", name),
            ("template", f"{template.name}  ({template.origin.kind}, {template.origin})"),
            ("budget", budget_words(usd, tokens) or "none of its own"),
        )
    )
    click.echo()
    print_roster(filled)
    if tasks:
        print_tasks([(task.id, task.owner, task.blocked_by, task.subject) for task in tasks])
    colours = has_colours(sys.stdout)
    click.echo(f"\n{painted('The lead is told', BOLD, colours=colours)}")
    click.echo("\n".join(f"  {line}".rstrip() for line in clean(prompt).splitlines()))
    click.echo(painted("\nNothing was made. Leave --dry-run out to start it.", YELLOW, colours=colours))


def budget_words(usd: float | None, tokens: int | None) -> str:
    words = (f"${usd:g}" if usd else "", f"{tokens:,} tokens" if tokens else "")
    return ", ".join(filter(None, words))


def _member_data(member: str, role: Role) -> dict[str, Any]:
    return {
        "name": member,
        "type": role.kind,
        "model": role.model,
        "mode": role.mode,
        "isolation": role.isolation,
        "prompt": role.prompt,
    }


def print_tasks(tasks: Sequence[tuple[str, str | None, Sequence[str], str]]) -> None:
    rows = [
        (Cell(key), Cell(owner or "-"), Cell(", ".join(waits_for) or "-"), Cell(subject))
        for key, owner, waits_for, subject in tasks
    ]
    click.echo()
    print_table(("TASK", "OWNER", "WAITS FOR", "SUBJECT"), rows)


def print_roster(template: Template) -> None:
    rows = [
        (
            Cell(member),
            Cell(role.kind or "-"),
            Cell(role.model or "inherit"),
            Cell(role.mode or "-", DIM if role.mode is None else YELLOW),
            Cell(role.isolation or "-"),
            Cell(" ".join(role.prompt.split())),
        )
        for member, role in template.members
    ]
    print_table(("MEMBER", "TYPE", "MODEL", "MODE", "ISOLATION", "PROMPT"), rows)
