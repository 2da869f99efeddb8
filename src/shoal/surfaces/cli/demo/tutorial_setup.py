"""`shoal demo tutorial`: creates the project of the tutorial and prints the next steps."""

from __future__ import annotations

from pathlib import Path

import click

from shoal.app.definitions.bundled_docs import find_bundled_docs_directory
from shoal.app.demo.demo_project import SCRIPT_FILE, create_tutorial_project

DIRECTORY = "shoal-tutorial"


def create_tutorial_and_print_steps() -> int:
    try:
        create_tutorial_project(Path(DIRECTORY))
    except FileExistsError:
        raise click.ClickException(
            f"{DIRECTORY} already exists. Use it, or remove it and try again."
        ) from None
    click.echo(f"{DIRECTORY} contains a small project and {SCRIPT_FILE}, which replaces a model. Next:")
    click.echo(f"  cd {DIRECTORY}")
    click.echo(f"  export SHOAL_MODEL=scripted:$PWD/{SCRIPT_FILE}")
    click.echo(f"The tutorial is {find_bundled_docs_directory() / 'tutorial.md'}")
    return 0
