"""The documentation has no phrase of the list of stilted phrases, and the linter finds each of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lint_prose import check_page, check_source, list_pages, load_phrases, main

ROOT = Path(__file__).parents[1]
PHRASES = load_phrases()


def test_each_phrase_of_the_list_is_found_in_its_example(tmp_path: Path):
    page = tmp_path / "page.md"
    for phrase in PHRASES:
        page.write_text(f"# Title\n\nA plain sentence.\n\n{phrase.example}\n")
        found = [finding for finding in check_page(page, PHRASES) if finding.instead == phrase.instead]
        assert [finding.line for finding in found] == [5], phrase.example


def test_a_replacement_is_not_a_stilted_phrase_itself(tmp_path: Path):
    page = tmp_path / "page.md"
    for phrase in PHRASES:
        page.write_text(f"Write: {phrase.instead}\n")
        assert check_page(page, PHRASES) == [], phrase.instead


def test_the_list_has_at_least_sixty_different_phrases():
    assert len({phrase.pattern.pattern for phrase in PHRASES}) >= 60


def test_no_page_has_a_stilted_phrase():
    assert [str(finding) for page in list_pages() for finding in check_page(page, PHRASES)] == []


def test_hand_written_pages_are_checked_and_generated_ones_are_not():
    names = {str(page.relative_to(ROOT)) for page in list_pages()}
    assert {"README.md", "docs/tutorial.md", "docs/decisions/0001-plain-files-and-a-journal.md"} <= names
    assert {"src/shoal/agent/prompts/lead.md", "src/shoal/tools/prompts/Read.md"} <= names
    assert not any(name.startswith("docs/reference/") for name in names)


def test_a_phrase_over_a_line_break_is_found_at_its_first_line(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text("One.\n\nEach teammate has a process of its\nown.\n")
    assert [(finding.line, finding.text) for finding in check_page(page, PHRASES)] == [(3, "of its own")]


def test_code_link_targets_and_marked_quotations_are_skipped(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(
        "The flag `--beside` and [a link](beside.md).\n\n```console\n$ shoal -p 'whoever'\n```\n\n"
        "<!-- prose: off -->\n\nWhoever.\n\n<!-- prose: on -->\n\nPlain.\n"
    )
    assert check_page(page, PHRASES) == []
    page.write_text(page.read_text() + "\nWhoever.\n")
    assert [finding.text for finding in check_page(page, PHRASES)] == ["Whoever"]


def test_strings_and_docstrings_of_a_module_can_be_checked(tmp_path: Path):
    module = tmp_path / "module.py"
    module.write_text(
        '"""Serves whoever asks."""\n\nwhoever = 1\nTEXT = (\n    "The model is not to be had."\n)\n'
    )
    assert [(finding.line, finding.text) for finding in check_source(module, PHRASES)] == [
        (1, "whoever"),
        (5, "to be had"),
    ]


def test_the_command_names_file_line_and_replacement_and_exits_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    page = tmp_path / "page.md"
    page.write_text("Plain.\n")
    assert main([str(page)]) == 0
    page.write_text("The team goes on.\n")
    assert main([str(page)]) == 1
    assert capsys.readouterr().out == f'{page}:1: "goes on": write instead: continues\n'


def test_make_lint_runs_the_linter():
    shown = subprocess.run(
        ["make", "--dry-run", "lint"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert "scripts/lint_prose.py" in shown


def test_the_script_runs_without_the_package(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text("The team goes on.\n")
    ran = subprocess.run(
        [sys.executable, "-I", "-S", str(ROOT / "scripts" / "lint_prose.py"), str(page)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1, ran.stderr
