"""`shoal config` commands: show the effective settings and the origin of each."""

from __future__ import annotations

import json
from pathlib import Path

import click

from shoal.core.wording import clean
from shoal.surfaces.cli import exits
from shoal.surfaces.cli.flags import settings_option
from shoal.surfaces.cli.printing import print_json


@click.group("config")
def command() -> None:
    """Look at the settings that hold in this directory."""


@command.command("show")
@click.option("--origin", is_flag=True, help="Also the file and line, variable or flag of each value.")
@settings_option
@click.option("--json", "as_json", is_flag=True, help="As one JSON object, with origins.")
def show(*, origin: bool, settings: str | None, as_json: bool) -> int:
    """Print every setting with its value. Managed settings beat --settings, which beat the local ones of the
    project, its own, and yours; permission rules of all of them are joined."""
    from shoal.app.settings.config_view import shown_settings, shown_widening
    from shoal.app.settings.settings import load_settings
    from shoal.surfaces.terminal.sentences import say

    loaded = load_settings(cwd=Path.cwd().resolve(), given=settings)
    rows = tuple(shown_settings(loaded))
    left_out = tuple(shown_widening(loaded.left_out))
    if as_json:
        found = {row.key: {"value": row.value, "origin": row.origin} for row in rows}
        print_json({"settings": found, "left_out": left_out, "warnings": loaded.warnings})
        return exits.OK
    for warning in loaded.warnings:
        say(warning)
    width = max(len(row.key) for row in (*rows, *left_out))
    for row in (*rows, *left_out):
        value = row.value if isinstance(row.value, str) else json.dumps(row.value, ensure_ascii=False)
        line = f"{row.key:<{width}}  {clean(value)}"
        if row in left_out:
            line = f"{line}  (left out: not trusted)"
        click.echo(f"{line}  ({clean(row.origin)})" if origin else line)
    return exits.OK
