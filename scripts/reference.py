"""Writes docs/reference from the code: settings, hooks, tools, commands, events and the Python API.

Usage: python scripts/reference.py [--check]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from reference_pages.events import build_events_page
from reference_pages.flags import GROUPS, build_command_page, build_flags_page
from reference_pages.hooks import build_hooks_page
from reference_pages.python_api import build_python_page
from reference_pages.settings import build_settings_page
from reference_pages.tools import build_tools_page

DIRECTORY = Path(__file__).resolve().parents[1] / "docs" / "reference"
PAGES: dict[str, Callable[[], str]] = {
    "events.md": build_events_page,
    "flags.md": build_flags_page,
    "hooks.md": build_hooks_page,
    "python.md": build_python_page,
    "settings.md": build_settings_page,
    "tools.md": build_tools_page,
    **{group.page: partial(build_command_page, group) for group in GROUPS},
}


def find_stale_pages() -> list[str]:
    """Return the names of pages that differ from the code, or that nothing generates."""
    existing = {path.name for path in DIRECTORY.glob("*.md")}
    old = [name for name, make in PAGES.items() if name not in existing or _read_page(name) != make()]
    return sorted({*old, *(existing - set(PAGES))})


def write_pages() -> list[str]:
    DIRECTORY.mkdir(exist_ok=True)
    changed = find_stale_pages()
    for name in changed:
        if name in PAGES:
            (DIRECTORY / name).write_text(PAGES[name](), encoding="utf-8")
        else:
            (DIRECTORY / name).unlink()
    return changed


def _read_page(name: str) -> str:
    return (DIRECTORY / name).read_text(encoding="utf-8")


def main() -> int:
    if "--check" in sys.argv[1:]:
        old = find_stale_pages()
        for name in old:
            print(f"docs/reference/{name} is out of date. Run: make reference")
        return 1 if old else 0
    for name in write_pages():
        print(f"docs/reference/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
