"""Files that a command writes for the user to edit."""

from __future__ import annotations

from pathlib import Path

import click


def write_new_file(path: Path, text: str) -> None:
    """Write a new file; raise an error if it already exists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise click.ClickException(f"{path} already exists and was not changed.") from None
