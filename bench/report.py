"""Writes `docs/bench.md`: the machine, the versions, the table and notes on them."""

from __future__ import annotations

import datetime
import os
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

import shoal
from bench.comparison import Comparison
from bench.comparison_table import (
    ComparisonRow,
    encode_groups,
    format_markdown,
    format_markdown_row,
    summarize_groups,
)

PAGE = Path(__file__).parents[1] / "docs" / "bench.md"
_TEMPLATE = Path(__file__).with_name("report.md")


class MachineFacts(msgspec.Struct, frozen=True, kw_only=True):
    cores: int
    cpu: str
    memory: str
    system: str
    python: str
    load: tuple[float, float]
    """Load before and after; the bench itself needs one to two cores."""
    date: str
    minutes: float
    once: bool = False
    """True if everyone was asked once."""

    def format_lines(self) -> Iterator[str]:
        yield f"{self.cores} cores ({self.cpu}), {self.memory} of memory, {self.system}, {self.python}."
        before, after = self.load
        took = f"Taken on {self.date} in {self.minutes:.1f} minutes"
        yield f"{took}; load {before:.1f} before, {after:.1f} after."
        if self.once or max(self.load) > 2 * self.cores:
            why = "each library was measured once (--once)" if self.once else "the machine had other work"
            yield (
                f"Rough: {why}. Figures are higher than on a quiet machine, "
                "and ratios may be off by up to 50 %."
            )


def read_machine(load_before: float, seconds: float, *, once: bool = False) -> MachineFacts:
    return MachineFacts(
        cores=os.cpu_count() or 1,
        cpu=_read_field("/proc/cpuinfo", "model name") or platform.processor() or "unknown",
        memory=_read_memory(),
        system=f"{platform.system()} {platform.machine()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        load=(load_before, os.getloadavg()[0]),
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        minutes=seconds / 60,
        once=once,
    )


def _read_field(path: str, name: str) -> str:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return ""
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(name)), "")


def _read_memory() -> str:
    kilobytes = _read_field("/proc/meminfo", "MemTotal").split()
    return f"{int(kilobytes[0]) / 1024**2:.0f} GB" if kilobytes else "unknown size"


def render_page(
    comparison: Comparison, versions: Mapping[str, Mapping[str, str]], where: MachineFacts
) -> str:
    return (
        "\n".join(
            _TEMPLATE.read_text()
            .replace("{machine}", "\n".join(where.format_lines()))
            .replace("{versions}", "\n".join(_format_versions(versions)))
            .replace("{table}", "\n".join(format_markdown(comparison.groups)))
            .replace("{verdict}", summarize_groups(comparison.groups))
            .replace("{missing}", "\n".join(format_missing(comparison)))
            .splitlines()
        )
        + "\n"
    )


def replace_rows(page: str, topic: str, rows: Sequence[ComparisonRow], where: MachineFacts) -> str:
    """Return the page with rows that were measured again, when and under which load. Raises `ValueError`."""
    lines = page.splitlines()
    header = next(line for line in lines if line.startswith("|  | unit |"))
    columns = [cell.strip() for cell in header.strip("|").split("|")][2:-4]
    for row in rows:
        found = [index for index, line in enumerate(lines) if line.startswith(f"| {row.name} |")]
        if len(found) != 1:
            problem = f"The page has {len(found)} rows named {row.name!r}."
            raise ValueError(f"{problem} Write all of it: make bench ARGS=--keep")
        lines[found[0]] = format_markdown_row(row, columns)
    start = f'Measured again: the rows about "{topic}",'
    lines = [line for line in lines if not line.startswith(start)]
    (before, after), cpu = where.load, f"{where.cores} cores ({where.cpu})"
    note = f"{start} on {where.date}, {cpu}; load {before:.1f} before, {after:.1f} after."
    lines.insert(1 + next(n for n, line in enumerate(lines) if line.startswith("Taken on")), note)
    verdicts = [line.rsplit("|", 2)[1].strip() for line in lines if line.startswith("| ")]
    met, missed = verdicts.count("ok"), verdicts.count("not met")
    summary = f"{met} of {met + missed} figures meet their goal"
    return re.sub(r"\d+ of \d+ figures meet their goal", summary, "\n".join(lines)) + "\n"


def _format_versions(versions: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    yield f"- Shoal {shoal.__version__}"
    for name, packages in versions.items():
        yield f"- {name}: {', '.join(f'{package} {version}' for package, version in packages.items())}"


def format_missing(comparison: Comparison) -> Iterator[str]:
    if not comparison.missing:
        yield "Every library completed every measurement."
    for who, reason in comparison.missing.items():
        yield f"- Not in the table: {who}: {reason}"


def encode_report(
    comparison: Comparison, versions: Mapping[str, Mapping[str, str]], where: MachineFacts
) -> str:
    report = {
        "machine": where,
        "versions": versions,
        "groups": encode_groups(comparison.groups),
        "missing": comparison.missing,
    }
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()
