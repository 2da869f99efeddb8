"""Measured figures, and the table that shows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isnan
from typing import Literal

from msgspec import Struct

from bench.stopwatch import TimeSpent

_NAME, _CELL = 50, 18


class Figure(Struct, frozen=True, kw_only=True):
    """Our result, the same work done by bare code, and the target. Times are in the section's unit."""

    name: str
    ours: TimeSpent | None = None
    bare: TimeSpent | None = None
    target: float | None = None
    max_ratio: float | None = None
    """Target for the ratio to the bare code, instead of a time."""
    judged: Literal["cpu", "wall"] = "cpu"
    """The time that the target applies to."""
    missing: str = ""
    """Reason why it was not measured."""

    @property
    def ratio(self) -> float | None:
        ours, bare = self._select_time(self.ours), self._select_time(self.bare)
        return ours / bare if ours is not None and bare else None

    @property
    def is_met(self) -> bool | None:
        if self.max_ratio is not None:
            return self.ratio is not None and self.ratio <= self.max_ratio
        if self.target is None:
            return None
        ours = self._select_time(self.ours)
        return ours is not None and ours <= self.target

    def _select_time(self, spent: TimeSpent | None) -> float | None:
        if spent is None:
            return None
        return spent.cpu if self.judged == "cpu" else spent.wall


class Section(Struct, frozen=True, kw_only=True):
    name: str
    unit: str
    other: str
    """Description of the code that ours is compared with."""
    column: str = "bare"
    figures: Sequence[Figure]
    timed: bool = True
    """False if the figures are not times: both numbers of a `TimeSpent` are then the same."""


def format_section(section: Section) -> Iterator[str]:
    yield f"{section.name} ({section.unit}); {section.column}: {section.other}"
    times = " CPU    wall" if section.timed else ""
    ours, other = f"shoal{times}", f"{section.column}{times}"
    yield f"  {'':{_NAME}}{ours:>{_CELL}}{other:>{_CELL}}{'ratio':>8}{'target':>10}"
    for figure in section.figures:
        if figure.missing:
            yield f"  {figure.name:{_NAME}}not measured: {figure.missing}"
            continue
        yield "".join(
            (
                f"  {figure.name:{_NAME}}",
                f"{_format_cell(figure.ours, timed=section.timed):>{_CELL}}",
                f"{_format_cell(figure.bare, timed=section.timed):>{_CELL}}",
                f"{'' if figure.ratio is None else f'{figure.ratio:.2f}×':>8}",
                f"{_format_target(figure):>10}",
                {True: "  ok", False: "  NOT MET", None: ""}[figure.is_met],
            )
        ).rstrip()


def _format_target(figure: Figure) -> str:
    if figure.max_ratio is not None:
        return f"≤ {figure.max_ratio:g}×"
    return "" if figure.target is None else f"≤ {figure.target:g}"


def _format_cell(spent: TimeSpent | None, *, timed: bool) -> str:
    if spent is None:
        return ""
    return (
        f"{_format_number(spent.cpu)} {_format_number(spent.wall):>7}" if timed else _format_number(spent.cpu)
    )


def _format_number(value: float) -> str:
    if isnan(value):
        return "–"
    digits = 0 if value >= 1000 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f}"
