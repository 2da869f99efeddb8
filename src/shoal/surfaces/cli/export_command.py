"""`shoal export` command: write a whole run into one file, for people or for programs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.core.text.text_format import strip_terminal_codes
from shoal.surfaces.cli import exit_codes
from shoal.surfaces.cli.cli_output import print_journal_damage, print_json

if TYPE_CHECKING:
    from shoal.app.run_access.run_handle import RunHandle
    from shoal.core.text.redaction import SecretRedactor


@click.command("export", short_help="Export a run as one file.")
@click.argument("session", metavar="[RUN]", required=False)
@click.option(
    "--html", is_flag=True, help="Write a self-contained web page with a replay and the conversations."
)
@click.option("-o", "--output", metavar="FILE", help="Output file; - for standard output.")
@click.option("--json", "as_json", is_flag=True, help="With --html: report the written file as JSON.")
def export_command(*, session: str | None, html: bool, output: str | None, as_json: bool) -> int:
    """Export RUN (the beginning of its id; default: the latest run in this directory) as one file.

    With --html, the file is a page that anybody can open, without Shoal or a network connection:
    `shoal export --html` writes shoal-RUN.html. Otherwise, Shoal prints JSON to standard output.
    """
    print_journal_damage()
    run = _find_run(session)
    content = render_run_export(run, html=html)
    name = output or (f"shoal-{run.session[:8]}.html" if html else "-")
    if name == "-":
        sys.stdout.buffer.write(content)
        return exit_codes.OK
    path = Path(name)
    save_export(path, content)
    if as_json:
        print_json({"session": run.session, "written": str(path), "bytes": len(content)})
    else:
        click.echo(
            f"Wrote run {run.session[:8]} to {strip_terminal_codes(str(path))} "
            f"({len(content) / 1000000.0:.1f} MB)."
        )
    return exit_codes.OK


def render_run_export(run: RunHandle, *, html: bool) -> bytes:
    from shoal.app.run_access.run_handle import read_start_directory
    from shoal.surfaces.web.run_page import export_run_data, render_run_page
    from shoal.wire.json_codec import encode_json

    secrets = load_export_redactor(Path(read_start_directory(run) or "."))
    if html:
        return render_run_page(run, secrets)
    return secrets.redact_bytes(encode_json(export_run_data(run))) + b"\n"


def load_export_redactor(project: Path) -> SecretRedactor:
    """Return the journal's redactor, for secrets in the settings here and in the project, and for keys.

    Raises `SettingsError`, because without the settings the secrets are unknown.
    """
    from shoal.app.settings.settings import load_settings
    from shoal.core.text.redaction import SecretRedactor

    candidates = load_settings(cwd=Path.cwd()).secret_candidates
    if project.is_dir() and project.resolve() != Path.cwd():
        others = load_settings(cwd=project.resolve()).secret_candidates
        candidates |= {f"PROJECT_{name}": value for name, value in others.items()}
    return SecretRedactor(candidates)


def save_export(path: Path, content: bytes) -> None:
    from shoal.stores.files.home.home_paths import write_file_atomically

    if not path.absolute().parent.is_dir():
        raise click.ClickException(f"Cannot write {path}: there is no directory {path.parent}.")
    try:
        write_file_atomically(path.absolute(), content)
    except OSError as error:
        raise click.ClickException(f"Cannot write {path}: {error.strerror}.") from error


def _find_run(session: str | None) -> RunHandle:
    from shoal.app.run_access.stored_runs import open_stored_runs
    from shoal.app.settings.settings import find_process_shoal_home
    from shoal.core.errors import SessionNotFound

    cwd = Path.cwd()
    home = find_process_shoal_home()
    run = open_stored_runs(home, session or "").find_named_or_latest_run(cwd, session)
    if run is None:
        raise SessionNotFound(f"There is no run in {cwd}. Specify a run: shoal export ID --html", path=home)
    return run
