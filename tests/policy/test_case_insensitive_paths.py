"""Rules about files hold for other spellings of a name where the file system ignores case."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from permission_helpers import create_engine, decide_call, decide_command, name_decision

from shoal.policy.case_insensitive_paths import ForbiddingPathPattern, may_ignore_case
from shoal.policy.permission_engine import PermissionEngine


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project where `.env` and `.ENV` are one file, as on a file system that ignores case.

    Two names of one file show what such a file system shows: the name in other case is the same file.
    """
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    (root / "src/main.py").write_text("x")
    (root / ".env").write_text("secret")
    os.link(root / ".env", root / ".ENV")
    (root / "config.yaml").write_text("x")
    os.link(root / "config.yaml", root / "CONFIG.YAML")
    return root


def _decide(engine: PermissionEngine, tool: str, path: str) -> str:
    return name_decision(decide_call(engine, tool, file_path=path))


@pytest.mark.parametrize("kind", ["deny", "ask"])
@pytest.mark.parametrize("rule", ["Read(./.env)", "Read(.env)", "Read(.[e]nv)", "Read(**/.env)"])
def test_a_rule_about_a_file_holds_for_its_name_in_other_case(project: Path, kind: str, rule: str) -> None:
    engine = create_engine(project, "bypassPermissions", **{kind: rule})
    assert _decide(engine, "Read", ".env") == kind
    assert _decide(engine, "Read", ".ENV") == kind
    assert decide_command(engine, "cat .ENV") == kind
    assert decide_command(engine, "head -c 9 ./.ENV") == kind
    assert decide_command(engine, "newtool .ENV") != "allow"


def test_a_rule_against_changes_holds_for_the_name_in_other_case(project: Path) -> None:
    engine = create_engine(project, "acceptEdits", deny="Edit(config.yaml)")
    assert _decide(engine, "Write", "CONFIG.YAML") == "deny"
    assert decide_command(engine, "echo x > CONFIG.YAML") == "deny"
    assert decide_command(engine, "rm CONFIG.YAML") == "deny"


def test_names_that_differ_in_case_are_two_files_where_case_matters(project: Path) -> None:
    (project / "notes.txt").write_text("x")
    (project / "NOTES.TXT").write_text("another file")
    (project / "Data.csv").write_text("x")
    engine = create_engine(project, "bypassPermissions", deny="Read(notes.txt) Read(data.csv) Read(./Src/**)")
    assert _decide(engine, "Read", "notes.txt") == "deny"
    assert _decide(engine, "Read", "NOTES.TXT") == "allow"
    assert _decide(engine, "Read", "Data.csv") == "allow"
    assert decide_command(engine, "cat NOTES.TXT Data.csv") == "allow"
    assert _decide(engine, "Read", "src/main.py") == "allow"


def test_a_new_file_is_judged_by_the_names_beside_it(tmp_path: Path) -> None:
    assert not may_ignore_case(str(_make_directory(tmp_path / "sensitive", "other.txt") / "NEW"))
    folding = _make_directory(tmp_path / "folding", "other.txt")
    os.link(folding / "other.txt", folding / "OTHER.TXT")
    assert may_ignore_case(str(folding / "NEW"))
    # Nothing shows what the file system does, so the rule applies.
    assert may_ignore_case(str(_make_directory(tmp_path / "empty") / "NEW"))


def test_another_unicode_form_of_a_name_is_the_same_file_where_the_file_system_says_so(
    tmp_path: Path,
) -> None:
    composed, decomposed = "caf\u00e9.key2", "cafe\u0301.key2"
    (tmp_path / composed).write_text("x")
    pattern = ForbiddingPathPattern(f"{tmp_path}/{composed}")
    assert pattern.fullmatch(f"{tmp_path}/{composed}")
    (tmp_path / decomposed).write_text("another file")
    assert not pattern.fullmatch(f"{tmp_path}/{decomposed}")
    (tmp_path / decomposed).unlink()
    os.link(tmp_path / composed, tmp_path / decomposed)
    assert pattern.fullmatch(f"{tmp_path}/{decomposed}")


def test_a_set_of_excluded_characters_excludes_what_it_names(tmp_path: Path) -> None:
    (tmp_path / "A1").write_text("x")
    (tmp_path / "a1").write_text("x")
    engine = create_engine(tmp_path, "bypassPermissions", deny="Read([!a]1)")
    assert _decide(engine, "Read", "A1") == "deny"
    assert _decide(engine, "Read", "a1") == "allow"


def test_an_allow_rule_covers_only_the_spelling_that_it_has(project: Path) -> None:
    (project.parent / "outside").mkdir()
    (project.parent / "outside/key").write_text("x")
    os.link(project.parent / "outside/key", project.parent / "outside/KEY")
    engine = create_engine(project, allow=f"Read(/{project.parent}/outside/key)")
    assert _decide(engine, "Read", "../outside/key") == "allow"
    assert _decide(engine, "Read", "../outside/KEY") == "ask"


def _make_directory(path: Path, *names: str) -> Path:
    path.mkdir()
    for name in names:
        (path / name).write_text("x")
    return path


def test_secrets_of_shoal_are_refused_in_any_spelling(project: Path, tmp_path: Path) -> None:
    home = tmp_path / "Home"
    engine = create_engine(project, "bypassPermissions", home=home)
    for name in ("shoal/keys/a", "SHOAL/Keys/a", "shoal/CREDENTIALS.json"):
        assert _decide(engine, "Read", f"{home}/{name}") == "deny"
        assert decide_command(engine, f"cat {home}/{name}") == "deny"
