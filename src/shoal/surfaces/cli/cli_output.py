"""Output of commands for people and for programs: tables, facts and JSON, and the flags that choose."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click

from shoal.core.text.text_format import strip_terminal_codes, to_one_line
from shoal.surfaces.terminal.text_styles import (
    BOLD,
    apply_style,
    has_colours,
    measure_text_width,
    truncate_text,
)

_MIN_COLUMN_WIDTH = 20
"""Minimum width of the last column, however narrow the terminal is."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
debug_option = click.option("--debug", is_flag=True, expose_value=False, help="Show tracebacks.")


class CliTableCell(NamedTuple):
    text: str
    style: str = ""


def print_journal_damage() -> None:
    """Let this command print one line about each damaged journal that it reads."""
    from shoal.core.journal_progress import journal_damage
    from shoal.surfaces.terminal.user_messages import print_user_message

    damaged: set[Path] = set()

    def print_damage_once(journal: Path, problem: str) -> None:
        if journal not in damaged:
            damaged.add(journal)
            print_user_message(
                f"The journal {journal} is damaged: {problem} Shoal shows the events that it can read. The "
                "other events are lost and may be missing from the view and the cost."
            )

    journal_damage.set(print_damage_once)


def print_json(value: object) -> None:
    """Print one value on one line, as bytes: UTF-8 whatever the locale is."""
    from shoal.wire.json_codec import encode_json

    click.echo(encode_json(value))


def print_table(heads: Sequence[str], rows: Sequence[Sequence[CliTableCell]]) -> None:
    """Print a table; the last column fills the terminal, and nothing is cut if there is no terminal."""
    colours = has_colours(sys.stdout)
    cells = [[CliTableCell(to_one_line(cell.text), cell.style) for cell in row] for row in rows]
    widths = [
        max((measure_text_width(head), *(measure_text_width(row[column].text) for row in cells)))
        for column, head in enumerate(heads[:-1])
    ]
    available_width = 10_000
    if sys.stdout.isatty():
        available_width = max(
            _MIN_COLUMN_WIDTH, shutil.get_terminal_size().columns - sum(widths) - 2 * len(widths)
        )
    for row in ([CliTableCell(head, BOLD) for head in heads], *cells):
        parts = [
            apply_style(cell.text, cell.style, colours=colours) + " " * (size - measure_text_width(cell.text))
            for cell, size in zip(row, widths, strict=False)
        ]
        last = row[-1]
        parts.append(apply_style(truncate_text(last.text, available_width), last.style, colours=colours))
        sys.stdout.write("  ".join(parts).rstrip() + "\n")


def print_name_value_lines(facts: Sequence[tuple[str, str]]) -> None:
    """Print a name and a value on each line; empty values are left out, and long text keeps its lines."""
    colours = has_colours(sys.stdout)
    size = max((len(name) for name, value in facts if value), default=0)
    for name, value in facts:
        lines = strip_terminal_codes(value).splitlines() if value else []
        for number, text in enumerate(lines):
            head = (
                apply_style(name, BOLD, colours=colours) + " " * (size - len(name))
                if not number
                else " " * size
            )
            sys.stdout.write(f"{head}  {text}".rstrip() + "\n")
