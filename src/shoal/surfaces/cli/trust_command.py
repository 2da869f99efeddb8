"""`shoal trust` command: trust project settings that would allow its agents more."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.core.text.text_format import strip_terminal_codes
from shoal.surfaces.cli import exit_codes
from shoal.surfaces.cli.cli_output import print_json
from shoal.surfaces.terminal.text_styles import BOLD, DIM, GREEN, YELLOW, apply_style, has_colours

if TYPE_CHECKING:
    from shoal.app.options import Options
    from shoal.app.settings.settings_listing import EscalationTrustRow
    from shoal.app.skills.skill_trust import SkillTrustDecisionStore
    from shoal.core.extensions.skills import Skill


@click.command("trust")
@click.option("--show", is_flag=True, help="Show what would be trusted, but change nothing.")
@click.option("--revoke", is_flag=True, help="Stop trusting this project.")
@click.option("--json", "as_json", is_flag=True, help="With --show: print one JSON object.")
def trust_command(*, show: bool, revoke: bool, as_json: bool) -> int:
    """Trust this project in its current state: everything that .claude/settings.json and settings.local.json
    grant, its skills and commands, the MCP servers in .mcp.json, its agents' hooks and servers, its workflows
    and its plug-ins. If any of these change, Shoal asks for trust again. Deny rules always apply.
    """
    from shoal.app.definitions.agent_trust import find_project_escalations
    from shoal.app.definitions.plugin_set import load_plugins
    from shoal.app.settings import settings_trust
    from shoal.app.settings.settings import load_settings
    from shoal.app.settings.settings_listing import list_escalation_trust_rows

    if show and revoke:
        raise click.UsageError("--show and --revoke cannot be used together.")
    if as_json and not show:
        raise click.UsageError("--json can only be used with --show.")
    project = Path.cwd().resolve()
    settings = load_settings(cwd=project)
    escalations = (*find_project_escalations(settings, project), *load_plugins(settings, project).escalations)
    skills, skill_trust = _load_escalating_skills(settings.home, project)
    rows = (*list_escalation_trust_rows(escalations), *skill_trust.list_skill_trust_rows(skills))
    if as_json:
        print_json({"project": str(project), "settings": tuple(rows)})
    elif not revoke:
        for line in format_trust_rows(rows, colours=has_colours(sys.stdout)):
            click.echo(line)
    if revoke:
        settings_trust.forget_project_trust(settings.home, project)
        click.echo(f"The settings of {project} are no longer trusted.")
    elif rows and not show:
        settings_trust.save_project_trust_decision(settings, project, trusted=True, escalations=escalations)
        skill_trust.save_decisions(skills, trusted=True)
        click.echo(f"Trusted {project} until its settings change. Undo it: shoal trust --revoke")
    return exit_codes.OK


def ask_for_trust(options: Options) -> None:
    """Ask at the start of an interactive session whether to trust settings nobody has decided on yet."""
    from shoal.app.definitions.agent_trust import find_project_escalations
    from shoal.app.definitions.plugin_set import load_plugins
    from shoal.app.settings import settings_trust
    from shoal.app.settings.claude_json import read_claude_json
    from shoal.app.settings.settings import load_settings
    from shoal.app.settings.settings_listing import list_escalation_trust_rows

    project = (options.cwd or Path.cwd()).expanduser().resolve()
    settings = load_settings(cwd=project, given=options.settings)
    escalations = (*find_project_escalations(settings, project), *load_plugins(settings, project).escalations)
    new = [each for each in escalations if each.trust == "unasked"]
    skills, skill_trust = _load_escalating_skills(settings.home, project)
    skills = tuple(skill for skill in skills if skill_trust.read_skill_trust(skill) == "unasked")
    if not new and not skills:
        return
    click.echo(
        f"The settings of {strip_terminal_codes(str(project))} would allow its agents more than your own "
        "settings do:"
    )
    for line in format_trust_rows(
        (*list_escalation_trust_rows(new), *skill_trust.list_skill_trust_rows(skills)),
        colours=has_colours(sys.stdout),
    ):
        click.echo(line)
    if read_claude_json(settings.home, project).is_project_trusted:
        click.echo("You trust this project in Claude Code.")
    trusted = click.confirm("Trust these settings until they change?", default=False)
    if new:
        settings_trust.save_project_trust_decision(settings, project, trusted=trusted, escalations=new)
    skill_trust.save_decisions(skills, trusted=trusted)


def _load_escalating_skills(home: Path, project: Path) -> tuple[tuple[Skill, ...], SkillTrustDecisionStore]:
    """Load the project's skills that would allow something."""
    from shoal.app.skills.skill_catalog import load_skills
    from shoal.app.skills.skill_trust import SkillTrustDecisionStore, find_escalating_skills

    return find_escalating_skills(load_skills(cwd=project, home=home)), SkillTrustDecisionStore(home, project)


def format_trust_rows(rows: Iterable[EscalationTrustRow], *, colours: bool) -> Iterator[str]:
    is_empty = True
    for row in rows:
        is_empty = False
        state, style = ("trusted", GREEN) if row.trust == "trusted" else ("not trusted", YELLOW)
        key, state = (
            apply_style(strip_terminal_codes(row.key), BOLD, colours=colours),
            apply_style(state, style, colours=colours),
        )
        origin = apply_style(strip_terminal_codes(row.origin), DIM, colours=colours)
        yield f"  {key}  {state}  {origin}"
        # In full: nobody should trust what they were not shown.
        for value in row.value if isinstance(row.value, list) else [row.value]:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            yield f"    {strip_terminal_codes(text)}"
    if is_empty:
        yield "There is nothing to trust: this project's settings allow nothing beyond your own settings."
