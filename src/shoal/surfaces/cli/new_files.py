"""Files that a command writes for a person to change."""

from __future__ import annotations

from pathlib import Path

import click


def write_new(path: Path, text: str) -> None:
    """One that is there already is left as it is, and that is an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise click.ClickException(f"{path} is there already, and is left as it is.") from None
