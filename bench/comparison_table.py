"""One table: a row for each question, a column for each library, and Shoal's place among them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

OURS, FLOOR = "Shoal", "bare"
TIE = 1.05
"""Figures within this factor share a place."""


class ComparisonRow(Struct, frozen=True, kw_only=True):
    """Less is better in every row."""

    name: str
    unit: str
    cells: Mapping[str, float]
    """Figures by the name of the column."""
    target: float | None = None
    """Highest allowed ratio to the best peer."""
    limit: float | None = None
    """Highest allowed figure, where no peer is asked."""

    @property
    def peers(self) -> dict[str, float]:
        return {name: value for name, value in self.cells.items() if name not in (OURS, FLOOR)}

    @property
    def best(self) -> str | None:
        return min(self.peers, key=self.peers.__getitem__, default=None)

    @property
    def ratio(self) -> float | None:
        """Ratio to the best peer."""
        ours = self.cells.get(OURS)
        return None if ours is None or self.best is None else ours / self.peers[self.best]

    @property
    def place(self) -> int | None:
        ours = self.cells.get(OURS)
        if ours is None or not self.peers:
            return None
        return 1 + sum(value * TIE < ours for value in self.peers.values())

    @property
    def is_met(self) -> bool | None:
        """True if Shoal is first by the target margin; None if there is no goal."""
        ours = self.cells.get(OURS)
        if self.limit is not None:
            return ours is not None and ours <= self.limit
        if self.ratio is None:
            return None
        return self.place == 1 and (self.target is None or self.ratio <= self.target)

    @property
    def goal(self) -> str:
        if self.limit is not None:
            return f"≤ {format_number(self.limit)}"
        return "first" if self.target is None else f"≤ {self.target:g}×"


class RowGroup(Struct, frozen=True, kw_only=True):
    name: str
    rows: Sequence[ComparisonRow]


def list_columns(groups: Sequence[RowGroup]) -> list[str]:
    columns = dict.fromkeys(name for group in groups for row in group.rows for name in row.cells)
    return [OURS, FLOOR, *(name for name in columns if name not in (OURS, FLOOR))]


def format_text(groups: Sequence[RowGroup]) -> Iterator[str]:
    names = list_columns(groups)
    lines = [["", "", *names, "to best", "place", "wanted", ""]]
    for group in groups:
        lines.append([group.name])
        lines.extend(
            ["  " + row.name, row.unit, *_format_cells(row, names), _format_verdict(row.is_met)]
            for row in group.rows
        )
    full_lines = [line for line in lines if len(line) > 1]
    widths = [max(len(line[n]) for line in full_lines) for n in range(len(full_lines[0]))]
    for line in lines:
        if len(line) == 1:
            yield line[0]
            continue
        aligned_cells = (f"{cell:{'<' if n < 2 else '>'}{widths[n]}}" for n, cell in enumerate(line))
        yield "  ".join(aligned_cells).rstrip()


def format_markdown(groups: Sequence[RowGroup]) -> Iterator[str]:
    names = list_columns(groups)
    yield "| " + " | ".join(["", "unit", *names, "to best peer", "place", "wanted", ""]) + " |"
    yield "|---|---|" + "---:|" * (len(names) + 3) + "---|"
    for group in groups:
        yield f"| **{group.name}** |" + " |" * (len(names) + 5)
        for row in group.rows:
            yield format_markdown_row(row, names)


def format_markdown_row(row: ComparisonRow, names: Sequence[str]) -> str:
    cells = [row.name, row.unit, *_format_cells(row, names), _format_verdict(row.is_met)]
    return f"| {' | '.join(cells)} |"


def _format_cells(row: ComparisonRow, names: Sequence[str]) -> list[str]:
    ratio, place = row.ratio, row.place
    return [
        *(format_number(row.cells[name]) if name in row.cells else "–" for name in names),
        "" if ratio is None else f"{ratio:.2f}×",
        "" if place is None else str(place),
        "" if row.is_met is None else row.goal,
    ]


def _format_verdict(ok: bool | None) -> str:
    return {True: "ok", False: "not met", None: ""}[ok]


def format_number(value: float) -> str:
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f}"


def summarize_groups(groups: Sequence[RowGroup]) -> str:
    rows_with_goal = [row for group in groups for row in group.rows if row.is_met is not None]
    missed = [f"{row.name.strip()} ({row.goal})" for row in rows_with_goal if not row.is_met]
    places = [row.place for row in rows_with_goal if row.place is not None]
    first = (
        f"first in {sum(place == 1 for place in places)} of {len(places)} rows with peers; " if places else ""
    )
    met = f"{len(rows_with_goal) - len(missed)} of {len(rows_with_goal)} figures meet their goal"
    return f"Shoal is {first}{met}{'; not: ' + '; '.join(missed) if missed else ''}."


def encode_groups(groups: Sequence[RowGroup]) -> list[dict[str, object]]:
    return [
        {
            "name": group.name,
            "rows": [
                {
                    "name": row.name,
                    "unit": row.unit,
                    "cells": dict(row.cells),
                    "ratio": row.ratio,
                    "place": row.place,
                    "wanted": row.goal if row.is_met is not None else None,
                    "ok": row.is_met,
                }
                for row in group.rows
            ],
        }
        for group in groups
    ]
