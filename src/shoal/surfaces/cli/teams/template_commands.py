"""`shoal team templates` and `shoal team template` commands: list, show, validate and create templates."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.core.text.text_format import format_count_with_noun, strip_terminal_codes
from shoal.surfaces.cli import exit_codes
from shoal.surfaces.cli.cli_output import (
    CliTableCell,
    debug_option,
    json_option,
    print_json,
    print_name_value_lines,
    print_table,
)
from shoal.surfaces.terminal.text_styles import CYAN, DIM, RED

if TYPE_CHECKING:
    from shoal.app.teams.team_templates import TeamTemplateCatalog, TeamTemplateCatalogEntry
    from shoal.core.teams.team_templates import TeamTemplate, TeamTemplateProblem

_NEW_TEMPLATE = (
    "---\nname: {name}\n# Shown by `shoal team templates`.\ndescription: Describe in one sentence what "
    "this team does and when to use it.\n# Each role is a teammate, or `count` of them. {{goal}} is the "
    "goal that the user passes.\nroles:\n  - name: worker\n    # An agent type: `shoal agents ls` lists "
    "them.\n    type: general-purpose\n    # model: sonnet\n    # mode: plan            only reads until "
    "its plan is approved\n    # isolation: worktree   works in its own copy\n    # count: 2              "
    "worker-1 and worker-2\n    prompt: |\n      Work on this: {{goal}}\n      Report to team-lead what "
    "you did and how to verify it.\n  - name: checker\n    type: general-purpose\n    prompt: |\n      "
    "Check worker's work on: {{goal}}\n      Run it, look for gaps, and report to team-lead.\n# Any "
    "free member can claim a task without an owner. blockedBy lists keys.\ntasks:\n  - key: work\n    "
    "subject: Do it\n    owner: worker\n  - key: check\n    subject: Check it\n    blockedBy: [work]\n    "
    "owner: checker\n# For the whole team, including its lead.\n# budget:\n#   usd: 5\n#   tokens: "
    "2000000\n---\nYou lead this team. Wait for its members' reports, resolve disagreements, and give the "
    "user\nthe result.\n"
)


@click.command("templates", short_help="List the team templates.")
@json_option
@debug_option
def list_team_templates(*, as_json: bool) -> int:
    """List the team templates: the project's, your own, and the built-in ones."""
    catalog = _load_team_templates()
    if as_json:
        print_json([_template_summary_to_dict(each) for each in catalog.effective])
        return exit_codes.OK
    rows = [
        (
            CliTableCell(each.name, CYAN),
            CliTableCell("-" if each.template is None else str(len(each.template.members_with_roles))),
            CliTableCell("-" if each.template is None else str(len(each.template.tasks))),
            CliTableCell(each.origin.kind, DIM),
            CliTableCell(f"cannot be used: {each.problem}", RED)
            if each.template is None
            else CliTableCell(each.template.description),
        )
        for each in catalog.effective
    ]
    print_table(("TEMPLATE", "MEMBERS", "TASKS", "SOURCE", "DESCRIPTION"), rows)
    usable = next((each.name for each in catalog.effective if each.template is not None), None)
    if usable is not None:
        name = shlex.quote(usable)
        click.echo(f'\nStart one: shoal team start {name} "the goal"')
        click.echo(f"See one: shoal team template show {name}")
    return exit_codes.OK


@click.group("template", short_help="Show, check and create team templates.")
def template_group() -> None:
    """Show, check and create team templates. They are in .claude/teams in the project and in `teams` in
    Shoal's home."""


@template_group.command("show")
@click.argument("name")
@json_option
@debug_option
def show_team_template(*, name: str, as_json: bool) -> int:
    """Show a template: its roles, its tasks, and the lead's prompt."""
    from shoal.surfaces.cli.teams.team_start_command import (
        find_team_template,
        format_budget_limits,
        print_template_roles,
        print_template_tasks,
    )

    template = find_team_template(name)
    if as_json:
        print_json(_template_to_dict(template))
        return exit_codes.OK
    print_name_value_lines(
        (
            ("template", template.name),
            ("description", template.description),
            ("source", f"{template.source.kind}, {template.source}"),
            ("budget", format_budget_limits(template.budget_usd, template.budget_tokens)),
        )
    )
    click.echo()
    print_template_roles(template)
    if template.tasks:
        print_template_tasks(
            [
                (task.key, task.owner, task.blocked_by, task.subject)
                for task in template.order_tasks_by_dependency()
            ]
        )
    click.echo(f"\n{strip_terminal_codes(template.prompt)}")
    return exit_codes.OK


@template_group.command("validate")
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path(path_type=Path))
@json_option
@debug_option
def validate_team_templates(*, paths: Sequence[Path], as_json: bool) -> int:
    """Check template files, or all templates that are available here. The exit code is 1 if one cannot be
    used."""
    from shoal.app.teams.team_templates import read_team_template_file

    for path in paths:
        if not path.is_file():
            raise click.UsageError(f"There is no file {str(path)!r}.")
    entries = [read_team_template_file(path) for path in paths] if paths else [*_load_team_templates().all]
    all_problems = [problem for each in entries if (problem := _find_template_problem(each)) is not None]
    shadowed = [
        f"{each.origin}: not used because {each.hidden_by} takes precedence"
        for each in entries
        if each.hidden_by
    ]
    if as_json:
        problems = [_template_problem_to_dict(each) for each in all_problems]
        print_json({"templates": len(entries), "problems": problems, "shadowed": shadowed})
    else:
        for line in (*map(str, all_problems), *shadowed):
            click.echo(strip_terminal_codes(line))
        click.echo(
            f"{format_count_with_noun(len(entries), 'template')}, "
            f"{format_count_with_noun(len(all_problems), 'problem')}."
        )
    return exit_codes.ERROR if all_problems else exit_codes.OK


@template_group.command("new")
@click.argument("name")
@click.option("--user", is_flag=True, help="Create it for all your projects instead of this one.")
@json_option
@debug_option
def create_team_template_file(*, name: str, user: bool, as_json: bool) -> int:
    """Create a template file to edit, with every field explained."""
    from shoal.app.settings.settings import find_process_shoal_home
    from shoal.core.names import parse_team_name
    from shoal.surfaces.cli.new_files import write_new_file

    name = parse_team_name(name)
    directory = find_process_shoal_home() / "teams" if user else Path.cwd() / ".claude" / "teams"
    path = directory / f"{name}.md"
    write_new_file(path, _NEW_TEMPLATE.format(name=name))
    if as_json:
        print_json({"template": name, "written": str(path)})
    else:
        click.echo(
            f'Wrote {strip_terminal_codes(str(path))}. Edit it, then run: shoal team start {name} "…" '
            "--dry-run"
        )
    return exit_codes.OK


def _load_team_templates() -> TeamTemplateCatalog:
    from shoal.app.settings.settings import find_process_shoal_home
    from shoal.app.teams.team_templates import load_team_templates

    return load_team_templates(cwd=Path.cwd(), home=find_process_shoal_home())


def _find_template_problem(entry: TeamTemplateCatalogEntry) -> TeamTemplateProblem | None:
    """Return the problem of a template: an error in its file, or an agent that does not exist."""
    from shoal.app.definitions.agent_catalog import load_agent_catalog
    from shoal.app.settings.settings import find_process_shoal_home
    from shoal.app.teams.team_templates import check_team_template
    from shoal.core.errors import InvalidTeamTemplate

    if entry.template is None:
        return entry.problem
    try:
        check_team_template(
            entry.template, load_agent_catalog(cwd=Path.cwd(), home=find_process_shoal_home())
        )
    except InvalidTeamTemplate as error:
        return error.problem
    return None


def _template_summary_to_dict(entry: TeamTemplateCatalogEntry) -> dict[str, Any]:
    data = {"name": entry.name, "source": {"kind": entry.origin.kind, "path": str(entry.origin.path)}}
    if entry.template is None:
        return {
            **data,
            "problem": None if entry.problem is None else _template_problem_to_dict(entry.problem),
        }
    return {**data, **_template_to_dict(entry.template)}


def _template_to_dict(team_template: TeamTemplate) -> dict[str, Any]:
    return {
        "name": team_template.name,
        "description": team_template.description,
        "source": {"kind": team_template.source.kind, "path": str(team_template.source.path)},
        "roles": [
            {"name": role.name, "members": role.role_member_names, "type": role.kind, "model": role.model}
            | {
                "mode": role.mode,
                "isolation": role.isolation,
                "resources": role.resources,
                "prompt": role.prompt,
            }
            for role in team_template.roles
        ],
        "tasks": team_template.order_tasks_by_dependency(),
        "budget": {"usd": team_template.budget_usd, "tokens": team_template.budget_tokens},
        "prompt": team_template.prompt,
    }


def _template_problem_to_dict(problem: TeamTemplateProblem) -> dict[str, Any]:
    return {
        "path": str(problem.source.path),
        "line": problem.line,
        "field": problem.field,
        "what": problem.what,
    }
