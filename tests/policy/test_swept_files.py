"""Shell commands that read files without naming them, where a rule keeps some from being read."""

from __future__ import annotations

from pathlib import Path

import pytest
from judging import decide, permissions, shell, word

from shoal.core.decisions import Ask, Deny
from shoal.policy import wildcards, withheld
from shoal.policy.patterns import path_anchor


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("secrets/k", "src/a.py", "src/deep/b.py", "docs/c.md", "top.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    return tmp_path


@pytest.mark.parametrize("kind", ["deny", "ask"])
@pytest.mark.parametrize(
    "command",
    ["grep -r x .", "grep -r x", "grep x -rn src .", "grep -R x ./", "egrep --recursive x .",
     "grep -d recurse x .", "grep --directories=recurse x .", "rg x", "rg x .", "rg -uu x ./",
     "git grep x", "git grep x -- .", "diff -r . docs", "cat sec*/k", "cat */k", "cat ./?ecrets/k",
     "cat [s]ecrets/k", "cat **/k", "cat [^a]ecrets/k", "cat [[:alpha:]]ecrets/k", "head -n1 */*",
     "find . -type f -exec cat {} +", "find . -exec grep x {} ;", "git show HEAD:secrets/k",
     "git blame secrets/k", "git cat-file -p HEAD:./secrets/k", "cd src && cd .. && rg x",
     "echo; grep -rl x . | head", "env grep -r x .", "timeout 5 rg x", "/usr/bin/grep -r x .",
     "grep -r x $PWD", "cat < sec*/k"],
)  # fmt: skip
def test_what_reads_the_directory_above_is_not_allowed_unasked(
    project: Path, command: str, kind: str
) -> None:
    assert shell(permissions(project), command) in ("allow", "ask")
    ruled = permissions(project, **{kind: "Read(./secrets/**)"})
    assert shell(ruled, command) != "allow"
    allowed = permissions(project, allow="Bash Bash(grep:*) Bash(rg:*)", **{kind: "Read(./secrets/**)"})
    assert shell(allowed, command) != "allow", "no allow rule is stronger"
    assert (
        shell(permissions(project, "bypassPermissions", **{kind: "Read(./secrets/**)"}), command) != "allow"
    )


@pytest.mark.parametrize(
    "command",
    ["grep -r x src", "rg x src docs", "grep x top.py", "cat *.py", "wc -l src/*.py src/*/*.py", "ls",
     "ls -R", "rg --files", "find . -name k", "git status", "git log --oneline", "tree", "du -sh .",
     "diff src docs", "find src -name '*.py' -exec grep x {} +", "git show HEAD:src/a.py"],
)  # fmt: skip
def test_what_reads_elsewhere_is_still_allowed(project: Path, command: str) -> None:
    assert shell(permissions(project, deny="Read(./secrets/**)"), command) == "allow"


def test_the_decision_names_the_rule_and_the_better_way(project: Path) -> None:
    decision = decide(permissions(project, deny="Read(./secrets/**)"), "Bash", command="grep -r x .")
    assert isinstance(decision, Ask)
    assert decision.rule == "Read(./secrets/**)"
    assert "Grep would leave out" in decision.reason
    silent = decide(permissions(project, "dontAsk", deny="Read(./secrets/**)"), "Bash", command="rg x")
    assert isinstance(silent, Deny)


def test_a_name_at_any_depth_is_looked_for(project: Path) -> None:
    rules = permissions(project, deny="Read(*.key) Read(.env)")
    assert shell(rules, "grep -r x src") == "allow"
    (project / "src" / "deep" / "own.key").touch()
    assert shell(rules, "grep -r x src") == "ask"
    assert shell(rules, "grep -r x docs") == "allow"
    (project / "docs" / "link").symlink_to(project / "src" / "deep")
    assert shell(rules, "grep -R x docs") == "ask"


def test_a_rule_about_what_is_not_there_asks_nothing(project: Path) -> None:
    assert shell(permissions(project, deny="Read(./absent/**)"), "grep -r x .") == "allow"


def test_where_there_is_too_much_to_look_through_it_is_asked(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = permissions(project, deny="Read(*.key)")
    assert shell(rules, "rg x") == "allow"
    monkeypatch.setattr(withheld, "MOST_LOOKED_AT", 3)
    assert shell(rules, "rg x") == "ask"


def test_a_child_elsewhere_is_kept_from_the_parents_files_too(project: Path, tmp_path: Path) -> None:
    rules = permissions(project, deny="Read(./secrets/**)")
    assert word(decide(rules, "Bash", command=f"grep -r x {project}")) == "ask"


@pytest.mark.parametrize(
    ("pattern", "anchor"),
    [("./secrets/**", ("/p/secrets", True)), ("/a/b", ("/p/a/b", True)), ("a/*/c", ("/p/a", False)),
     ("*.key", ("/p", False)), (".env", ("/p", False)), ("//etc/**", ("/etc", True)), ("//**", ("/", True)),
     ("**/x", ("/p", False)), ("a/b*", ("/p/a", False)), ("/", ("/p", True))],
)  # fmt: skip
def test_the_anchor_of_a_pattern_is_above_all_it_fits(pattern: str, anchor: tuple[str, bool]) -> None:
    assert path_anchor(pattern, "/p") == anchor


def test_wildcards_for_more_than_can_be_looked_through_are_asked(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ruled = permissions(project, deny="Read(./secrets/**)", allow="Bash")
    assert shell(ruled, "cat src/*") == "allow"
    monkeypatch.setattr(wildcards, "MOST_LOOKED_AT", 1)
    assert shell(ruled, "cat src/*") == "ask"
    keyed = permissions(project, allow="Bash", home=project / "home")
    assert shell(keyed, "cat *") == "ask", "the keys of Shoal may be among them"
    assert shell(permissions(project, allow="Bash"), "cat *") == "allow"


def test_zsh_looks_at_any_depth_for_two_stars(project: Path) -> None:
    (project / "a/b").mkdir(parents=True)
    (project / "a/b/deep").write_text("x")
    ruled = permissions(project, deny="Read(./a/b/**)", allow="Bash")
    assert shell(ruled, "cat **/deep") == "ask"
    assert shell(ruled, "cat **/c.md") == "allow"


def test_wildcards_that_lead_where_nobody_may_look_are_judged(project: Path) -> None:
    ruled = permissions(project, deny="Read(./secrets/**)", home=project / "home")
    assert shell(ruled, "cat /proc/*/fd/*") == "ask"
