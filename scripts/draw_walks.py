"""Draws the paths of docs/walks.toml as SVG, and lists them in ARCHITECTURE.md: `make walks`."""

from __future__ import annotations

import ast
import sys
import tomllib
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "shoal"
PICTURES = ROOT / "docs" / "pictures"
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
START, END = "<!-- walks: written by `make walks` -->", "<!-- end of walks -->"

WIDTH, BOX, GAP, TOP = 860, 50, 20, 62
COLORS = {
    "surfaces": "#cfe3ff",
    "app": "#d9f2d9",
    "team": "#fff0c2",
    "runs": "#ffe1cc",
    "agent": "#ffd6de",
    "stores": "#e6dcf7",
    "backends": "#dfe6ec",
}
OTHER_COLOR = "#eef1f4"


@dataclass(frozen=True)
class WalkStep:
    file: str
    function: str
    purpose: str
    """First sentence of the docstring of the function, or of its module."""
    process: str = ""
    """Process that takes the step, if it is another one than that of the first step."""
    trigger: str = ""
    """Cause of the step, if the step before it does not call it."""

    def describe_circumstances(self, before: str = "") -> str:
        """Return the process and the trigger of the step, after the given text; empty if it has neither."""
        parts = (self.process and f"in {self.process}", self.trigger and f"via {self.trigger}")
        return before * any(parts) + ", ".join(filter(None, parts))

    @property
    def place(self) -> str:
        return f"{self.file}:{self.function}"

    @property
    def layer(self) -> str:
        return self.file.split("/")[0]


@dataclass(frozen=True)
class Walk:
    name: str
    title: str
    steps: tuple[WalkStep, ...]

    @property
    def files(self) -> tuple[str, ...]:
        """Files of the walk in order, each once."""
        return tuple(dict.fromkeys(step.file for step in self.steps))

    @property
    def places(self) -> frozenset[str]:
        return frozenset(step.place for step in self.steps)


def load_walks() -> tuple[Walk, ...]:
    tables = tomllib.loads((ROOT / "docs" / "walks.toml").read_text())
    return tuple(
        Walk(name, table["title"], tuple(map(_read_step, table["steps"]))) for name, table in tables.items()
    )


def _read_step(text: str) -> WalkStep:
    place, _, trigger = text.partition(" via ")
    place, _, process = place.partition(" in ")
    file, _, function = place.partition(":")
    module = _parse_module(file)
    node: ast.AST = module
    for part in function.split("."):
        node = _find_definition(node, part, text)
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    docstring = ast.get_docstring(node) or ast.get_docstring(module) or ""
    return WalkStep(file, function, _first_sentence(docstring), process, trigger)


@cache
def _parse_module(file: str) -> ast.Module:
    return ast.parse((PACKAGE / file).read_text())


def _find_definition(node: ast.AST, name: str, step: str) -> ast.AST:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    for each in ast.walk(node):
        if isinstance(each, kinds) and each.name == name:
            return each
    raise SystemExit(f"docs/walks.toml: there is no {name} in {step}. Write the step as FILE:FUNCTION.")


def _first_sentence(docstring: str) -> str:
    text = " ".join(docstring.split("\n\n", maxsplit=1)[0].split())
    return text.split(". ")[0].rstrip(".")


def draw_walk(walk: Walk) -> str:
    height = TOP + len(walk.steps) * (BOX + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="Helvetica, Arial, sans-serif">',
        f"<title>{escape(walk.title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="20" y="34" font-size="18" font-weight="bold" fill="#1b2733">{escape(walk.title)}</text>',
    ]
    for number, step in enumerate(walk.steps):
        parts += _draw_step(step, TOP + number * (BOX + GAP), is_last=number == len(walk.steps) - 1)
    return "\n".join([*parts, "</svg>", ""])


def _draw_step(step: WalkStep, y: int, *, is_last: bool) -> list[str]:
    color = COLORS.get(step.layer, OTHER_COLOR)
    purpose = step.purpose if len(step.purpose) <= 112 else step.purpose[:111] + "…"
    parts = [
        f'<rect x="20" y="{y}" width="{WIDTH - 40}" height="{BOX}" rx="6" fill="{color}" stroke="#9aa7b3"/>',
        f'<text x="34" y="{y + 20}" font-size="14" fill="#1b2733"><tspan font-weight="bold">'
        f"{escape(step.file)}</tspan>  {escape(step.function)}</text>",
        f'<text x="{WIDTH - 34}" y="{y + 20}" font-size="13" text-anchor="end" fill="#3d4c5a">'
        f"{escape(step.describe_circumstances())}</text>",
        f'<text x="34" y="{y + 39}" font-size="13" fill="#3d4c5a">{escape(purpose)}</text>',
    ]
    if not is_last:
        middle, end = WIDTH // 2, y + BOX + GAP
        parts.append(
            f'<path d="M{middle} {y + BOX} V{end - 6} m-5 0 l5 6 l5 -6 z" stroke="#5b6b7a" fill="#5b6b7a"/>'
        )
    return parts


def list_walks(walks: tuple[Walk, ...]) -> str:
    parts = []
    for walk in walks:
        parts.append(
            f"### {walk.title}\n\n{len(walk.files)} files. Diagram: "
            f"[walk-{walk.name}.svg](docs/pictures/walk-{walk.name}.svg)\n"
        )
        parts.append(
            "\n".join(
                f"{number}. `{step.file}`: `{step.function}`{step.describe_circumstances(', ')}"
                for number, step in enumerate(walk.steps, 1)
            )
            + "\n"
        )
    return "\n".join(parts)


def build_outputs() -> dict[Path, str]:
    """Return the content of each file that is written."""
    walks = load_walks()
    page = ARCHITECTURE.read_text()
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    outputs = {PICTURES / f"walk-{walk.name}.svg": draw_walk(walk) for walk in walks}
    return {**outputs, ARCHITECTURE: f"{before}{START}\n\n{list_walks(walks)}\n{END}{after}"}


def main() -> int:
    for path, content in build_outputs().items():
        path.write_text(content)
        print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
