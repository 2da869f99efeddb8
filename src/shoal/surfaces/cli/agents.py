"""`shoal agents`: which agents there are, and what each may do."""

from __future__ import annotations

import click

from shoal.surfaces.cli import exits

_KNOWN = ("lead",)


@click.group("agents")
def command() -> None:
    """Look at the agents of this directory."""


@command.command("show")
@click.argument("name")
@click.option("--permissions", is_flag=True, help="The effective rules, and where each comes from.")
@click.option("--settings", metavar="FILE|JSON", help="Settings on top of those in files.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def show(*, name: str, permissions: bool, settings: str | None, as_json: bool) -> int:
    """Show one agent: `lead` is the one you talk to."""
    if name not in _KNOWN:
        raise click.UsageError(f"There is no agent named {name!r} here; there is {', '.join(_KNOWN)}.")
    if not permissions:
        raise click.UsageError("Say what to show: --permissions.")
    from shoal.surfaces.cli.permissions import show_view

    show_view(settings, as_json=as_json)
    return exits.OK
