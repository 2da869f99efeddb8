"""Shell commands that read files without naming them, with rules that deny some of those files."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus_project import create_corpus_project
from permission_helpers import create_engine, decide_call, decide_command, name_decision

from shoal.core.permissions.permission_decisions import AskDecision, DenyDecision
from shoal.policy import unreadable_files, wildcards
from shoal.policy.path_patterns import find_path_pattern_anchor
from shoal.policy.shell.readonly_table import load_readonly_command_table


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("secrets/k", "src/a.py", "src/deep/b.py", "docs/c.md", "top.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    return tmp_path


@pytest.mark.parametrize("kind", ["deny", "ask"])
@pytest.mark.parametrize(
    "command",
    ["grep -r x .", "grep -r x", "grep -rm 5 x", "grep -re x", "grep -r -A 3 x",
     "grep x -rn src .", "grep -R x ./", "egrep --recursive x .",
     "grep -d recurse x .", "grep --directories=recurse x .", "rg x", "rg x .", "rg -uu x ./",
     "git grep x", "git grep x -- .", "diff -r . docs", "cat sec*/k", "cat */k", "cat ./?ecrets/k",
     "cat [s]ecrets/k", "cat **/k", "cat [^a]ecrets/k", "cat [[:alpha:]]ecrets/k", "head -n1 */*",
     "find . -type f -exec cat {} +", "find . -exec grep x {} ;", "git show HEAD:secrets/k",
     "git blame secrets/k", "git cat-file -p HEAD:./secrets/k", "cd src && cd .. && rg x",
     "echo; grep -rl x . | head", "env grep -r x .", "timeout 5 rg x", "/usr/bin/grep -r x .",
     "grep -r x $PWD", "cat < sec*/k"],
)  # fmt: skip
def test_a_command_that_reads_a_parent_of_a_denied_file_asks(project: Path, command: str, kind: str) -> None:
    assert decide_command(create_engine(project), command) in ("allow", "ask")
    engine = create_engine(project, **{kind: "Read(./secrets/**)"})
    assert decide_command(engine, command) != "allow"
    allowed = create_engine(project, allow="Bash Bash(grep:*) Bash(rg:*)", **{kind: "Read(./secrets/**)"})
    assert decide_command(allowed, command) != "allow", "no allow rule overrides it"
    assert (
        decide_command(create_engine(project, "bypassPermissions", **{kind: "Read(./secrets/**)"}), command)
        != "allow"
    )


@pytest.mark.parametrize(
    "command",
    ["grep -r x src", "rg x src docs", "grep x top.py", "cat *.py", "wc -l src/*.py src/*/*.py", "ls",
     "ls -R", "rg --files", "find . -name k", "git status", "git log --oneline", "tree", "du -sh .",
     "diff src docs", "find src -name '*.py' -exec grep x {} +", "git show HEAD:src/a.py"],
)  # fmt: skip
def test_a_command_that_reads_other_files_is_allowed(project: Path, command: str) -> None:
    assert decide_command(create_engine(project, deny="Read(./secrets/**)"), command) == "allow"


def test_the_decision_names_the_rule_and_an_alternative(project: Path) -> None:
    decision = decide_call(create_engine(project, deny="Read(./secrets/**)"), "Bash", command="grep -r x .")
    assert isinstance(decision, AskDecision)
    assert decision.rule == "Read(./secrets/**)"
    assert "use Grep, which skips them" in decision.reason
    denied = decide_call(create_engine(project, "dontAsk", deny="Read(./secrets/**)"), "Bash", command="rg x")
    assert isinstance(denied, DenyDecision)


def test_a_denied_name_is_found_at_any_depth(project: Path) -> None:
    engine = create_engine(project, deny="Read(*.key) Read(.env)")
    assert decide_command(engine, "grep -r x src") == "allow"
    (project / "src" / "deep" / "own.key").touch()
    assert decide_command(engine, "grep -r x src") == "ask"
    assert decide_command(engine, "grep -r x docs") == "allow"
    (project / "docs" / "link").symlink_to(project / "src" / "deep")
    assert decide_command(engine, "grep -R x docs") == "ask"


def test_a_rule_for_a_missing_file_does_not_ask(project: Path) -> None:
    assert decide_command(create_engine(project, deny="Read(./absent/**)"), "grep -r x .") == "allow"


def test_a_directory_too_large_to_search_asks(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = create_engine(project, deny="Read(*.key)")
    assert decide_command(engine, "rg x") == "allow"
    monkeypatch.setattr(unreadable_files, "MAX_ENTRIES", 3)
    assert decide_command(engine, "rg x") == "ask"


def test_a_search_by_absolute_path_asks_for_denied_files(project: Path, tmp_path: Path) -> None:
    engine = create_engine(project, deny="Read(./secrets/**)")
    assert name_decision(decide_call(engine, "Bash", command=f"grep -r x {project}")) == "ask"


@pytest.mark.parametrize(
    ("pattern", "anchor"),
    [("./secrets/**", ("/p/secrets", True)), ("/a/b", ("/p/a/b", True)), ("a/*/c", ("/p/a", False)),
     ("*.key", ("/p", False)), (".env", ("/p", False)), ("//etc/**", ("/etc", True)), ("//**", ("/", True)),
     ("**/x", ("/p", False)), ("a/b*", ("/p/a", False)), ("/", ("/p", True))],
)  # fmt: skip
def test_the_anchor_of_a_pattern_contains_all_matches(pattern: str, anchor: tuple[str, bool]) -> None:
    assert find_path_pattern_anchor(pattern, "/p", "/home/me") == anchor


def test_wildcards_with_too_many_matches_ask(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = create_engine(project, deny="Read(./secrets/**)", allow="Bash")
    assert decide_command(engine, "cat src/*") == "allow"
    monkeypatch.setattr(wildcards, "MAX_ENTRIES", 1)
    assert decide_command(engine, "cat src/*") == "ask"
    with_home = create_engine(project, allow="Bash", home=project / "home")
    assert decide_command(with_home, "cat *") == "ask", "team keys may be among them"
    assert decide_command(create_engine(project, allow="Bash"), "cat *") == "allow"


def test_zsh_expands_two_asterisks_at_any_depth(project: Path) -> None:
    (project / "a/b").mkdir(parents=True)
    (project / "a/b/deep").write_text("x")
    engine = create_engine(project, deny="Read(./a/b/**)", allow="Bash")
    assert decide_command(engine, "cat **/deep") == "ask"
    assert decide_command(engine, "cat **/c.md") == "allow"


def test_wildcards_in_unreadable_directories_get_a_decision(project: Path) -> None:
    engine = create_engine(project, deny="Read(./secrets/**)", home=project / "home")
    assert decide_command(engine, "cat /proc/*/fd/*") == "ask"


def test_a_git_command_of_flags_shows_no_more_than_one_with_a_name(tmp_path):
    project = create_corpus_project(tmp_path)
    engine = create_engine(project, deny="Read(secrets/**)")
    commands = [
        f"git {name} {words}"
        for name in ("log", "whatchanged", "rev-list", "shortlog", "status", "describe", "ls-files", "show")
        for flag in (load_readonly_command_table()["git"].subs[name].flags or "").split()
        for words in (flag.rstrip(":?"), f"--no-color {flag.rstrip(':?')}", f"{flag.rstrip(':?')} -20")
    ]
    allowed = [each for each in dict.fromkeys(commands) if decide_command(engine, each) == "allow"]
    # A revision keeps the decision, but the command is looked at more closely.
    assert [each for each in allowed if decide_command(engine, f"{each} v1^") != "allow"] == []
    assert decide_command(engine, "git log -20 --oneline") == "allow"
    assert decide_command(engine, "git log -20 --oneline -p") != "allow"
