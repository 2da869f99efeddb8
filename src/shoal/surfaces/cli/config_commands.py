"""`shoal config` commands: show the effective settings and the origin of each."""

from __future__ import annotations

import json
from copy import copy
from pathlib import Path
from typing import Any

import click

from shoal.core.text.text_format import strip_terminal_codes
from shoal.surfaces.cli import exit_codes
from shoal.surfaces.cli.cli_output import print_json
from shoal.surfaces.cli.flags import settings_option


@click.group("config")
def config_commands() -> None:
    """Show the settings that apply in this directory."""


global_option = click.option(
    "-g", "--global", "user_only", is_flag=True, help="Only the settings in your own settings.json."
)


@config_commands.command("show")
@global_option
@click.option(
    "--origin", is_flag=True, help="Show where each value comes from: file and line, variable or flag."
)
@settings_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with each value and its source.")
def show_settings(*, user_only: bool, origin: bool, settings: str | None, as_json: bool) -> int:
    """Print every setting with its value, used or not. Managed settings take precedence, then --settings,
    the project's local settings, the project's settings, and your own. Permission rules from all of them
    are combined."""
    from shoal.app.settings.settings import load_settings
    from shoal.app.settings.settings_listing import (
        EffectiveSettingRow,
        list_escalation_trust_rows,
        list_setting_rows,
        list_user_setting_rows,
    )
    from shoal.surfaces.terminal.user_messages import print_user_message

    loaded_settings = load_settings(cwd=Path.cwd().resolve(), given=settings)
    rows = tuple(list_setting_rows(loaded_settings))
    untrusted = tuple(list_escalation_trust_rows(loaded_settings.findings.untrusted_escalations))
    if user_only:
        rows, untrusted = tuple(list_user_setting_rows(loaded_settings)), ()
    if as_json:
        values_by_key = {
            row.key: {"value": row.value, "origin": row.origin, **({} if row.is_used else {"used": False})}
            for row in rows
        }
        print_json(
            {"settings": values_by_key, "left_out": untrusted, "warnings": loaded_settings.findings.warnings}
        )
        return exit_codes.OK
    for warning in loaded_settings.findings.warnings:
        print_user_message(warning)
    width = max((len(row.key) for row in (*rows, *untrusted)), default=0)
    for row in (*rows, *untrusted):
        line = f"{row.key:<{width}}  {strip_terminal_codes(_format_value(row.value))}"
        if not isinstance(row, EffectiveSettingRow):
            line = f"{line}  (ignored: not trusted)"
        elif not row.is_used:
            line = f"{line}  (not used)"
        click.echo(f"{line}  ({strip_terminal_codes(row.origin)})" if origin else line)
    return exit_codes.OK


for _name in ("list", "ls"):
    config_commands.add_command(copy(show_settings), _name)


@config_commands.command("get")
@click.argument("key")
@global_option
@settings_option
def get_setting(*, key: str, user_only: bool, settings: str | None) -> int:
    """Print the value of one setting.

    KEY is a name such as `model` or `permissions.allow`. Shoal prints null if the setting has no value.
    """
    from shoal.app.settings.settings import load_settings
    from shoal.app.settings.settings_listing import find_setting_value, list_setting_keys
    from shoal.core.text.name_suggestions import find_similar_names

    loaded_settings = load_settings(cwd=Path.cwd().resolve(), given=settings)
    keys = list_setting_keys(loaded_settings)
    value = find_setting_value(loaded_settings, key, user_only=user_only)
    if value is None and key not in keys:
        similar = " or ".join(find_similar_names(key, keys))
        hint = f"Did you mean {similar}?" if similar else "List the settings: shoal config show"
        raise click.ClickException(f"There is no setting {key!r}. {hint}")
    click.echo(strip_terminal_codes(_format_value(value)))
    return exit_codes.OK


def _format_value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
