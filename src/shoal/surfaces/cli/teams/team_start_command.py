"""`shoal team start` command: a team from a template, whose members work before the lead's first turn."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.core.text.text_format import strip_terminal_codes
from shoal.surfaces.cli import exit_codes
from shoal.surfaces.cli.cli_output import CliTableCell, print_json, print_name_value_lines, print_table
from shoal.surfaces.cli.flags import parse_session_uuid
from shoal.surfaces.cli.run_launch import RUN_FLAGS, run_session_with_flags
from shoal.surfaces.terminal.text_styles import BOLD, DIM, YELLOW, apply_style, has_colours

if TYPE_CHECKING:
    from shoal.app.options import Options
    from shoal.app.session.session import Session
    from shoal.app.teams.team_templates import UserLimitsForTeamTemplate
    from shoal.core.teams.team_templates import TeamTemplate, TeamTemplateRole


def _start_team(template: str, goal: str | None, **flag_values: Any) -> int:
    team_template = find_team_template(template)
    name, dry_run, as_json = (
        flag_values.pop("team_name"),
        flag_values.pop("dry_run"),
        flag_values.pop("as_json"),
    )
    is_headless = flag_values.pop("print_") or not (sys.stdin.isatty() and sys.stdout.isatty())
    goal = _read_goal(team_template, goal)
    _check_team_template(team_template, flag_values)
    if dry_run:
        _print_team_plan(team_template, goal, name or team_template.name, flag_values, as_json=as_json)
        return exit_codes.OK
    if as_json:
        flag_values["output_format"] = "json"
    return run_session_with_flags(
        flag_values,
        headless=is_headless,
        prepare=_create_team_preparer(team_template, goal, name),
        adapt_options=lambda options: _apply_template_budget(options, team_template),
    )


start_command = click.Command(
    "start",
    callback=_start_team,
    short_help="Start a team from a template, and lead it.",
    help=(
        "Start a team from TEMPLATE for GOAL, and lead it.\n\n    Shoal creates the team, its tasks and "
        "its members before the lead's first turn. In a terminal, you talk to the\n    lead; with -p, or "
        "without a terminal, the team runs headless and prints the result. If GOAL is `-`, Shoal reads "
        "it\n    "
        "from "
        "standard input. The flags of `shoal` apply here too."
    ),
    params=[
        click.Argument(["template"]),
        click.Argument(["goal"], required=False),
        click.Option(
            ["-p", "--print", "print_"], is_flag=True, help="Run headless: print the result and exit."
        ),
        click.Option(
            ["--name", "team_name"], metavar="NAME", help="Team name; default: the template's name."
        ),
        click.Option(["--dry-run"], is_flag=True, help="Show what would be created, but create nothing."),
        click.Option(["--json", "as_json"], is_flag=True, help="Print JSON: the plan, or one result object."),
        click.Option(["--session-id"], type=parse_session_uuid, hidden=True),
        *RUN_FLAGS,
    ],
)


def find_team_template(name: str) -> TeamTemplate:
    """Find a template by name, or by the path of a file."""
    from shoal.app.settings.settings import find_process_shoal_home
    from shoal.app.teams.team_templates import SUFFIXES, load_team_templates, read_team_template_file
    from shoal.core.errors import InvalidTeamTemplate

    path = Path(name)
    if path.suffix in SUFFIXES or "/" in name:
        entry = read_team_template_file(path)
        if entry.template is None:
            assert entry.problem is not None
            raise InvalidTeamTemplate(entry.problem)
        return entry.template
    return load_team_templates(cwd=Path.cwd(), home=find_process_shoal_home()).find(name)


def _read_goal(template: TeamTemplate, argument: str | None) -> str:
    from shoal.surfaces.cli.headless.stdin import decode_utf8_with_warning, read_prompt_from_stdin

    goal = (
        read_prompt_from_stdin()
        if argument == "-"
        else decode_utf8_with_warning(os.fsencode(argument or ""), "The goal")
    ).strip()
    if template.needs_goal and not goal:
        raise click.UsageError(
            f"The template {template.name} needs a goal. Pass it in quotes: shoal team start "
            f'{template.name} "the goal"'
        )
    return goal


def _check_team_template(template: TeamTemplate, flag_values: dict[str, Any]) -> None:
    """Check, before anything starts, that the agents exist and that the template stays within the limits."""
    from shoal.app.definitions.agent_catalog import load_agent_catalog, parse_agents_option
    from shoal.app.definitions.plugin_set import load_plugins
    from shoal.app.reports import permission_report
    from shoal.app.teams.team_templates import check_team_template

    cwd = Path.cwd()
    settings = permission_report.load_project_settings(cwd, given=flag_values["settings"])
    definitions = load_agent_catalog(
        cwd=cwd,
        home=settings.home,
        given=parse_agents_option(flag_values["agents"], cwd),
        plugins=load_plugins(settings, cwd, flag_values["plugin_dirs"]).list_agent_dirs(),
    )
    check_team_template(
        template,
        definitions,
        _resolve_template_limits(
            flag_values, permission_report.build_lead_permission_report(settings, cwd).mode, settings.own
        ),
    )
    if any(role.isolation == "worktree" for role in template.roles) and not _is_in_repository(cwd):
        role_names = ", ".join(role.name for role in template.roles if role.isolation == "worktree")
        raise click.UsageError(
            f"The template gives {role_names} a separate worktree, but {cwd} is not in a git repository. "
            "Create one "
            "first: git init && git add -A && git commit -m start"
        )


def _resolve_template_limits(
    flag_values: dict[str, Any], mode: Any, own_settings: Any
) -> UserLimitsForTeamTemplate:
    """Return the limits; a flag of the user overrides the settings."""
    from shoal.app.teams.team_templates import UserLimitsForTeamTemplate

    if flag_values["skip_permissions"]:
        mode = "bypassPermissions"
    usd, tokens = flag_values["max_budget_usd"], flag_values["max_total_tokens"]
    return UserLimitsForTeamTemplate(
        mode=flag_values["mode"] or mode,
        max_usd=None if usd else own_settings.max_budget_usd,
        max_tokens=None if tokens else own_settings.max_total_tokens,
    )


def _is_in_repository(cwd: Path) -> bool:
    from shoal.workspaces.git_paths import contains_git_repository

    return any(contains_git_repository(place) for place in (cwd, *cwd.parents))


def _apply_template_budget(options: Options, template: TeamTemplate) -> Options:
    """Apply the template's budget where the user gave none."""
    from msgspec.structs import replace

    return replace(
        options,
        max_budget_usd=options.max_budget_usd or template.budget_usd,
        max_total_tokens=options.max_total_tokens or template.budget_tokens,
    )


def _create_team_preparer(
    template: TeamTemplate, goal: str, name: str | None
) -> Callable[[Session], Awaitable[str]]:
    async def start_team_and_get_prompt(session: Session) -> str:
        from shoal.app.session.team_start import start_team_from_template

        started_team = await start_team_from_template(session, template, goal, name=name or "")
        session.note(
            f"Created the team {started_team.name}: {', '.join(each.name for each in started_team.members)}."
        )
        return started_team.prompt

    return start_team_and_get_prompt


def _print_team_plan(
    template: TeamTemplate, goal: str, name: str, flag_values: dict[str, Any], *, as_json: bool
) -> None:
    from shoal.app.session.team_start import build_lead_team_prompt, preview_template_tasks

    filled_template = template.fill_goal(goal)
    tasks = preview_template_tasks(filled_template)
    prompt = build_lead_team_prompt(name, filled_template, goal, tasks)
    usd = flag_values["max_budget_usd"] or template.budget_usd
    tokens = flag_values["max_total_tokens"] or template.budget_tokens
    if as_json:
        print_json(
            {
                "team": name,
                "template": template.name,
                "source": str(template.source),
                "members": [
                    _template_member_to_dict(member, role)
                    for member, role in filled_template.members_with_roles
                ],
                "tasks": tasks,
                "budget": {"usd": usd, "tokens": tokens},
                "prompt": prompt,
            }
        )
        return
    print_name_value_lines(
        (
            ("team", name),
            ("template", f"{template.name}  ({template.source.kind}, {template.source})"),
            ("budget", format_budget_limits(usd, tokens) or "none"),
        )
    )
    click.echo()
    print_template_roles(filled_template)
    if tasks:
        print_template_tasks([(task.id, task.owner, task.blocked_by, task.subject) for task in tasks])
    colours = has_colours(sys.stdout)
    click.echo(f"\n{apply_style('Lead prompt', BOLD, colours=colours)}")
    click.echo("\n".join(f"  {line}".rstrip() for line in strip_terminal_codes(prompt).splitlines()))
    click.echo(
        apply_style("\nNothing was created. Leave out --dry-run to start it.", YELLOW, colours=colours)
    )


def format_budget_limits(usd: float | None, tokens: int | None) -> str:
    amounts = (f"${usd:g}" if usd else "", f"{tokens:,} tokens" if tokens else "")
    return ", ".join(filter(None, amounts))


def _template_member_to_dict(member: str, role: TeamTemplateRole) -> dict[str, Any]:
    return {
        "name": member,
        "type": role.kind,
        "model": role.model,
        "mode": role.mode,
        "isolation": role.isolation,
        "resources": role.resources,
        "prompt": role.prompt,
    }


def print_template_tasks(tasks: Sequence[tuple[str, str | None, Sequence[str], str]]) -> None:
    rows = [
        (
            CliTableCell(key),
            CliTableCell(owner or "-"),
            CliTableCell(", ".join(waits_for) or "-"),
            CliTableCell(subject),
        )
        for key, owner, waits_for, subject in tasks
    ]
    click.echo()
    print_table(("TASK", "OWNER", "WAITS FOR", "SUBJECT"), rows)


def print_template_roles(template: TeamTemplate) -> None:
    rows = [
        (
            CliTableCell(member),
            CliTableCell(role.kind or "-"),
            CliTableCell(role.model or "inherit"),
            CliTableCell(role.mode or "-", DIM if role.mode is None else YELLOW),
            CliTableCell(role.isolation or "-"),
            CliTableCell(" ".join(role.prompt.split())),
        )
        for member, role in template.members_with_roles
    ]
    print_table(("MEMBER", "TYPE", "MODEL", "MODE", "ISOLATION", "PROMPT"), rows)
