"""Files of a command are judged after expansion, with links followed."""

from __future__ import annotations

from pathlib import Path

import pytest
from permission_helpers import create_engine, decide_command

from command_corpora import load_outside_reads, load_protected_writes
from shoal.core.permissions.permission_changes import PermissionMode


@pytest.fixture
def project(tmp_path: Path) -> Path:
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "secret").write_text("x")
    (outside / "deep/secret").write_text("x")
    root = tmp_path / "project"
    (root / ".git/hooks").mkdir(parents=True)
    (root / ".git/config").write_text("")
    (root / ".claude").mkdir()
    (root / ".claude/settings.json").write_text("{}")
    (root / "src/inner").mkdir(parents=True)
    (root / "src/a.py").write_text("x")
    (root / "src/b").symlink_to("a.py")
    (root / "links").mkdir()
    (root / "links/out").symlink_to(outside)
    (root / "links/file").symlink_to(outside / "secret")
    (root / "[a]link").symlink_to(outside)
    (root / "out").symlink_to(outside / "secret")
    (root / "conf").symlink_to(root / ".git/config")
    (root / "gitdir").symlink_to(root / ".git")
    (root / "f").write_text("x")
    (root / "list").write_text(str(outside / "secret"))
    return root


@pytest.mark.spec("PRM-03")
@pytest.mark.parametrize(
    "command",
    [
        "cat links/out/secret", "cat links/*/secret", "cat */out/secret", "cat link[s]/out/secr?t",
        "cat links/f*", "cat li*/file", "cat **/file", "cat links/**/secret", "head -n 1 links/*",
        "cat links/o*/d*/secret", "cat {links,src}/file", "cat l{i,}nks/*/secret", "cat '[a]'*/secret",
        "cat \\[a]*/secret", "cat [[]a]*/secret", "cat .*/outside/secret", "cat < links/f*",
        "sort links/f*", "grep x links/f*", "grep x links/*", "rg x links/*", "wc -l links/*/secret",
        "grep -R x .", "grep -nR x links", "grep -R x", "grep --dereference-recursive x", "grep --deref x .",
        "egrep -R x li*", "rg -L x", "rg --follow x links", "rg -nL x", "rg x links/out",
        "find -L . -name secret", "find links -follow", "find links/ -exec cat {} +",
        "find . -name file -exec cat {} \\;", "find . -type l -exec head {} +", "find . -exec grep x {} +",
        "find . -name a -o -name file -exec cat {} +", "find . ! -type f -exec cat {} +",
        "find -L . -type f -exec cat {} +", "diff -r links src", "diff -ru src links", "du -L .", "ls -LR",
        "tree -l", "cat links/file", "cd links && cat f*", "cd links && cat */secret",
        "cd links; grep -R x", "cat ~+/links/file", "cat $PWD/links/file", "x=links; cat $x/file",
        "cat links/out/deep/../secret", "cat /*/passwd", "cat /et[c]/passwd", "cat ~/../etc/passw?",
        "grep -Re x", "grep -Rm 5 x", "grep -R -A 3 x", "du -LX f", "grep -fout x", "grep --exclude-from out",
        "grep -R --exclude-from f x",
        "diff -Xout f src/a.py", "hexdump -fout f", "last -fout", "last --file out", "who out", "pgrep -Fout",
        "wc --files0-from list", "wc --files0=list", "md5sum -c list", "sha256sum --ch list",
        "du --files0 list",
        "echo $(<links/f*)", "cat <(cat links/f*)", "while read l; do echo $l; done < links/f*",
    ],
)  # fmt: skip
def test_no_file_outside_is_read_through_a_wildcard_or_a_link(project: Path, command: str) -> None:
    assert decide_command(create_engine(project), command) == "ask"
    assert decide_command(create_engine(project, "acceptEdits"), command) == "ask"


@pytest.mark.parametrize(
    "command",
    [
        "cat src/*", "cat */a.py", "cat **/a.py", "grep -R x src", "rg -L x src", "find src -exec cat {} +",
        "find . -name '*.py' -exec grep x {} +", "find . -type f -exec cat {} +", "grep -r x .", "rg x",
        "diff -r src src/inner", "ls links", "ls s*", "find . -name secret", "cat nothing*", "cat '[a]x'*",
        "tree -L 2", "du -sh .", "grep -A 3 /api/ f", "grep -rm 5 x src", "grep -e x f", "md5sum f", "who",
        "pgrep -f x", "diff -u f src/a.py", "wc -l f",
    ],
)  # fmt: skip
def test_wildcards_and_links_inside_are_read_without_asking(project: Path, command: str) -> None:
    assert decide_command(create_engine(project), command) == "allow"


@pytest.mark.spec("PRM-05")
@pytest.mark.parametrize(
    "command",
    [
        "echo x >> .g*/config", "echo x > .gi?/config", "echo x >> .[g]it/config", "echo x > .git/con*",
        "echo x > con?", "echo x > conf", "echo x >| c*f", "echo x &> .g*/config",
        "echo x 2> .g*/config", "ls | tee .g*/config", "ls | tee -a .g*/hooks", "touch .g*/config",
        "touch .cl*/settings.json", "mkdir .g*/hooks", "touch */.git/config .g*/config", "touch {.git,x}/y",
        "touch .{git,x}/config", "echo x > {.git,x}/config", "echo x > links/f*", "touch links/*/secret",
        "touch links/f*", "mkdir links/out/new", "echo x > l*/out/secret", "cd .g*; echo x > config",
        "cd .git && echo x > con*", "echo x > $x", "x=.git; echo x > $x/config", "echo x > ~/.bash*",
        "touch '[a]'link/new", "echo x > '[a]link'/z*", "echo x > \\[a]link/z*", "echo x > .g''it/config",
        "echo x > .g\\it/config", "echo x > ./.git/../.git/config", "echo x > $'.git'/config",
        "for f in .g*/config; do echo x > $f; done", "echo x > /tm[p]/y", "sort a > .git/hooks/pre-commi[t]",
        "touch -- .g*/config", "touch -c .g*/config", "touch .g*/*",
    ],
)  # fmt: skip
def test_no_protected_or_outer_file_is_written_through_a_wildcard(project: Path, command: str) -> None:
    (project / ".git/hooks/pre-commit").write_text("")
    for mode in ("acceptEdits", "delegate"):
        assert decide_command(create_engine(project, mode), command) == "ask"
    # A rule for a command does not cover a protected file.
    rules = "Bash(echo:*) Bash(tee:*) Bash(ls:*) Bash(sort:*)"
    assert decide_command(create_engine(project, "acceptEdits", allow=rules), command) == "ask"


@pytest.mark.spec("PRM-03")
@pytest.mark.parametrize("mode", ["default", "acceptEdits"])
def test_no_attempt_to_read_outside_the_project_runs_unasked(project: Path, mode: PermissionMode) -> None:
    commands = load_outside_reads(project.parent / "outside/secret")
    assert len(set(commands)) >= 150
    engine = create_engine(project, mode)
    assert [command for command in commands if decide_command(engine, command) == "allow"] == []


@pytest.mark.spec("PRM-05")
@pytest.mark.parametrize("mode", ["acceptEdits", "delegate"])
def test_no_attempt_to_write_a_protected_file_runs_unasked(project: Path, mode: PermissionMode) -> None:
    commands = load_protected_writes(project.parent / "outside/secret")
    assert len(set(commands)) >= 150
    engine = create_engine(project, mode)
    assert [command for command in commands if decide_command(engine, command) == "allow"] == []


@pytest.mark.parametrize(
    "command",
    ["echo x > src/a*", "touch src/*", "echo x > src/new*", "touch {src,links}/n", "mkdir -p x/{a,b}"],
)
def test_wildcards_inside_are_written_where_edits_are_accepted(project: Path, command: str) -> None:
    assert decide_command(create_engine(project, "acceptEdits"), command) == "allow"


@pytest.mark.parametrize("command", ["touch s*/a.py", "echo x > s*/a.py", "tee */a.py", "cp x s??/a.py"])
def test_a_file_that_may_not_be_edited_is_not_written_through_a_wildcard(project: Path, command: str) -> None:
    for mode in ("acceptEdits", "bypassPermissions"):
        engine = create_engine(project, mode, deny="Edit(src/**)", allow="Bash")
        assert decide_command(engine, command) in ("ask", "deny")
        assert decide_command(engine, "touch li*/new") == "allow"
