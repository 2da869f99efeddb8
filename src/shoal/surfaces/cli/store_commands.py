"""`shoal store` commands: the tables of a store in PostgreSQL, and runs that move between it and files."""

from __future__ import annotations

from pathlib import Path

import click

from shoal.core.text.text_format import format_count_with_noun
from shoal.surfaces.cli import exit_codes
from shoal.surfaces.cli.cli_output import debug_option, json_option, print_json, print_name_value_lines

store_option = click.option(
    "--store", "address", metavar="ADDRESS", help="The store: postgresql://USER@HOST/DATABASE."
)


@click.group("store")
def store_commands() -> None:
    """Manage a PostgreSQL store that several machines share.

    Choose the store with --store, SHOAL_STORE or the setting shoal.store.
    """


@store_commands.command("status", short_help="Show what is stored, and who uses it.")
@store_option
@json_option
@debug_option
def show_store_status(*, address: str | None, as_json: bool) -> int:
    """Show the schema version, what is stored, and which processes use the store."""
    from shoal.stores.postgres.store_admin import read_store_status

    status = read_store_status(_choose_address(address))
    if as_json:
        print_json(status)
        return exit_codes.OK
    tables = "none yet" if not status.version else f"version {status.version}"
    if status.version < status.needed_version:
        tables += (
            f"; this version of Shoal needs version {status.needed_version}. Migrate: shoal store migrate"
        )
    print_name_value_lines(
        (
            ("store", status.address),
            ("server", f"PostgreSQL {status.server}"),
            ("tables", tables),
            *((name, str(count)) for name, count in status.counts.items()),
            ("processes", "\n".join(status.processes)),
        )
    )
    return exit_codes.OK


@store_commands.command("migrate", short_help="Update the tables.")
@store_option
@json_option
@debug_option
def migrate_store_tables(*, address: str | None, as_json: bool) -> int:
    """Migrate the tables to the version that this version of Shoal needs. You cannot undo a migration."""
    from shoal.stores.postgres.store_admin import migrate_store

    before, after = migrate_store(_choose_address(address))
    if as_json:
        print_json({"before": before, "after": after})
    elif before == after:
        click.echo(f"The tables are already at version {after}.")
    else:
        click.echo(f"Migrated the tables from version {before} to version {after}.")
    return exit_codes.OK


@store_commands.command("check")
@store_option
@json_option
@debug_option
def check_store(*, address: str | None, as_json: bool) -> int:
    """Check that the tables are consistent."""
    from shoal.stores.postgres.store_admin import find_store_problems

    problems = find_store_problems(_choose_address(address))
    if as_json:
        print_json({"problems": problems})
    else:
        for problem in problems:
            click.echo(problem)
        click.echo(f"{format_count_with_noun(len(problems), 'problem')} found.")
    return exit_codes.ERROR if problems else exit_codes.OK


@store_commands.command("import", short_help="Copy a session from files.")
@click.argument("session")
@store_option
@json_option
@debug_option
def import_session(*, session: str, address: str | None, as_json: bool) -> int:
    """Copy a session and its teams from the files in the home to the store.

    The files stay as they are. Resume the session in only one of the two places. An export whose files are
    damaged is refused.
    """
    from shoal.app.settings.settings import find_process_shoal_home
    from shoal.stores.postgres.store_admin import import_run

    home = find_process_shoal_home()
    imported = import_run(_choose_address(address), home, session)
    if as_json:
        print_json(imported)
        return exit_codes.OK
    click.echo(f"Imported the session {imported.session} from {home}.")
    if imported.damage:
        click.echo("Some of it is damaged and was imported as it is:")
        for sentence in imported.damage:
            click.echo(f"  {sentence}")
    return exit_codes.OK


@store_commands.command("export", short_help="Copy a session to files.")
@click.argument("session")
@store_option
@click.option(
    "--to",
    "target",
    metavar="DIRECTORY",
    type=click.Path(path_type=Path),
    help="The home to copy the files to; default: your own home.",
)
@json_option
@debug_option
def export_session(*, session: str, address: str | None, target: Path | None, as_json: bool) -> int:
    """Copy a session and its teams from the store to files.

    The store stays as it is. Resume the session in only one of the two places.
    """
    from shoal.app.settings.settings import find_process_shoal_home
    from shoal.stores.postgres.store_admin import export_run

    home = target or find_process_shoal_home()
    exported, transcript = export_run(_choose_address(address), home, session)
    if as_json:
        print_json({"session": exported, "transcript": str(transcript)})
    else:
        click.echo(f"Exported the session {exported} to {home}.")
    return exit_codes.OK


def _choose_address(address: str | None) -> str:
    """Return the address of the store that these commands work on. Raises `SettingsError`."""
    from shoal.app.settings.configured_store import find_store_address
    from shoal.app.settings.settings import find_process_shoal_home
    from shoal.stores.store_choice import check_postgres_extra

    address = find_store_address(find_process_shoal_home(), address)
    if address is None:
        raise click.UsageError(
            "These commands need a store in PostgreSQL. Specify it with "
            "--store postgresql://USER@HOST/DATABASE, SHOAL_STORE or the setting shoal.store."
        )
    check_postgres_extra()
    return address
