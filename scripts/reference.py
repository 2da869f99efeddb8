"""Writes docs/reference from the code: settings, hooks, tools, flags and events.

Usage: python scripts/reference.py [--check]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from reference_pages.events import events_page
from reference_pages.flags import flags_page
from reference_pages.hooks import hooks_page
from reference_pages.settings import settings_page
from reference_pages.tools import tools_page

DIRECTORY = Path(__file__).resolve().parents[1] / "docs" / "reference"
PAGES: dict[str, Callable[[], str]] = {
    "events.md": events_page,
    "flags.md": flags_page,
    "hooks.md": hooks_page,
    "settings.md": settings_page,
    "tools.md": tools_page,
}


def stale() -> list[str]:
    """Return the names of pages that differ from the code, or that nothing generates."""
    here = {path.name for path in DIRECTORY.glob("*.md")}
    old = [name for name, make in PAGES.items() if name not in here or _read(name) != make()]
    return sorted({*old, *(here - set(PAGES))})


def write() -> list[str]:
    DIRECTORY.mkdir(exist_ok=True)
    changed = stale()
    for name in changed:
        if name in PAGES:
            (DIRECTORY / name).write_text(PAGES[name](), encoding="utf-8")
        else:
            (DIRECTORY / name).unlink()
    return changed


def _read(name: str) -> str:
    return (DIRECTORY / name).read_text(encoding="utf-8")


def main() -> int:
    if "--check" in sys.argv[1:]:
        old = stale()
        for name in old:
            print(f"docs/reference/{name} is not what the code says. Run: make reference")
        return 1 if old else 0
    for name in write():
        print(f"docs/reference/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
