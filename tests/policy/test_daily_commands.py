"""Daily commands are hardly ever asked, and the shapes that make them known cannot be abused."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus_project import create_corpus_project, load_commands
from permission_helpers import create_engine, decide_call, decide_command

from shoal.core.permissions.permission_decisions import AskDecision


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return create_corpus_project(tmp_path_factory.mktemp("corpus"))


def test_at_most_three_percent_of_daily_commands_are_asked(tmp_path: Path) -> None:
    engine = create_engine(create_corpus_project(tmp_path))
    commands = load_commands("daily.txt")
    assert len(set(commands)) >= 650
    asked = [command for command in commands if decide_command(engine, command) != "allow"]
    assert len(asked) <= 0.03 * len(commands), asked


@pytest.mark.parametrize(
    "command",
    ["for f in a b; do rm $f; done", "for f in -o x; do sort $f; done", "ls | xargs sort",
     "for f in 'w x'; do sed \"$f\" a; done", "ls | xargs -I{} sh -c 'cat {}'",
     "f=/etc/shadow; cat $f", "f=a; f=/etc/shadow; cat $f", "f=a; read f < b; cat $f",
     "f=a; read $(printf 'f') < b; cat $f", "if true; then f=a; fi; cat $f", "f=a | cat $f",
     "for f in /etc/*; do cat $f; done", "for f in a; do f=/etc/shadow; cat $f; done",
     "f=a; eval 'f=/etc/shadow'; cat $f", "f=a; bash -c 'cat $f'", "f=a; printf -v f /etc/shadow; cat $f",
     "find / | xargs cat", "find .. | xargs cat", "find . -printf /etc/shadow | xargs cat",
     "find . | sed s,^,/etc/, | xargs cat", "find . | xargs cat < list", "find . | xargs -a list cat",
     "find . | xargs cat <<< /etc/shadow", "find . | xargs -d x cat", "find . | xargs rm",
     "grep -ro /etc/shadow . | xargs cat", "rg -o /etc/shadow | xargs cat", "ls -a | xargs cat",
     "git diff $(git rev-parse -- --output=x)", "git log $(cat a)", "git log $(echo --output=x)",
     "git diff $(git log --format=%s)", "cat $(git log --format=%s -1)", "cat $(dirname ../../etc/x)",
     "$(which rm) x", "cd /etc && cat shadow", "cd src && cd .. && cd .. && cat x",
     "cd src || cd .. && cat ../x", "cd src; cd ..; cat ../x", "git -C .. log", "git -C / log",
     "python3 -m json.tool a b", "python3 -m json.tool --indent 2 a b", "yq 'load(\"/etc/shadow\")' a",
     "GIT_PAGER=./cat git log", "PAGER='cat;id' git log"],
)  # fmt: skip
def test_a_known_value_does_not_hide_another_one(project: Path, command: str) -> None:
    assert decide_command(create_engine(project), command) != "allow"


MESSAGE = "Fix the parser\n\nIt's `good` for $x.\n"


@pytest.mark.parametrize(
    "command",
    [
        f"git commit -m \"$(cat <<'EOF'\n{MESSAGE}EOF\n)\"",
        f"git commit -m \"$(cat <<-'EOF'\n\t{MESSAGE}\tEOF\n)\" -q",
        'git commit --message="$(cat <<EOF\nFix the parser\nEOF\n)"',
        f"git status && git commit -m \"$(cat <<'EOF'\n{MESSAGE}EOF\n)\" && git status",
    ],
)
def test_an_allowed_commit_with_its_message_in_a_here_document_is_not_asked(
    project: Path, command: str
) -> None:
    assert decide_command(create_engine(project, allow="Bash(git commit:*)"), command) == "allow"
    assert decide_command(create_engine(project, allow="Bash(git log:*)"), command) == "ask"
    assert decide_command(
        create_engine(project, "bypassPermissions", deny="Bash(git commit:*)"), command
    ) == ("deny")


@pytest.mark.parametrize(
    "command",
    [
        'git commit -m "$(cat <<EOF\n$(touch x)\nEOF\n)"',
        'git commit -m "$(cat <<EOF\n`touch x`\nEOF\n)"',
        "git commit -m \"$(cat <<'EOF'\nx\nEOF\ntouch x)\"",
        "git commit -m \"$(cat x <<'EOF'\nx\nEOF\n)\"",
        "cat() { touch x; }; git commit -m \"$(cat <<'EOF'\nx\nEOF\n)\"",
        "git \"$(cat <<'EOF'\ncommit\nEOF\n)x\" -m x",
    ],
)
def test_a_here_document_that_is_not_only_text_is_asked(project: Path, command: str) -> None:
    assert decide_command(create_engine(project, allow="Bash(git commit:*)"), command) == "ask"


def test_a_suggested_rule_never_holds_a_part_of_a_here_document(project: Path) -> None:
    command = "npm version \"$(tr a b <<'EOF'\nx\nEOF\n)\""
    decision = decide_call(create_engine(project), "Bash", command=command)
    assert isinstance(decision, AskDecision)
    rules = [str(rule) for each in decision.suggestions for rule in getattr(each, "rules", ())]
    assert rules
    assert all(command in rule for rule in rules), rules


@pytest.mark.parametrize("name", ["dir /etc/passwd", "-o x", "a'b", "-fx"])
def test_a_file_with_an_odd_name_makes_found_paths_unknown(tmp_path: Path, name: str) -> None:
    project = create_corpus_project(tmp_path)
    engine = create_engine(project)
    commands = ["find . | xargs cat", "for f in $(git ls-files); do head $f; done", "cat $(git ls-files)"]
    assert {decide_command(engine, command) for command in commands} == {"allow"}
    (project / "src" / name).parent.mkdir(parents=True, exist_ok=True)
    (project / "src" / name).write_text("x")
    assert {decide_command(engine, command) for command in commands} == {"ask"}


def test_found_paths_are_not_read_through_links_or_past_denials(tmp_path: Path) -> None:
    project = create_corpus_project(tmp_path)
    for command in (
        "find . | xargs cat",
        "rg -l x | xargs head",
        "find . | while read -r f; do cat $f; done",
    ):
        assert decide_command(create_engine(project), command) == "allow"
        assert decide_command(create_engine(project, deny="Read(.env)"), command) == "ask"
    (project / "link").symlink_to("/etc")
    assert decide_command(create_engine(project), "find . | xargs cat") == "ask"


def test_git_is_asked_in_a_repository_inside_the_project(tmp_path: Path) -> None:
    project = create_corpus_project(tmp_path)
    engine = create_engine(project)
    for command in ("git -C src status", "git -C . -C src log --oneline"):
        assert decide_command(engine, command) == "allow"
    (project / "src/HEAD").write_text("ref: refs/heads/main\n")
    for command in ("git -C src status", "git -C . -C src log --oneline"):
        assert decide_command(engine, command) == "ask"


def test_python_is_asked_where_a_module_shadows_its_own(tmp_path: Path) -> None:
    project = create_corpus_project(tmp_path)
    assert decide_command(create_engine(project), "python3 -m json.tool data.json") == "allow"
    (project / "argparse.py").write_text("")
    assert decide_command(create_engine(project), "python3 -m json.tool data.json") == "ask"
