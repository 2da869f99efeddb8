"""Finds phrases that sound translated in the documentation; `make lint` runs it.

    python scripts/lint_prose.py            the hand-written pages: *.md, docs/**, bench/**
    python scripts/lint_prose.py --source   also strings and prompts of src, and the generated pages
    python scripts/lint_prose.py FILE …     these files

Code blocks, `code spans` and link targets are skipped, and so is the text between `<!-- prose: off -->` and
`<!-- prose: on -->`. The list is prose_phrases.toml; docs/style.md has the rules behind it.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PHRASES = Path(__file__).with_name("prose_phrases.toml")
GENERATED = ROOT / "docs" / "reference"
"""Written by scripts/reference.py from strings in src."""

MACHINE_VALUES = frozenset({"went on"})
"""Strings that journals and programs read, kept as they are."""

EXEMPT = ("src/shoal/agent/compaction.py",)
"""Files with a sentence that stored transcripts are compared with."""

_START = r"(?:\A|(?<=\n\n)|^(?:[-*] |\d+\. |> )|(?<=[.!?] )|(?<=[.!?]\n))"
_SPACE = r"(?:[ \t]+|[ \t]*\n[ \t]*)"
_SKIPPED = re.compile(
    r"^(?P<fence>```+|~~~+)[^\n]*\n.*?^(?P=fence)[ \t]*$"
    r"|<!-- prose: off -->.*?(?:<!-- prose: on -->|\Z)"
    r"|<!--.*?-->"
    r"|(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)"
    r"|(?<=\])\([^)\s]*\)"
    r"|https?://\S+",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, kw_only=True)
class Phrase:
    pattern: re.Pattern[str]
    example: str
    instead: str


@dataclass(frozen=True, kw_only=True)
class Finding:
    path: Path
    line: int
    text: str
    instead: str

    def __str__(self) -> str:
        return f'{self.path}:{self.line}: "{self.text}": write instead: {self.instead}'


def load_phrases(path: Path = PHRASES) -> tuple[Phrase, ...]:
    rows = tomllib.loads(path.read_text())["phrases"]
    return tuple(
        Phrase(
            pattern=compile_pattern(row["pattern"]),
            example=row["example"],
            instead=row["instead"],
        )
        for row in rows
    )


def compile_pattern(text: str) -> re.Pattern[str]:
    """Compile a pattern of the list: START is the start of a sentence, a space also matches a line break."""
    return re.compile(text.replace(" ", _SPACE).replace("START", _START), re.IGNORECASE | re.MULTILINE)


def blank_code(text: str) -> str:
    """Return the text with code and link targets blanked out; every other character keeps its place."""
    return _SKIPPED.sub(lambda match: re.sub(r"[^\n]", "\x00", match[0]), text)


def check_text(text: str, phrases: Iterable[Phrase], path: Path, first_line: int = 1) -> Iterator[Finding]:
    prose = blank_code(text)
    for phrase in phrases:
        for match in phrase.pattern.finditer(prose):
            yield Finding(
                path=path,
                line=first_line + text.count("\n", 0, match.start()),
                text=" ".join(match[0].split()),
                instead=phrase.instead,
            )


def check_page(path: Path, phrases: Iterable[Phrase]) -> list[Finding]:
    return sorted(check_text(path.read_text(), phrases, path), key=lambda finding: finding.line)


def check_source(path: Path, phrases: Iterable[Phrase]) -> list[Finding]:
    """Check the strings and docstrings of a Python module."""
    strings = [
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and " " in node.value
        and node.value not in MACHINE_VALUES
    ]
    found = [
        finding
        for node in strings
        for finding in check_text(str(node.value), phrases, path, first_line=node.lineno)
    ]
    return sorted(found, key=lambda finding: finding.line)


def list_pages(root: Path = ROOT) -> list[Path]:
    """Return the hand-written pages."""
    pages = [
        *root.glob("*.md"),
        *root.glob("docs/**/*.md"),
        *root.glob("bench/*.md"),
        *root.glob("src/**/*.md"),
    ]
    return sorted(page for page in pages if GENERATED not in page.parents)


def list_source(root: Path = ROOT) -> list[Path]:
    """Return the modules and prompts of src and the generated pages, without the exempt ones."""
    files = [*root.glob("src/**/*.py"), *root.glob("src/**/*.md"), *root.glob("docs/reference/*.md")]
    exempt = [root / name for name in EXEMPT]
    return sorted(file for file in files if not any(file.is_relative_to(place) for place in exempt))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Find phrases that sound translated.")
    parser.add_argument("--source", action="store_true", help="also check strings in src")
    parser.add_argument("files", nargs="*", type=Path)
    options = parser.parse_args(arguments)
    phrases = load_phrases()
    paths = options.files or [*list_pages(), *(list_source() if options.source else ())]
    findings = [
        finding
        for path in paths
        for finding in (check_source if path.suffix == ".py" else check_page)(path, phrases)
    ]
    for finding in findings:
        print(finding)
    if findings:
        print(f"{len(findings)} stilted phrases. docs/style.md has the rules.", file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
