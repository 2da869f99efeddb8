"""The tutorial and the how-to pages do what they show: each is followed from its top to its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs_page_runner import DocsPageRunner
from docs_page_setups import prepare_page
from needs_marks import explain_missing

DOCS = Path(__file__).parents[1] / "docs"
SHOWN_ELSEWHERE = {
    "run-on-several-machines": "it needs several machines; tests/cluster has a Ray cluster on one"
}
PAGES = [
    DOCS / "tutorial.md",
    *(page for page in sorted(DOCS.glob("how-to/*.md")) if page.stem not in SHOWN_ELSEWHERE),
]
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


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_does_what_it_shows(page: Path, tmp_path: Path) -> None:
    for name in NEEDS.get(page.stem, ()):
        if reason := explain_missing(name):
            pytest.skip(reason)
    person = tmp_path / "you"
    person.mkdir()
    with prepare_page(page, person) as stage:
        assert DocsPageRunner(page, person, stage.env, stage.replacements).run_page() > 0
