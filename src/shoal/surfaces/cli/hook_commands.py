"""`shoal hooks` commands: list the configured hooks and the origin of each."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from shoal.core.text.text_format import strip_terminal_codes
from shoal.surfaces.cli import exit_codes
from shoal.surfaces.cli.cli_output import print_json
from shoal.surfaces.cli.flags import settings_option
from shoal.surfaces.terminal.listings import format_hook_lines
from shoal.surfaces.terminal.text_styles import YELLOW, apply_style, has_colours


@click.group("hooks")
def hook_commands() -> None:
    """Show the hooks for this directory, without running them."""


@hook_commands.command("ls", short_help="List the hooks and their origins.")
@settings_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def list_hooks(*, settings: str | None, as_json: bool) -> int:
    """List the hooks, each with its file and line. Hooks that are not trusted do not run."""
    from shoal.app.reports.hook_report import build_hook_report

    hook_report = build_hook_report(Path.cwd(), given=settings)
    if as_json:
        print_json(hook_report)
        return exit_codes.OK
    for line in format_hook_lines(hook_report.hooks, colours=has_colours(sys.stdout)):
        click.echo(line)
    for problem in (*hook_report.problems, *hook_report.warnings):
        click.echo(apply_style(strip_terminal_codes(problem), YELLOW, colours=has_colours(sys.stdout)))
    return exit_codes.OK
