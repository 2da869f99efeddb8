"""The tutorial and the how-to pages do what they show: each is followed from its top to its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from needs_marks import lack
from page_rig import Page
from page_stages import staged

DOCS = Path(__file__).parents[1] / "docs"
PAGES = [DOCS / "tutorial.md", *sorted(DOCS.glob("how-to/*.md"))]
NEEDS = {
    "tutorial": ("rg",),
    "add-an-mcp-server": ("mcp",),
    "drive-with-the-sdk": ("claude_agent_sdk",),
    "keep-records": ("jq",),
    "limit-cost": ("rg",),
    "run-in-ci": ("jq",),
    "see-teammates-in-tmux": ("tmux",),
    "work-in-worktrees": ("git",),
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_does_what_it_shows(page: Path, tmp_path: Path) -> None:
    for name in NEEDS.get(page.stem, ()):
        if reason := lack(name):
            pytest.skip(reason)
    person = tmp_path / "you"
    person.mkdir()
    with staged(page, person) as stage:
        assert Page(page, person, stage.env, stage.stand_ins).run() > 0
