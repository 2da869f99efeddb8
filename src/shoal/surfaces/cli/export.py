"""`shoal export` command: write a whole run into one file, for people or for programs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.core.wording import clean
from shoal.surfaces.cli import exits
from shoal.surfaces.cli.printing import print_json

if TYPE_CHECKING:
    from shoal.app.outside.watching import Run


@click.command("export", short_help="Write a whole run into one file.")
@click.argument("session", metavar="[RUN]", required=False)
@click.option(
    "--html", is_flag=True, help="A page with the replay and the conversations; it needs no server."
)
@click.option("-o", "--output", metavar="FILE", help="Where to; - is standard output.")
@click.option("--json", "as_json", is_flag=True, help="With --html: say what was written as JSON.")
def command(*, session: str | None, html: bool, output: str | None, as_json: bool) -> int:
    """Write all of RUN (the start of its id; else the latest of this directory) into one file.

    With --html it is a page that anybody can open, without Shoal and without a network:
    `shoal export --html` writes shoal-RUN.html. Without, it is JSON on standard output.
    """
    run = _chosen(session)
    content = written(run, html=html)
    name = output or (f"shoal-{run.session[:8]}.html" if html else "-")
    if name == "-":
        sys.stdout.buffer.write(content)
        return exits.OK
    path = Path(name)
    save(path, content)
    if as_json:
        print_json({"session": run.session, "written": str(path), "bytes": len(content)})
    else:
        click.echo(f"The run {run.session[:8]} is in {clean(str(path))} ({len(content) / 1e6:.1f} MB).")
    return exits.OK


def written(run: Run, *, html: bool) -> bytes:
    from shoal.core.secrets import SHAPES_ALONE
    from shoal.surfaces.web.page import exported, page
    from shoal.wire.content import dump

    if html:
        return page(run, SHAPES_ALONE)
    return SHAPES_ALONE.redacted_bytes(dump(exported(run))) + b"\n"


def save(path: Path, content: bytes) -> None:
    from shoal.stores.files.places import write_whole

    if not path.absolute().parent.is_dir():
        raise click.ClickException(f"{path} cannot be written: there is no directory {path.parent}.")
    try:
        write_whole(path.absolute(), content)
    except OSError as error:
        raise click.ClickException(f"{path} cannot be written: {error.strerror}.") from error


def _chosen(session: str | None) -> Run:
    from shoal.app.outside.watching import latest_run
    from shoal.app.settings.settings import find_home
    from shoal.core.errors import NoSuchSession

    cwd = Path.cwd()
    home = find_home(os.environ, cwd)
    run = latest_run(home, cwd, session)
    if run is None:
        raise NoSuchSession(f"There is no run in {cwd}. Name one: shoal export ID --html", path=home)
    return run
