"""`shoal config` commands: show the effective settings and the origin of each."""

from __future__ import annotations

import json
from pathlib import Path

import click

from shoal.core.text.text_format import strip_terminal_codes
from shoal.surfaces.cli import exit_codes
from shoal.surfaces.cli.cli_output import print_json
from shoal.surfaces.cli.flags import settings_option


@click.group("config")
def config_commands() -> None:
    """Show the settings that apply in this directory."""


@config_commands.command("show")
@click.option(
    "--origin", is_flag=True, help="Show where each value comes from: file and line, variable or flag."
)
@settings_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with each value and its source.")
def show_settings(*, origin: bool, settings: str | None, as_json: bool) -> int:
    """Print every setting with its value. Managed settings take precedence, then --settings, the
    project's local settings, the project's settings, and your own. Permission rules from all of them are
    combined."""
    from shoal.app.settings.settings import load_settings
    from shoal.app.settings.settings_listing import list_escalation_trust_rows, list_setting_rows
    from shoal.surfaces.terminal.user_messages import print_user_message

    loaded_settings = load_settings(cwd=Path.cwd().resolve(), given=settings)
    rows = tuple(list_setting_rows(loaded_settings))
    untrusted = tuple(list_escalation_trust_rows(loaded_settings.findings.untrusted_escalations))
    if as_json:
        values_by_key = {row.key: {"value": row.value, "origin": row.origin} for row in rows}
        print_json(
            {"settings": values_by_key, "left_out": untrusted, "warnings": loaded_settings.findings.warnings}
        )
        return exit_codes.OK
    for warning in loaded_settings.findings.warnings:
        print_user_message(warning)
    width = max(len(row.key) for row in (*rows, *untrusted))
    for row in (*rows, *untrusted):
        value = row.value if isinstance(row.value, str) else json.dumps(row.value, ensure_ascii=False)
        line = f"{row.key:<{width}}  {strip_terminal_codes(value)}"
        if row in untrusted:
            line = f"{line}  (ignored: not trusted)"
        click.echo(f"{line}  ({strip_terminal_codes(row.origin)})" if origin else line)
    return exit_codes.OK
