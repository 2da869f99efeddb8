"""Snapshots of a Textual screen, stored as SVG files and compared.

SHOAL_UPDATE_SNAPSHOTS=1 writes them again; look at each before you commit it.
"""

from __future__ import annotations

import difflib
import html
import io
import os
import re
import tempfile
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from textual.app import App

# Read while tests are collected: each test runs without the caller's environment variables.
UPDATE_SNAPSHOTS = bool(os.environ.get("SHOAL_UPDATE_SNAPSHOTS"))
_UNIQUE = re.compile(r"terminal-\d+")
_FONTS = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
_TEXT = re.compile(r'<text[^>]*? x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)</text>')
_FIGURES = re.compile(r"[\d.]+k(?=&#160;tokens)|\d+(?=%&#160;context)")
_CELL = 12.2
"""Width of a character in the drawing."""


def render_svg(app: App[Any]) -> str:
    """Render the screen, without parts that differ from run to run or name a source of fonts."""
    drawn = app.export_screenshot(title="shoal")
    drawn = _FONTS.sub("", _UNIQUE.sub("terminal", drawn))
    return "\n".join(line.rstrip() for line in drawn.splitlines()) + "\n"


def render_text(app: App[Any]) -> str:
    """Return the characters on the screen, line by line; much faster than a drawing."""
    width, height = app.size
    console = Console(
        width=width, height=height, file=io.StringIO(), force_terminal=True, record=True, legacy_windows=False
    )
    layers = app._background_screens
    console.print(app.screen._compositor.render_update(full=True, screen_stack=layers))
    return "\n".join(line.rstrip() for line in console.export_text().splitlines())


def assert_matches_snapshot(app: App[Any], snapshot: Path) -> None:
    """Assert that the screen looks as in the snapshot file."""
    drawn = render_svg(app)
    if UPDATE_SNAPSHOTS:
        snapshot.parent.mkdir(parents=True, exist_ok=True)
        snapshot.write_text(drawn)
        return
    assert snapshot.exists(), (
        f"There is no {snapshot}: write it with SHOAL_UPDATE_SNAPSHOTS=1, and look at it."
    )
    expected = snapshot.read_text()
    if drawn == expected:
        return
    if _FIGURES.sub("", drawn) == _FIGURES.sub("", expected):
        return  # the path of the project counts among the tokens
    new = Path(tempfile.mkdtemp(prefix="shoal-shot-")) / snapshot.name
    new.write_text(drawn)
    lines = difflib.unified_diff(
        _extract_text(expected).splitlines(), _extract_text(drawn).splitlines(), "kept", "drawn", lineterm=""
    )
    told = "\n".join(lines) or "The characters are the same: the colours or their places differ."
    raise AssertionError(f"The screen does not look as in {snapshot}; it is now in {new}.\n{told}")


def _extract_text(svg: str) -> str:
    lines: dict[float, str] = {}
    for x, y, text in _TEXT.findall(svg.partition('<g class="terminal-matrix">')[2]):
        line = lines.get(float(y), "")
        line += " " * (round(float(x) / _CELL) - cell_len(line))
        lines[float(y)] = line + html.unescape(text).replace("\xa0", " ")
    return "\n".join(lines[y].rstrip() for y in sorted(lines))
