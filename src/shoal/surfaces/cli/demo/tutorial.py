"""`shoal demo tutorial`: creates the project of the tutorial and prints the next steps."""

from __future__ import annotations

from pathlib import Path

import click

from shoal.app.definitions.own_documents import documents_directory
from shoal.app.demo.tutorial_project import SCRIPT, make

DIRECTORY = "shoal-tutorial"


def lay_out() -> int:
    try:
        make(Path(DIRECTORY))
    except FileExistsError:
        raise click.ClickException(
            f"{DIRECTORY} is there already. Go on in it, or remove it and try again."
        ) from None
    click.echo(f"{DIRECTORY} holds a small project, and {SCRIPT}, which stands in for a model. Next:")
    click.echo(f"  cd {DIRECTORY}")
    click.echo(f"  export SHOAL_MODEL=scripted:$PWD/{SCRIPT}")
    click.echo(f"The tutorial is {documents_directory() / 'tutorial.md'}")
    return 0
