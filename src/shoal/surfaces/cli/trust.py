"""`shoal trust` command: trust project settings that would allow its agents more."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.core.wording import clean
from shoal.surfaces.cli import exits
from shoal.surfaces.cli.printing import print_json
from shoal.surfaces.terminal.paint import BOLD, DIM, GREEN, YELLOW, has_colours, painted

if TYPE_CHECKING:
    from shoal.app.options import Options
    from shoal.app.settings.config_view import Trusted
    from shoal.app.skills.trust import SkillTrust
    from shoal.core.skills import Skill


@click.command("trust")
@click.option("--show", is_flag=True, help="Show what there is to trust, and change nothing.")
@click.option("--revoke", is_flag=True, help="Take back what was said about this project.")
@click.option("--json", "as_json", is_flag=True, help="With --show, as one JSON object.")
def command(*, show: bool, revoke: bool, as_json: bool) -> int:
    """Trust what this project's .claude/settings.json and settings.local.json would allow, its skills and
    commands, the MCP servers of its .mcp.json, the hooks and servers of its agents, and the plug-ins that
    lie in it, as they are now.

    A change of what they allow needs trust again. What they forbid always counts.
    """
    from shoal.app.definitions.agent_trust import all_widening
    from shoal.app.definitions.plugins import plugins_for
    from shoal.app.settings import trust
    from shoal.app.settings.config_view import shown_widening
    from shoal.app.settings.settings import load_settings

    if show and revoke:
        raise click.UsageError("--show changes nothing and --revoke does: give one of them.")
    if as_json and not show:
        raise click.UsageError("--json goes with --show: what is trusted or taken back is told in words.")
    project = Path.cwd().resolve()
    settings = load_settings(cwd=project)
    widening = (*all_widening(settings, project), *plugins_for(settings, project).widening)
    skills, trusted = _skills(settings.home, project)
    rows = (*shown_widening(widening), *trusted.shown(skills))
    if as_json:
        print_json({"project": str(project), "settings": tuple(rows)})
    elif not revoke:
        for line in told(rows, colours=has_colours(sys.stdout)):
            click.echo(line)
    if revoke:
        trust.forget(settings.home, project)
        click.echo(f"Nothing that {project} allows itself is trusted any more.")
    elif rows and not show:
        trust.answer(settings, project, trusted=True, about=widening)
        trusted.answer(skills, trusted=True)
        click.echo(f"Trusted for {project}, until it changes. Take it back with: shoal trust --revoke")
    return exits.OK


def ask_once(options: Options) -> None:
    """Ask at the start of an interactive session whether to trust settings nobody has decided on yet."""
    from shoal.app.definitions.agent_trust import all_widening
    from shoal.app.definitions.plugins import plugins_for
    from shoal.app.settings import trust
    from shoal.app.settings.config_view import shown_widening
    from shoal.app.settings.settings import load_settings

    project = (options.cwd or Path.cwd()).expanduser().resolve()
    settings = load_settings(cwd=project, given=options.settings)
    found = (*all_widening(settings, project), *plugins_for(settings, project).widening)
    new = [each for each in found if each.trust == "unasked"]
    skills, said = _skills(settings.home, project)
    skills = tuple(skill for skill in skills if said.of(skill) == "unasked")
    if not new and not skills:
        return
    click.echo(f"The settings of {clean(str(project))} would allow its agents more than yours do:")
    for line in told((*shown_widening(new), *said.shown(skills)), colours=has_colours(sys.stdout)):
        click.echo(line)
    trusted = click.confirm("Trust these settings, until they change?", default=False)
    if new:
        trust.answer(settings, project, trusted=trusted, about=new)
    said.answer(skills, trusted=trusted)


def _skills(home: Path, project: Path) -> tuple[tuple[Skill, ...], SkillTrust]:
    """Load the project's skills that would allow something."""
    from shoal.app.skills.skills import skills_for
    from shoal.app.skills.trust import SkillTrust, widening_skills

    return widening_skills(skills_for(cwd=project, home=home)), SkillTrust(home, project)


def told(rows: Iterable[Trusted], *, colours: bool) -> Iterator[str]:
    none = True
    for row in rows:
        none = False
        state, style = ("trusted", GREEN) if row.trust == "trusted" else ("not trusted", YELLOW)
        key, state = painted(clean(row.key), BOLD, colours=colours), painted(state, style, colours=colours)
        origin = painted(clean(row.origin), DIM, colours=colours)
        yield f"  {key}  {state}  {origin}"
        # In full: nobody should trust what they were not shown.
        for value in row.value if isinstance(row.value, list) else [row.value]:
            yield f"    {clean(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))}"
    if none:
        yield "This project's own settings allow nothing that yours do not. There is nothing to trust."
